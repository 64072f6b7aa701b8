//! The store itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};

use super::points::{Forced, Points};
use super::rule::{Operation, Rule, Toxin};
use crate::dice::Dice;

/// Most operations that a late one is late by.
const LATE_MAX: usize = 40;

/// A store whose answers are lost, late or wrong by rule; clones are one and the same.
#[derive(Clone, Debug)]
pub struct ToxicStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inner: Arc<dyn ObjectStore>,
    dice: Dice,
    points: Arc<Points>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    hits: BTreeMap<Toxin, u64>,
    operations: u64,
    late: Vec<LatePut>,
    loose: BTreeSet<Path>,
}

/// A write that failed for its caller and is still under way.
#[derive(Debug)]
struct LatePut {
    due: u64,
    location: Path,
    payload: PutPayload,
    options: PutOptions,
}

impl fmt::Display for ToxicStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToxicStore({})", self.shared.inner)
    }
}

impl ToxicStore {
    /// A store over another one; nothing goes wrong before rules are given.
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>, seed: u64) -> Self {
        Self::with_points(inner, seed, Arc::default())
    }

    /// The same with points that others share.
    #[must_use]
    pub fn with_points(inner: Arc<dyn ObjectStore>, seed: u64, points: Arc<Points>) -> Self {
        let shared = Shared {
            inner,
            dice: Dice::new(seed),
            points,
            state: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let state = &self.shared.state;
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts rules in the place of those before; what they hit stays counted.
    pub fn poison(&self, rules: Vec<Rule>) {
        self.state().rules = rules;
    }

    /// Takes all rules away; writes that are under way stay so.
    pub fn heal(&self) {
        self.state().rules.clear();
    }

    /// How often each toxin has struck.
    #[must_use]
    pub fn hits(&self) -> BTreeMap<Toxin, u64> {
        self.state().hits.clone()
    }

    /// The store below, which never lies.
    #[must_use]
    pub fn inner(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.shared.inner)
    }

    /// Objects that nobody can be blamed for: written late, or not deleted.
    #[must_use]
    pub fn loose(&self) -> BTreeSet<Path> {
        self.state().loose.clone()
    }

    /// Lets all writes land that are still under way.
    pub async fn land_late(&self) {
        let late = std::mem::take(&mut self.state().late);
        for put in late {
            self.land(put).await;
        }
    }

    async fn land(&self, put: LatePut) {
        let LatePut {
            location,
            payload,
            options,
            ..
        } = put;
        self.state().loose.insert(location.clone());
        // Nobody waits for the answer.
        let _ = self
            .shared
            .inner
            .put_opts(&location, payload, options)
            .await;
    }

    async fn land_due(&self) {
        let due: Vec<_> = {
            let mut state = self.state();
            state.operations += 1;
            let now = state.operations;
            let late = std::mem::take(&mut state.late);
            let (due, rest) = late.into_iter().partition(|put| put.due <= now);
            state.late = rest;
            due
        };
        for put in due {
            self.land(put).await;
        }
    }

    /// Passes the point before an operation, and says what goes wrong with it.
    async fn enter(&self, operation: Operation, key: &Path) -> Option<Toxin> {
        let forced = self
            .shared
            .points
            .pass(|| label("before", operation, key))
            .await;
        self.land_due().await;
        match forced {
            Some(Forced::Fails) => return Some(Toxin::Fails),
            Some(Forced::AnswerLost) => return Some(Toxin::AnswerLost),
            Some(Forced::Late) if matches!(operation, Operation::Put | Operation::Create) => {
                return Some(Toxin::Late);
            }
            Some(Forced::Late) => return Some(Toxin::Fails),
            None => {}
        }
        let mut state = self.state();
        let dice = &self.shared.dice;
        let mut rules = state.rules.iter_mut();
        let toxin = rules
            .find_map(|rule| {
                rule.strikes(operation, key.as_ref(), dice)
                    .then_some(rule.toxin())
            })
            .map(|toxin| match toxin {
                // Done or not, by chance.
                Toxin::TimedOut if dice.percent(50) && operation != Operation::Get => {
                    (toxin, Toxin::AnswerLost)
                }
                Toxin::TimedOut => (toxin, Toxin::Fails),
                toxin => (toxin, toxin),
            });
        let (counted, effect) = toxin?;
        *state.hits.entry(counted).or_default() += 1;
        Some(effect)
    }

    async fn leave(&self, operation: Operation, key: &Path) {
        let points = &self.shared.points;
        // Nothing can be forced behind an operation.
        let _ = points.pass(|| label("after", operation, key)).await;
    }

    fn put_late(&self, location: &Path, payload: PutPayload, options: PutOptions) {
        let by = self.shared.dice.between(1, LATE_MAX) as u64;
        let mut state = self.state();
        let due = state.operations + by;
        state.late.push(LatePut {
            due,
            location: location.clone(),
            payload,
            options,
        });
    }

    async fn put_by(
        &self,
        toxin: Option<Toxin>,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let inner = &self.shared.inner;
        match toxin {
            None => inner.put_opts(location, payload, options).await,
            Some(Toxin::AnswerLost) => {
                inner.put_opts(location, payload, options).await?;
                Err(failed("the answer is lost"))
            }
            Some(Toxin::OwnConflict) => {
                inner.put_opts(location, payload, options).await?;
                Err(exists(location))
            }
            Some(Toxin::FalseConflict) => Err(exists(location)),
            Some(Toxin::Late) => {
                self.put_late(location, payload, options);
                Err(failed("no answer in time"))
            }
            Some(toxin) => Err(refused(toxin, location)),
        }
    }

    async fn get_by(
        &self,
        toxin: Option<Toxin>,
        location: &Path,
        options: GetOptions,
    ) -> Result<GetResult> {
        let is_range = options.range.is_some();
        let is_head = options.head;
        match toxin {
            Some(Toxin::Truncated | Toxin::ShortRange | Toxin::BitFlip) if !is_head => {}
            Some(Toxin::Truncated | Toxin::ShortRange | Toxin::BitFlip) | None => {
                return self.shared.inner.get_opts(location, options).await;
            }
            Some(toxin) => return Err(refused(toxin, location)),
        }
        let result = self.shared.inner.get_opts(location, options).await?;
        let (meta, mut range, attributes) = (
            result.meta.clone(),
            result.range.clone(),
            result.attributes.clone(),
        );
        let mut bytes = result.bytes().await?.to_vec();
        match toxin {
            Some(Toxin::BitFlip) if !bytes.is_empty() => {
                let place = self.shared.dice.below(bytes.len());
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 1 << self.shared.dice.below(8);
                }
            }
            Some(Toxin::ShortRange) if is_range => {
                bytes.truncate(bytes.len() / 2);
                range.end = range.start + bytes.len() as u64;
            }
            _ => bytes.truncate(self.shared.dice.below(bytes.len())),
        }
        let body = stream::once(std::future::ready(Ok(Bytes::from(bytes))));
        Ok(GetResult {
            payload: GetResultPayload::Stream(body.boxed()),
            meta,
            range,
            attributes,
        })
    }

    async fn delete_one(&self, location: Path) -> Result<Path> {
        let toxin = self.enter(Operation::Delete, &location).await;
        let inner = &self.shared.inner;
        let done = match toxin {
            None => inner.delete(&location).await,
            Some(Toxin::AnswerLost) => match inner.delete(&location).await {
                Ok(()) => Err(failed("the answer is lost")),
                Err(error) => Err(error),
            },
            Some(Toxin::SilentDelete) => {
                self.state().loose.insert(location.clone());
                Ok(())
            }
            Some(toxin) => Err(refused(toxin, &location)),
        };
        self.leave(Operation::Delete, &location).await;
        done.map(|()| location)
    }

    async fn list_all(&self, prefix: Option<Path>) -> Result<Vec<ObjectMeta>> {
        let key = prefix.clone().unwrap_or_default();
        let toxin = self.enter(Operation::List, &key).await;
        let listed = match toxin {
            None => self.shared.inner.list(prefix.as_ref()).try_collect().await,
            Some(Toxin::StaleList) => {
                let listed: Result<Vec<_>> =
                    self.shared.inner.list(prefix.as_ref()).try_collect().await;
                listed.map(|mut objects| {
                    let unseen = objects.pop().map(|object| object.location);
                    self.state().loose.extend(unseen);
                    objects
                })
            }
            Some(toxin) => Err(refused(toxin, &key)),
        };
        self.leave(Operation::List, &key).await;
        listed
    }
}

#[async_trait]
impl ObjectStore for ToxicStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let operation = match options.mode {
            PutMode::Create => Operation::Create,
            PutMode::Overwrite | PutMode::Update(_) => Operation::Put,
        };
        let toxin = self.enter(operation, location).await;
        let done = self.put_by(toxin, location, payload, options).await;
        self.leave(operation, location).await;
        done
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        match self.enter(Operation::Multipart, location).await {
            Some(toxin) => Err(refused(toxin, location)),
            None => {
                let inner = &self.shared.inner;
                inner.put_multipart_opts(location, options).await
            }
        }
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let toxin = self.enter(Operation::Get, location).await;
        let done = self.get_by(toxin, location, options).await;
        self.leave(Operation::Get, location).await;
        done
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .then(move |location| {
                let store = store.clone();
                async move { store.delete_one(location?).await }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            let objects = store.list_all(prefix).await?;
            Ok::<_, Error>(stream::iter(objects).map(Ok))
        };
        stream::once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let key = prefix.cloned().unwrap_or_default();
        match self.enter(Operation::List, &key).await {
            Some(toxin) if toxin != Toxin::StaleList => Err(refused(toxin, &key)),
            _ => self.shared.inner.list_with_delimiter(prefix).await,
        }
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        match self.enter(Operation::Put, to).await {
            Some(toxin) => Err(refused(toxin, to)),
            None => self.shared.inner.copy_opts(from, to, options).await,
        }
    }
}

/// `before create slot`: the side, the operation, and what kind of object it is.
fn label(side: &str, operation: Operation, key: &Path) -> String {
    let key = key.as_ref();
    let name = key.rsplit('/').next().unwrap_or_default();
    let object = match () {
        () if key.contains("_delta_log") && name.ends_with(".json") => "slot",
        () if key.contains("_delta_log") => "log",
        () if key.contains("_tidegate/staged") => "staged",
        () if name.ends_with(".parquet") => "data",
        () => "table",
    };
    format!("{side} {operation:?} {object}").to_lowercase()
}

fn failed(why: &'static str) -> Error {
    Error::Generic {
        store: "toxic",
        source: why.into(),
    }
}

fn exists(location: &Path) -> Error {
    Error::AlreadyExists {
        path: location.to_string(),
        source: "a conflict".into(),
    }
}

fn refused(toxin: Toxin, location: &Path) -> Error {
    match toxin {
        Toxin::ReadOnly | Toxin::Unauthorized => Error::PermissionDenied {
            path: location.to_string(),
            source: "access denied".into(),
        },
        Toxin::SlowDown => failed("slow down"),
        _ => failed("not done"),
    }
}
