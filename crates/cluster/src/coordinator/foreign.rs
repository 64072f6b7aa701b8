//! Commits of others behind the head, and a log that is shorter than it should be.

use object_store::ObjectStoreExt;
use tidegate_change::{Code, Digest, Error, Result, TableVersion};
use tidegate_delta::actions::Action;
use tidegate_delta::log::{CommitOrigin, TableCommit, classify};
use tidegate_delta::{DeltaLog, TableSnapshot};

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
            require_gone(&table, &log).await?;
            let shown = latest.map_or_else(|| "none".to_owned(), |latest| latest.to_string());
            let head = table.head.unwrap_or_default();
            let why = format!("its log ends at version {shown}, version {head} was acknowledged");
            return Err(self.quarantine(id, &table, Code::LogBehindRaft, why).await);
        }
        self.check_head(id, &table, &log).await?;
        let mut next = table.next_version();
        while latest.is_some_and(|latest| next <= latest) {
            self.follow_commit(id, &table, &log, next).await?;
            next = next.next();
        }
        Ok(())
    }

    /// Quarantines a table whose newest commit is not the one that was acknowledged.
    ///
    /// A head that this process has read since needs no look; one that only a checkpoint holds has none.
    async fn check_head(&self, id: &TableId, table: &TableState, log: &DeltaLog) -> Result<()> {
        let (Some(head), Some(known)) = (table.head, table.head_digest) else {
            return Ok(());
        };
        if self.snapshots.holds(id, head) {
            return Ok(());
        }
        match log.read_slot(head).await? {
            Some(slot) if Digest::of(&slot) != known => {
                read_again(log, head, &slot).await?;
                let why =
                    format!("the commit of version {head} is not the one that was acknowledged");
                Err(self.quarantine(id, table, Code::Corrupt, why).await)
            }
            Some(_) | None => Ok(()),
        }
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
            CommitOrigin::Foreign { what, engine } => foreign_change(&commit, what, engine),
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

/// A listing without the head counts only where the head cannot be read either.
async fn require_gone(table: &TableState, log: &DeltaLog) -> Result<()> {
    let Some(head) = table.head else {
        return Ok(());
    };
    match log.read_slot(head).await? {
        None => Ok(()),
        Some(_) => {
            let message = format!(
                "table {}: version {head} is there, and the listing of its log lacks it",
                table.name
            );
            Err(Error::new(Code::Io, message))
        }
    }
}

/// Refuses bytes of a slot that a second look does not show: damage on the way is no evidence.
pub(super) async fn read_again(log: &DeltaLog, version: TableVersion, seen: &[u8]) -> Result<()> {
    match log.read_slot(version).await? {
        Some(again) if again == seen => Ok(()),
        _ => {
            let message = format!("version {version}: two looks at its commit differ");
            Err(Error::new(Code::Io, message))
        }
    }
}

/// Refuses a table that another engine changed: rows without hidden columns have no sequence, the index
/// does not know them, and a key of theirs would be there twice.
///
/// The log may no longer hold the commit that changed it, so the live files are looked at too.
///
/// # Errors
/// `FOREIGN_REWRITE`, with version and file; what the log says.
pub(super) async fn require_own(log: &DeltaLog, snapshot: &TableSnapshot) -> Result<()> {
    let first = log.commit_range().await?.map(|(first, _)| first);
    let mut version = first.unwrap_or(snapshot.version);
    while version <= snapshot.version {
        if let Some(commit) = log.read_commit_if_there(version).await?
            && let CommitOrigin::Foreign { what, engine } = classify(&commit)
        {
            let why = foreign_change(&commit, what, engine);
            return Err(Error::new(Code::ForeignRewrite, why));
        }
        version = version.next();
    }
    let Some(file) = snapshot.files.iter().find(|file| !file.is_own()) else {
        return Ok(());
    };
    let message = format!(
        "version {} holds file {}, which another engine wrote or deleted rows of",
        snapshot.version, file.path
    );
    Err(Error::new(Code::ForeignRewrite, message))
}

/// What a stranger's commit did, with the first file that it names.
fn foreign_change(commit: &TableCommit, what: &str, engine: Option<String>) -> String {
    let version = commit.version;
    let engine = engine.unwrap_or_else(|| "another engine".to_owned());
    let file = commit.actions.iter().find_map(|action| match action {
        Action::Add(add) => Some(&add.path),
        Action::Remove(remove) => Some(&remove.path),
        _ => None,
    });
    let file = file.map_or_else(String::new, |path| format!(" of file {path}"));
    format!("version {version} by {engine} holds {what}{file}")
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
