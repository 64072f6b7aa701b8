//! A store without openraft around it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use futures::stream;
use openraft::entry::RaftEntry as _;
use openraft::storage::{
    IOFlushed, RaftLogStorage, RaftLogStorageExt, RaftSnapshotBuilder, RaftStateMachine,
};
use openraft::type_config::TypeConfigExt;
use openraft::vote::RaftLeaderId;
use openraft::{EntryPayload, RaftLogReader};
use tidegate_change::{Result, TableVersion};
use tidegate_delta::store::StepHook;

use super::super::{Identity, OpenedStore, Store, StoreOptions, WriteMode};
use crate::metadata::replicated::types::{LeaderId, LogId, Payload, RaftEntry, Types, Vote};
use crate::metadata::{ClusterId, CreateTable, Entry, NodeId, TableId};

pub(super) fn options(hook: Option<Arc<dyn StepHook>>, mode: WriteMode) -> StoreOptions {
    StoreOptions {
        step_hook: hook,
        check_integrity: false,
        write_mode: mode,
        cache_bytes: 2_000,
    }
}

pub(super) fn open(dir: &Path, options: &StoreOptions) -> Result<OpenedStore> {
    Store::open(dir, options, || Identity {
        node: NodeId(7),
        cluster: Some(ClusterId(8)),
        is_founder: true,
    })
}

pub(super) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

pub(super) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(LeaderId::new(term, NodeId(7)), index)
}

pub(super) fn vote(term: u64) -> Vote {
    Vote::new(term, NodeId(7))
}

pub(super) fn create(n: u64) -> Entry {
    Entry::CreateTable(CreateTable {
        epoch: None,
        table: TableId(format!("id{n}")),
        name: format!("t{n}"),
        location: format!("t{n}"),
    })
}

pub(super) fn entry(term: u64, index: u64) -> RaftEntry {
    let payload: Payload = EntryPayload::Normal(create(index));
    RaftEntry::new(log_id(term, index), payload)
}

pub(super) async fn apply(opened: &mut OpenedStore, entries: Vec<RaftEntry>) -> io::Result<()> {
    let entries = entries.into_iter().map(|entry| Ok((entry, None)));
    opened.state_machine.apply(stream::iter(entries)).await
}

/// One call of openraft.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Vote(u64),
    Append { term: u64, count: u64 },
    Truncate(u64),
    Apply(u64),
    Snapshot,
    Purge(u64),
}

/// What a store must hold after calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) vote: Option<Vote>,
    /// Terms by index.
    pub(super) entries: BTreeMap<u64, u64>,
    pub(super) applied: Option<u64>,
    pub(super) stored: Option<u64>,
    pub(super) purged: Option<u64>,
}

impl Model {
    pub(super) fn after(&self, call: Call) -> Self {
        let mut next = self.clone();
        match call {
            Call::Vote(term) => next.vote = Some(vote(term)),
            Call::Append { term, count } => {
                let first = next.entries.keys().next_back().map_or(0, |last| last + 1);
                let first = first.max(next.purged.map_or(0, |purged| purged + 1));
                next.entries
                    .extend((first..first + count).map(|index| (index, term)));
            }
            Call::Truncate(last) => next.entries.retain(|index, _| *index <= last),
            Call::Apply(last) => next.applied = Some(last),
            Call::Snapshot => next.stored = next.applied,
            Call::Purge(upto) => {
                next.entries.retain(|index, _| *index > upto);
                next.purged = Some(upto);
            }
        }
        next
    }

    /// Makes the call on a store that holds this.
    pub(super) async fn make(&self, opened: &mut OpenedStore, call: Call) -> io::Result<()> {
        let next = self.after(call);
        match call {
            Call::Vote(term) => opened.log.save_vote(&vote(term)).await,
            Call::Append { term, .. } => {
                let new = next.entries.keys();
                let new = new.filter(|index| !self.entries.contains_key(index));
                let entries: Vec<_> = new.map(|index| entry(term, *index)).collect();
                opened
                    .log
                    .blocking_append(entries)
                    .await
                    .map_err(Into::into)
            }
            Call::Truncate(last) => {
                let last = log_id(self.entries[&last], last);
                opened.log.truncate_after(Some(last)).await
            }
            Call::Apply(last) => {
                let first = self.applied.map_or(0, |applied| applied + 1);
                let entries = opened.log.try_get_log_entries(first..=last).await?;
                let newest = entries.last().map(|entry| entry.log_id);
                opened.log.save_committed(newest).await?;
                apply(opened, entries).await
            }
            Call::Snapshot => {
                let mut builder = opened.state_machine.get_snapshot_builder().await;
                builder.build_snapshot().await.map(drop)
            }
            Call::Purge(upto) => {
                let upto = log_id(self.entries[&upto], upto);
                opened.log.purge(upto).await
            }
        }
    }

    /// What a store holds, as far as it matters after a restart.
    pub(super) async fn read(opened: &mut OpenedStore) -> Self {
        let entries = opened.log.try_get_log_entries(..).await.unwrap();
        let state = opened.log.get_log_state().await.unwrap();
        let (applied, _) = opened.state_machine.applied_state().await.unwrap();
        let tables = opened.state_machine.published().state();
        let applied = applied.map(|applied| applied.index);
        assert_eq!(
            tables.tables.len() as u64,
            applied.map_or(0, |applied| applied + 1),
            "the state is that of its position"
        );
        for table in tables.tables.values() {
            assert_eq!(table.next_version(), TableVersion(0));
        }
        Self {
            vote: opened.log.read_vote().await.unwrap(),
            entries: entries
                .iter()
                .map(|entry| {
                    (
                        entry.log_id.index,
                        entry.log_id.committed_leader_id().term(),
                    )
                })
                .collect(),
            applied,
            stored: applied,
            purged: state.last_purged_log_id.map(|purged| purged.index),
        }
    }

    /// Whether a reopened store may hold what `found` says. Entries that were purged may still be there.
    pub(super) fn allows(&self, found: &Self) -> bool {
        let kept = |model: &Self| {
            let after = self.purged;
            let mut entries = model.entries.clone();
            entries.retain(|index, _| after.is_none_or(|purged| *index > purged));
            entries
        };
        found.vote == self.vote
            && kept(found) == kept(self)
            && found.applied == self.stored
            && found.purged <= self.purged
    }
}

/// A callback of openraft, and what it hears.
pub(super) fn flushed() -> (IOFlushed<Types>, impl Future<Output = io::Result<()>>) {
    let (sender, receiver) = Types::oneshot();
    let heard = async move { receiver.await.unwrap() };
    (IOFlushed::signal(sender), heard)
}
