//! Files of attempts that came to nothing.

use std::collections::BTreeSet;

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tidegate_change::mutants::{Mutant, is_on};
use tidegate_change::{Code, Error, Result};
use tidegate_delta::{DeltaLog, names};

use super::Coordinator;
use crate::metadata::{Collected, Entry, TableId};

impl Coordinator {
    /// Deletes the files of attempts that the log has closed without a version; returns how many.
    ///
    /// Closed comes first: a closed attempt can never be prepared, so no version will ever name its files.
    /// Files of open and prepared attempts, whose outcome is unknown, and of finished ones are not touched.
    ///
    /// # Errors
    /// What the store says; what is left is tried again.
    pub async fn clean_up(&self, id: &TableId) -> Result<u64> {
        let table = self.table(id).await?;
        let mut closed = table.uncollected.clone();
        if is_on(Mutant::CollectsOpenAttempts) {
            closed.extend(table.attempts.keys());
            closed.extend(table.pending.iter().map(|pending| pending.opened.index));
        }
        if closed.is_empty() {
            return Ok(0);
        }
        let log = self.log(&table)?;
        let collected = Entry::Collected(Collected {
            table: id.clone(),
            attempts: closed.iter().copied().collect(),
        });
        if is_on(Mutant::NotedBeforeDeleted) {
            self.propose(collected).await?;
            return self.delete_files(&log, &closed).await;
        }
        let deleted = self.delete_files(&log, &closed).await?;
        self.propose(collected).await?;
        Ok(deleted)
    }

    /// Deletes the files of attempts; returns how many.
    pub(super) async fn delete_files(
        &self,
        log: &DeltaLog,
        attempts: &BTreeSet<u64>,
    ) -> Result<u64> {
        let root = log.root();
        let keys = self
            .files_of(root.store().as_ref(), root.path(), attempts)
            .await?;
        for key in &keys {
            match root.store().delete(key).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(e) => {
                    return Err(
                        Error::new(Code::Io, format!("{key}: cannot be deleted")).with_source(e)
                    );
                }
            }
        }
        Ok(keys.len() as u64)
    }

    /// The explicit list of what carries the name of one of the attempts.
    async fn files_of(
        &self,
        store: &dyn ObjectStore,
        root: &Path,
        attempts: &BTreeSet<u64>,
    ) -> Result<Vec<Path>> {
        let writer = self.parts.consensus.writer();
        let closed = |key: &Path| {
            let below = key.as_ref().strip_prefix(root.as_ref()).unwrap_or_default();
            names::attempt_of(below.trim_start_matches('/')).is_some_and(|attempt| {
                let is_own = attempt.writer == writer || is_on(Mutant::CleansByNumber);
                is_own && attempts.contains(&attempt.index)
            })
        };
        let listed: Vec<_> = store
            .list(Some(root))
            .try_filter_map(|object| {
                std::future::ready(Ok(closed(&object.location).then_some(object.location)))
            })
            .try_collect()
            .await
            .map_err(|e| {
                Error::new(Code::Io, format!("{root}: cannot be listed")).with_source(e)
            })?;
        Ok(listed)
    }
}
