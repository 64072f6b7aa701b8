//! Commits of others behind the head, and a log that is shorter than it should be; `integration` takes in
//! what they did to rows.

use std::sync::Arc;

use object_store::ObjectStoreExt;
use tidegate_change::{Code, Digest, Error, Result, TableVersion};
use tidegate_delta::actions::Action;
use tidegate_delta::log::{CommitOrigin, TableCommit, classify};
use tidegate_delta::{DeltaLog, TableSnapshot};

use super::Coordinator;
use super::draft::time_of;
use crate::metadata::{Entry, Quarantine, SyncForeign, TableId, TableState};

/// Integrations of one call: each is lost to a commit of others that came meanwhile.
const INTEGRATIONS_MAX: u32 = 32;

impl Coordinator {
    /// Takes commits of others into the history and into what Tidegate keeps beside the rows; quarantines the
    /// table for those that cannot be taken in.
    ///
    /// Nothing may be prepared on the table. Returns the state whose head is an own commit, or behind whose
    /// newest own commit nothing needs to be known. Only that head may be built on: another coordinator may
    /// at any time move the head over commits that it has yet to take in.
    pub(super) async fn follow_log(&self, id: &TableId) -> Result<Arc<TableState>> {
        for _ in 0..INTEGRATIONS_MAX {
            self.sync_log(id).await?;
            if let Some(known) = Box::pin(self.integrate(id)).await? {
                let table = self.table(id).await?;
                if table.head_attempt.is_some() || table.head == known.head {
                    return Ok(table);
                }
                continue;
            }
            self.resolve(id).await?;
        }
        Err(Error::new(
            Code::CommitConflict,
            "commits of others came faster than they were taken in",
        ))
    }

    /// Moves the head over commits of others.
    async fn sync_log(&self, id: &TableId) -> Result<()> {
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
        if let CommitOrigin::Own { attempt } = classify(&commit) {
            let why =
                format!("version {version} was written by another directory (attempt {attempt})");
            return Err(self.quarantine(id, table, Code::ForeignRewrite, why).await);
        }
        let entry = SyncForeign {
            table: id.clone(),
            version,
            digest: commit.digest(),
            time_ms: time_of(commit.info()).unwrap_or(table.head_time_ms),
        };
        // A refusal means that somebody else was first with the same decision.
        self.propose(Entry::SyncForeign(entry)).await?;
        Ok(())
    }

    pub(super) async fn quarantine(
        &self,
        id: &TableId,
        table: &TableState,
        code: Code,
        why: String,
    ) -> Error {
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

/// What lies between the head and the newest own commit.
#[derive(Debug)]
pub(super) enum Tail {
    /// Nothing that changes rows.
    Quiet,
    /// Commits of others behind the own one of that version; what the first found of them did.
    Foreign(TableVersion, String),
}

/// Looks from the head down to the newest own commit: all below it is known.
///
/// # Errors
/// `FOREIGN_REWRITE` when that commit is gone from the log and others changed the table; what the log says.
pub(super) async fn tail(log: &DeltaLog, head: TableVersion) -> Result<Tail> {
    let mut change = None;
    let mut version = head;
    loop {
        let Some(commit) = log.read_commit_if_there(version).await? else {
            return unknown_tail(log, head, change).await;
        };
        match classify(&commit) {
            CommitOrigin::Own { .. } => {
                return Ok(change.map_or(Tail::Quiet, |what| Tail::Foreign(version, what)));
            }
            CommitOrigin::Harmless => {}
            CommitOrigin::Foreign { what, engine } => {
                let what = foreign_change(&commit, what, engine);
                if commit
                    .actions
                    .iter()
                    .any(|a| matches!(a, Action::Unknown(_)))
                {
                    let why = format!("{what}, and an action that is not known");
                    return Err(Error::new(Code::ForeignRewrite, why));
                }
                change = Some(what);
            }
        }
        let Some(below) = version.0.checked_sub(1) else {
            return unknown_tail(log, head, change).await;
        };
        version = TableVersion(below);
    }
}

/// Without the newest own commit only the names of the live files tell whether others were there.
async fn unknown_tail(log: &DeltaLog, head: TableVersion, change: Option<String>) -> Result<Tail> {
    let refused = |why| Err(Error::new(Code::ForeignRewrite, why));
    if let Some(change) = change {
        return refused(format!("{change}, and the commits before are gone"));
    }
    let snapshot = log.snapshot(Some(head)).await?;
    match snapshot.files.iter().find(|file| !file.is_own()) {
        None => Ok(Tail::Quiet),
        Some(file) => refused(format!(
            "version {head} holds file {}, which another engine wrote or deleted rows of",
            file.path
        )),
    }
}

/// Refuses what others changed beside the files between two versions.
///
/// # Errors
/// `FOREIGN_REWRITE`, with what they changed.
pub(super) fn check_declared(
    id: &TableId,
    before: &TableSnapshot,
    after: &TableSnapshot,
) -> Result<()> {
    let refused = |what: String| {
        let message = format!("others changed {what} up to version {}", after.version);
        Err(Error::new(Code::ForeignRewrite, message))
    };
    if before.protocol != after.protocol {
        return refused("the protocol".to_owned());
    }
    if before.metadata != after.metadata {
        return refused("the metadata".to_owned());
    }
    let is_kept = |name: &str| name.starts_with("tidegate.") || name.starts_with("delta.");
    let names = before.domains.keys().chain(after.domains.keys());
    let mut kept = names.filter(|name| is_kept(name));
    if let Some(name) = kept.find(|name| before.domains.get(*name) != after.domains.get(*name)) {
        return refused(format!("the domain {name}"));
    }
    let prefix = format!("{id}/");
    let names = before.transactions.keys().chain(after.transactions.keys());
    let mut own = names.filter(|name| name.starts_with(&prefix));
    let version = |snapshot: &TableSnapshot, name: &String| {
        snapshot.transactions.get(name).map(|txn| txn.version)
    };
    match own.find(|name| version(before, name) != version(after, name)) {
        Some(name) => refused(format!("the progress {name}")),
        None => Ok(()),
    }
}

/// Whether a commit only adds files.
pub(super) fn is_append(commit: &TableCommit) -> bool {
    commit.actions.iter().all(|action| {
        matches!(
            action,
            Action::CommitInfo(_) | Action::Add(_) | Action::Cdc(_)
        )
    })
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
