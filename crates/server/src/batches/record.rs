//! One batch of a node, and how it stands.

use std::sync::Arc;

use tidegate_apply::{BatchObserver, BatchProgress};
use tidegate_change::{BatchId, BatchResult, Code, Digest, Error, Result};
use tidegate_cluster::Cancellation;
use tidegate_cluster::metadata::TableId;
use tokio::sync::watch;

/// How a batch stands.
#[derive(Clone, Debug)]
pub(crate) enum BatchStatus {
    /// It waits for its turn.
    Queued,
    /// It is executed.
    Running(BatchProgress),
    /// It is in the table.
    Succeeded(Arc<BatchResult>),
    /// Nothing of it is in the table; milliseconds since the epoch.
    Failed(Arc<Error>, i64),
    /// It was stopped; milliseconds since the epoch.
    Cancelled(i64),
}

impl BatchStatus {
    /// Whether it changes no more.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Self::Queued | Self::Running(_))
    }

    /// The status of a batch that ended.
    pub(super) fn of(outcome: Result<BatchResult>, now_ms: i64) -> Self {
        match outcome {
            Ok(result) => Self::Succeeded(Arc::new(result)),
            Err(error) if error.code() == Code::Cancelled => Self::Cancelled(now_ms),
            Err(error) => Self::Failed(Arc::new(error), now_ms),
        }
    }
}

/// One batch that a node runs, or ran.
#[derive(Debug)]
pub(crate) struct BatchRecord {
    /// Name of the table.
    pub(crate) table: String,
    pub(crate) table_id: TableId,
    pub(crate) batch_id: BatchId,
    pub(crate) input_digest: Digest,
    pub(crate) cancellation: Cancellation,
    status: watch::Sender<BatchStatus>,
}

impl BatchRecord {
    pub(super) fn new(
        (table, table_id): (String, TableId),
        (batch_id, input_digest): (BatchId, Digest),
        cancellation: Cancellation,
    ) -> Self {
        Self {
            table,
            table_id,
            batch_id,
            input_digest,
            cancellation,
            status: watch::Sender::new(BatchStatus::Queued),
        }
    }

    /// How it stands.
    pub(crate) fn status(&self) -> BatchStatus {
        self.status.borrow().clone()
    }

    /// How it stands, now and whenever that changes.
    pub(crate) fn watch(&self) -> watch::Receiver<BatchStatus> {
        self.status.subscribe()
    }

    /// Waits until it changes no more.
    pub(crate) async fn ended(&self) -> BatchStatus {
        let mut status = self.watch();
        // The sender lives as long as this value: the wait cannot fail.
        let _ = status.wait_for(BatchStatus::is_final).await;
        self.status()
    }

    /// Whether the content is that of this batch.
    ///
    /// # Errors
    /// `BATCH_CONTENT_MISMATCH`.
    pub(super) fn check_content(&self, input_digest: Digest) -> Result<()> {
        if self.input_digest == input_digest {
            return Ok(());
        }
        let message = format!(
            "table {}: batch {} runs with other content (digest {})",
            self.table, self.batch_id, self.input_digest
        );
        Err(Error::new(Code::BatchContentMismatch, message))
    }

    pub(super) fn set(&self, status: BatchStatus) {
        self.status.send_replace(status);
    }
}

impl BatchObserver for BatchRecord {
    fn observe(&self, progress: BatchProgress) {
        self.status.send_if_modified(|status| match status {
            BatchStatus::Running(known) if *known == progress => false,
            BatchStatus::Queued | BatchStatus::Running(_) => {
                *status = BatchStatus::Running(progress);
                true
            }
            _ => false,
        });
    }
}
