//! One batch of a node, and how it stands.

use std::sync::Arc;

use tidegate_change::{BatchId, BatchResult, Code, Digest, Error, Result};
use tidegate_cluster::Cancellation;
use tidegate_cluster::metadata::TableId;
use tokio::sync::watch;

/// How far a batch is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchProgress {
    /// queue, decode, merge or commit; empty where it is not known.
    pub(crate) phase: &'static str,
    /// Events.
    pub(crate) events_read_count: u64,
    /// Bytes of the sources.
    pub(crate) source_bytes_read: u64,
    /// Bytes of all sources; 0 where it is not known.
    pub(crate) source_bytes_total: u64,
    /// Key buckets.
    pub(crate) buckets_merged_count: u32,
    /// Key buckets; 0 where it is not known.
    pub(crate) buckets_total: u32,
}

/// How a batch stands.
#[derive(Clone, Debug)]
pub(crate) enum BatchStatus {
    /// It waits, or is executed.
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
        !matches!(self, Self::Running(_))
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
        let queued = BatchProgress {
            phase: "queue",
            ..BatchProgress::default()
        };
        Self {
            table,
            table_id,
            batch_id,
            input_digest,
            cancellation,
            status: watch::Sender::new(BatchStatus::Running(queued)),
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

    /// Changes the progress of a batch that runs.
    pub(super) fn progress(&self, change: impl FnOnce(&mut BatchProgress)) {
        self.status.send_if_modified(|status| match status {
            BatchStatus::Running(progress) => {
                let before = progress.clone();
                change(progress);
                *progress != before
            }
            _ => false,
        });
    }
}
