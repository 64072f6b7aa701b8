//! The digest of what an event says: XXH3-64 over its values that are not NULL.
//!
//! Canonical form: by column in the order of names, the name as u32 little-endian length and bytes, then the
//! value; NULLs and columns that the event does not author are left out, so that a column which comes later
//! changes no digest of before. A value is a byte for its kind and
//!
//! - 1 a number that is whole: 16 little-endian bytes; 2 a decimal without trailing zeros: 16 bytes of the
//!   unscaled value, 1 of the scale; 3 any other number: the 8 bytes of the double. A column that is widened
//!   (R-E2) so keeps its digests;
//! - 4 a boolean: 1 byte; 5 text or binary: u32 length and bytes; 6 a date or time: 8 bytes of microseconds;
//! - 7 a list: u32 length, then each item, 0 for NULL; 8 a map likewise, key and value in turn; 9 a struct:
//!   its members that are not NULL as name and value, then u32 0xFFFFFFFF.

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, Int64Array,
    LargeBinaryArray,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type, TimeUnit};
use xxhash_rust::xxh3::xxh3_64;

use crate::source::SourceBatch;
use crate::{Code, Error, Result};

/// Ends the members of a struct; no name is that long.
const STRUCT_END: u32 = u32::MAX;
/// Doubles below it that are whole have the same digest as integers.
const WHOLE_MAX: f64 = 9_223_372_036_854_775_808.0;

/// The columns of a part, ready to be written row by row.
pub(super) struct Contents {
    columns: Vec<(String, Option<BooleanBuffer>, Values)>,
}

impl Contents {
    pub(super) fn new(batch: &SourceBatch, is_content: impl Fn(&str) -> bool) -> Result<Self> {
        let schema = batch.columns.schema_ref();
        let mut columns = Vec::new();
        let parts = schema.fields().iter().zip(batch.columns.columns());
        for ((field, column), authored) in parts.zip(&batch.authored) {
            if is_content(field.name()) {
                columns.push((field.name().clone(), authored.clone(), Values::new(column)?));
            }
        }
        columns.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Self { columns })
    }

    /// The digest of an event; `bytes` is scratch space.
    pub(super) fn digest(&self, row: usize, bytes: &mut Vec<u8>) -> u64 {
        bytes.clear();
        for (name, authored, values) in &self.columns {
            if authored.as_ref().is_none_or(|bits| bits.value(row)) && values.is_valid(row) {
                write_bytes(name.as_bytes(), bytes);
                values.write(row, bytes);
            }
        }
        xxh3_64(bytes)
    }
}

/// Values of a column, in the widest form of their kind, with their NULLs.
struct Values {
    nulls: Option<NullBuffer>,
    kind: Kind,
}

enum Kind {
    Long(Int64Array),
    Decimal(Decimal128Array, i8),
    Double(Float64Array),
    Boolean(BooleanArray),
    Bytes(LargeBinaryArray),
    Time(Int64Array),
    List(OffsetBuffer<i32>, Box<Values>),
    Map(OffsetBuffer<i32>, Box<(Values, Values)>),
    Struct(Vec<(String, Values)>),
}

impl Values {
    fn new(column: &ArrayRef) -> Result<Self> {
        Ok(Self {
            nulls: column.logical_nulls(),
            kind: Kind::new(column)?,
        })
    }

    fn is_valid(&self, row: usize) -> bool {
        self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))
    }

    /// Writes a value that is not NULL.
    fn write(&self, row: usize, out: &mut Vec<u8>) {
        match &self.kind {
            Kind::Long(values) => write_whole(values.value(row).into(), out),
            Kind::Decimal(values, scale) => write_decimal(values.value(row), *scale, out),
            Kind::Double(values) => write_double(values.value(row), out),
            Kind::Boolean(values) => out.extend([4, u8::from(values.value(row))]),
            Kind::Bytes(values) => {
                out.push(5);
                write_bytes(values.value(row), out);
            }
            Kind::Time(values) => {
                out.push(6);
                out.extend(values.value(row).to_le_bytes());
            }
            Kind::List(offsets, items) => {
                let items_of_row = range(offsets, row);
                out.push(7);
                write_length(items_of_row.len(), out);
                items_of_row.for_each(|item| items.write_nullable(item, out));
            }
            Kind::Map(offsets, entries) => {
                let entries_of_row = range(offsets, row);
                out.push(8);
                write_length(entries_of_row.len(), out);
                for entry in entries_of_row {
                    entries.0.write_nullable(entry, out);
                    entries.1.write_nullable(entry, out);
                }
            }
            Kind::Struct(members) => {
                out.push(9);
                for (name, values) in members.iter().filter(|(_, m)| m.is_valid(row)) {
                    write_bytes(name.as_bytes(), out);
                    values.write(row, out);
                }
                out.extend(STRUCT_END.to_le_bytes());
            }
        }
    }

    fn write_nullable(&self, row: usize, out: &mut Vec<u8>) {
        if self.is_valid(row) {
            self.write(row, out);
        } else {
            out.push(0);
        }
    }
}

impl Kind {
    fn new(column: &ArrayRef) -> Result<Self> {
        let widened = |to: DataType| {
            cast(column, &to)
                .map_err(|e| Error::internal("a source column cannot be widened").with_source(e))
        };
        let long = |column: &ArrayRef| column.as_primitive::<Int64Type>().clone();
        Ok(match column.data_type() {
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
                Self::Long(long(&widened(DataType::Int64)?))
            }
            DataType::Decimal128(_, scale) => {
                Self::Decimal(column.as_primitive::<Decimal128Type>().clone(), *scale)
            }
            DataType::Float32 | DataType::Float64 => {
                let doubles = widened(DataType::Float64)?;
                Self::Double(doubles.as_primitive::<Float64Type>().clone())
            }
            DataType::Boolean => Self::Boolean(column.as_boolean().clone()),
            DataType::Utf8 | DataType::Binary => {
                Self::Bytes(widened(DataType::LargeBinary)?.as_binary::<i64>().clone())
            }
            DataType::Date32 => {
                let times = widened(DataType::Timestamp(TimeUnit::Microsecond, None))?;
                let micros = cast(&times, &DataType::Int64)
                    .map_err(|e| Error::internal("times are no integers").with_source(e))?;
                Self::Time(long(&micros))
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                Self::Time(long(&widened(DataType::Int64)?))
            }
            DataType::List(_) => {
                let list = column.as_list::<i32>();
                let items = Values::new(list.values())?;
                Self::List(list.offsets().clone(), Box::new(items))
            }
            DataType::Map(..) => {
                let map = column.as_map();
                let entries = (Values::new(map.keys())?, Values::new(map.values())?);
                Self::Map(map.offsets().clone(), Box::new(entries))
            }
            DataType::Struct(fields) => {
                let members = fields.iter().zip(column.as_struct().columns());
                let members =
                    members.map(|(f, column)| Ok((f.name().clone(), Values::new(column)?)));
                Self::Struct(members.collect::<Result<_>>()?)
            }
            other => {
                let message = format!("values of type {other} have no digest");
                return Err(Error::new(Code::Unsupported, message));
            }
        })
    }
}

fn range(offsets: &OffsetBuffer<i32>, row: usize) -> std::ops::Range<usize> {
    let bound = |at: usize| {
        let bound = offsets.get(at).copied().unwrap_or_default();
        usize::try_from(bound).unwrap_or_default()
    };
    bound(row)..bound(row + 1)
}

fn write_length(length: usize, out: &mut Vec<u8>) {
    // Arrow batches of Tidegate hold values of less than 4 GiB.
    out.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_length(bytes.len(), out);
    out.extend_from_slice(bytes);
}

fn write_whole(value: i128, out: &mut Vec<u8>) {
    out.push(1);
    out.extend(value.to_le_bytes());
}

fn write_decimal(mut unscaled: i128, mut scale: i8, out: &mut Vec<u8>) {
    while scale > 0 && unscaled % 10 == 0 {
        unscaled /= 10;
        scale -= 1;
    }
    if scale <= 0 {
        return write_whole(unscaled, out);
    }
    out.push(2);
    out.extend(unscaled.to_le_bytes());
    out.extend(scale.to_le_bytes());
}

fn write_double(value: f64, out: &mut Vec<u8>) {
    if value.fract() == 0.0 && value.abs() < WHOLE_MAX {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::as_conversions,
            reason = "a whole number inside the range of a long"
        )]
        return write_whole((value as i64).into(), out);
    }
    let canonical = if value.is_nan() { f64::NAN } else { value };
    out.push(3);
    out.extend(canonical.to_le_bytes());
}
