//! Results that are no table rows: one object, or a list of objects of one shape.

mod members;

use std::io::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use serde::Serialize;
use serde_json::Value;
use tidegate_change::{Error, Result};
use tidegate_query::output::{OutputFormat, align, row_writer};

use crate::context::Context;
use members::Members;

/// Prints one object.
pub(crate) fn object(context: &Context, object: &impl Serialize) -> Result<()> {
    let mut output = context.output();
    let text = match context.format {
        OutputFormat::Table => {
            let members = Members::of(object)?;
            let (nested, flat): (Vec<_>, Vec<_>) = members.0.into_iter().partition(is_long);
            let rows: Vec<Vec<String>> = flat
                .into_iter()
                .map(|(name, value)| vec![name, cell(&value)])
                .collect();
            let mut text = lines(&rows);
            for (name, value) in nested {
                let value = serde_json::to_string_pretty(&value).map_err(unwritable)?;
                text.push_str(&format!("{name}:\n  {}\n", value.replace('\n', "\n  ")));
            }
            text
        }
        OutputFormat::Json => {
            let text = serde_json::to_string_pretty(object);
            text.map_err(unwritable)? + "\n"
        }
        OutputFormat::JsonLines => serde_json::to_string(object).map_err(unwritable)? + "\n",
        OutputFormat::Csv | OutputFormat::Parquet => return objects(context, &[object], &[]),
    };
    output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
        .map_err(failed)
}

/// Prints a list of objects of one shape; `names` are the columns when the list is empty.
pub(crate) fn objects(context: &Context, list: &[impl Serialize], names: &[&str]) -> Result<()> {
    if context.format == OutputFormat::JsonLines {
        let mut output = context.output();
        for object in list {
            let line = serde_json::to_string(object).map_err(unwritable)?;
            writeln!(output, "{line}").map_err(failed)?;
        }
        return output.flush().map_err(failed);
    }
    if context.format == OutputFormat::Json {
        let mut output = context.output();
        let text = serde_json::to_string_pretty(list).map_err(unwritable)?;
        return writeln!(output, "{text}")
            .and_then(|()| output.flush())
            .map_err(failed);
    }
    let rows = list.iter().map(Members::of).collect::<Result<Vec<_>>>()?;
    let batch = batch(&rows, names)?;
    let mut writer = row_writer(context.format, &batch.schema(), context.output())?;
    writer.write(&batch)?;
    writer.finish()
}

/// The objects as columns: numbers and booleans as such, everything else as text.
fn batch(rows: &[Members], names: &[&str]) -> Result<RecordBatch> {
    let mut columns: Vec<&str> = names.to_vec();
    for (name, _) in rows.iter().flat_map(|row| &row.0) {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    let arrays = columns.iter().map(|name| {
        let values: Vec<&Value> = rows.iter().map(|row| row.get(name)).collect();
        (*name, column(&values), true)
    });
    RecordBatch::try_from_iter_with_nullable(arrays)
        .map_err(|e| Error::internal("a result has no form").with_source(e))
}

fn column(values: &[&Value]) -> ArrayRef {
    let all = |fits: fn(&Value) -> bool| values.iter().all(|v| v.is_null() || fits(v));
    if values.iter().any(|value| !value.is_null()) {
        if all(|value| value.as_i64().is_some()) {
            return Arc::new(values.iter().map(|v| v.as_i64()).collect::<Int64Array>());
        }
        if all(Value::is_number) {
            return Arc::new(values.iter().map(|v| v.as_f64()).collect::<Float64Array>());
        }
        if all(Value::is_boolean) {
            return Arc::new(values.iter().map(|v| v.as_bool()).collect::<BooleanArray>());
        }
    }
    let text = values.iter().map(|value| match value {
        Value::Null => None,
        other => Some(cell(other)),
    });
    Arc::new(text.collect::<StringArray>())
}

/// A value as people read it: text without quotes, what is nested as JSON.
fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "NULL".to_owned(),
        Value::Object(members) if members.is_empty() => String::new(),
        Value::Array(items) if items.is_empty() => String::new(),
        other => other.to_string(),
    }
}

/// Whether a value is nested and too long for a line.
fn is_long((_, value): &(String, Value)) -> bool {
    (value.is_object() || value.is_array()) && value.to_string().len() > 100
}

fn lines(rows: &[Vec<String>]) -> String {
    let Some((first, rest)) = rows.split_first() else {
        return String::new();
    };
    align(first, rest, &[])
}

fn failed(error: std::io::Error) -> Error {
    Error::io("output", error)
}

fn unwritable(error: serde_json::Error) -> Error {
    Error::internal("a result cannot be written as JSON").with_source(error)
}

#[cfg(test)]
mod tests {
    use arrow::array::Array;
    use arrow::datatypes::DataType;

    use super::*;

    #[derive(Serialize)]
    struct Line {
        version: u64,
        at: Option<String>,
        marks: Vec<u8>,
    }

    #[test]
    fn objects_become_columns_in_the_order_of_their_members() {
        let lines = [
            Line {
                version: 1,
                at: None,
                marks: vec![],
            },
            Line {
                version: 2,
                at: Some("x".into()),
                marks: vec![7],
            },
        ];
        let rows: Vec<Members> = lines
            .iter()
            .map(|line| Members::of(line).unwrap())
            .collect();
        let batch = batch(&rows, &[]).unwrap();
        let schema = batch.schema();
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!(names, ["version", "at", "marks"]);
        assert_eq!(batch.column(0).data_type(), &DataType::Int64);
        assert!(batch.column(1).is_null(0));
    }

    #[test]
    fn an_empty_list_has_the_columns_that_it_would_have() {
        let batch = batch(&[], &["name", "location"]).unwrap();
        assert_eq!((batch.num_columns(), batch.num_rows()), (2, 0));
    }
}
