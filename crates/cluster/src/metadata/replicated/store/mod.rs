//! The durable store of a member: log, vote, state and identity in one redb file.
//!
//! - `database`, `backend`: the file, with a hook around every durable step.
//! - `disk`: one transaction for everything that waits; `writer`: who runs it; `load`: reads it back.
//! - `raft_log`, `cache`: the log as openraft sees it; `state_machine`: the applied state and snapshots.
//! - `stored`, `frame`, `identity`: what values look like; `failure`: the first failure is the last.
//!
//! Nothing is acknowledged before it is synced. A failed write is the end of the store: what the disk
//! holds is unknown then, so nothing is tried again; opening reads what is really there. A value that
//! contradicts its checksum is `CORRUPT`, and never replaced by a guess.

mod backend;
mod cache;
mod database;
mod disk;
mod failure;
mod frame;
mod identity;
mod load;
mod raft_log;
mod state_machine;
mod stored;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_change::{Error, Result};
use tidegate_delta::store::StepHook;

use self::database::{FileOptions, SharedDatabase};
use self::disk::{Disk, Write};
use self::load::Loaded;
use self::writer::Writer;

pub(crate) use self::failure::FailureCell;
pub(crate) use self::frame::{decode, encode};
pub use self::identity::Identity;
pub(crate) use self::raft_log::RaftLog;
pub(crate) use self::state_machine::{Published, StateMachine};
pub(crate) use self::stored::{AppliedState, StateHead, table_sum};
pub use self::writer::WriteMode;
use super::types::StoredMembership;

/// How to open a [`Store`].
#[derive(Clone, Debug)]
pub(crate) struct StoreOptions {
    /// Called around every durable step.
    pub(crate) step_hook: Option<Arc<dyn StepHook>>,
    /// Whether to verify every page of the file, not only what is read.
    pub(crate) check_integrity: bool,
    /// Where writes are made.
    pub(crate) write_mode: WriteMode,
    /// Bytes of entries to keep in memory beside those that are not durable yet.
    pub(crate) cache_bytes: usize,
}

/// An open store. Close it before the lock of its directory goes.
#[derive(Debug)]
pub(crate) struct Store {
    identity: Mutex<Identity>,
    membership: StoredMembership,
    database: SharedDatabase,
    writer: Writer,
    failure: Arc<FailureCell>,
}

/// A store with the two sides that openraft takes.
pub(crate) struct OpenedStore {
    pub(crate) store: Store,
    pub(crate) log: RaftLog,
    pub(crate) state_machine: StateMachine,
}

impl Store {
    /// Opens the store of a directory, or makes it with an identity.
    ///
    /// # Errors
    /// `CORRUPT`, `UNSUPPORTED` for a file of another form, or what the disk says.
    pub(crate) fn open(
        directory: &Path,
        options: &StoreOptions,
        new: impl FnOnce() -> Identity,
    ) -> Result<OpenedStore> {
        let file = FileOptions {
            step_hook: options.step_hook.clone(),
            check_integrity: options.check_integrity,
        };
        let database = match SharedDatabase::open(directory, &file)? {
            Some(database) => database,
            None => {
                let identity = new();
                SharedDatabase::create(directory, &file, |database| {
                    disk::fill(database, &identity)
                })?
            }
        };
        let loaded = Loaded::read(&database).inspect_err(|_| database.close())?;
        let failure = Arc::new(FailureCell::default());
        let disk = Disk::new(
            database.clone(),
            loaded.marks.clone(),
            loaded.state.applied,
            loaded.stored,
        );
        let writer = Writer::start(disk, Arc::clone(&failure), options.write_mode)
            .inspect_err(|_| database.close())?;
        let membership = newest_membership(&loaded.entries, &loaded.state);
        let parts = (database.clone(), writer.clone(), Arc::clone(&failure));
        Ok(OpenedStore {
            log: RaftLog::new(loaded.marks, loaded.entries, options.cache_bytes, parts),
            state_machine: StateMachine::new(loaded.state, writer.clone()),
            store: Self {
                identity: Mutex::new(loaded.identity),
                membership,
                database,
                writer,
                failure,
            },
        })
    }

    /// Who the directory is.
    pub(crate) fn identity(&self) -> Identity {
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest membership that the file held when it was opened, committed or not.
    pub(crate) fn membership(&self) -> &StoredMembership {
        &self.membership
    }

    /// Makes a changed identity durable.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) async fn set_identity(&self, identity: Identity) -> Result<()> {
        let written = self.writer.write(Write::Identity(identity)).await;
        written.map_err(|e| {
            let error = || Error::io("the identity of the metadata directory", e);
            self.failure.error().unwrap_or_else(error)
        })?;
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = identity;
        Ok(())
    }

    /// Why the store takes nothing more, where it failed.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.error()
    }

    /// The same, for whoever outlives a call.
    pub(crate) fn failure_cell(&self) -> Arc<FailureCell> {
        Arc::clone(&self.failure)
    }

    /// Finishes what waits and closes the file, whoever still holds the log; returns when it is closed.
    pub(crate) fn close(&self) {
        self.writer.close();
        self.database.close();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

fn newest_membership(
    entries: &[(super::types::RaftEntry, usize)],
    stored: &AppliedState,
) -> StoredMembership {
    let in_log = entries.iter().rev().find_map(|(entry, _)| {
        let openraft::EntryPayload::Membership(membership) = &entry.payload else {
            return None;
        };
        Some(StoredMembership::new(
            Some(entry.log_id),
            membership.clone(),
        ))
    });
    in_log.unwrap_or_else(|| stored.membership.clone())
}

#[cfg(test)]
mod tests;
