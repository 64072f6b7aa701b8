//! What the tables of the file hold besides entries: marks of the log, and the state in parts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_change::{Error, Result, WriterId};

use super::super::types::{LogId, StoredMembership, Vote};
use crate::metadata::{ClusterId, NodeId, Role, State, TableId, TableState};
use crate::placement::Placement;

/// Positions of the log, written with every transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogMarks {
    /// The newest vote.
    pub(super) vote: Option<Vote>,
    /// The newest entry that is known to be committed; may lag.
    pub(super) committed: Option<LogId>,
    /// The newest entry that is no longer in the log.
    pub(super) purged: Option<LogId>,
    /// The newest entry, whether it is still in the log or not.
    pub(super) last: Option<LogId>,
}

impl LogMarks {
    /// Entries were appended.
    pub(super) fn append(&mut self, last: LogId) {
        self.last = Some(last);
    }

    /// The entries after `last` are gone.
    pub(super) fn truncate(&mut self, last: Option<LogId>) {
        if last.map_or(0, |last| last.index + 1) < self.next_index() {
            self.last = later(last, self.purged);
        }
    }

    /// The entries up to `upto` are gone.
    pub(super) fn purge(&mut self, upto: LogId) {
        self.purged = Some(upto);
        self.last = later(self.last, Some(upto));
    }

    /// Index of the first entry that may be in the log.
    pub(super) fn first_index(&self) -> u64 {
        self.purged.map_or(0, |purged| purged.index + 1)
    }

    /// Index after the last entry.
    pub(super) fn next_index(&self) -> u64 {
        self.last.map_or(0, |last| last.index + 1)
    }
}

/// The position with the greater index; the second of two equal ones.
fn later(a: Option<LogId>, b: Option<LogId>) -> Option<LogId> {
    match (a, b) {
        (Some(x), Some(y)) if x.index > y.index => Some(x),
        (Some(x), None) => Some(x),
        (_, b) => b,
    }
}

/// A state at a position of the log.
#[derive(Clone, Debug)]
pub(crate) struct AppliedState {
    /// The state.
    pub(crate) state: Arc<State>,
    /// The newest entry in it.
    pub(crate) applied: Option<LogId>,
    /// The newest membership in it.
    pub(crate) membership: StoredMembership,
}

impl Default for AppliedState {
    fn default() -> Self {
        Self {
            state: Arc::new(State::new(WriterId(0))),
            applied: None,
            membership: StoredMembership::default(),
        }
    }
}

/// A state without its tables, and what tells that none of them is missing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StateHead {
    cluster: Option<ClusterId>,
    writer: WriterId,
    last_applied: u64,
    members: BTreeSet<NodeId>,
    removed: BTreeSet<NodeId>,
    epochs: BTreeMap<NodeId, BTreeMap<Role, u64>>,
    #[serde(default)]
    placement: Placement,
    pub(crate) applied: Option<LogId>,
    pub(crate) membership: StoredMembership,
    /// Number of tables.
    pub(crate) tables_count: u64,
    /// Sum of the checksums of the tables' stored forms.
    pub(crate) tables_sum: u64,
}

impl StateHead {
    /// The head of a state whose tables have this sum of checksums.
    pub(crate) fn of(from: &AppliedState, tables_sum: u64) -> Self {
        let state = &from.state;
        Self {
            cluster: state.cluster,
            writer: state.writer,
            last_applied: state.last_applied,
            members: state.members.clone(),
            removed: state.removed.clone(),
            epochs: state.epochs.clone(),
            placement: state.placement.clone(),
            applied: from.applied,
            membership: from.membership.clone(),
            tables_count: state.tables.len() as u64,
            tables_sum,
        }
    }

    /// The state that a head and its tables make.
    ///
    /// # Errors
    /// `CORRUPT` when tables are missing, or there are others.
    pub(crate) fn assemble(
        self,
        tables: BTreeMap<TableId, Arc<TableState>>,
        tables_sum: u64,
    ) -> Result<AppliedState> {
        if self.tables_count != tables.len() as u64 || self.tables_sum != tables_sum {
            return Err(Error::corrupt(format!(
                "the metadata state has {} tables, and other ones than its {} by the checksums",
                tables.len(),
                self.tables_count
            )));
        }
        let names = tables
            .iter()
            .map(|(id, table)| (table.name.clone(), id.clone()))
            .collect();
        let state = State {
            cluster: self.cluster,
            writer: self.writer,
            last_applied: self.last_applied,
            members: self.members,
            removed: self.removed,
            epochs: self.epochs,
            placement: self.placement,
            tables,
            names,
        };
        Ok(AppliedState {
            state: Arc::new(state),
            applied: self.applied,
            membership: self.membership,
        })
    }
}

/// A checksum that binds a table's stored form to its id.
pub(crate) fn table_sum(id: &TableId, frame: &[u8]) -> u64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(id.0.as_bytes());
    hasher.update(&[0]);
    hasher.update(frame);
    u64::from(hasher.finalize())
}
