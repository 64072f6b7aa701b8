//! The join of the reduced events with the stored state, and what is to be written.
//!
//! [`state`] reads the stored side, [`ties`] compares values where both sides meet at one sequence,
//! [`decide`] joins key by key, [`visible`] finds what readers would see change, [`count`] counts events,
//! [`output`] gathers. SCD types differ in [`decide`] alone.

pub(crate) mod count;
mod decide;
mod output;
pub(crate) mod state;
pub(crate) mod ties;
mod visible;

use arrow::array::{Array, RecordBatch};
use tidegate_change::{Code, Counters};

use crate::feed::{Change, change_rows};
use crate::sequences::{NONE, handle, position};
use crate::{FileBounds, Grouped, MergeRules, Result, Stored, StoredRef};

use count::Counter;
use decide::{Decider, Fate, Plan};
use output::Gatherer;
use state::State;
use ties::StoredTies;

/// What a batch does to a set of keys.
#[derive(Clone, Debug)]
pub struct Merged {
    /// Rows to write, in `TableLayout::file_schema()`, sorted as the groups are: by bucket and key.
    pub rows: RecordBatch,
    /// The group of each row.
    pub row_groups: Vec<u32>,
    /// Groups whose stored row dies, superseded or deleted, ascending.
    pub replaced: Vec<u32>,
    /// Tombstones to write: key columns, `SEQUENCE`, `DELETES` (soft delete only), `ARRIVED`.
    pub tombstones: RecordBatch,
    /// The group of each tombstone.
    pub tombstone_groups: Vec<u32>,
    /// Groups whose stored tombstone no longer holds: a row or another tombstone took its place.
    pub superseded_tombstones: Vec<u32>,
    /// Change rows when the rules ask for a feed: the table's visible columns and [`crate::CHANGE_TYPE`].
    pub feed: Option<RecordBatch>,
    /// inserted, updated, deleted, unchanged, late, duplicates, ties, quarantined; the rest is zero.
    pub counters: Counters,
    /// A group in which a tie was met (R-T5).
    pub tie_example: Option<u32>,
    /// Events that were not taken: row of the events and why (R-G4), by row.
    pub rejects: Vec<(u32, Code)>,
    /// Bounds of `rows`, for the file that takes all of them.
    pub bounds: FileBounds,
}

/// Joins the groups with their stored state.
///
/// # Errors
/// `INTERNAL` when the stored parts disagree with the layout.
pub fn resolve(rules: &MergeRules, grouped: &Grouped, stored: &Stored<'_>) -> Result<Merged> {
    let state = State::new(rules, &grouped.events, grouped.len(), stored)?;
    let ties = StoredTies::find(rules, grouped, stored, &state)?;
    let horizon = rules.rejecting_horizon();
    let decider = Decider {
        rules,
        grouped,
        stored,
        state: &state,
        ties: &ties,
        horizon,
    };
    let plan = decider.plan();
    let changed = visible::visible_changes(rules, grouped, stored, &state, &plan)?;
    let counted = Counter {
        rules,
        grouped,
        stored,
        state: &state,
        ties: &ties,
        horizon,
    }
    .count();
    let lists = Lists::new(stored, &plan, &changed);
    let gatherer = Gatherer {
        rules,
        grouped,
        stored,
        state: &state,
        plan: &plan,
    };
    let rows = gatherer.rows(&lists.rows)?;
    let tombstones = gatherer.tombstones(&lists.tombstones)?;
    let feed = match rules.feed {
        true => Some(change_rows(rules, stored.rows, &rows, &lists.changes)?),
        false => None,
    };
    let mut counters = counted.counters;
    counters.add(&lists.counters);
    let greatest = lists.rows.iter().fold(NONE, |best, group| {
        let own = plan
            .outcomes
            .get(position(*group))
            .map_or(NONE, |own| own.sequence);
        state.pool.greater(best, own)
    });
    let bounds = FileBounds {
        max_sequence: state.pool.bytes(&rules.encoder, greatest)?,
        has_sparse_hidden: FileBounds::has_sparse_hidden(&rows),
    };
    Ok(Merged {
        rows,
        row_groups: lists.rows,
        replaced: lists.replaced,
        tombstones,
        tombstone_groups: lists.tombstones,
        superseded_tombstones: lists.superseded,
        feed,
        counters,
        tie_example: counted.tie_example,
        rejects: counted.rejects,
        bounds,
    })
}

/// Which groups are written, and how their rows count.
#[derive(Debug, Default)]
struct Lists {
    rows: Vec<u32>,
    replaced: Vec<u32>,
    tombstones: Vec<u32>,
    superseded: Vec<u32>,
    changes: Vec<Change>,
    counters: Counters,
}

impl Lists {
    fn new(stored: &Stored<'_>, plan: &Plan, changed: &[bool]) -> Self {
        let mut lists = Self::default();
        let all = plan
            .outcomes
            .iter()
            .zip(stored.refs)
            .zip(changed)
            .enumerate();
        for (group, ((outcome, own), changed)) in all {
            match outcome.fate {
                Fate::Nothing => {}
                Fate::Stays => lists.counters.unchanged += 1,
                Fate::Live => {
                    lists.live(group, *own, *changed, *changed || outcome.hidden_changed);
                }
                Fate::Dead => lists.dead(group, *own, outcome.hidden_changed),
            }
            let moved = outcome.fate == Fate::Live || outcome.fate == Fate::Dead;
            if moved && matches!(own, StoredRef::Tombstone(_)) {
                lists.superseded.push(handle(group));
            }
        }
        lists
    }

    fn live(&mut self, group: usize, own: StoredRef, changed: bool, written: bool) {
        let new = self.rows.len();
        match own {
            StoredRef::Absent | StoredRef::Tombstone(_) => {
                self.counters.inserted += 1;
                self.changes.push(Change::Insert { new });
            }
            // What was not read counts as changed (R-C9).
            StoredRef::Unread => self.counters.updated += 1,
            StoredRef::Row(row) if changed => {
                self.counters.updated += 1;
                self.changes.push(Change::Update {
                    old: position(row),
                    new,
                });
            }
            StoredRef::Row(_) => self.counters.unchanged += 1,
        }
        let had_row = matches!(own, StoredRef::Row(_) | StoredRef::Unread);
        if written || !matches!(own, StoredRef::Row(_)) {
            self.rows.push(handle(group));
            if had_row {
                self.replaced.push(handle(group));
            }
        }
    }

    fn dead(&mut self, group: usize, own: StoredRef, tombstone: bool) {
        match own {
            StoredRef::Row(row) => {
                self.counters.deleted += 1;
                self.changes.push(Change::Delete { old: position(row) });
                self.replaced.push(handle(group));
            }
            StoredRef::Unread => {
                self.counters.deleted += 1;
                self.replaced.push(handle(group));
            }
            StoredRef::Absent | StoredRef::Tombstone(_) => {}
        }
        if tombstone {
            self.tombstones.push(handle(group));
        }
    }
}

impl FileBounds {
    /// The bounds of rows in the file schema.
    ///
    /// # Errors
    /// `INTERNAL` when the sequence has another type.
    pub fn of(rules: &MergeRules, rows: &RecordBatch) -> Result<Self> {
        let column = rows.column_by_name(tidegate_change::hidden::SEQUENCE);
        let max_sequence = match column {
            None => None,
            Some(column) => {
                let pool =
                    crate::sequences::Pool::new(&rules.encoder, std::slice::from_ref(column))?;
                let all = 0..handle(column.len());
                let greatest = all.fold(NONE, |best, own| pool.greater(best, own));
                pool.bytes(&rules.encoder, greatest)?
            }
        };
        Ok(Self {
            max_sequence,
            has_sparse_hidden: Self::has_sparse_hidden(rows),
        })
    }

    fn has_sparse_hidden(rows: &RecordBatch) -> bool {
        use tidegate_change::hidden::{DELETES, FLOOR, LEAVES};
        [FLOOR, LEAVES, DELETES].iter().any(|name| {
            rows.column_by_name(name)
                .is_some_and(|column| column.null_count() < column.len())
        })
    }
}
