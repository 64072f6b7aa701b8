//! Batches as files: JSON lines, CSV and Parquet.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use serde_json::Value as Json;
use tidegate_change::types;

use super::arrow_rows::to_array;
use crate::scenario::{Batch, FileFormat, JsonRow, ScenarioSpec};
use crate::value::{self, Value};

/// Writes a batch into a directory, its events dealt over its number of files.
///
/// # Errors
/// A sentence where the disk or a value refuses.
pub fn write_batch(directory: &Path, spec: &ScenarioSpec, batch: &Batch) -> Result<(), String> {
    fs::create_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let files = batch.files.max(1);
    for part in 0..files {
        let events: Vec<&JsonRow> = batch.events.iter().skip(part).step_by(files).collect();
        let bytes = match batch.format {
            FileFormat::Jsonl => jsonl(&events),
            FileFormat::Csv => csv(spec, &columns(spec, batch), &events),
            FileFormat::Parquet => parquet(spec, &columns(spec, batch), &events)?,
        };
        let path = directory.join(batch.file_name(part));
        fs::write(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

/// The columns that the events of a batch carry; all that are declared where there is no event.
fn columns(spec: &ScenarioSpec, batch: &Batch) -> Vec<String> {
    let Some(first) = batch.events.first() else {
        return spec
            .source_columns
            .iter()
            .take(spec.declared_count())
            .cloned()
            .collect();
    };
    spec.source_columns
        .iter()
        .filter(|name| first.contains_key(*name))
        .cloned()
        .collect()
}

fn jsonl(events: &[&JsonRow]) -> Vec<u8> {
    let mut text = String::new();
    for event in events {
        text += &Json::Object((*event).clone()).to_string();
        text.push('\n');
    }
    text.into_bytes()
}

fn csv(spec: &ScenarioSpec, columns: &[String], events: &[&JsonRow]) -> Vec<u8> {
    let mut text = columns.join(",") + "\n";
    for event in events {
        let cells = columns.iter().map(|name| match event.get(name) {
            None | Some(Json::Null) => String::new(),
            Some(Json::String(cell)) if spec.types[name] == "string" => {
                format!("\"{}\"", cell.replace('"', "\"\""))
            }
            Some(Json::String(cell)) => cell.clone(),
            Some(other) => other.to_string(),
        });
        text += &(cells.collect::<Vec<_>>().join(",") + "\n");
    }
    text.into_bytes()
}

fn parquet(
    spec: &ScenarioSpec,
    columns: &[String],
    events: &[&JsonRow],
) -> Result<Vec<u8>, String> {
    let mut fields = Vec::new();
    let mut arrays: Vec<ArrayRef> = Vec::new();
    for name in columns {
        let data_type: DataType =
            types::parse_type(&spec.types[name]).map_err(|e| e.to_string())?;
        let values: Option<Vec<Value>> = events
            .iter()
            .map(|event| value::from_json(&data_type, event.get(name).unwrap_or(&Json::Null)))
            .collect();
        let values = values.ok_or_else(|| format!("column {name}: not a value of its type"))?;
        arrays.push(to_array(&data_type, &values));
        fields.push(Field::new(name, data_type, true));
    }
    let schema = Arc::new(Schema::new(fields));
    let rows = RecordBatch::try_new(Arc::clone(&schema), arrays).map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, schema, None).map_err(|e| e.to_string())?;
    writer.write(&rows).map_err(|e| e.to_string())?;
    writer.close().map_err(|e| e.to_string())?;
    Ok(bytes)
}
