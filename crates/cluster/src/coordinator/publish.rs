//! What a prepared commit becomes: only the content of its slot decides.
//!
//! Anybody may run this for any prepared commit, any number of times and at once: all write the same
//! bytes into a slot that is written once, and all read the same answer from it.

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt};
use tidegate_change::mutants::{Mutant, is_on};
use tidegate_change::spec::TableMode;
use tidegate_change::{AttemptId, Code, Digest, Error, Result, TableVersion};
use tidegate_delta::actions::{Action, parse_commit};
use tidegate_delta::log::{CommitOrigin, TableCommit, classify};
use tidegate_delta::{CreateOutcome, DeltaLog, names};

use super::draft::{CommitDraft, fence, rebased, time_of};
use super::integration::Conflicts;
use super::submit::resolved_spec;
use super::{Coordinator, foreign};
use crate::metadata::{
    Abort, CommitBytes, Entry, Finalize, Outcome, Pending, Rebase, SlotEvidence, TableId,
    TableState,
};

/// Writes of an empty slot before the caller is told to come again.
const PUT_TRIES: u32 = 4;
/// Steps of one resolution: each ends a prepared commit or moves it by a version.
const STEPS_MAX: u32 = 64;

impl Coordinator {
    /// Decides what is prepared on a table, until nothing is.
    ///
    /// # Errors
    /// `UNAVAILABLE` kinds when the store does not say what is in the slot; the commit stays prepared.
    pub async fn resolve(&self, id: &TableId) -> Result<()> {
        for _ in 0..STEPS_MAX {
            let table = self.table(id).await?;
            let Some(pending) = &table.pending else {
                return Ok(());
            };
            self.resolve_step(id, &table, pending).await?;
        }
        Err(Error::new(
            Code::CommitConflict,
            "a prepared commit does not come to rest",
        ))
    }

    async fn resolve_step(
        &self,
        id: &TableId,
        table: &TableState,
        pending: &Pending,
    ) -> Result<()> {
        let log = self.log(table)?;
        let ours = self.prepared_bytes(&log, pending).await?;
        let to_write = match &ours {
            Some(bytes) => bytes.clone(),
            None => fence(self.attempt_id(pending.opened.index), pending.time_ms)?.bytes,
        };
        let slot = write_slot(&log, pending.version, &to_write).await?;
        if Digest::of(&slot) == pending.commit_digest {
            return self.finalize(id, table, pending, &log).await;
        }
        let actions = parse_commit(&names::commit(pending.version), &slot)?;
        let commit = TableCommit {
            version: pending.version,
            bytes: slot,
            actions,
        };
        match ours {
            Some(ours) if Box::pin(self.is_beside(id, table, &log, &commit)).await? => {
                self.rebase(id, table, pending, (&log, &ours, &commit))
                    .await
            }
            Some(_) | None => self.abort_prepared(id, pending, &commit).await,
        }
    }

    /// Whether a commit of others touches nothing that a commit of ours builds on (K14): one without data, or
    /// rows that came into a table without keys.
    async fn is_beside(
        &self,
        id: &TableId,
        table: &TableState,
        log: &DeltaLog,
        commit: &TableCommit,
    ) -> Result<bool> {
        match (classify(commit), table.head) {
            (CommitOrigin::Harmless, _) => Ok(true),
            (CommitOrigin::Foreign { .. }, Some(head)) if foreign::is_append(commit) => {
                let head = (head, table.head_digest);
                let snapshot = self.snapshots.at(id, log, head).await?;
                let resolved = resolved_spec(&table.name, &snapshot)?;
                Ok(resolved.spec.mode == TableMode::Append)
            }
            (CommitOrigin::Foreign { .. } | CommitOrigin::Own { .. }, _) => Ok(false),
        }
    }

    /// The bytes of a prepared commit, if they and the files that they name are still there.
    async fn prepared_bytes(&self, log: &DeltaLog, pending: &Pending) -> Result<Option<Bytes>> {
        let attempt = self.attempt_id(pending.opened.index);
        let bytes = match &pending.bytes {
            CommitBytes::Inline(text) => Some(Bytes::copy_from_slice(text.as_bytes())),
            CommitBytes::Staged => {
                log.root()
                    .read_if_there(&names::staged_commit(attempt, pending.version))
                    .await?
            }
        };
        let Some(bytes) = bytes.filter(|bytes| Digest::of(bytes) == pending.commit_digest) else {
            return Ok(None);
        };
        for action in parse_commit(&names::commit(pending.version), &bytes)? {
            let Action::Add(add) = action else { continue };
            let path = add.relative_path()?;
            let is_ours = names::attempt_of(&path) == Some(attempt);
            if is_ours && !is_on(Mutant::FilesUnchecked) && !foreign::is_there(log, &path).await? {
                return Ok(None);
            }
        }
        Ok(Some(bytes))
    }

    async fn finalize(
        &self,
        id: &TableId,
        table: &TableState,
        pending: &Pending,
        log: &DeltaLog,
    ) -> Result<()> {
        let attempt = pending.opened.index;
        // The slot is ours, so nobody needs the staged bytes any more; they go before the entry after which
        // nobody would look for them.
        if pending.bytes == CommitBytes::Staged
            && let Err(error) = remove_staged(log, self.attempt_id(attempt)).await
        {
            tracing::warn!(table = table.name, %error, "a staged commit was not removed");
        }
        let entry = Finalize {
            table: id.clone(),
            version: pending.version,
            attempt,
        };
        // A refusal means that somebody else was first with the same decision.
        self.propose(Entry::Finalize(entry)).await?;
        Ok(())
    }

    async fn rebase(
        &self,
        id: &TableId,
        table: &TableState,
        pending: &Pending,
        (log, ours, foreign): (&DeltaLog, &Bytes, &TableCommit),
    ) -> Result<()> {
        let foreign_time_ms = time_of(foreign.info())?.max(table.head_time_ms);
        let time_ms = pending.time_ms.max(foreign_time_ms + 1);
        let next = pending.version.next();
        let draft = rebased(ours, pending.version, next, time_ms)?;
        let bytes = self.stage(log, pending.opened.index, next, &draft).await?;
        let entry = Rebase {
            table: id.clone(),
            version: pending.version,
            foreign_digest: foreign.digest(),
            foreign_time_ms,
            attempt: pending.opened.index,
            commit_digest: draft.digest,
            bytes,
            time_ms,
        };
        if let Outcome::Rebased(_) = self.propose(Entry::Rebase(entry)).await?.outcome {
            Conflicts::count(&self.conflicts.rebased);
        }
        Ok(())
    }

    async fn abort_prepared(
        &self,
        id: &TableId,
        pending: &Pending,
        seen: &TableCommit,
    ) -> Result<()> {
        let evidence = SlotEvidence {
            version: pending.version,
            digest: seen.digest(),
        };
        let entry = Abort {
            table: id.clone(),
            attempt: pending.opened.index,
            evidence: Some(evidence),
        };
        if let Outcome::Aborted = self.propose(Entry::Abort(entry)).await?.outcome {
            Conflicts::count(&self.conflicts.recomputed);
        }
        Ok(())
    }

    /// Puts the bytes of a commit where any resolver finds them.
    pub(super) async fn stage(
        &self,
        log: &DeltaLog,
        attempt: u64,
        version: TableVersion,
        draft: &CommitDraft,
    ) -> Result<CommitBytes> {
        if draft.bytes.len() <= self.options.inline_bytes_max
            && let Ok(text) = std::str::from_utf8(&draft.bytes)
        {
            return Ok(CommitBytes::Inline(text.to_owned()));
        }
        let path = names::staged_commit(self.attempt_id(attempt), version);
        log.root().write(&path, draft.bytes.clone()).await?;
        Ok(CommitBytes::Staged)
    }
}

/// Removes the staged commits of an attempt, which a rebase may have made several.
async fn remove_staged(log: &DeltaLog, attempt: AttemptId) -> Result<()> {
    let root = log.root();
    let staged = names::staged_commit(attempt, TableVersion(0));
    let directory = staged
        .rsplit_once('/')
        .map_or(staged.as_str(), |(directory, _)| directory);
    let directory = root.location(directory)?;
    let failed = |e: object_store::Error| {
        Error::new(Code::Io, format!("{directory}: cannot be cleared")).with_source(e)
    };
    let listed: Vec<_> = root
        .store()
        .list(Some(&directory))
        .try_collect()
        .await
        .map_err(failed)?;
    for object in listed {
        root.store()
            .delete(&object.location)
            .await
            .map_err(failed)?;
    }
    Ok(())
}

/// Writes a slot if it is empty and returns what is in it.
async fn write_slot(log: &DeltaLog, version: TableVersion, bytes: &Bytes) -> Result<Bytes> {
    let mut last = None;
    for _ in 0..PUT_TRIES {
        match log.create_commit(version, bytes.clone()).await {
            CreateOutcome::Created => return Ok(bytes.clone()),
            CreateOutcome::Exists => {
                if let Some(slot) = mistaken(bytes) {
                    return Ok(slot);
                }
            }
            CreateOutcome::Unknown(error) => last = Some(error),
        }
        // Neither answer says whose commit it is, only the slot does.
        if let Some(slot) = log.read_slot(version).await? {
            if slot != *bytes {
                foreign::read_again(log, version, &slot).await?;
            }
            return Ok(slot);
        }
    }
    Err(last.unwrap_or_else(|| {
        Error::new(
            Code::Io,
            format!("version {version}: the store creates no commit and shows none"),
        )
    }))
}

/// What a deliberate bug takes a taken slot for, without a look; nothing in the product.
fn mistaken(ours: &Bytes) -> Option<Bytes> {
    const HARMLESS: &str =
        r#"{"commitInfo":{"timestamp":1,"inCommitTimestamp":1,"operation":"X"}}"#;
    const FOREIGN: &str = r#"{"remove":{"path":"x","dataChange":true}}"#;
    if is_on(Mutant::ExistsIsOurs) {
        Some(ours.clone())
    } else if is_on(Mutant::ExistsIsForeign) {
        Some(Bytes::from_static(FOREIGN.as_bytes()))
    } else if is_on(Mutant::ConflictIsForeign) {
        Some(Bytes::from_static(HARMLESS.as_bytes()))
    } else {
        None
    }
}
