//! Quarantined events: reason and place, written beside the table and never into logs.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::compute::{SortColumn, concat_batches, lexsort_to_indices, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema};
use tidegate_change::source::{InvalidEvent, Place};
use tidegate_change::{Code, Error, Result};

/// The refusal of a batch for one of its events.
#[must_use]
pub(crate) fn refusal(table: &str, code: Code, file: &str, detail: &str) -> Error {
    Error::new(code, format!("table {table}: {file} {detail}"))
        .with_hint("correct the source, or set on_invalid: quarantine to keep such events apart")
}

/// The columns of the rejects table.
#[must_use]
pub fn reject_schema() -> Arc<Schema> {
    Arc::new(Schema::new(vec![
        Field::new("reason", DataType::Utf8, false),
        Field::new("file", DataType::Utf8, false),
        Field::new("row", DataType::Int64, false),
        Field::new("field", DataType::Utf8, true),
        Field::new("detail", DataType::Utf8, false),
        Field::new("event", DataType::Utf8, false),
        Field::new("partition", DataType::Int64, true),
        Field::new("offset", DataType::Int64, true),
    ]))
}

/// The rejects as rows of the rejects table.
///
/// # Errors
/// `INTERNAL` when the columns cannot be built.
pub(crate) fn reject_rows(events: &[InvalidEvent]) -> Result<RecordBatch> {
    let text = |of: fn(&InvalidEvent) -> &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(events.iter().map(of)))
    };
    let rows: Int64Array = events
        .iter()
        .map(|e| i64::try_from(e.place.row).unwrap_or(i64::MAX))
        .collect();
    let fields: StringArray = events.iter().map(|e| e.field.as_deref()).collect();
    let details = events.iter().map(InvalidEvent::placed_detail);
    let details = StringArray::from_iter_values(details);
    let numbers = |of: fn(&Place) -> Option<i64>| -> ArrayRef {
        Arc::new(Int64Array::from_iter(events.iter().map(|e| of(&e.place))))
    };
    let columns = vec![
        text(|e| e.code.as_str()),
        text(|e| &e.file),
        Arc::new(rows),
        Arc::new(fields),
        Arc::new(details),
        text(|e| &e.raw),
        numbers(|place| place.partition),
        numbers(|place| place.offset),
    ];
    RecordBatch::try_new(reject_schema(), columns)
        .map_err(|e| Error::internal("rejects cannot be built").with_source(e))
}

/// Several batches of rejects as one, in the order of their places.
///
/// # Errors
/// `INTERNAL` when the batches differ.
pub(crate) fn sorted_rejects(batches: &[RecordBatch]) -> Result<RecordBatch> {
    let failed = |e| Error::internal("rejects cannot be sorted").with_source(e);
    let all = concat_batches(&reject_schema(), batches).map_err(failed)?;
    let by = ["file", "row", "reason"].map(|name| all.column_by_name(name).cloned());
    let by: Vec<SortColumn> = by
        .into_iter()
        .flatten()
        .map(|values| SortColumn {
            values,
            options: None,
        })
        .collect();
    let order = lexsort_to_indices(&by, None).map_err(failed)?;
    take_record_batch(&all, &order).map_err(failed)
}

/// A reject of an event that was decoded but breaks a rule of the table.
#[must_use]
pub(crate) fn rule_reject(code: Code, file: &Arc<str>, place: Place, raw: String) -> InvalidEvent {
    let detail = match code {
        Code::NullKey => "a key column is NULL",
        Code::NullSequence => "the sequence is NULL",
        Code::AppendOnly => "an update or delete, and the table only takes inserts",
        Code::InvalidExpression => "a condition of the spec has no result for the event",
        Code::LateBeyondRetention => "older than the purge horizon of deleted keys",
        _ => "breaks a rule of the table",
    };
    InvalidEvent {
        code,
        policy: None,
        file: Arc::clone(file),
        place,
        field: None,
        detail: detail.into(),
        raw,
    }
}
