//! Files of an attempt beside its data files: tombstones and rejects.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tidegate_change::spec::TableLayout;
use tidegate_change::{Error, Result, hidden, types};
use tidegate_delta::TableRoot;
use tidegate_delta::data::{RowSelection, read_rows, write_rows};

/// Columns of a state file: the key, the delete's sequence, the deletes of soft delete, the arrival.
#[must_use]
pub(crate) fn state_schema(layout: &TableLayout) -> SchemaRef {
    let sequence = layout.sequence_type.clone().unwrap_or(DataType::Int64);
    let mut fields: Vec<Field> = layout
        .key_columns()
        .map(|c| Field::new(&c.name, c.data_type.clone(), true))
        .collect();
    fields.push(Field::new(hidden::SEQUENCE, sequence.clone(), true));
    if layout.soft_delete {
        fields.push(Field::new(hidden::DELETES, types::list_of(sequence), true));
    }
    fields.push(Field::new(hidden::ARRIVED, DataType::Int64, true));
    Arc::new(Schema::new(fields))
}

/// Reads rows of a state file, all or those at ascending positions.
///
/// # Errors
/// Failures of storage; `CORRUPT` when the file lacks a column.
pub(crate) async fn read_state(
    root: &TableRoot,
    path: &str,
    schema: &SchemaRef,
    positions: Option<Vec<u32>>,
) -> Result<RecordBatch> {
    let rows = positions.map_or(RowSelection::All, RowSelection::Positions);
    let batches = read_rows(root, path, None, rows).await?.collect().await?;
    let parts = batches
        .iter()
        .map(|batch| {
            let columns = schema
                .fields()
                .iter()
                .map(|field| batch.column_by_name(field.name()).cloned())
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| Error::corrupt(format!("state file {path}: lacks a column")))?;
            RecordBatch::try_new(Arc::clone(schema), columns).map_err(|e| {
                Error::corrupt(format!("state file {path}: a column of another type"))
                    .with_source(e)
            })
        })
        .collect::<Result<Vec<_>>>()?;
    concat_batches(schema, &parts)
        .map_err(|e| Error::internal("parts of a state file differ").with_source(e))
}

/// Writes a batch as one Parquet file; returns its bytes.
///
/// # Errors
/// Failures of storage.
pub(crate) async fn write_file(root: &TableRoot, path: &str, batch: &RecordBatch) -> Result<u64> {
    write_rows(root, path, &batch.schema(), std::slice::from_ref(batch)).await
}
