//! The applied state, in memory; the file holds it as of the newest snapshot.
//!
//! Entries change the state in memory only. A snapshot writes the tables that changed since the one
//! before, with the position, in one transaction; then the log before it may go. After a restart the log
//! behind the stored state is applied again.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use futures::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};

use super::disk::Write;
use super::stored::AppliedState;
use super::writer::Writer;
use crate::metadata::replicated::types::{
    LogId, RaftEntry, Snapshot, SnapshotMeta, StoredMembership, Types,
};
use crate::metadata::{Outcome, State, apply};

/// The state as readers see it.
#[derive(Debug, Default)]
pub(crate) struct Published {
    current: RwLock<AppliedState>,
    /// The newest state that the file holds.
    snapshot: Mutex<Option<AppliedState>>,
}

impl Published {
    /// The state with everything that is applied.
    pub(crate) fn state(&self) -> Arc<State> {
        Arc::clone(&self.read().state)
    }

    /// The same with its position and membership.
    pub(crate) fn applied(&self) -> AppliedState {
        self.read().clone()
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, AppliedState> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn snapshot(&self) -> Option<AppliedState> {
        self.snapshot
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set_snapshot(&self, stored: AppliedState) {
        let mut snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        if snapshot
            .as_ref()
            .is_none_or(|older| older.applied <= stored.applied)
        {
            *snapshot = Some(stored);
        }
    }

    /// Applies entries; readers see all of them or none.
    fn apply<'a>(&self, entries: impl Iterator<Item = &'a RaftEntry>) -> Vec<Outcome> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let current = &mut *current;
        let state = Arc::make_mut(&mut current.state);
        entries
            .map(|entry| {
                let index = entry.log_id.index;
                current.applied = Some(entry.log_id);
                let outcome = match &entry.payload {
                    EntryPayload::Blank => Outcome::Done,
                    EntryPayload::Normal(entry) => apply(state, index, entry),
                    EntryPayload::Membership(membership) => {
                        let members = membership.nodes().map(|(id, _)| *id).collect();
                        state.set_members(members);
                        current.membership =
                            StoredMembership::new(Some(entry.log_id), membership.clone());
                        Outcome::Done
                    }
                };
                state.last_applied = index;
                outcome
            })
            .collect()
    }
}

/// Applies entries, makes and takes snapshots.
#[derive(Debug)]
pub(crate) struct StateMachine {
    published: Arc<Published>,
    writer: Writer,
}

impl StateMachine {
    /// A state machine at the state that the file holds.
    pub(super) fn new(stored: AppliedState, writer: Writer) -> Self {
        let snapshot = stored.applied.is_some().then(|| stored.clone());
        Self {
            published: Arc::new(Published {
                current: RwLock::new(stored),
                snapshot: Mutex::new(snapshot),
            }),
            writer,
        }
    }

    /// Where readers find the state.
    pub(crate) fn published(&self) -> Arc<Published> {
        Arc::clone(&self.published)
    }
}

/// Makes the file hold a state.
#[derive(Debug)]
pub(crate) struct SnapshotBuilder {
    state: AppliedState,
    published: Arc<Published>,
    writer: Writer,
}

impl RaftSnapshotBuilder<Types> for SnapshotBuilder {
    type SnapshotData = AppliedState;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let write = Write::State(Box::new(self.state.clone()));
        self.writer.write(write).await?;
        self.published.set_snapshot(self.state.clone());
        Ok(snapshot_of(self.state.clone()))
    }
}

fn snapshot_of(state: AppliedState) -> Snapshot {
    Snapshot {
        meta: SnapshotMeta {
            last_log_id: state.applied,
            last_membership: state.membership.clone(),
        },
        snapshot: state,
    }
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotData = AppliedState;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let current = self.published.read();
        Ok((current.applied, current.membership.clone()))
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        let entries: Vec<_> = entries.try_collect().await?;
        let outcomes = self.published.apply(entries.iter().map(|(entry, _)| entry));
        // ORDER: whoever hears of an outcome finds it in the state.
        for ((_, responder), outcome) in entries.into_iter().zip(outcomes) {
            if let Some(responder) = responder {
                responder.send(outcome);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder {
            state: self.published.read().clone(),
            published: Arc::clone(&self.published),
            writer: self.writer.clone(),
        }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: AppliedState,
    ) -> io::Result<()> {
        if snapshot.applied != meta.last_log_id {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a snapshot of the metadata is of another position than it says",
            ));
        }
        self.writer
            .write(Write::State(Box::new(snapshot.clone())))
            .await?;
        self.published.set_snapshot(snapshot.clone());
        *self
            .published
            .current
            .write()
            .unwrap_or_else(PoisonError::into_inner) = snapshot;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        Ok(self.published.snapshot().map(snapshot_of))
    }
}
