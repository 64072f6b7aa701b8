//! The model's values as Arrow arrays and back, for drivers that speak Arrow.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array,
    Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, ListArray,
    StringArray, StructArray, TimestampMicrosecondArray, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};

use crate::value::Value;

fn integers<T: TryFrom<i128>>(values: &[Value]) -> impl Iterator<Item = Option<T>> {
    values.iter().map(|value| match value {
        Value::Integer(i) => T::try_from(*i).ok(),
        _ => None,
    })
}

fn floats(values: &[Value]) -> impl Iterator<Item = Option<f64>> {
    values.iter().map(|value| match value {
        Value::Float(f) => Some(*f),
        _ => None,
    })
}

/// A column of values.
#[must_use]
pub fn to_array(data_type: &DataType, values: &[Value]) -> ArrayRef {
    match data_type {
        DataType::Boolean => Arc::new(BooleanArray::from_iter(values.iter().map(|v| match v {
            Value::Boolean(b) => Some(*b),
            _ => None,
        }))),
        DataType::Int8 => Arc::new(Int8Array::from_iter(integers::<i8>(values))),
        DataType::Int16 => Arc::new(Int16Array::from_iter(integers::<i16>(values))),
        DataType::Int32 => Arc::new(Int32Array::from_iter(integers::<i32>(values))),
        DataType::Int64 => Arc::new(Int64Array::from_iter(integers::<i64>(values))),
        DataType::Date32 => Arc::new(Date32Array::from_iter(integers::<i32>(values))),
        DataType::Timestamp(_, zone) => Arc::new(
            TimestampMicrosecondArray::from_iter(integers::<i64>(values))
                .with_timezone_opt(zone.clone()),
        ),
        DataType::Decimal128(..) => Arc::new(
            Decimal128Array::from_iter(integers::<i128>(values)).with_data_type(data_type.clone()),
        ),
        DataType::Float64 => Arc::new(Float64Array::from_iter(floats(values))),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the value is of single precision"
        )]
        DataType::Float32 => Arc::new(Float32Array::from_iter(
            floats(values).map(|f| f.map(|f| f as f32)),
        )),
        DataType::Utf8 => Arc::new(StringArray::from_iter(values.iter().map(|v| match v {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        }))),
        DataType::Binary => Arc::new(BinaryArray::from_iter(values.iter().map(|v| match v {
            Value::Bytes(bytes) => Some(bytes.as_slice()),
            _ => None,
        }))),
        DataType::List(item) => {
            let items = |v: &Value| match v {
                Value::List(items) => items.clone(),
                _ => Vec::new(),
            };
            let lengths = values.iter().map(|v| items(v).len());
            let all: Vec<Value> = values.iter().flat_map(items).collect();
            let child = to_array(item.data_type(), &all);
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(ListArray::new(
                Arc::clone(item),
                offsets,
                child,
                Some(nulls(values)),
            ))
        }
        DataType::Struct(fields) => {
            let member = |v: &Value, i: usize| match v {
                Value::Struct(members) => members[i].clone(),
                _ => Value::Null,
            };
            let columns = fields.iter().enumerate().map(|(i, field)| {
                let column: Vec<Value> = values.iter().map(|v| member(v, i)).collect();
                to_array(field.data_type(), &column)
            });
            let columns: Vec<ArrayRef> = columns.collect();
            Arc::new(StructArray::new(
                fields.clone(),
                columns,
                Some(nulls(values)),
            ))
        }
        other => new_null_array(other, values.len()),
    }
}

fn nulls(values: &[Value]) -> NullBuffer {
    values
        .iter()
        .map(|v| !v.is_null())
        .collect::<Vec<_>>()
        .into()
}

/// The value of one row.
#[must_use]
pub fn value_at(array: &dyn Array, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Boolean => Value::Boolean(array.as_boolean().value(row)),
        DataType::Int8 => Value::Integer(array.as_primitive::<Int8Type>().value(row).into()),
        DataType::Int16 => Value::Integer(array.as_primitive::<Int16Type>().value(row).into()),
        DataType::Int32 => Value::Integer(array.as_primitive::<Int32Type>().value(row).into()),
        DataType::Int64 => Value::Integer(array.as_primitive::<Int64Type>().value(row).into()),
        DataType::Date32 => Value::Integer(array.as_primitive::<Date32Type>().value(row).into()),
        DataType::Timestamp(..) => Value::Integer(
            array
                .as_primitive::<TimestampMicrosecondType>()
                .value(row)
                .into(),
        ),
        DataType::Decimal128(..) => {
            Value::Integer(array.as_primitive::<Decimal128Type>().value(row))
        }
        DataType::Float64 => Value::Float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Float32 => Value::Float(array.as_primitive::<Float32Type>().value(row).into()),
        DataType::Utf8 => Value::Text(array.as_string::<i32>().value(row).into()),
        DataType::Binary => Value::Bytes(array.as_binary::<i32>().value(row).into()),
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            Value::List(
                (0..items.len())
                    .map(|i| value_at(items.as_ref(), i))
                    .collect(),
            )
        }
        DataType::Struct(_) => {
            let members = array.as_struct().columns();
            Value::Struct(
                members
                    .iter()
                    .map(|column| value_at(column.as_ref(), row))
                    .collect(),
            )
        }
        other => Value::Text(format!("a value of type {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn values_survive_arrow() {
        for (name, jsons) in [
            ("long", vec!["1", "null"]),
            ("float", vec!["0.5", "\"NaN\""]),
            ("decimal(5,2)", vec!["\"1.10\"", "null"]),
            ("timestamp", vec!["\"2026-05-01T10:00:00.000001Z\"", "null"]),
            (
                "array<struct<a:long>>",
                vec!["[{\"a\":1},null]", "null", "[]"],
            ),
            (
                "struct<a:string,b:struct<c:boolean>>",
                vec!["null", "{\"a\":\"x\",\"b\":null}"],
            ),
        ] {
            let data_type = tidegate_change::types::parse_type(name).unwrap();
            let parse = |json: &&str| {
                value::from_json(&data_type, &serde_json::from_str(json).unwrap()).unwrap()
            };
            let values: Vec<Value> = jsons.iter().map(parse).collect();
            let array = to_array(&data_type, &values);
            assert_eq!(array.data_type(), &data_type);
            let back: Vec<Value> = (0..array.len())
                .map(|i| value_at(array.as_ref(), i))
                .collect();
            assert_eq!(back, values, "{name}");
        }
    }
}
