//! What decoding yields: the events of a source, in the table's column names and declared types, not
//! yet classified by the spec's expressions.

use std::collections::BTreeMap;
use std::fmt;
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

/// The records of a source as they came, for errors and rejects only.
pub trait RawRecords: fmt::Debug + Send + Sync {
    /// Physical line of a record, from 1; `row` is its number in the file, from 0. None where it is not there.
    fn line(&self, row: u64) -> Option<u64>;

    /// The record as JSON text; None where it is not there.
    fn json(&self, row: u64) -> Option<String>;
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
    /// The records themselves, where the source can still tell them.
    pub records: Option<Arc<dyn RawRecords>>,
}

impl Origin {
    /// Where an event of the batch came from.
    #[must_use]
    pub fn place(&self, event: usize) -> Place {
        let row = self.rows.get(event).copied().unwrap_or_default();
        let of = |values: &Option<Vec<Option<i64>>>| *values.as_ref()?.get(event)?;
        let line = self.records.as_ref().and_then(|records| records.line(row));
        Place {
            row,
            line,
            partition: of(&self.partitions),
            offset: of(&self.offsets),
        }
    }

    /// The record of an event as JSON text, where the source can still tell it.
    #[must_use]
    pub fn raw(&self, event: usize) -> Option<String> {
        self.records.as_ref()?.json(*self.rows.get(event)?)
    }
}

/// Where a record stands in its file, and in its topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Number of the record in the file, from 0.
    pub row: u64,
    /// Physical line, from 1: a header and blank lines count. None where it is not known.
    pub line: Option<u64>,
    /// Topic partition, where the record carries one.
    pub partition: Option<i64>,
    /// Topic offset, where the record carries one.
    pub offset: Option<i64>,
}

impl fmt::Display for Place {
    /// The line; where it is not known, the number of the record stands for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}",
            self.line.unwrap_or_else(|| self.row.saturating_add(1))
        )
    }
}

/// An event that cannot be taken as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidEvent {
    /// Why.
    pub code: Code,
    /// Name of the file.
    pub file: Arc<str>,
    /// Where it stands there.
    pub place: Place,
    /// The field that is at fault, where there is one.
    pub field: Option<String>,
    /// A sentence without values.
    pub detail: String,
    /// The record as JSON text, for the rejects table only.
    pub raw: String,
    /// What happens to the event; None = the spec's `on_invalid`, Some where `on_unrepresentable` rules (R-K9).
    pub policy: Option<OnInvalid>,
}

impl InvalidEvent {
    /// The sentence with the line and the field in front of it.
    #[must_use]
    pub fn placed_detail(&self) -> String {
        match &self.field {
            Some(field) => format!("{}, field {field}: {}", self.place, self.detail),
            None => format!("{}: {}", self.place, self.detail),
        }
    }
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
