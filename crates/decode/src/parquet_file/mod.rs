//! Parquet files: a chunk is rows of a row group; columns of the declared type pass as they are, others are cast
//! value by value without loss (R-K8).

mod cast;
mod file;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::DataType;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tidegate_change::source::SourceOperation;
use tidegate_change::{Code, Error, Result, json};

pub(crate) use cast::append_arrow;
pub(crate) use file::{GroupRows, ParquetCutter, ParquetFile};

use crate::chunk::Chunk;
use crate::findings::FieldOrder;
use crate::plan::{DecodePlan, Decoded};
use crate::rows::{Cell, Event, Rows};

/// Rows of a batch.
const BATCH_ROWS: usize = 1 << 16;

fn broken(e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(Code::InvalidRecord, "the Parquet file cannot be read").with_source(e)
}

/// Runs code of the Parquet reader, which may panic on damaged files.
fn guarded<T>(read: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        Err(Error::new(
            Code::InvalidRecord,
            "the Parquet file is damaged",
        ))
    })
}

/// Decodes rows of a row group.
pub(crate) fn decode(
    plan: &DecodePlan,
    chunk: &Chunk,
    file: &ParquetFile,
    rows: GroupRows,
) -> Result<Decoded> {
    guarded(|| {
        let mut fields = FieldOrder::new(plan);
        let mut wanted = Vec::new();
        for (root, field) in file.metadata.schema().fields().iter().enumerate() {
            let natural = cast::natural(field.data_type());
            match (fields.column(field.name()), natural) {
                (Some(column), natural) => {
                    wanted.push(root);
                    if let Some(natural) = natural {
                        fields.observe_column(column, natural);
                    }
                }
                (None, Some(natural)) => fields.observe_type(field.name(), natural),
                (None, None) => {}
            }
        }
        let mask = ProjectionMask::roots(file.metadata.parquet_schema(), wanted);
        let metadata = file.metadata.clone();
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata)
            .with_row_groups(vec![rows.row_group])
            .with_offset(rows.first)
            .with_limit(rows.count)
            .with_projection(mask)
            .with_batch_size(BATCH_ROWS)
            .build()
            .map_err(broken)?;
        let mut batches = Vec::new();
        let mut row = chunk.first_row;
        for batch in reader {
            let batch = batch.map_err(broken)?;
            let rows = add_batch(plan, chunk, &fields, &batch, row)?;
            batches.push(fields.take(rows)?);
            row += u64::try_from(batch.num_rows()).unwrap_or(0);
        }
        Ok(Decoded {
            batches,
            findings: fields.findings(),
        })
    })
}

fn add_batch<'p>(
    plan: &'p DecodePlan,
    chunk: &Chunk,
    fields: &FieldOrder<'_>,
    batch: &RecordBatch,
    first_row: u64,
) -> Result<Rows<'p>> {
    let mut arrays: Vec<Option<ArrayRef>> = vec![None; plan.columns.len()];
    for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
        if let Some(place) = fields
            .column(field.name())
            .and_then(|column| arrays.get_mut(column))
        {
            *place = Some(plain(array)?);
        }
    }
    let mut rows = Rows::new(plan, &chunk.name)?;
    for (index, column) in plan.columns.iter().enumerate() {
        if let Some(Some(array)) = arrays.get(index)
            && cast::is_ready(array, &column.data_type)
        {
            rows.set_ready(index, array);
        }
    }
    for (row, place) in (first_row..).zip(0..batch.num_rows()) {
        let raw = || row_json(batch, place);
        let event = Event {
            row,
            line: row + 1,
            operation: SourceOperation::Unspecified,
            position: None,
            topic: None,
            partition: None,
            offset: None,
            raw: &raw,
        };
        let cell = |index: usize| match arrays.get(index) {
            Some(Some(array)) => Cell::Arrow(array, place),
            // The file's schema lacks the column (R-N5).
            _ => Cell::NotAuthored,
        };
        rows.push(&event, cell, None)?;
    }
    Ok(rows)
}

/// The array without dictionary.
fn plain(array: &ArrayRef) -> Result<ArrayRef> {
    match array.data_type() {
        DataType::Dictionary(_, values) => arrow::compute::cast(array, values).map_err(broken),
        _ => Ok(Arc::clone(array)),
    }
}

fn row_json(batch: &RecordBatch, row: usize) -> String {
    let mut out = Vec::new();
    let written = json::write_rows(&batch.slice(row, 1), &mut out);
    let text = String::from_utf8(out).unwrap_or_default();
    if written.is_ok() {
        text.trim_end().to_owned()
    } else {
        "{}".to_owned()
    }
}
