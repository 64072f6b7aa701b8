//! Drives batches and schema changes through the commit protocol.
//!
//! - `submit`: one batch, from its key to its answer.
//! - `schema`: create, alter, drop.
//! - `draft`: the exact bytes of a commit; `marks`: the batch marks in it; `answer`: the result in it.
//! - `publish`: what a prepared commit becomes; `foreign`: commits of others; `integration`: what they did to
//!   rows, taken in.
//! - `right`: the epoch under which it works, and proposals whose answer was lost.
//! - `recover`, `take_over`, `clean_up`: what dead coordinators left; `removal`: the files of a dropped table.
//! - `adopt`: the state of a table from its log alone.
//!
//! A coordinator holds no state that a decision needs: another one on the same log can continue at any
//! point. Its locks only keep its own tasks from working against each other on one table.

mod adopt;
pub mod answer;
mod clean_up;
mod draft;
mod foreign;
mod integration;
mod marks;
mod publish;
mod recover;
mod removal;
mod right;
mod schema;
mod snapshots;
mod submit;
mod take_over;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_apply::Limits;
use tidegate_change::clock::{Clock, Random};
use tidegate_change::{AttemptId, Result};
use tidegate_delta::DeltaLog;

use crate::consensus::{Applied, Consensus};
use crate::metadata::limits::INLINE_COMMIT_BYTES_MAX;
use crate::metadata::{Entry, NodeId, Outcome, Refusal, State, TableId, TableState};
use crate::workers::{Stores, Workers};

pub use integration::ConflictCounts;
pub(crate) use snapshots::SnapshotCache;
pub use submit::BatchRequest;
pub use take_over::Watch;

/// What a coordinator works with.
#[derive(Clone, Debug)]
pub struct CoordinatorParts {
    /// The log.
    pub consensus: Arc<dyn Consensus>,
    /// Who executes.
    pub workers: Arc<dyn Workers>,
    /// Where tables lie.
    pub stores: Arc<dyn Stores>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
    /// The node.
    pub node: NodeId,
}

/// What a coordinator is set up with.
#[derive(Clone, Debug)]
pub struct CoordinatorOptions {
    /// Commits of at most that many bytes ride in the log instead of in a staged file.
    pub inline_bytes_max: usize,
    /// Memory and temporary space of a batch, for workers in this process.
    pub limits: Limits,
}

impl Default for CoordinatorOptions {
    fn default() -> Self {
        Self {
            inline_bytes_max: INLINE_COMMIT_BYTES_MAX,
            limits: Limits::default(),
        }
    }
}

/// Drives commits with a granted epoch.
#[derive(Debug)]
pub struct Coordinator {
    parts: CoordinatorParts,
    options: CoordinatorOptions,
    right: right::Right,
    snapshots: SnapshotCache,
    conflicts: integration::Conflicts,
    locks: Mutex<BTreeMap<TableId, Arc<tokio::sync::Mutex<()>>>>,
}

impl Coordinator {
    /// A coordinator with a new epoch, which kills an older one of the same node.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub async fn start(parts: CoordinatorParts, options: CoordinatorOptions) -> Result<Self> {
        let coordinator = Self::new(parts, options);
        coordinator.epoch().await?;
        Ok(coordinator)
    }

    /// A coordinator that asks for its epoch when it first needs one: the log need not have a leader yet.
    #[must_use]
    pub fn new(parts: CoordinatorParts, options: CoordinatorOptions) -> Self {
        Self {
            parts,
            options,
            right: right::Right::default(),
            snapshots: SnapshotCache::default(),
            conflicts: integration::Conflicts::default(),
            locks: Mutex::default(),
        }
    }

    /// The replicated state.
    ///
    /// # Errors
    /// When this member cannot tell.
    pub async fn state(&self) -> Result<Arc<State>> {
        self.parts.consensus.read().await
    }

    /// The id and state of a table.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`.
    pub async fn table_named(&self, name: &str) -> Result<(TableId, Arc<TableState>)> {
        let found = self.parts.consensus.table_named(name).await?;
        found.ok_or_else(|| Refusal::TableUnknown.into_error(name))
    }

    async fn table(&self, id: &TableId) -> Result<Arc<TableState>> {
        let table = self.parts.consensus.table(id).await?;
        table.ok_or_else(|| Refusal::TableUnknown.into_error(&id.0))
    }

    fn log(&self, table: &TableState) -> Result<DeltaLog> {
        Ok(DeltaLog::new(self.parts.stores.open(&table.location)?))
    }

    fn attempt_id(&self, index: u64) -> AttemptId {
        AttemptId {
            writer: self.parts.consensus.writer(),
            index,
        }
    }

    fn lock_of(&self, id: &TableId) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(locks.entry(id.clone()).or_default())
    }

    async fn propose(&self, entry: Entry) -> Result<Applied> {
        self.parts.consensus.propose(entry).await
    }

    /// Proposes an entry whose refusal is an error.
    async fn require(&self, name: &str, entry: Entry) -> Result<Outcome> {
        match self.propose(entry).await?.outcome {
            Outcome::Refused(refusal) => Err(refusal.into_error(name)),
            outcome => Ok(outcome),
        }
    }
}
