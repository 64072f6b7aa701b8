//! Checkpoints to actions.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, MapArray, RecordBatch, StructArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Int32Type, Int64Type};
use futures::TryStreamExt;
use parquet::arrow::ProjectionMask;
use parquet::arrow::async_reader::ParquetRecordBatchStreamBuilder;
use tidegate_change::{Error, Result};

use super::BATCH_ROWS;
use super::schema::checkpoint_schema;
use crate::actions::{Action, ActionLine, AddFile, DeletionVectorDescriptor, RemoveFile};
use crate::data::ObjectReader;
use crate::error;
use crate::schema::conform;
use crate::table::TableRoot;

/// The columns of files, which are decoded one by one.
const FILE_COLUMNS: [&str; 2] = ["add", "remove"];

/// Reads a part of a checkpoint and hands over its actions.
pub(in crate::log) async fn read_part(
    root: &TableRoot,
    path: &str,
    apply: &mut (dyn FnMut(Action) + Send),
) -> Result<()> {
    let location = root.location(path)?;
    let reader = ObjectReader::new(Arc::clone(root.store()), location, None);
    let builder = ParquetRecordBatchStreamBuilder::new(reader)
        .await
        .map_err(|e| error::parquet(path, e))?;
    let mask = projection(builder.parquet_schema());
    let mut stream = builder
        .with_projection(mask)
        .with_batch_size(BATCH_ROWS)
        .build()
        .map_err(|e| error::parquet(path, e))?;
    while let Some(batch) = stream
        .try_next()
        .await
        .map_err(|e| error::parquet(path, e))?
    {
        for action in actions_of(path, &batch)? {
            apply(action);
        }
    }
    Ok(())
}

/// Leaves out what other engines add for themselves: parsed statistics are large and follow the table's schema.
fn projection(schema: &parquet::schema::types::SchemaDescriptor) -> ProjectionMask {
    let leaves = schema.columns().iter().enumerate().filter(|(_, column)| {
        let parts = column.path().parts();
        let parsed = parts.get(1).is_some_and(|part| part.ends_with("_parsed"));
        let known = parts.first().is_some_and(|part| {
            [
                "txn",
                "add",
                "remove",
                "metaData",
                "protocol",
                "domainMetadata",
            ]
            .contains(&part.as_str())
        });
        known && !parsed
    });
    ProjectionMask::leaves(schema, leaves.map(|(position, _)| position))
}

/// The actions of a batch: rows name one each.
fn actions_of(path: &str, batch: &RecordBatch) -> Result<Vec<Action>> {
    let mut actions = Vec::with_capacity(batch.num_rows());
    let mut is_other = vec![true; batch.num_rows()];
    for name in FILE_COLUMNS {
        let Some(column) = column(batch, name)? else {
            continue;
        };
        let rows = column.as_struct();
        let fields = Members { path, rows };
        for (row, other) in is_other
            .iter_mut()
            .enumerate()
            .filter(|(row, _)| rows.is_valid(*row))
        {
            *other = false;
            actions.push(match name {
                "add" => Action::Add(fields.add(row)?),
                _ => Action::Remove(fields.remove(row)?),
            });
        }
    }
    if is_other.contains(&true) {
        let failed = |e| error::arrow_read(path, e);
        let schema = batch.schema();
        let places: Vec<usize> = (0..batch.num_columns())
            .filter(|place| !FILE_COLUMNS.contains(&schema.field(*place).name().as_str()))
            .collect();
        let rest = batch.project(&places).map_err(failed)?;
        let rest = filter_record_batch(&rest, &BooleanArray::from(is_other)).map_err(failed)?;
        actions.extend(actions_of_json(path, &rest)?);
    }
    Ok(actions)
}

/// A column in the form that this crate writes.
fn column(batch: &RecordBatch, name: &str) -> Result<Option<ArrayRef>> {
    let Some(column) = batch.column_by_name(name) else {
        return Ok(None);
    };
    let schema = checkpoint_schema();
    let field = schema
        .field_with_name(name)
        .map_err(|e| error::arrow_internal("checkpoint schema", e))?;
    conform(column, field.data_type()).map(Some)
}

/// Members of a struct column by name.
struct Members<'a> {
    path: &'a str,
    rows: &'a StructArray,
}

impl Members<'_> {
    fn add(&self, row: usize) -> Result<AddFile> {
        Ok(AddFile {
            path: self.required(self.text("path", row), "path")?,
            partition_values: self.map("partitionValues", row).unwrap_or_default(),
            size: self.required(self.long("size", row), "size")?,
            modification_time: self.long("modificationTime", row).unwrap_or_default(),
            data_change: self.flag("dataChange", row).unwrap_or_default(),
            stats: self.text("stats", row),
            tags: self.map("tags", row),
            deletion_vector: self.vector(row)?,
            base_row_id: self.long("baseRowId", row),
            default_row_commit_version: self.long("defaultRowCommitVersion", row),
            clustering_provider: self.text("clusteringProvider", row),
        })
    }

    fn remove(&self, row: usize) -> Result<RemoveFile> {
        Ok(RemoveFile {
            path: self.required(self.text("path", row), "path")?,
            deletion_timestamp: self.long("deletionTimestamp", row),
            data_change: self.flag("dataChange", row).unwrap_or_default(),
            extended_file_metadata: self.flag("extendedFileMetadata", row),
            partition_values: self.map("partitionValues", row),
            size: self.long("size", row),
            deletion_vector: self.vector(row)?,
            base_row_id: self.long("baseRowId", row),
            default_row_commit_version: self.long("defaultRowCommitVersion", row),
            ..RemoveFile::default()
        })
    }

    fn vector(&self, row: usize) -> Result<Option<DeletionVectorDescriptor>> {
        let Some(column) = self.member("deletionVector", row) else {
            return Ok(None);
        };
        let inner = Members {
            path: self.path,
            rows: column.as_struct(),
        };
        Ok(Some(DeletionVectorDescriptor {
            storage_type: self.required(inner.text("storageType", row), "storageType")?,
            path_or_inline_dv: self
                .required(inner.text("pathOrInlineDv", row), "pathOrInlineDv")?,
            offset: inner.int("offset", row),
            size_in_bytes: self.required(inner.int("sizeInBytes", row), "sizeInBytes")?,
            cardinality: self.required(inner.long("cardinality", row), "cardinality")?,
        }))
    }

    fn member(&self, name: &str, row: usize) -> Option<&ArrayRef> {
        self.rows
            .column_by_name(name)
            .filter(|column| column.is_valid(row))
    }

    fn text(&self, name: &str, row: usize) -> Option<String> {
        self.member(name, row)
            .map(|column| column.as_string::<i32>().value(row).to_owned())
    }

    fn long(&self, name: &str, row: usize) -> Option<i64> {
        self.member(name, row)
            .map(|column| column.as_primitive::<Int64Type>().value(row))
    }

    fn int(&self, name: &str, row: usize) -> Option<i32> {
        self.member(name, row)
            .map(|column| column.as_primitive::<Int32Type>().value(row))
    }

    fn flag(&self, name: &str, row: usize) -> Option<bool> {
        self.member(name, row)
            .map(|column| column.as_boolean().value(row))
    }

    fn map(&self, name: &str, row: usize) -> Option<BTreeMap<String, Option<String>>> {
        let map: &MapArray = self.member(name, row)?.as_map();
        let entries = map.value(row);
        let (keys, values) = (
            entries.column(0).as_string::<i32>(),
            entries.column(1).as_string::<i32>(),
        );
        let pairs = keys.iter().zip(values.iter());
        Some(
            pairs
                .map(|(key, value)| (key.unwrap_or_default().to_owned(), value.map(str::to_owned)))
                .collect(),
        )
    }

    fn required<T>(&self, value: Option<T>, name: &str) -> Result<T> {
        value.ok_or_else(|| Error::corrupt(format!("{}: a file without {name}", self.path)))
    }
}

/// The actions of few rows, by their serde form.
fn actions_of_json(path: &str, batch: &RecordBatch) -> Result<Vec<Action>> {
    let mut json = Vec::new();
    let mut writer = arrow::json::WriterBuilder::new()
        .with_explicit_nulls(true)
        .build::<_, arrow::json::writer::LineDelimited>(&mut json);
    let failed = |e| error::arrow_read(path, e);
    writer.write(batch).map_err(failed)?;
    writer.finish().map_err(failed)?;
    drop(writer);
    let mut actions = Vec::with_capacity(batch.num_rows());
    for line in json
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let line: ActionLine = serde_json::from_slice(line)
            .map_err(|e| Error::corrupt(format!("{path}: a row is no action")).with_source(e))?;
        actions.extend(line.into_action());
    }
    Ok(actions)
}
