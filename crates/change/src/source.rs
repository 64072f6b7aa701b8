//! What decoding yields: the events of a source, in the table's column names and declared types, not
//! yet classified by the spec's expressions.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StructArray};
use arrow::buffer::BooleanBuffer;

use crate::Code;
use crate::spec::OnInvalid;

/// What the envelope of a format says of an event; flat sources say nothing and are all `Unspecified`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceOperation {
    /// The spec's conditions decide (R-D1).
    Unspecified,
    /// An insert, or what the format does not tell from one.
    Upsert,
    /// An update of a row that was there: an upsert, but nothing to append (R-K7).
    Update,
    /// A row of an initial copy, which ranks below streamed rows at an equal position.
    Copy,
    /// A delete.
    Delete,
    /// A truncate of the whole table (R-X6).
    Truncate,
}

/// Where an event came from, for pseudo-columns (R-T5) and for rejects.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Name of the file (or stream) that the batch was read from.
    pub file: Arc<str>,
    /// Number of the record in the file, from 0, one per event.
    pub rows: Vec<u64>,
    /// Topic by event, where a record carries one.
    pub topics: Option<Vec<Option<Arc<str>>>>,
    /// Topic partition by event, where a record carries one.
    pub partitions: Option<Vec<Option<i64>>>,
    /// Topic offset by event, where a record carries one.
    pub offsets: Option<Vec<Option<i64>>>,
}

/// An event that cannot be taken as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidEvent {
    /// Why.
    pub code: Code,
    /// Name of the file.
    pub file: Arc<str>,
    /// Number of the record in the file, from 0.
    pub row: u64,
    /// The field that is at fault, where there is one.
    pub field: Option<String>,
    /// A sentence without values.
    pub detail: String,
    /// The record as JSON text, for the rejects table only.
    pub raw: String,
    /// What happens to the event; None = the spec's `on_invalid`, Some where `on_unrepresentable` rules (R-K9).
    pub policy: Option<OnInvalid>,
}

/// Records that are no row events, by class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherRecords(pub BTreeMap<&'static str, u64>);

impl OtherRecords {
    /// Counts one record of a class: `null`, `heartbeat`, `transaction`, `schema_change`, `message`, `other_table`.
    pub fn count(&mut self, class: &'static str) {
        *self.0.entry(class).or_default() += 1;
    }

    /// Adds another part's counts.
    pub fn add(&mut self, other: &Self) {
        for (class, count) in &other.0 {
            *self.0.entry(class).or_default() += count;
        }
    }
}

/// A bounded number of decoded events.
///
/// All parts with a length have one entry per event. A source column that the file's schema lacks is not
/// in `columns` and is not authored (R-N5).
#[derive(Clone, Debug)]
pub struct SourceBatch {
    /// The carried source columns by table name, in declared types.
    pub columns: RecordBatch,
    /// By column of `columns`: which events author it; None = all (R-K6, R-N5).
    pub authored: Vec<Option<BooleanBuffer>>,
    /// What the envelope says.
    pub operations: Vec<SourceOperation>,
    /// Sequence derived from the source position (R-T6): a struct whose last member is `rank`.
    /// A row without any position is NULL.
    pub position: Option<ArrayRef>,
    /// The old key of a key change, as a struct of key columns in key order; NULL for other events (R-K5, R-K6).
    pub old_keys: Option<StructArray>,
    /// Where the events came from.
    pub origin: Origin,
    /// Events that could not be decoded, with their place.
    pub invalid: Vec<InvalidEvent>,
    /// Other records met on the way.
    pub other: OtherRecords,
    /// Declared fields that JSON events lacked under `absent_fields: null` (R-N5).
    pub absent: u64,
    /// Values that Delta cannot hold and that read NULL (R-K9).
    pub unrepresentable: u64,
    /// Greatest offset + 1 found in records, by `topic/partition`.
    pub offsets: BTreeMap<String, i64>,
}

impl SourceBatch {
    /// Number of events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there is no event.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }
}
