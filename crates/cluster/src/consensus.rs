//! The replicated log as the rest sees it: propose an entry, read the state.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_change::{Result, WriterId};

use crate::metadata::{Entry, Outcome, State};

/// An entry that is durable on a quorum and applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its log index.
    pub index: u64,
    /// What it did.
    pub outcome: Outcome,
}

/// The log that orders everything about tables.
#[async_trait]
pub trait Consensus: Debug + Send + Sync {
    /// Id that attempts of this log carry.
    fn writer(&self) -> WriterId;

    /// Makes an entry durable and applies it.
    ///
    /// # Errors
    /// When it is not known whether the entry was decided; a refused entry is an `Ok` with a refusal.
    async fn propose(&self, entry: Entry) -> Result<Applied>;

    /// The state, which holds at least all entries whose proposal has returned to anybody before the call.
    ///
    /// # Errors
    /// When this member cannot tell.
    async fn read(&self) -> Result<Arc<State>>;
}
