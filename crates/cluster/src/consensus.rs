//! The replicated log as the rest sees it: propose an entry, read the state.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_change::{Result, WriterId};

use crate::metadata::{Entry, Outcome, State, TableId, TableState};

/// An entry that is durable on a quorum and applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its log index.
    pub index: u64,
    /// What it did.
    pub outcome: Outcome,
}

/// The log that orders everything about tables.
///
/// Its methods may be cancelled; a proposal that was cancelled may still be decided.
#[async_trait]
pub trait Consensus: Debug + Send + Sync {
    /// Id that attempts of this log carry.
    fn writer(&self) -> WriterId;

    /// Makes an entry durable on a quorum and applies it.
    ///
    /// # Errors
    /// `NOT_LEADER` when it was certainly not decided, `OUTCOME_UNKNOWN` when nobody can tell, or what ended
    /// this member. A refused entry is an `Ok` with a refusal.
    async fn propose(&self, entry: Entry) -> Result<Applied>;

    /// The state, which holds at least all entries whose proposal has returned to anybody before the call.
    ///
    /// # Errors
    /// When this member cannot tell.
    async fn read(&self) -> Result<Arc<State>>;

    /// A table of that state. Whoever holds a whole state makes the next entry copy it, so that this is the
    /// cheaper one where there are many tables.
    ///
    /// # Errors
    /// As [`Self::read`].
    async fn table(&self, id: &TableId) -> Result<Option<Arc<TableState>>> {
        Ok(self.read().await?.tables.get(id).map(Arc::clone))
    }

    /// The same by name, with its id.
    ///
    /// # Errors
    /// As [`Self::read`].
    async fn table_named(&self, name: &str) -> Result<Option<(TableId, Arc<TableState>)>> {
        let state = self.read().await?;
        let found = state.table_named(name);
        Ok(found.map(|(id, table)| (id.clone(), Arc::clone(table))))
    }
}
