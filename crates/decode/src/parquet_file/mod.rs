//! Parquet files: a chunk is rows of a row group; columns of the declared type pass as they are, others are cast
//! value by value without loss (R-K8).

mod cast;
mod file;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::DataType;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tidegate_change::source::{Place, RawRecords};
use tidegate_change::{Code, Error, Result, json};

pub(crate) use cast::append_arrow;
pub(crate) use file::{GroupRows, ParquetCutter, ParquetFile};

use crate::chunk::Chunk;
use crate::findings::FieldOrder;
use crate::plan::{DecodePlan, Decoded};
use crate::records::RecordSource;
use crate::rows::{BATCH_EVENTS, Cell, Event, Rows};

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
        let mut fields = FieldOrder::new(plan, &chunk.name);
        fields.at(chunk.first_row + 1);
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
            .with_batch_size(BATCH_EVENTS)
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
    let source = RecordSource {
        file: Arc::clone(&chunk.name),
        records: Arc::new(BatchRecords {
            batch: batch.clone(),
            first_row,
        }),
    };
    let mut rows = Rows::new(plan, &source)?;
    for (index, column) in plan.columns.iter().enumerate() {
        if let Some(Some(array)) = arrays.get(index)
            && cast::is_ready(array, &column.data_type)
        {
            rows.set_ready(index, array);
        }
    }
    for (row, place) in (first_row..).zip(0..batch.num_rows()) {
        let event = Event::flat(Place {
            row,
            ..Place::default()
        });
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

/// The rows of a batch; they have no lines.
#[derive(Debug)]
struct BatchRecords {
    batch: RecordBatch,
    first_row: u64,
}

impl RawRecords for BatchRecords {
    fn line(&self, _: u64) -> Option<u64> {
        None
    }

    fn json(&self, row: u64) -> Option<String> {
        let place = usize::try_from(row.checked_sub(self.first_row)?).ok()?;
        if place >= self.batch.num_rows() {
            return None;
        }
        let row = self.batch.slice(place, 1);
        // A column of a type that has no JSON form is left out; no table has such a column either.
        let printed = |column: &usize| {
            let alone = row.project(&[*column]);
            alone.is_ok_and(|alone| json::write_rows(&alone, &mut io::sink()).is_ok())
        };
        let printed: Vec<usize> = (0..row.num_columns()).filter(printed).collect();
        let mut out = Vec::new();
        json::write_rows(&row.project(&printed).ok()?, &mut out).ok()?;
        Some(String::from_utf8_lossy(&out).trim_end().to_owned())
    }
}
