//! A worker: does the parts of batches that coordinators ask for, and holds them until they are fetched.
//!
//! - `orders`: what it is asked, as data; [`WorkToken`]: the right to it.
//! - `link`: how others reach it; [`Worker`] is one itself, for its own process.
//! - `session`: what it holds for an attempt; [`grpc`]: the way over the network.
//!
//! Whatever an owner needs it fetches from the readers, and the composing node from the owners: data flows
//! at the speed of who takes it. Nothing here decides what is in a table: a worker that nobody listens to
//! any more writes files that no commit names. It refuses work of an older placement than it knows.

pub mod grpc;
mod link;
mod merge;
mod orders;
mod session;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use tidegate_apply::Limits;
use tidegate_apply::phases::{
    BatchContext, BucketSet, EventCursor, NumberedSource, PartKind, PartialManifest, PhaseMeans,
    ReadPart, ReadSummary, read,
};
use tidegate_change::clock::Clock;
use tidegate_change::{AttemptId, Code, Error, Result};
use tidegate_delta::DeltaLog;

pub use link::{CallError, Called, Rows, Watcher, WorkerLink, WorkerLinks};
pub use orders::{
    Fetch, Fetched, FinishOrder, MergeOrder, MergeOutcome, ReadOrder, ReaderAt, TableAt, WorkToken,
};
use session::{HeldMerge, Session};

use crate::coordinator::SnapshotCache;
use crate::metadata::NodeId;
use crate::shuffle;
use crate::workers::Stores;

/// Attempts that a worker holds something for at one time.
const SESSIONS_MAX: usize = 256;
/// Time without a call after which what is held for an attempt goes: its coordinator is gone, nanoseconds.
const IDLE_NS_MAX: u64 = 600 * 1_000_000_000;
/// Phases of one batch that a worker may be in at one time: it reads some sources and owns some buckets.
const PHASES_AT_ONCE: u64 = 2;

/// What a worker works with.
#[derive(Clone, Debug)]
pub struct WorkerParts {
    /// Where tables lie.
    pub stores: Arc<dyn Stores>,
    /// The way to other workers.
    pub links: Arc<dyn WorkerLinks>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Memory and temporary space of one batch.
    pub limits: Limits,
    /// Its node.
    pub node: NodeId,
    /// Random id of its process.
    pub incarnation: u64,
}

/// A worker.
#[derive(Debug)]
pub struct Worker {
    parts: WorkerParts,
    means: PhaseMeans,
    /// Newest epoch of the placement that it has heard of.
    known_epoch: AtomicU64,
    sessions: Mutex<BTreeMap<AttemptId, Arc<Session>>>,
    snapshots: SnapshotCache,
    rows_sent: Arc<AtomicU64>,
}

impl Worker {
    /// A worker that holds nothing.
    #[must_use]
    pub fn new(parts: WorkerParts) -> Self {
        let limits = Limits {
            memory_bytes: parts.limits.memory_bytes / PHASES_AT_ONCE,
            ..parts.limits.clone()
        };
        Self {
            parts,
            means: PhaseMeans {
                limits,
                observer: None,
            },
            known_epoch: AtomicU64::new(0),
            sessions: Mutex::default(),
            snapshots: SnapshotCache::default(),
            rows_sent: Arc::default(),
        }
    }

    /// Its node.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.parts.node
    }

    /// Random id of its process.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.parts.incarnation
    }

    /// Hears of a placement: work of an older one is refused from here on.
    pub fn learn_epoch(&self, epoch: u64) {
        self.known_epoch.fetch_max(epoch, Ordering::SeqCst);
    }

    /// Attempts that it holds something for.
    #[must_use]
    pub fn sessions_count(&self) -> usize {
        self.with_sessions(|sessions| sessions.len())
    }

    /// Events that others have fetched, or are about to take, since the process began.
    #[must_use]
    pub fn rows_sent(&self) -> u64 {
        self.rows_sent.load(Ordering::Relaxed)
    }

    fn means(&self, watcher: Watcher) -> PhaseMeans {
        PhaseMeans {
            observer: watcher,
            ..self.means.clone()
        }
    }

    fn with_sessions<T>(&self, act: impl FnOnce(&mut BTreeMap<AttemptId, Arc<Session>>) -> T) -> T {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut sessions)
    }

    /// Refuses work that was given by an older placement than this worker knows.
    fn require_epoch(&self, token: &WorkToken) -> Called<()> {
        let known = self.known_epoch.fetch_max(token.epoch, Ordering::SeqCst);
        if token.epoch >= known {
            return Ok(());
        }
        let message = format!(
            "attempt {}: its work was given by placement {}, the worker knows {known}",
            token.attempt, token.epoch
        );
        Err(CallError::Stale(Error::new(Code::Fenced, message)))
    }

    /// What is held for the attempt of a token, which must be its own.
    fn session(&self, token: &WorkToken) -> Called<Arc<Session>> {
        let held = self.with_sessions(|sessions| sessions.get(&token.attempt).map(Arc::clone));
        let session = held.filter(|session| session.secret == token.secret);
        let session =
            session.ok_or_else(|| CallError::not_held(format!("attempt {}", token.attempt)))?;
        session.touch(self.parts.clock.monotonic_ns());
        Ok(session)
    }

    /// The same, made on first use.
    fn enter(&self, token: &WorkToken) -> Called<Arc<Session>> {
        self.require_epoch(token)?;
        let now_ns = self.parts.clock.monotonic_ns();
        let session = self.with_sessions(|sessions| {
            let idle_ns = now_ns.saturating_sub(IDLE_NS_MAX);
            sessions.retain(|_, held| Arc::strong_count(held) > 1 || !held.is_idle_since(idle_ns));
            if sessions.len() >= SESSIONS_MAX && !sessions.contains_key(&token.attempt) {
                return None;
            }
            let new = || Arc::new(Session::new(token.secret));
            let held = sessions.entry(token.attempt).or_insert_with(new);
            held.touch(now_ns);
            Some(Arc::clone(held))
        });
        let busy = || Error::new(Code::ResourceExhausted, "the worker has too many batches");
        let session = session.ok_or_else(busy)?;
        match session.secret == token.secret {
            true => Ok(session),
            false => Err(Error::new(Code::PermissionDenied, "a token of somebody else").into()),
        }
    }

    /// The table of an attempt.
    async fn context(&self, table: &TableAt, attempt: AttemptId) -> Result<BatchContext> {
        let root = self.parts.stores.open(&table.location)?;
        let log = DeltaLog::new(root.clone());
        let at = (table.version, None);
        Ok(BatchContext {
            root,
            snapshot: self.snapshots.at(&table.table, &log, at).await?,
            attempt,
            now_ms: table.now_ms,
            sources: table.sources.clone(),
        })
    }

    /// Rows that are held, as they are asked for.
    fn rows_of(&self, fetch: &Fetch) -> Called<Rows> {
        let session = self.session(&fetch.token)?;
        Ok(match &fetch.what {
            Fetched::Events { part, buckets, of } => {
                events(session.read(*part)?, BucketSet::new(buckets, *of))
            }
            Fetched::Rejects { part } => rejects(session.read(*part)?),
            Fetched::Merged { owner, kind } => merged(session.merged(*owner)?, *kind),
        })
    }
}

fn events(part: Arc<ReadPart>, wanted: BucketSet) -> Rows {
    let next = |(part, mut at, wanted): (Arc<ReadPart>, EventCursor, BucketSet)| async move {
        let rows = part.next_events(&mut at, &wanted)?;
        Ok::<_, CallError>(rows.map(|rows| (rows, (part, at, wanted))))
    };
    stream::try_unfold((part, EventCursor::default(), wanted), next).boxed()
}

fn rejects(part: Arc<ReadPart>) -> Rows {
    let next = |(part, at): (Arc<ReadPart>, usize)| async move {
        let rows = part.reject(at)?;
        Ok::<_, CallError>(rows.map(|rows| (rows, (part, at + 1))))
    };
    stream::try_unfold((part, 0), next).boxed()
}

fn merged(part: HeldMerge, kind: PartKind) -> Rows {
    let next = move |part: HeldMerge| async move {
        let rows = part.lock().await.next_batch(kind).await?;
        Ok::<_, CallError>(rows.map(|rows| (rows, part)))
    };
    stream::try_unfold(part, next).boxed()
}

#[async_trait]
impl WorkerLink for Worker {
    async fn read(&self, order: ReadOrder, watcher: Watcher) -> Called<Vec<ReadSummary>> {
        let session = self.enter(&order.token)?;
        session.drop_read_before(order.spec.round);
        let sources: Vec<NumberedSource<'_>> = order
            .sources
            .iter()
            .map(|(number, source)| NumberedSource {
                number: *number,
                source,
            })
            .collect();
        let means = self.means(watcher);
        let mut part = read(order.token.attempt, &order.spec, &sources, &means)?;
        let summaries = std::mem::take(&mut part.summaries);
        session.hold_read(order.part, order.spec.round, part);
        self.require_epoch(&order.token)?;
        Ok(summaries)
    }

    async fn merge(&self, order: MergeOrder, watcher: Watcher) -> Called<MergeOutcome> {
        let session = self.enter(&order.token)?;
        let merged = self.merge_order(&order, watcher).await?;
        self.require_epoch(&order.token)?;
        let part = match merged {
            Ok(part) => part,
            Err(lost) => return Ok(lost),
        };
        let outline = part.outline();
        session.hold_merged(order.owner, part);
        Ok(MergeOutcome::Merged(outline))
    }

    async fn fetch(&self, fetch: Fetch) -> Called<Rows> {
        let rows = shuffle::cut(self.rows_of(&fetch)?);
        if !matches!(fetch.what, Fetched::Events { .. }) {
            return Ok(rows);
        }
        let sent = Arc::clone(&self.rows_sent);
        let counted = rows.inspect_ok(move |rows| {
            sent.fetch_add(rows.num_rows() as u64, Ordering::Relaxed);
        });
        Ok(counted.boxed())
    }

    async fn finish(&self, order: FinishOrder) -> Called<PartialManifest> {
        self.require_epoch(&order.token)?;
        let merge = self.session(&order.token)?.take_merged(order.owner)?;
        let mut part = merge.lock().await;
        part.finish_feed(order.decision).await?;
        Ok(part.manifest()?)
    }

    async fn abandon(&self, token: WorkToken) -> Called<()> {
        self.with_sessions(|sessions| {
            let held = sessions.get(&token.attempt);
            if held.is_some_and(|session| session.secret == token.secret) {
                sessions.remove(&token.attempt);
            }
        });
        Ok(())
    }
}
