//! Values as JSON, in the form that `read` prints and that specs and progress store (interface
//! document: "JSON values"). A map is an object whose names are the keys' texts.
//!
//! - [`Encoder`]: a column's values as JSON text; [`write_rows`] does so for whole batches.
//! - [`scalar`] and [`array`]: the way back, by the type.

mod build;
mod encode;

use std::io::Write;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::DataType;
use serde_json::Value;

pub use build::array;
pub use encode::{Encoder, write_string};

use crate::text::Failure;
use crate::{Code, Error, Result, types};

/// Bytes of text that are gathered before they are written.
const CHUNK_BYTES: usize = 256 << 10;

/// The JSON of one value.
///
/// # Errors
/// `UNSUPPORTED` for a type that no Delta type stands for.
pub fn value_at(array: &dyn Array, row: usize) -> Result<Value> {
    let mut text = Vec::new();
    Encoder::new(&array.slice(row, 1))?.write(0, &mut text);
    serde_json::from_slice(&text).map_err(|e| Error::internal("a value is no JSON").with_source(e))
}

/// A one-element array of that type from JSON; the inverse of [`value_at`].
///
/// # Errors
/// `INVALID_VALUE` when the JSON is no value of the type.
pub fn scalar(data_type: &DataType, value: &Value) -> Result<ArrayRef> {
    array(data_type, &[Some(value)]).map_err(|failure| {
        let name = types::type_name(data_type).unwrap_or_else(|_| data_type.to_string());
        let what = match failure {
            Failure::Invalid => "is no value of type",
            Failure::Unrepresentable => "cannot be held by type",
        };
        Error::new(Code::InvalidValue, format!("the given JSON {what} {name}"))
    })
}

/// Writes a batch as JSON lines: one object a row, with the columns in order and explicit nulls.
///
/// # Errors
/// `UNSUPPORTED` for a type that no Delta type stands for; `IO` when the output fails.
pub fn write_rows(batch: &RecordBatch, output: &mut impl Write) -> Result<()> {
    let failed = |e| Error::io("output", e);
    let columns = batch
        .schema()
        .fields()
        .iter()
        .zip(batch.columns())
        .map(|(field, column)| Ok((encode::member_start(field.name()), Encoder::new(column)?)))
        .collect::<Result<Vec<_>>>()?;
    let mut text = Vec::with_capacity(CHUNK_BYTES + 4096);
    for row in 0..batch.num_rows() {
        encode::write_object(&columns, row, &mut text);
        text.push(b'\n');
        if text.len() >= CHUNK_BYTES {
            output.write_all(&text).map_err(failed)?;
            text.clear();
        }
    }
    output.write_all(&text).map_err(failed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn round_trip(type_name: &str, value: Value) -> Value {
        let data_type = types::parse_type(type_name).unwrap();
        let array = scalar(&data_type, &value).unwrap();
        assert_eq!(array.data_type(), &data_type);
        value_at(&array, 0).unwrap()
    }

    #[test]
    fn values_survive_a_round_trip() {
        let cases = [
            ("long", json!(9_223_372_036_854_775_807_i64)),
            ("byte", json!(-128)),
            (
                "decimal(38,2)",
                json!("123456789012345678901234567890123456.70"),
            ),
            ("double", json!("NaN")),
            ("double", json!("-Infinity")),
            ("double", json!(0.1)),
            ("float", json!("Infinity")),
            ("date", json!("0001-01-01")),
            ("timestamp", json!("9999-12-31T23:59:59.999999Z")),
            ("timestamp_ntz", json!("1969-12-31T23:59:59.999000")),
            ("binary", json!("3q2+7w==")),
            ("boolean", json!(true)),
            ("string", json!("a\"\\\u{1}\n🦜")),
            ("string", Value::Null),
            ("array<long>", json!([1, null, 3])),
            ("array<array<string>>", json!([["a"], [], null])),
            ("map<string,decimal(5,1)>", json!({"a": "1.5", "b": null})),
            ("map<long,string>", json!({"7": "x"})),
            (
                "struct<a:long,b:struct<c:date,d:binary>>",
                json!({"a": 1, "b": {"c": "2026-01-01", "d": null}}),
            ),
            ("struct<a:long>", Value::Null),
        ];
        for (type_name, value) in cases {
            assert_eq!(round_trip(type_name, value.clone()), value, "{type_name}");
        }
    }

    #[test]
    fn a_float_prints_its_own_digits() {
        let array = scalar(&DataType::Float32, &json!(0.1)).unwrap();
        assert_eq!(value_at(&array, 0).unwrap().to_string(), "0.1");
    }

    #[test]
    fn what_a_type_cannot_hold_is_refused() {
        for (type_name, value) in [
            ("long", json!(1.5)),
            ("long", json!("x")),
            ("byte", json!(128)),
            ("decimal(3,1)", json!("1.55")),
            ("double", json!(9_007_199_254_740_993_i64)),
            ("date", json!("infinity")),
            ("timestamp_ntz", json!("2026-01-01T00:00:00Z")),
            ("struct<a:long>", json!({"b": 1})),
            ("array<long>", json!(1)),
        ] {
            let error = scalar(&types::parse_type(type_name).unwrap(), &value).unwrap_err();
            assert_eq!(error.code(), Code::InvalidValue, "{type_name}");
        }
    }

    #[test]
    fn rows_are_lines_with_explicit_nulls() {
        let schema = arrow::datatypes::Schema::new(vec![
            arrow::datatypes::Field::new("i\"d", DataType::Int64, true),
            arrow::datatypes::Field::new("v", DataType::Utf8, true),
        ]);
        let columns = vec![
            array(&DataType::Int64, &[Some(&json!(1)), Some(&json!(2))]).unwrap(),
            array(&DataType::Utf8, &[None, Some(&json!("é"))]).unwrap(),
        ];
        let batch = RecordBatch::try_new(schema.into(), columns).unwrap();
        let mut out = Vec::new();
        write_rows(&batch, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "{\"i\\\"d\":1,\"v\":null}\n{\"i\\\"d\":2,\"v\":\"é\"}\n"
        );
        out = Vec::new();
        write_rows(&batch.slice(1, 1), &mut out).unwrap();
        assert!(text.ends_with(std::str::from_utf8(&out).unwrap()));
    }
}
