//! How workers are reached, in this process or on other machines.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use futures::stream::BoxStream;
use tidegate_apply::BatchObserver;
use tidegate_apply::phases::{PartialManifest, ReadSummary};
use tidegate_change::{Code, Error};

use super::orders::{Fetch, FinishOrder, MergeOrder, MergeOutcome, ReadOrder, WorkToken};
use crate::placement::Seat;

/// Why a worker did not do what it was asked.
#[derive(Debug)]
pub enum CallError {
    /// It did not answer, or no longer holds what it was asked for: whatever it did is done again elsewhere.
    Lost(Error),
    /// It knows a newer placement than the one that the work was given by.
    Stale(Error),
    /// It decided: the batch fails.
    Failed(Error),
}

impl CallError {
    /// The error, whatever follows from it.
    #[must_use]
    pub fn into_error(self) -> Error {
        match self {
            Self::Lost(error) | Self::Stale(error) | Self::Failed(error) => error,
        }
    }

    /// That a worker does not hold what it is asked for.
    #[must_use]
    pub fn not_held(what: impl std::fmt::Display) -> Self {
        Self::Lost(Error::new(
            Code::Unavailable,
            format!("{what}: is not held here any more"),
        ))
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The answer of a worker.
pub type Called<T> = Result<T, CallError>;

/// Record batches from a worker.
pub type Rows = BoxStream<'static, Called<RecordBatch>>;

/// Who sees how far a call is.
pub type Watcher = Option<Arc<dyn BatchObserver>>;

/// A worker. A call that is dropped ends what it began.
#[async_trait]
pub trait WorkerLink: Debug + Send + Sync {
    /// Reads sources and holds their events; returns what they hold beside.
    async fn read(&self, order: ReadOrder, watcher: Watcher) -> Called<Vec<ReadSummary>>;

    /// Fetches events from their readers, merges them and holds the result.
    async fn merge(&self, order: MergeOrder, watcher: Watcher) -> Called<MergeOutcome>;

    /// Rows that the worker holds. They come as fast as they are taken.
    async fn fetch(&self, fetch: Fetch) -> Called<Rows>;

    /// Finishes what was merged and says what was written.
    async fn finish(&self, order: FinishOrder) -> Called<PartialManifest>;

    /// Drops all that is held for an attempt.
    async fn abandon(&self, token: WorkToken) -> Called<()>;
}

/// Reaches workers.
pub trait WorkerLinks: Debug + Send + Sync {
    /// A worker by where it sits.
    ///
    /// # Errors
    /// [`CallError::Lost`] for an endpoint that cannot be one.
    fn link(&self, seat: &Seat) -> Called<Arc<dyn WorkerLink>>;
}
