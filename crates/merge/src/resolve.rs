//! The join of the reduced events with the stored state, and what is to be written.

use arrow::array::RecordBatch;
use tidegate_change::{Code, Counters};

use crate::{Error, FileBounds, Grouped, MergeRules, Result, Stored};

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
    let _ = (rules, grouped, stored);
    Err(Error::internal("resolve is not written"))
}
