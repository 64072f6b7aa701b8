//! One call of `apply`: its sources are one batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_apply::BatchObserver;
use tidegate_change::{BatchId, BatchResult, Code, Digest, Error, Result, TableVersion};
use tidegate_cluster::metadata::{BatchKey, OffsetRange, TableId};
use tidegate_cluster::{BatchRequest, Cancellation};
use tidegate_decode::FileFormat;

use crate::checkpoint;
use crate::embedded::Embedded;
use crate::source::{SourceArgument, SourceSet};

/// How to apply a batch.
#[derive(Clone, Debug, Default)]
pub struct ApplyOptions {
    /// The batch's id; derived from content and table without it.
    pub batch_id: Option<String>,
    /// Format of all files; told by content and name without it.
    pub format: Option<FileFormat>,
    /// Apply again what was applied before.
    pub force: bool,
    /// Execute and count, but commit nothing.
    pub dry_run: bool,
    /// Who sees how far the batch is.
    pub observer: Option<Arc<dyn BatchObserver>>,
}

/// A batch whose files and content are known.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) table: String,
    pub(crate) sources: SourceSet,
    /// Digest of what the submitter sent.
    pub(crate) input_digest: Digest,
    /// Offsets that the submitter sends; they are checked.
    pub(crate) offsets: BTreeMap<String, OffsetRange>,
    pub(crate) options: ApplyOptions,
}

impl Submission {
    /// A batch of files.
    pub(crate) fn of_files(table: &str, sources: SourceSet, options: ApplyOptions) -> Result<Self> {
        Ok(Self {
            table: table.to_owned(),
            input_digest: sources.digest()?,
            sources,
            offsets: BTreeMap::new(),
            options,
        })
    }
}

/// A batch with its id, ready to be run.
#[derive(Debug)]
pub(crate) struct IdentifiedBatch {
    pub(crate) table_id: TableId,
    pub(crate) request: BatchRequest,
    /// Holds what was spooled until the batch is done.
    _sources: SourceSet,
}

impl Embedded {
    /// Applies the sources to a table as one batch, once.
    ///
    /// # Errors
    /// What refuses the batch, or what keeps its outcome from being known; the same call again is safe.
    pub async fn apply(
        &self,
        table: &str,
        sources: &[SourceArgument],
        options: &ApplyOptions,
    ) -> Result<BatchResult> {
        // A table that is not there is told before its sources are read.
        self.coordinator.table_named(table).await?;
        let stores = &self.options.stores;
        let set = SourceSet::collect(sources, options.format, &self.sources, stores).await?;
        let submission = Submission::of_files(table, set, options.clone())?;
        self.run(&self.identify(submission).await?).await
    }

    /// The newest version of a table.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`.
    pub async fn newest_version(&self, table: &str) -> Result<Option<TableVersion>> {
        let (_, state) = self.coordinator.table_named(table).await?;
        Ok(state.head)
    }

    /// Gives a batch its id.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, or what is wrong with the options.
    pub(crate) async fn identify(&self, submission: Submission) -> Result<IdentifiedBatch> {
        let (table_id, _) = self.coordinator.table_named(&submission.table).await?;
        let input_digest = submission.input_digest;
        let request = BatchRequest {
            key: BatchKey {
                id: self.batch_id(&table_id, input_digest, &submission.options)?,
                input_digest,
                sequence: None,
                logical_time_ms: None,
            },
            table: submission.table,
            sources: submission.sources.files.clone(),
            offsets: submission.offsets,
            dry_run: submission.options.dry_run,
            observer: submission.options.observer,
            cancellation: Cancellation::default(),
        };
        Ok(IdentifiedBatch {
            table_id,
            request,
            _sources: submission.sources,
        })
    }

    /// Runs a batch, or returns the answer that the table holds.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub(crate) async fn run(&self, batch: &IdentifiedBatch) -> Result<BatchResult> {
        let request = &batch.request;
        let result = self.coordinator.submit(request).await?;
        if !request.dry_run {
            self.note_heads();
            self.checkpoint_if_due(&request.table).await;
        }
        Ok(result)
    }

    /// The given id, or one by which the same content on the same table is the same batch.
    fn batch_id(&self, id: &TableId, input: Digest, options: &ApplyOptions) -> Result<BatchId> {
        match &options.batch_id {
            Some(_) if options.force => Err(Error::new(
                Code::InvalidArgument,
                "a batch id and force exclude each other: force makes a new id",
            )),
            Some(given) if given.is_empty() => {
                Err(Error::new(Code::InvalidArgument, "the batch id is empty"))
            }
            Some(given) => Ok(BatchId(given.clone())),
            None => {
                let nonce = options.force.then(|| self.options.random.next_u64());
                let text = format!("{id}/{input}/{nonce:?}");
                let hex = Digest::of(text.as_bytes()).to_hex();
                Ok(BatchId(format!(
                    "content-{}",
                    hex.get(..32).unwrap_or(&hex)
                )))
            }
        }
    }

    /// A checkpoint only shortens reading: whatever keeps it from being written, the batch is in.
    async fn checkpoint_if_due(&self, table: &str) {
        let written = async {
            let snapshot = self.coordinator.snapshot(table).await?;
            let log = self.reader().log(table)?;
            checkpoint::write_if_due(table, &log, &snapshot, self.options.clock.now_ms()).await
        };
        if let Err(error) = written.await {
            tracing::warn!(table, %error, "no checkpoint was written");
        }
    }
}
