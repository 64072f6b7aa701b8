//! Table schemas: the JSON of the log, Arrow types, physical names, partition values.
//!
//! [`TableSchema`] is what the rest of the crate works with. Logical names are the user's; physical
//! names stand in files, statistics and partition values and differ only under column mapping, which a
//! table gets when a column's name has a character that Delta forbids otherwise, and only for such
//! columns. Source: Delta protocol, "Schema Serialization Format" and "Column Mapping".

mod column;
mod conform;
mod evolve;
mod partition;

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tidegate_change::{Error, Result};

use crate::actions::Metadata;

pub(crate) use column::Column;
pub(crate) use conform::{conform, relabel};
pub(crate) use evolve::{
    Assigned, assign, forbidden_column, needs_mapping, uses_type, was_widened,
};
pub(crate) use partition::parse_value;
pub use partition::{PartitionValues, split_by_partition};

/// Key of a Parquet field id in Arrow field metadata.
pub(crate) const FIELD_ID: &str = "PARQUET:field_id";

/// The schema of a table version.
#[derive(Clone, Debug)]
pub struct TableSchema {
    columns: Arc<Vec<Column>>,
    logical: SchemaRef,
    physical: SchemaRef,
    partition_columns: Arc<Vec<String>>,
}

impl TableSchema {
    /// The schema that a `metaData` action holds.
    ///
    /// # Errors
    /// `CORRUPT` when it is none, `UNSUPPORTED` for a type that Tidegate does not know.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self> {
        let columns = column::parse(&metadata.schema_string)?;
        Self::new(columns, metadata.partition_columns.clone())
    }

    pub(crate) fn new(columns: Vec<Column>, partition_columns: Vec<String>) -> Result<Self> {
        let logical = Arc::new(Schema::new(column::arrow_fields(&columns, false)));
        let physical = Arc::new(Schema::new(column::arrow_fields(&columns, true)));
        for name in &partition_columns {
            if logical.index_of(name).is_err() {
                return Err(Error::corrupt(format!(
                    "partition column {name}: not in the schema"
                )));
            }
        }
        Ok(Self {
            columns: Arc::new(columns),
            logical,
            physical,
            partition_columns: Arc::new(partition_columns),
        })
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The visible columns, by the user's names.
    #[must_use]
    pub fn arrow(&self) -> &SchemaRef {
        &self.logical
    }

    /// The partition columns, by the user's names.
    #[must_use]
    pub fn partition_columns(&self) -> &[String] {
        &self.partition_columns
    }

    /// Whether the column is a partition column.
    #[must_use]
    pub fn is_partition_column(&self, name: &str) -> bool {
        self.partition_columns.iter().any(|column| column == name)
    }

    /// The name of a column in files; its own where the table has no such column (hidden columns).
    #[must_use]
    pub fn physical_name<'a>(&'a self, name: &'a str) -> &'a str {
        match self.logical.index_of(name) {
            Ok(position) => self.physical.field(position).name(),
            Err(_) => name,
        }
    }

    /// The column of a physical batch's field, physical form and logical form.
    pub(crate) fn field(&self, name: &str) -> Option<(&Field, &Field)> {
        let position = self.logical.index_of(name).ok()?;
        Some((self.physical.field(position), self.logical.field(position)))
    }

    /// The batch as it stands in a file: physical names, without partition columns, extra columns as they are.
    pub(crate) fn to_physical(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let mut fields: Vec<Arc<Field>> = Vec::with_capacity(batch.num_columns());
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
        let schema = batch.schema();
        for (field, array) in schema.fields().iter().zip(batch.columns()) {
            if self.is_partition_column(field.name()) {
                continue;
            }
            match self.field(field.name()) {
                None => {
                    fields.push(Arc::clone(field));
                    arrays.push(Arc::clone(array));
                }
                Some((physical, logical)) => {
                    if !same_type(field.data_type(), logical.data_type()) {
                        let message = format!(
                            "column {}: a batch holds {} where the table has {}",
                            field.name(),
                            field.data_type(),
                            logical.data_type()
                        );
                        return Err(Error::internal(message));
                    }
                    fields.push(Arc::new(physical.clone()));
                    arrays.push(relabel(array, physical.data_type())?);
                }
            }
        }
        let options =
            arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
            .map_err(|e| Error::internal("a batch does not fit the table's schema").with_source(e))
    }
}

/// Whether the types are equal but for names, nullability and metadata inside.
pub(crate) fn same_type(a: &DataType, b: &DataType) -> bool {
    match (a, b) {
        (DataType::List(a), DataType::List(b)) => same_type(a.data_type(), b.data_type()),
        (DataType::Map(a, _), DataType::Map(b, _)) => same_type(a.data_type(), b.data_type()),
        (DataType::Struct(a), DataType::Struct(b)) => {
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|(a, b)| same_type(a.data_type(), b.data_type()))
        }
        (DataType::Timestamp(a, x), DataType::Timestamp(b, y)) => {
            a == b && x.is_some() == y.is_some()
        }
        (a, b) => a == b,
    }
}

/// The schema JSON of Arrow columns, all nullable, without column mapping.
///
/// # Errors
/// `UNSUPPORTED` for a type that no Delta type stands for.
pub fn to_delta_json(schema: &Schema) -> Result<String> {
    Ok(column::to_json(&column::of_arrow(schema.fields())?))
}

pub(crate) fn columns_json(columns: &[Column]) -> String {
    column::to_json(columns)
}

pub(crate) fn columns_of_arrow(schema: &Schema) -> Result<Vec<Column>> {
    column::of_arrow(schema.fields())
}

/// The Arrow columns of schema JSON, by logical names.
///
/// # Errors
/// As [`TableSchema::from_metadata`].
pub fn from_delta_json(json: &str) -> Result<SchemaRef> {
    Ok(Arc::new(Schema::new(column::arrow_fields(
        &column::parse(json)?,
        false,
    ))))
}

#[cfg(test)]
mod schema_test;
