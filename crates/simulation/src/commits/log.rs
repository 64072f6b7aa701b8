//! The replicated log of a simulation: entries in one order, and what a group does to those who ask it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tidegate_change::{Code, Error, Result, WriterId};
use tidegate_cluster::metadata::{self, ClusterId, Entry, Found, Outcome, State};
use tidegate_cluster::{Applied, Consensus};

use crate::dice::Dice;
use crate::toxic::{Forced, Points};

/// Most operations that a late proposal is late by.
const LATE_MAX: usize = 30;

/// How often the log does what to those who ask it, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogFaults {
    /// "This is not the leader": certainly not decided.
    pub not_leader: usize,
    /// Decided, and the answer is lost.
    pub answer_lost: usize,
    /// Not decided, and nobody says so.
    pub dropped: usize,
    /// Decided some operations after its proposer gave up.
    pub late: usize,
    /// A read that finds no leader.
    pub unreadable: usize,
}

impl LogFaults {
    /// Nothing is answered: a group without a quorum.
    pub const DOWN: Self = Self {
        not_leader: 100,
        answer_lost: 0,
        dropped: 0,
        late: 0,
        unreadable: 100,
    };
}

/// The log; clones are one and the same.
#[derive(Clone, Debug)]
pub struct SimulatedLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    writer: WriterId,
    dice: Dice,
    points: Arc<Points>,
    state: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: Arc<State>,
    /// A member that applies the stored form of every entry, and now and then starts from a snapshot.
    replica: State,
    index: u64,
    operations: u64,
    late: Vec<(u64, Entry)>,
    faults: LogFaults,
    hits: BTreeMap<&'static str, u64>,
}

enum Fate {
    Done,
    NotLeader,
    AnswerLost,
    Dropped,
    Late,
}

impl SimulatedLog {
    /// A log that was just founded.
    ///
    /// # Errors
    /// When its first entry has no stored form.
    pub fn new(writer: u32, seed: u64, points: Arc<Points>) -> Result<Self> {
        let writer = WriterId(writer);
        let inner = Inner {
            state: Arc::new(State::new(writer)),
            replica: State::new(writer),
            index: 0,
            operations: 0,
            late: Vec::new(),
            faults: LogFaults::default(),
            hits: BTreeMap::new(),
        };
        let log = Self {
            shared: Arc::new(Shared {
                writer,
                dice: Dice::new(seed),
                points,
                state: Mutex::new(inner),
            }),
        };
        let cluster = ClusterId(u64::from(writer.0));
        log.inner()
            .apply(&Entry::Found(Found { cluster, writer }))?;
        Ok(log)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        let state = &self.shared.state;
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how often what goes wrong.
    pub fn set_faults(&self, faults: LogFaults) {
        self.inner().faults = faults;
    }

    /// How often each fault struck.
    #[must_use]
    pub fn hits(&self) -> BTreeMap<&'static str, u64> {
        self.inner().hits.clone()
    }

    /// The state as it is, whatever the faults.
    #[must_use]
    pub fn state(&self) -> Arc<State> {
        Arc::clone(&self.inner().state)
    }

    /// Another leader: its first entry is its own.
    pub fn elect(&self) {
        let mut inner = self.inner();
        inner.index += 1;
        *inner.hits.entry("another leader").or_default() += 1;
    }

    /// Decides all proposals that are still under way.
    ///
    /// # Errors
    /// When an entry has no stored form.
    pub fn land_late(&self) -> Result<()> {
        let mut inner = self.inner();
        for (_, entry) in std::mem::take(&mut inner.late) {
            inner.apply(&entry)?;
        }
        Ok(())
    }

    /// The replica starts again from a snapshot, in its stored form.
    ///
    /// # Errors
    /// When the state has no stored form.
    pub fn restore_replica(&self) -> Result<()> {
        let mut inner = self.inner();
        inner.replica = stored(&inner.replica)?;
        // The one that answers, too: a leader that was restarted.
        inner.state = Arc::new(stored(inner.state.as_ref())?);
        *inner.hits.entry("restored from a snapshot").or_default() += 1;
        Ok(())
    }

    /// Whether both members hold the same state.
    ///
    /// # Errors
    /// When the state has no stored form.
    pub fn replicas_agree(&self) -> Result<bool> {
        let inner = self.inner();
        Ok(inner.state.digest()? == inner.replica.digest()?)
    }

    fn fate(&self, forced: Option<Forced>) -> Fate {
        let dice = &self.shared.dice;
        match forced {
            Some(Forced::Fails) => return Fate::NotLeader,
            Some(Forced::AnswerLost) => return Fate::AnswerLost,
            Some(Forced::Late) => return Fate::Late,
            None => {}
        }
        let mut inner = self.inner();
        let faults = inner.faults;
        let roll = dice.below(100);
        let mut below = 0;
        for (chance, name, fate) in [
            (faults.not_leader, "log: not the leader", Fate::NotLeader),
            (faults.answer_lost, "log: answer lost", Fate::AnswerLost),
            (faults.dropped, "log: proposal lost", Fate::Dropped),
            (faults.late, "log: decided late", Fate::Late),
        ] {
            below += chance;
            if roll < below {
                *inner.hits.entry(name).or_default() += 1;
                return fate;
            }
        }
        Fate::Done
    }

    fn decide(&self, forced: Option<Forced>, entry: &Entry) -> Result<Applied> {
        let fate = self.fate(forced);
        let unknown = || Error::new(Code::OutcomeUnknown, "the answer of the log is lost");
        let mut inner = self.inner();
        inner.land_due()?;
        match fate {
            Fate::Done => inner.apply(entry),
            Fate::NotLeader => Err(not_leader()),
            Fate::Dropped => Err(unknown()),
            Fate::AnswerLost => {
                inner.apply(entry)?;
                Err(unknown())
            }
            Fate::Late => {
                let due = inner.operations + self.shared.dice.between(1, LATE_MAX) as u64;
                inner.late.push((due, entry.clone()));
                Err(unknown())
            }
        }
    }
}

impl Inner {
    fn apply(&mut self, entry: &Entry) -> Result<Applied> {
        self.index += 1;
        let outcome = metadata::apply(Arc::make_mut(&mut self.state), self.index, entry);
        let replayed: Outcome = metadata::apply(&mut self.replica, self.index, &stored(entry)?);
        if replayed != outcome {
            return Err(Error::internal(format!("members decide {entry} otherwise")));
        }
        Ok(Applied {
            index: self.index,
            outcome,
        })
    }

    fn land_due(&mut self) -> Result<()> {
        self.operations += 1;
        let now = self.operations;
        let late = std::mem::take(&mut self.late);
        let (due, rest): (Vec<_>, Vec<_>) = late.into_iter().partition(|(due, _)| *due <= now);
        self.late = rest;
        due.iter()
            .try_for_each(|(_, entry)| self.apply(entry).map(|_| ()))
    }
}

#[async_trait]
impl Consensus for SimulatedLog {
    fn writer(&self) -> WriterId {
        self.shared.writer
    }

    async fn propose(&self, entry: Entry) -> Result<Applied> {
        let points = &self.shared.points;
        let name = entry.to_string();
        let name = name.split(' ').next().unwrap_or_default().to_owned();
        let forced = points.pass(|| format!("before {name}")).await;
        let decided = self.decide(forced, &entry);
        let _ = points.pass(|| format!("after {name}")).await;
        decided
    }

    async fn read(&self) -> Result<Arc<State>> {
        let forced = self.shared.points.pass(|| "read of the log".into()).await;
        let mut inner = self.inner();
        inner.land_due()?;
        if forced.is_some() {
            return Err(not_leader());
        }
        if self.shared.dice.percent(inner.faults.unreadable) {
            *inner.hits.entry("log: not readable").or_default() += 1;
            return Err(not_leader());
        }
        Ok(Arc::clone(&inner.state))
    }
}

fn not_leader() -> Error {
    Error::new(Code::NotLeader, "no leader is known")
}

/// A value as it comes back from storage.
fn stored<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> Result<T> {
    let bytes = serde_json::to_vec(value)
        .map_err(|e| Error::internal("has no stored form").with_source(e))?;
    serde_json::from_slice(&bytes)
        .map_err(|e| Error::internal("has another stored form").with_source(e))
}
