//! Quarantined events, with reason and place.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, new_null_array,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use futures::{StreamExt, TryStreamExt};
use serde::Deserialize;
use tidegate_change::{BatchResult, Error, Result, TableVersion};
use tidegate_delta::data::{RowSelection, read_rows};
use tidegate_delta::{DeltaLog, TableSnapshot};

use crate::Rows;

/// Domain that names the files of rejects.
const DOMAIN: &str = "tidegate.state.2";

/// The files of rejects of a table, oldest first.
#[derive(Debug, Default, Deserialize)]
struct Manifest {
    files: Vec<File>,
}

/// One file of rejects.
#[derive(Clone, Debug, Deserialize)]
struct File {
    /// Path below the table's root.
    path: String,
    /// The version whose batch brought them.
    version: TableVersion,
}

/// The quarantined events of a table, the oldest batch first.
///
/// # Errors
/// `CORRUPT` when the table's own state cannot be read, else what reading says.
pub async fn rejects(log: &DeltaLog) -> Result<Rows> {
    let files = manifest(&log.snapshot(None).await?)?.files;
    let log = log.clone();
    let stream = futures::stream::iter(files)
        .then(move |file| {
            let log = log.clone();
            async move { rows_of(&log, &file).await }
        })
        .map_ok(|batches| futures::stream::iter(batches.into_iter().map(Ok)))
        .try_flatten();
    Ok(Rows::new(schema(), stream))
}

fn manifest(snapshot: &TableSnapshot) -> Result<Manifest> {
    let Some(text) = snapshot.domains.get(DOMAIN) else {
        return Ok(Manifest::default());
    };
    serde_json::from_str(text).map_err(|e| {
        let message = format!("domain {DOMAIN} of version {}", snapshot.version);
        Error::corrupt(message).with_source(e)
    })
}

/// The rejects of one batch; a batch that is refused for its size holds few of them, a file is read whole.
async fn rows_of(log: &DeltaLog, file: &File) -> Result<Vec<RecordBatch>> {
    let result = match log.read_commit_if_there(file.version).await? {
        Some(commit) => match commit.info() {
            Some(info) => info.batch_result()?,
            None => None,
        },
        None => None,
    };
    let mut stored = read_rows(log.root(), &file.path, None, RowSelection::All).await?;
    let mut batches = Vec::new();
    while let Some((batch, _)) = stored.next_batch().await? {
        batches.push(shown(&batch, file.version, result.as_ref())?);
    }
    Ok(batches)
}

fn schema() -> SchemaRef {
    let field = |name: &str, data_type: DataType| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![
        field("batch_id", DataType::Utf8),
        field("version", DataType::Int64),
        field("reason", DataType::Utf8),
        field("source_file", DataType::Utf8),
        field("source_row", DataType::Int64),
        field("source_partition", DataType::Int64),
        field("source_offset", DataType::Int64),
        field("event", DataType::Utf8),
        field("field", DataType::Utf8),
        field("detail", DataType::Utf8),
    ]))
}

/// The columns as they are printed; `_source_row` counts from 1.
fn shown(
    stored: &RecordBatch,
    version: TableVersion,
    result: Option<&BatchResult>,
) -> Result<RecordBatch> {
    let count = stored.num_rows();
    let column = |name: &str, data_type: DataType| -> ArrayRef {
        match stored.column_by_name(name) {
            Some(column) if *column.data_type() == data_type => Arc::clone(column),
            _ => new_null_array(&data_type, count),
        }
    };
    let rows = column("row", DataType::Int64);
    let rows: Int64Array = rows
        .as_primitive::<Int64Type>()
        .iter()
        .map(|row| row.map(|row| row + 1))
        .collect();
    let batch_id = result.map(|result| result.batch_id.0.as_str());
    let version = i64::try_from(version.0).unwrap_or(i64::MAX);
    let columns = vec![
        Arc::new(StringArray::from(vec![batch_id; count])) as ArrayRef,
        Arc::new(Int64Array::from_value(version, count)),
        column("reason", DataType::Utf8),
        column("file", DataType::Utf8),
        Arc::new(rows),
        column("partition", DataType::Int64),
        column("offset", DataType::Int64),
        column("event", DataType::Utf8),
        column("field", DataType::Utf8),
        column("detail", DataType::Utf8),
    ];
    RecordBatch::try_new(schema(), columns)
        .map_err(|e| Error::corrupt("a file of rejects has other columns").with_source(e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_are_shown_with_the_batch_that_brought_them() {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("reason", Arc::new(StringArray::from(vec!["NULL_KEY"]))),
            ("file", Arc::new(StringArray::from(vec!["a.jsonl"]))),
            ("row", Arc::new(Int64Array::from(vec![0]))),
            (
                "detail",
                Arc::new(StringArray::from(vec!["a key column is NULL"])),
            ),
            ("event", Arc::new(StringArray::from(vec!["{}"]))),
        ];
        let stored = RecordBatch::try_from_iter(columns).unwrap();
        let batch = shown(&stored, TableVersion(4), None).unwrap();
        assert_eq!(batch.column(1).as_primitive::<Int64Type>().value(0), 4);
        assert_eq!(batch.column(4).as_primitive::<Int64Type>().value(0), 1);
        assert!(batch.column(5).is_null(0));
        assert!(batch.column(8).is_null(0));
    }
}
