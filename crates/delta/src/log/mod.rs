//! The Delta log: commits, snapshots, checkpoints, time.
//!
//! [`DeltaLog`] reads and writes; [`TableSnapshot`] is a version of the table in memory, which
//! [`TableSnapshot::advance`] takes to the next without I/O. A snapshot is the newest checkpoint at or
//! below its version with the commits behind it; a gap is an error, never a shorter answer.
//! Source: Delta protocol, "Delta Log Entries" and "Checkpoints".

mod checkpoint;
mod commit;
mod file_map;
#[cfg(test)]
mod log_test;
mod origin;
mod segment;
mod snapshot;
mod time;

use bytes::Bytes;
use object_store::{ObjectStore, PutMode, PutPayload};
use tidegate_change::{Code, Error, Result, TableVersion};

pub use commit::TableCommit;
pub use file_map::FileMap;
pub use origin::{CommitOrigin, classify};
pub use snapshot::{TableSnapshot, Tombstones};
pub use time::HistoryEntry;

use crate::actions::{CommitInfo, parse_commit};
use crate::error::storage;
use crate::names;
use crate::table::TableRoot;

/// What became of an attempt to write a commit. Nothing but [`Self::Created`] tells whose commit is there.
#[derive(Debug)]
pub enum CreateOutcome {
    /// The commit is there and it is this one.
    Created,
    /// A commit is there: this one, from a lost answer, or another. Read it and compare.
    Exists,
    /// The answer was lost: the commit may be there or may yet come.
    Unknown(Error),
}

/// The log of one table.
#[derive(Clone, Debug)]
pub struct DeltaLog {
    root: TableRoot,
}

impl DeltaLog {
    /// The log of the table at a root; nothing is read.
    #[must_use]
    pub fn new(root: TableRoot) -> Self {
        Self { root }
    }

    /// Where the table lies.
    #[must_use]
    pub fn root(&self) -> &TableRoot {
        &self.root
    }

    /// The newest version; None when there is no table.
    ///
    /// # Errors
    /// What the store says.
    pub async fn latest_version(&self) -> Result<Option<TableVersion>> {
        let hint = checkpoint::read_hint(&self.root)
            .await?
            .map(|hint| TableVersion(hint.version));
        let mut listing = segment::list(&self.root, hint).await?;
        if listing.latest().is_none() && hint.is_some() {
            listing = segment::list(&self.root, None).await?;
        }
        Ok(listing.latest())
    }

    /// The oldest version whose commit is there, and the newest; None when there is no commit.
    ///
    /// # Errors
    /// What the store says.
    pub async fn commit_range(&self) -> Result<Option<(TableVersion, TableVersion)>> {
        let listing = segment::list(&self.root, None).await?;
        Ok(listing
            .commits
            .first()
            .copied()
            .zip(listing.commits.last().copied()))
    }

    /// Reads a commit.
    ///
    /// # Errors
    /// `EXPIRED` when its file is gone or not there yet, `CORRUPT` when it holds no actions.
    pub async fn read_commit(&self, version: TableVersion) -> Result<TableCommit> {
        match self.read_commit_if_there(version).await? {
            Some(commit) => Ok(commit),
            None => {
                let message = format!("version {version}: its commit is not in the log");
                Err(Error::new(Code::Expired, message))
            }
        }
    }

    /// Reads a commit; None when its file is not there.
    ///
    /// # Errors
    /// `CORRUPT` when it holds no actions, else what the store says.
    pub async fn read_commit_if_there(&self, version: TableVersion) -> Result<Option<TableCommit>> {
        let name = names::commit(version);
        let Some(bytes) = self.root.read_if_there(&name).await? else {
            return Ok(None);
        };
        let actions = parse_commit(&name, &bytes)?;
        Ok(Some(TableCommit {
            version,
            bytes,
            actions,
        }))
    }

    /// The bytes in the slot of a version; None while it is empty.
    ///
    /// # Errors
    /// What the store says.
    pub async fn read_slot(&self, version: TableVersion) -> Result<Option<Bytes>> {
        self.root.read_if_there(&names::commit(version)).await
    }

    /// Writes a commit if its slot is empty. Errors are outcomes here: see [`CreateOutcome`].
    pub async fn create_commit(&self, version: TableVersion, bytes: Bytes) -> CreateOutcome {
        let location = match self.root.location(&names::commit(version)) {
            Ok(location) => location,
            Err(error) => return CreateOutcome::Unknown(error),
        };
        let payload = PutPayload::from(bytes);
        match self
            .root
            .store()
            .put_opts(&location, payload, PutMode::Create.into())
            .await
        {
            Ok(_) => CreateOutcome::Created,
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            ) => CreateOutcome::Exists,
            Err(error) => CreateOutcome::Unknown(storage(&location, error)),
        }
    }

    /// The table at a version, or at the newest.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND` without log, `INVALID_VERSION` for a version that is not there yet, `EXPIRED`
    /// for one whose checkpoint and commits are gone, `CORRUPT` for a log with a gap,
    /// `UNSUPPORTED` for reader features that Tidegate does not have.
    pub async fn snapshot(&self, version: Option<TableVersion>) -> Result<TableSnapshot> {
        let segment = segment::Segment::find(&self.root, version).await?;
        let (mut builder, parts) = match &segment.checkpoint {
            Some((version, parts)) => (snapshot::Builder::at(*version), parts.as_slice()),
            None => (snapshot::Builder::default(), &[][..]),
        };
        for part in parts {
            checkpoint::read_part(&self.root, part, &mut |action| builder.apply(action)).await?;
        }
        if segment.commits.is_empty()
            && let Some((version, _)) = segment.checkpoint
        {
            builder.in_commit_timestamp(self.commit_info(version).await?);
        }
        let mut untimed = None;
        for version in segment.commits {
            let commit = self.read_commit(version).await?;
            if commit.info().is_none() {
                untimed = Some(version);
            }
            builder.apply_commit(version, &commit.actions);
        }
        let snapshot = builder.finish()?;
        match untimed {
            Some(version) if is_timed(&snapshot, version) => Err(Error::corrupt(format!(
                "version {version}: its commit has no commitInfo, which in-commit timestamps need"
            ))),
            _ => Ok(snapshot),
        }
    }

    /// Writes a checkpoint of a snapshot and points the log's readers to it.
    ///
    /// Removed files whose retention ended at `now_ms` are left out.
    ///
    /// # Errors
    /// What the store says; a checkpoint that was not written harms nothing.
    pub async fn write_checkpoint(&self, snapshot: &TableSnapshot, now_ms: i64) -> Result<()> {
        checkpoint::write(&self.root, snapshot, now_ms).await
    }

    /// What a commit was for; None when its file is gone.
    pub(crate) async fn commit_info(&self, version: TableVersion) -> Result<Option<CommitInfo>> {
        let commit = self.read_commit_if_there(version).await?;
        Ok(commit.and_then(|commit| commit.into_info()))
    }
}

/// Whether a version's commit must hold its time (Delta protocol: "In-Commit Timestamps").
fn is_timed(snapshot: &TableSnapshot, version: TableVersion) -> bool {
    let property = |name: &str| snapshot.property(name);
    let from = property("delta.inCommitTimestampEnablementVersion")
        .and_then(|text| text.parse().ok())
        .map_or(TableVersion(0), TableVersion);
    property("delta.enableInCommitTimestamps") == Some("true") && version >= from
}
