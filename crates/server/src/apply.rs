//! One call of `apply`: its sources are one batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_apply::BatchObserver;
use tidegate_change::{BatchId, BatchResult, Code, Digest, Error, Result};
use tidegate_cluster::BatchRequest;
use tidegate_cluster::metadata::{BatchKey, TableId};
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
        let (id, _) = self.coordinator.table_named(table).await?;
        let set = SourceSet::collect(sources, options.format, &self.spool())?;
        let input_digest = set.digest()?;
        let batch_id = self.batch_id(&id, input_digest, options)?;
        let request = BatchRequest {
            table: table.to_owned(),
            key: BatchKey {
                id: batch_id,
                input_digest,
                sequence: None,
                logical_time_ms: None,
            },
            sources: set.files.clone(),
            offsets: BTreeMap::new(),
            dry_run: options.dry_run,
            observer: options.observer.clone(),
        };
        let result = self.coordinator.submit(&request).await?;
        if !options.dry_run {
            self.note_heads();
            self.checkpoint_if_due(table).await;
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
