//! Partition values: rows split by them, and their text in the log.
//!
//! Source: Delta protocol, "Partition Value Serialization". An empty string reads NULL everywhere, as
//! the protocol has no other text for NULL in a directory.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{CastOptions, cast_with_options, take_record_batch};
use arrow::datatypes::{DataType, Date32Type, Decimal128Type, TimeUnit, TimestampMicrosecondType};
use arrow::row::{RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use chrono::{DateTime, NaiveDateTime};
use tidegate_change::{Code, Error, Result, types};

use super::TableSchema;
use crate::path;

/// The partition of a file: values by physical name as the log writes them, and its directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartitionValues {
    values: BTreeMap<String, Option<String>>,
    directory: String,
}

impl PartitionValues {
    /// Values by physical name.
    #[must_use]
    pub fn values(&self) -> &BTreeMap<String, Option<String>> {
        &self.values
    }

    /// The directory with a slash at its end; empty for tables without partitions.
    #[must_use]
    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// The partition of the first row of a batch.
    ///
    /// # Errors
    /// `INTERNAL` when the batch is empty or lacks a partition column; `UNSUPPORTED` for a type that
    /// cannot partition a table.
    pub fn of_row(schema: &TableSchema, batch: &RecordBatch, row: usize) -> Result<Self> {
        let mut ordered = Vec::new();
        for name in schema.partition_columns() {
            let lacks = || Error::internal(format!("partition column {name}: not in the batch"));
            let column = batch.column_by_name(name).ok_or_else(lacks)?;
            let text = value_text(column, row)?.filter(|text| !text.is_empty());
            ordered.push((schema.physical_name(name).to_owned(), text));
        }
        let directory = path::partition_directory(
            ordered
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_deref())),
        );
        Ok(Self {
            values: ordered.into_iter().collect(),
            directory,
        })
    }
}

/// Splits a batch into its partitions, in order of first appearance; the order of rows is kept.
///
/// # Errors
/// As [`PartitionValues::of_row`].
pub fn split_by_partition(
    schema: &TableSchema,
    batch: &RecordBatch,
) -> Result<Vec<(PartitionValues, RecordBatch)>> {
    if schema.partition_columns().is_empty() || batch.num_rows() == 0 {
        return Ok(vec![(PartitionValues::default(), batch.clone())]);
    }
    let lacks = |name: &str| Error::internal(format!("partition column {name}: not in the batch"));
    let columns = schema
        .partition_columns()
        .iter()
        .map(|name| {
            batch
                .column_by_name(name)
                .cloned()
                .ok_or_else(|| lacks(name))
        })
        .collect::<Result<Vec<ArrayRef>>>()?;
    let failed = |e| Error::internal("partition values cannot be compared").with_source(e);
    let fields = columns
        .iter()
        .map(|column| SortField::new(column.data_type().clone()))
        .collect();
    let rows = RowConverter::new(fields)
        .and_then(|converter| converter.convert_columns(&columns))
        .map_err(failed)?;
    let mut slots = std::collections::HashMap::new();
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for (position, row) in (0u32..).zip(rows.iter()) {
        let slot = *slots.entry(row).or_insert(groups.len());
        match groups.get_mut(slot) {
            Some(group) => group.push(position),
            None => groups.push(vec![position]),
        }
    }
    let mut parts: Vec<(PartitionValues, RecordBatch)> = Vec::with_capacity(groups.len());
    for group in groups {
        let first = group
            .first()
            .map_or(0, |row| usize::try_from(*row).unwrap_or_default());
        let values = PartitionValues::of_row(schema, batch, first)?;
        let rows = take_record_batch(batch, &UInt32Array::from(group))
            .map_err(|e| Error::internal("partition rows cannot be gathered").with_source(e))?;
        parts.push((values, rows));
    }
    Ok(parts)
}

/// The text of one value; None for NULL.
pub(crate) fn value_text(column: &ArrayRef, row: usize) -> Result<Option<String>> {
    if column.is_null(row) {
        return Ok(None);
    }
    Ok(Some(match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        DataType::Date32 => {
            let date = column.as_primitive::<Date32Type>().value_as_date(row);
            date.map(|date| date.format("%Y-%m-%d").to_string())
                .ok_or_else(out_of_range)?
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let micros = column.as_primitive::<TimestampMicrosecondType>().value(row);
            let time = DateTime::from_timestamp_micros(micros).ok_or_else(out_of_range)?;
            let form = if zone.is_some() {
                "%Y-%m-%dT%H:%M:%S%.6fZ"
            } else {
                "%Y-%m-%d %H:%M:%S%.6f"
            };
            time.format(form).to_string()
        }
        DataType::Decimal128(..) => column.as_primitive::<Decimal128Type>().value_as_string(row),
        data_type if data_type.is_numeric() => {
            let options = FormatOptions::new();
            ArrayFormatter::try_new(column, &options)
                .and_then(|formatter| formatter.value(row).try_to_string())
                .map_err(|e| Error::internal("a number has no text").with_source(e))?
        }
        other => {
            let message = format!("a partition column of type {}", types::type_name(other)?);
            return Err(Error::new(Code::Unsupported, message));
        }
    }))
}

fn out_of_range() -> Error {
    Error::new(
        Code::InvalidValue,
        "a partition value beyond the years that text can write",
    )
}

/// A one-element array of the value that the text stands for; the inverse of [`value_text`].
pub(crate) fn parse_value(data_type: &DataType, text: Option<&str>) -> Result<ArrayRef> {
    let text = text.filter(|text| !text.is_empty());
    let Some(text) = text else {
        return Ok(arrow::array::new_null_array(data_type, 1));
    };
    let damaged = || Error::corrupt("a partition value is no text of its column's type");
    if let DataType::Timestamp(TimeUnit::Microsecond, zone) = data_type {
        let micros = timestamp_micros(text, zone.is_some()).ok_or_else(damaged)?;
        let array = arrow::array::TimestampMicrosecondArray::from(vec![micros]);
        return Ok(std::sync::Arc::new(array.with_timezone_opt(zone.clone())));
    }
    let array: ArrayRef = std::sync::Arc::new(StringArray::from(vec![text]));
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(&array, data_type, &options).map_err(|e| damaged().with_source(e))
}

/// Microseconds of `2020-01-01 00:00:00[.ffffff]` or the ISO form with zone, as engines write them.
fn timestamp_micros(text: &str, zoned: bool) -> Option<i64> {
    if zoned && let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time.timestamp_micros());
    }
    let plain = text.replace('T', " ");
    let time = NaiveDateTime::parse_from_str(&plain, "%Y-%m-%d %H:%M:%S%.f").ok()?;
    Some(time.and_utc().timestamp_micros())
}
