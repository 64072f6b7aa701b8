//! Takes in what commits of others did: a commit of our own, of kind `Maintenance`, after which index and
//! hidden state know every row again (commit protocol, "Foreign commits").

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_apply::{ForeignWork, Integration, is_index_damage};
use tidegate_change::{Code, Error, Result};
use tidegate_delta::TableSnapshot;

use super::Coordinator;
use super::foreign::{self, Tail};
use super::submit::{OpenTry, resolved_spec};
use crate::metadata::{CommitKind, TableId, TableState};

/// What history shows.
const OPERATION: &str = "INTEGRATE";

/// How often commits of others met those of this coordinator.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    pub(super) rebased: AtomicU64,
    pub(super) recomputed: AtomicU64,
    pub(super) integrated: AtomicU64,
}

/// How often commits of others met those of a coordinator, since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConflictCounts {
    /// Prepared commits that moved behind a commit of others.
    pub rebased: u64,
    /// Prepared commits that ended because a commit of others took their version; they were made anew.
    pub recomputed: u64,
    /// Commits that took in what others had done.
    pub integrated: u64,
}

impl Conflicts {
    pub(super) fn count(of: &AtomicU64) {
        of.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> ConflictCounts {
        ConflictCounts {
            rebased: self.rebased.load(Ordering::Relaxed),
            recomputed: self.recomputed.load(Ordering::Relaxed),
            integrated: self.integrated.load(Ordering::Relaxed),
        }
    }
}

/// What others did, up to the head.
struct Found {
    before: Arc<TableSnapshot>,
    after: Arc<TableSnapshot>,
    /// The first commit that changed something, for people.
    change: String,
}

/// What an integration came to.
enum Taken {
    /// There was nothing to take in.
    Nothing,
    /// It is in the log.
    Committed,
    /// Another commit was first.
    Lost,
}

impl Coordinator {
    /// How often commits of others met those of this coordinator.
    #[must_use]
    pub fn conflicts(&self) -> ConflictCounts {
        self.conflicts.read()
    }

    /// Takes in what others committed behind the newest own commit, and returns the state that has nothing to
    /// be taken in; none when yet another commit was first.
    ///
    /// # Errors
    /// `FOREIGN_DUPLICATE` or `FOREIGN_REWRITE` after the table was put into quarantine; failures of storage.
    pub(super) async fn integrate(&self, id: &TableId) -> Result<Option<Arc<TableState>>> {
        let table = self.table(id).await?;
        // A head of our own: what was below it was taken in before it.
        if table.head_attempt.is_some() {
            return Ok(Some(table));
        }
        let found = match self.find_foreign(id, &table).await {
            Ok(None) => return Ok(Some(table)),
            Ok(Some(found)) => found,
            Err(error) => return Err(self.refused(id, &table, error, None).await),
        };
        let mut tried = self.try_integration(id, &table, &found, false).await;
        if let Err(error) = &tried
            && is_index_damage(error)
        {
            tracing::warn!(table = table.name, %error, "the key index is rebuilt from the table");
            tried = self.try_integration(id, &table, &found, true).await;
        }
        match tried {
            Err(error) => Err(self.refused(id, &table, error, Some(&found.change)).await),
            Ok(Taken::Nothing) => Ok(Some(table)),
            Ok(Taken::Committed) => {
                let table = self.table(id).await?;
                Ok(table.head_attempt.is_some().then_some(table))
            }
            Ok(Taken::Lost) => Ok(None),
        }
    }

    async fn find_foreign(&self, id: &TableId, table: &TableState) -> Result<Option<Found>> {
        let Some(head) = table.head else {
            return Ok(None);
        };
        let log = self.log(table)?;
        let Tail::Foreign(base, change) = foreign::tail(&log, head).await? else {
            return Ok(None);
        };
        let before = self.snapshots.at(id, &log, (base, None)).await?;
        let after = self.snapshots.at(id, &log, (head, table.head_digest)).await;
        let after = after.map_err(|e| match e.code() {
            // Such as a protocol that this build does not have.
            Code::Unsupported => Error::new(Code::ForeignRewrite, e.to_string()).with_source(e),
            _ => e,
        })?;
        foreign::check_declared(id, &before, &after)?;
        Ok(Some(Found {
            before,
            after,
            change,
        }))
    }

    /// The error of a refusal, with the table in quarantine for what cannot be taken in.
    async fn refused(
        &self,
        id: &TableId,
        table: &TableState,
        error: Error,
        change: Option<&str>,
    ) -> Error {
        match error.code() {
            Code::ForeignRewrite | Code::ForeignDuplicate => {
                let why = match change {
                    Some(change) => format!("{change}: {error}"),
                    None => error.to_string(),
                };
                self.quarantine(id, table, error.code(), why).await
            }
            _ => error,
        }
    }

    async fn try_integration(
        &self,
        id: &TableId,
        table: &TableState,
        found: &Found,
        rebuild_index: bool,
    ) -> Result<Taken> {
        let log = self.log(table)?;
        let mut work = ForeignWork {
            root: log.root().clone(),
            resolved: resolved_spec(&table.name, &found.before)?,
            before: Arc::clone(&found.before),
            after: Arc::clone(&found.after),
            attempt: self.attempt_id(0),
            now_ms: self.parts.clock.now_ms(),
            rebuild_index,
            limits: self.options.limits.clone(),
        };
        if !work.is_needed() {
            return Ok(Taken::Nothing);
        }
        let attempt = self.open_plain(id, table, CommitKind::Maintenance).await?;
        work.attempt = self.attempt_id(attempt);
        let open = OpenTry {
            id,
            table,
            log: &log,
            attempt,
        };
        match self.publish_integration(&open, work).await {
            Ok(true) => Ok(Taken::Committed),
            tried => {
                let ended = open.ended(tried, self.give_up(&open).await);
                ended.map(|_| Taken::Lost)
            }
        }
    }

    async fn publish_integration(&self, open: &OpenTry<'_>, work: ForeignWork) -> Result<bool> {
        let Integration { actions, counts } = self.parts.workers.integrate(work).await?;
        let kind = CommitKind::Maintenance;
        if !self.try_plain(open, (kind, OPERATION), actions).await? {
            return Ok(false);
        }
        Conflicts::count(&self.conflicts.integrated);
        tracing::info!(
            table = open.table.name,
            inserted = counts.inserted,
            updated = counts.updated,
            deleted = counts.deleted,
            rewritten = counts.rewritten,
            "commits of others were taken in"
        );
        Ok(true)
    }
}
