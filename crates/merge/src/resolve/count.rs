//! Events that were late, duplicates, tie losers or rejected (interface document: the result of a batch).
//!
//! Each event counts once: a copy of another event of the batch is a duplicate; of the rest, one below the
//! key's state is late, one equal to it a duplicate. Ties count by instant: all different contents but one,
//! the stored one included.

use tidegate_change::sequence::SequenceBytes;
use tidegate_change::{Code, Counters};

use crate::group::instants::is_upsert;
use crate::resolve::state::State;
use crate::resolve::ties::StoredTies;
use crate::sequences::{NONE, handle};
use crate::{Grouped, MergeMode, MergeRules, Stored, StoredRef};

/// The counts, and the events that are not taken.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) counters: Counters,
    pub(crate) tie_example: Option<u32>,
    pub(crate) rejects: Vec<(u32, Code)>,
}

/// Everything that counting looks at.
pub(crate) struct Counter<'a> {
    pub(crate) rules: &'a MergeRules,
    pub(crate) grouped: &'a Grouped,
    pub(crate) stored: &'a Stored<'a>,
    pub(crate) state: &'a State,
    pub(crate) ties: &'a StoredTies,
    pub(crate) horizon: Option<&'a SequenceBytes>,
}

impl Counter<'_> {
    pub(crate) fn count(&self) -> Counted {
        let mut counted = Counted::default();
        self.count_instants(&mut counted);
        for (group, own) in self.stored.refs.iter().enumerate() {
            match *own {
                StoredRef::Absent => {
                    self.reject(&mut counted, group);
                    self.count_late(&mut counted, group, *own, self.state.truncated_before);
                }
                StoredRef::Unread => {}
                StoredRef::Row(row) => self.count_row(&mut counted, group, row),
                StoredRef::Tombstone(row) => self.count_tombstone(&mut counted, group, row),
            }
        }
        counted.rejects.sort_unstable();
        counted.counters.quarantined = counted.rejects.len() as u64;
        counted
    }

    fn is_rejected(&self, own: StoredRef, event: u32) -> bool {
        self.horizon.is_some_and(|horizon| {
            own == StoredRef::Absent
                && is_upsert(self.rules, &self.grouped.events, event)
                && self.state.pool.compare_bytes(event, horizon).is_le()
        })
    }

    fn count_instants(&self, counted: &mut Counted) {
        let with_deletes = self.rules.takes_deletes();
        for instant in &self.grouped.instants.list {
            let own = self
                .stored
                .refs
                .get(crate::sequences::position(instant.group));
            let unknown = own.is_some_and(|own| *own == StoredRef::Absent);
            let below = self
                .horizon
                .is_some_and(|horizon| self.state.pool.compare_bytes(instant.row, horizon).is_le());
            let rejected = unknown && below;
            counted.counters.duplicates += instant.duplicates(!rejected);
            let ties = if rejected {
                0
            } else {
                instant.ties(with_deletes)
            };
            if ties > 0 {
                counted.counters.ties += ties;
                counted.tie_example.get_or_insert(instant.group);
            }
        }
    }

    fn reject(&self, counted: &mut Counted, group: usize) {
        if self.horizon.is_none() {
            return;
        }
        let rows = self.grouped.rows(group).iter().copied();
        let rejected = rows.filter(|event| self.is_rejected(StoredRef::Absent, *event));
        counted
            .rejects
            .extend(rejected.map(|event| (event, Code::LateBeyondRetention)));
    }

    /// Whether an event can compete with others of its key.
    fn counts(&self, event: u32) -> bool {
        self.rules.takes_deletes() || is_upsert(self.rules, &self.grouped.events, event)
    }

    fn count_late(&self, counted: &mut Counted, group: usize, own: StoredRef, state: u32) {
        if state == NONE || self.rules.mode == MergeMode::Once {
            return;
        }
        for event in self.grouped.rows(group) {
            let late = self.counts(*event)
                && !self.grouped.instants.is_copy(*event)
                && !self.is_rejected(own, *event)
                && self.state.pool.is_below(*event, state);
            counted.counters.late += u64::from(late);
        }
    }

    fn count_row(&self, counted: &mut Counted, group: usize, row: u32) {
        let pool = &self.state.pool;
        let upsert = self.state.rows.sequence(row);
        let deletes = self.state.rows.deletes(row);
        let top = pool.greater(upsert, deletes.last().unwrap_or(NONE));
        let own = StoredRef::Row(row);
        self.count_late(
            counted,
            group,
            own,
            pool.greater(top, self.state.truncated_before),
        );
        if pool.is_below(top, self.state.truncated_before) {
            return;
        }
        let is_upsert_on_top = pool.is_equal(top, upsert);
        let delete_on_top = !is_upsert_on_top || pool.is_equal(self.state.rows.floor(row), top);
        self.count_meeting(counted, group, top, |event, is_upsert| match is_upsert {
            true => is_upsert_on_top && self.ties.is_stored(self.grouped, self.state, event, row),
            false => delete_on_top,
        });
    }

    fn count_tombstone(&self, counted: &mut Counted, group: usize, row: u32) {
        let pool = &self.state.pool;
        let top = self.state.tombstones.sequence(row);
        let own = StoredRef::Tombstone(row);
        self.count_late(
            counted,
            group,
            own,
            pool.greater(top, self.state.truncated_before),
        );
        if !pool.is_below(top, self.state.truncated_before) {
            self.count_meeting(counted, group, top, |_, is_upsert| !is_upsert);
        }
    }

    /// Events at the sequence of the stored state: equal to it, or one more content in its tie.
    fn count_meeting(
        &self,
        counted: &mut Counted,
        group: usize,
        top: u32,
        is_stored: impl Fn(u32, bool) -> bool,
    ) {
        let (mut met, mut duplicates) = (false, 0);
        for event in self.grouped.rows(group) {
            let meets = self.counts(*event)
                && !self.grouped.instants.is_copy(*event)
                && self.state.pool.is_equal(*event, top);
            if meets {
                met = true;
                let is_upsert = is_upsert(self.rules, &self.grouped.events, *event);
                duplicates += u64::from(is_stored(*event, is_upsert));
            }
        }
        if !met {
            return;
        }
        counted.counters.duplicates += duplicates;
        if self.rules.mode == MergeMode::Once {
            return;
        }
        // The instant's own ties were counted: all contents but one. The stored content joins them, and
        // contents that it holds already are no losers of this batch.
        if duplicates == 0 {
            counted.counters.ties += 1;
            counted.tie_example.get_or_insert_with(|| handle(group));
        } else {
            counted.counters.ties = counted.counters.ties.saturating_sub(duplicates - 1);
        }
    }
}
