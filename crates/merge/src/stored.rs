//! What a table holds of the keys before the batch.

use arrow::array::RecordBatch;

/// Where the state of one key lies before the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum StoredRef {
    /// No row and no tombstone, or a tombstone that is logically purged (R-G2).
    #[default]
    Absent,
    /// A row that [`crate::Grouped::needs_stored`] allowed to leave unread.
    Unread,
    /// A row of [`Stored::rows`].
    Row(u32),
    /// A row of [`Stored::tombstones`].
    Tombstone(u32),
}

/// The stored state of the keys of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// One entry per key.
    pub refs: &'a [StoredRef],
    /// Rows in `TableLayout::file_schema()`; hidden columns that a file lacks are NULL.
    pub rows: &'a RecordBatch,
    /// Tombstones with the columns `SEQUENCE`, `DELETES` (soft delete only) and `ARRIVED`, found by name.
    pub tombstones: &'a RecordBatch,
}
