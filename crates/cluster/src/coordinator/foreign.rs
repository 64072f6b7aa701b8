//! Commits of others behind the head, and a log that is shorter than it should be.

use object_store::ObjectStoreExt;
use tidegate_change::{Code, Error, Result, TableVersion};
use tidegate_delta::DeltaLog;
use tidegate_delta::log::{CommitOrigin, classify};

use super::Coordinator;
use super::draft::time_of;
use crate::metadata::{Entry, Quarantine, SyncForeign, TableId, TableState};

impl Coordinator {
    /// Takes harmless foreign commits into the history; quarantines the table for any other.
    ///
    /// Nothing may be prepared on the table.
    pub(super) async fn follow_log(&self, id: &TableId) -> Result<()> {
        let table = self.table(id).await?;
        let log = self.log(&table)?;
        let latest = log.latest_version().await?;
        if latest < table.head {
            let shown = latest.map_or_else(|| "none".to_owned(), |latest| latest.to_string());
            let head = table.head.unwrap_or_default();
            let why = format!("its log ends at version {shown}, version {head} was acknowledged");
            return Err(self.quarantine(id, &table, Code::LogBehindRaft, why).await);
        }
        let mut next = table.next_version();
        while latest.is_some_and(|latest| next <= latest) {
            self.follow_commit(id, &table, &log, next).await?;
            next = next.next();
        }
        Ok(())
    }

    async fn follow_commit(
        &self,
        id: &TableId,
        table: &TableState,
        log: &DeltaLog,
        version: TableVersion,
    ) -> Result<()> {
        let commit = log.read_commit(version).await?;
        let why = match classify(&commit) {
            CommitOrigin::Harmless => {
                let entry = SyncForeign {
                    table: id.clone(),
                    version,
                    digest: commit.digest(),
                    time_ms: time_of(commit.info()).unwrap_or(table.head_time_ms),
                };
                // A refusal means that somebody else was first with the same decision.
                self.propose(Entry::SyncForeign(entry)).await?;
                return Ok(());
            }
            CommitOrigin::Own { attempt } => {
                format!("version {version} was written by another directory (attempt {attempt})")
            }
            CommitOrigin::Foreign { what, engine } => {
                let engine = engine.unwrap_or_else(|| "another engine".to_owned());
                format!("version {version} by {engine} holds {what}")
            }
        };
        Err(self.quarantine(id, table, Code::ForeignRewrite, why).await)
    }

    async fn quarantine(&self, id: &TableId, table: &TableState, code: Code, why: String) -> Error {
        // Another coordinator may have written meanwhile what looks foreign from an older state.
        let now = self.table(id).await;
        if let Ok(now) = &now
            && (now.head != table.head || now.pending.is_some())
        {
            return Error::new(
                Code::CommitConflict,
                format!("table {}: the head moved", table.name),
            );
        }
        let reason = format!("{code}: {why}");
        let entry = Quarantine {
            table: id.clone(),
            reason,
        };
        if let Err(error) = self.propose(Entry::Quarantine(entry)).await {
            return error;
        }
        Error::new(code, format!("table {}: {why}", table.name))
            .with_hint("the table refuses writes until it is restored or released")
    }
}

/// Whether a file of the table is there.
pub(super) async fn is_there(log: &DeltaLog, relative: &str) -> Result<bool> {
    let location = log.root().location(relative)?;
    match log.root().store().head(&location).await {
        Ok(_) => Ok(true),
        Err(object_store::Error::NotFound { .. }) => Ok(false),
        Err(e) => {
            Err(Error::new(Code::Io, format!("{location}: cannot be looked up")).with_source(e))
        }
    }
}
