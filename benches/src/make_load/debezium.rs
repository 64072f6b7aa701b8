//! Changes in Debezium's JSON, without schema, as its PostgreSQL connector writes them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{
    Date32Type, Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType,
};
use arrow::util::display::array_value_to_string;
use serde_json::{Map, Value, json};

/// Writes the events, one a line.
pub(crate) fn write(path: &Path, changes: &RecordBatch) -> Result<()> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    let mut out = BufWriter::new(file);
    for row in 0..changes.num_rows() {
        serde_json::to_writer(&mut out, &event(changes, row)?)?;
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}

fn event(changes: &RecordBatch, row: usize) -> Result<Value> {
    let mut image = Map::new();
    for (field, column) in changes.schema().fields().iter().zip(changes.columns()) {
        image.insert(field.name().clone(), value(column, row)?);
    }
    let sequence = image.remove("_seq").unwrap_or_default();
    let operation = image.remove("op").unwrap_or_default();
    let (op, before, after) = match operation.as_str() {
        Some("D") => {
            image.retain(|name, _| name == "order_id");
            ("d", Value::Object(image), Value::Null)
        }
        Some("I") => ("c", Value::Null, Value::Object(image)),
        _ => ("u", Value::Null, Value::Object(image)),
    };
    let source = json!({
        "connector": "postgresql", "db": "shop", "schema": "public", "table": "orders", "lsn": sequence,
    });
    Ok(
        json!({"before": before, "after": after, "op": op, "ts_ms": 1_700_000_000_000_u64, "source": source}),
    )
}

fn value(column: &dyn Array, row: usize) -> Result<Value> {
    if column.is_null(row) {
        return Ok(Value::Null);
    }
    Ok(
        if let Some(column) = column.as_primitive_opt::<Int64Type>() {
            column.value(row).into()
        } else if let Some(column) = column.as_primitive_opt::<TimestampMicrosecondType>() {
            column.value(row).into()
        } else if let Some(column) = column.as_primitive_opt::<Date32Type>() {
            column.value(row).into()
        } else if let Some(column) = column.as_primitive_opt::<Float64Type>() {
            column.value(row).into()
        } else if column.as_primitive_opt::<Decimal128Type>().is_some() {
            array_value_to_string(column, row)?.into()
        } else {
            column.as_string::<i32>().value(row).into()
        },
    )
}
