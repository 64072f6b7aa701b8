//! Columns to JSON text, with one downcast a column instead of one a value.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, BooleanArray, PrimitiveArray,
    StringArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimeUnit, TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

use crate::text::{binary, number, time};
use crate::{Code, Error, Result};

/// Writes the values of one column as JSON text.
#[derive(Debug)]
pub struct Encoder {
    nulls: Option<NullBuffer>,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Null,
    Boolean(BooleanArray),
    Byte(PrimitiveArray<Int8Type>),
    Short(PrimitiveArray<Int16Type>),
    Integer(PrimitiveArray<Int32Type>),
    Long(PrimitiveArray<Int64Type>),
    UnsignedByte(PrimitiveArray<UInt8Type>),
    UnsignedShort(PrimitiveArray<UInt16Type>),
    UnsignedInteger(PrimitiveArray<UInt32Type>),
    UnsignedLong(PrimitiveArray<UInt64Type>),
    Float(PrimitiveArray<Float32Type>),
    Double(PrimitiveArray<Float64Type>),
    Decimal(PrimitiveArray<Decimal128Type>, i8),
    Date(PrimitiveArray<Date32Type>),
    Timestamp(PrimitiveArray<TimestampMicrosecondType>, bool),
    Text(StringArray),
    Binary(BinaryArray),
    List(OffsetBuffer<i32>, Box<Encoder>),
    Map(OffsetBuffer<i32>, Box<(Encoder, Encoder)>),
    Struct(Vec<(Vec<u8>, Encoder)>),
}

impl Encoder {
    /// An encoder for a column.
    ///
    /// # Errors
    /// `UNSUPPORTED` for a type that no Delta type stands for.
    pub fn new(column: &ArrayRef) -> Result<Self> {
        let values = match column.data_type() {
            DataType::Null => Values::Null,
            DataType::Boolean => Values::Boolean(column.as_boolean().clone()),
            DataType::Int8 => Values::Byte(primitive(column)),
            DataType::Int16 => Values::Short(primitive(column)),
            DataType::Int32 => Values::Integer(primitive(column)),
            DataType::Int64 => Values::Long(primitive(column)),
            DataType::UInt8 => Values::UnsignedByte(primitive(column)),
            DataType::UInt16 => Values::UnsignedShort(primitive(column)),
            DataType::UInt32 => Values::UnsignedInteger(primitive(column)),
            DataType::UInt64 => Values::UnsignedLong(primitive(column)),
            DataType::Float32 => Values::Float(primitive(column)),
            DataType::Float64 => Values::Double(primitive(column)),
            DataType::Decimal128(_, scale) => Values::Decimal(primitive(column), *scale),
            DataType::Date32 => Values::Date(primitive(column)),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                Values::Timestamp(primitive(column), zone.is_some())
            }
            DataType::Utf8 => Values::Text(column.as_string().clone()),
            DataType::Binary => Values::Binary(column.as_binary().clone()),
            DataType::List(_) => {
                let list = column.as_list::<i32>();
                Values::List(list.offsets().clone(), Box::new(Self::new(list.values())?))
            }
            DataType::Map(..) => {
                let map = column.as_map();
                let pair = (Self::new(map.keys())?, Self::new(map.values())?);
                Values::Map(map.offsets().clone(), Box::new(pair))
            }
            DataType::Struct(fields) => {
                let members = fields.iter().zip(column.as_struct().columns());
                let members = members
                    .map(|(field, member)| Ok((member_start(field.name()), Self::new(member)?)));
                Values::Struct(members.collect::<Result<_>>()?)
            }
            other => return Self::plain(column, other),
        };
        Ok(Self {
            nulls: column.nulls().cloned(),
            values,
        })
    }

    /// Other encodings of strings and bytes, as engines hand them out.
    fn plain(column: &ArrayRef, data_type: &DataType) -> Result<Self> {
        let refused = || {
            Error::new(
                Code::Unsupported,
                format!("arrow type {data_type} has no JSON form"),
            )
        };
        let plain = match data_type {
            DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
            DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                DataType::Binary
            }
            DataType::Dictionary(_, value) => (**value).clone(),
            DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, zone) => {
                DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
            }
            _ => return Err(refused()),
        };
        let cast = arrow::compute::cast(column, &plain).map_err(|e| refused().with_source(e))?;
        Self::new(&cast)
    }

    /// Appends the JSON of one value.
    pub fn write(&self, row: usize, out: &mut Vec<u8>) {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            out.extend_from_slice(b"null");
            return;
        }
        match &self.values {
            Values::Null => out.extend_from_slice(b"null"),
            Values::Boolean(values) => {
                out.extend_from_slice(if values.value(row) { b"true" } else { b"false" });
            }
            Values::Byte(values) => write_number(&values.value(row), out),
            Values::Short(values) => write_number(&values.value(row), out),
            Values::Integer(values) => write_number(&values.value(row), out),
            Values::Long(values) => write_number(&values.value(row), out),
            Values::UnsignedByte(values) => write_number(&values.value(row), out),
            Values::UnsignedShort(values) => write_number(&values.value(row), out),
            Values::UnsignedInteger(values) => write_number(&values.value(row), out),
            Values::UnsignedLong(values) => write_number(&values.value(row), out),
            Values::Float(values) => {
                let value = values.value(row);
                if value.is_finite() {
                    write_number(&value, out);
                } else {
                    no_number(value.into(), out);
                }
            }
            Values::Double(values) => {
                let value = values.value(row);
                if value.is_finite() {
                    write_number(&value, out);
                } else {
                    no_number(value, out);
                }
            }
            Values::Decimal(values, scale) => {
                quoted(out, |out| {
                    number::write_decimal(values.value(row), *scale, out);
                });
            }
            Values::Date(values) => quoted(out, |out| time::write_date(values.value(row), out)),
            Values::Timestamp(values, zoned) => {
                quoted(out, |out| {
                    time::write_timestamp(values.value(row), *zoned, out);
                });
            }
            Values::Text(values) => write_string(values.value(row), out),
            Values::Binary(values) => {
                quoted(out, |out| binary::write_base64(values.value(row), out));
            }
            Values::List(offsets, items) => items.write_list(offsets, row, out),
            Values::Map(offsets, pair) => write_map(offsets, pair, row, out),
            Values::Struct(members) => write_object(members, row, out),
        }
    }

    /// Appends the text of one value: its JSON without the quotes around it.
    pub fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        match &self.values {
            Values::Text(values) if values.is_valid(row) => {
                out.extend_from_slice(values.value(row).as_bytes());
            }
            _ => {
                let start = out.len();
                self.write(row, out);
                if out.get(start) == Some(&b'"') {
                    out.remove(start);
                    out.pop();
                }
            }
        }
    }

    fn write_list(&self, offsets: &OffsetBuffer<i32>, row: usize, out: &mut Vec<u8>) {
        out.push(b'[');
        let range = range_at(offsets, row);
        for item in range.clone() {
            if item > range.start {
                out.push(b',');
            }
            self.write(item, out);
        }
        out.push(b']');
    }
}

/// `"name":`, as members of objects start.
pub(super) fn member_start(name: &str) -> Vec<u8> {
    let mut start = Vec::with_capacity(name.len() + 3);
    write_string(name, &mut start);
    start.push(b':');
    start
}

pub(super) fn write_object(members: &[(Vec<u8>, Encoder)], row: usize, out: &mut Vec<u8>) {
    out.push(b'{');
    for (position, (start, member)) in members.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        out.extend_from_slice(start);
        member.write(row, out);
    }
    out.push(b'}');
}

/// Appends a JSON string.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    write_number(text, out);
}

fn write_map(
    offsets: &OffsetBuffer<i32>,
    pair: &(Encoder, Encoder),
    row: usize,
    out: &mut Vec<u8>,
) {
    out.push(b'{');
    let range = range_at(offsets, row);
    let mut name = Vec::new();
    for entry in range.clone() {
        if entry > range.start {
            out.push(b',');
        }
        name.clear();
        pair.0.write_text(entry, &mut name);
        write_string(&String::from_utf8_lossy(&name), out);
        out.push(b':');
        pair.1.write(entry, out);
    }
    out.push(b'}');
}

fn range_at(offsets: &OffsetBuffer<i32>, row: usize) -> std::ops::Range<usize> {
    let at = |position: usize| {
        offsets
            .get(position)
            .and_then(|offset| usize::try_from(*offset).ok())
            .unwrap_or_default()
    };
    at(row)..at(row + 1)
}

fn primitive<T: ArrowPrimitiveType>(column: &ArrayRef) -> PrimitiveArray<T> {
    Arc::clone(column).as_primitive::<T>().clone()
}

fn quoted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    write(out);
    out.push(b'"');
}

fn write_number<T: serde::Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    // Writing scalars to a Vec never fails.
    let _ = serde_json::to_writer(out, value);
}

fn no_number(value: f64, out: &mut Vec<u8>) {
    let name: &[u8] = if value.is_nan() {
        b"\"NaN\""
    } else if value > 0.0 {
        b"\"Infinity\""
    } else {
        b"\"-Infinity\""
    };
    out.extend_from_slice(name);
}
