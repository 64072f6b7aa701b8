//! Sequences as bytes whose order is the order of the rules (R-S4, R-S5): NULL members first, floats
//! with one NaN on top and one zero, strings by UTF-8 bytes.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array,
    Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, StringArray,
    StructArray, TimestampMicrosecondArray, UInt32Array, new_null_array,
};
use arrow::datatypes::{DataType, Float32Type, Float64Type, TimeUnit};
use arrow::row::{Row, RowConverter, Rows, SortField};

use crate::{Code, Error, Result, types};

/// The bytes of one sequence; `Ord` is the order of events. Only comparable within one table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceBytes(pub Box<[u8]>);

impl SequenceBytes {
    /// The bytes of an encoded row.
    #[must_use]
    pub fn from_row(row: Row<'_>) -> Self {
        Self(row.data().into())
    }
}

/// Turns sequence columns of one type into comparable rows and back.
#[derive(Debug)]
pub struct SequenceEncoder {
    converter: RowConverter,
    data_type: DataType,
}

impl SequenceEncoder {
    /// An encoder for a sequence type.
    ///
    /// # Errors
    /// `INVALID_SPEC` when the type has no order (R-S1).
    pub fn new(data_type: &DataType) -> Result<Self> {
        let refused = || {
            Error::new(
                Code::InvalidSpec,
                format!("sequence type {data_type} has no order"),
            )
        };
        if !types::is_orderable(data_type) {
            return Err(refused());
        }
        let converter = RowConverter::new(vec![SortField::new(data_type.clone())])
            .map_err(|e| refused().with_source(e))?;
        Ok(Self {
            converter,
            data_type: data_type.clone(),
        })
    }

    /// The sequence's type.
    #[must_use]
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Encodes a column, normalising floats.
    ///
    /// # Errors
    /// `INTERNAL` when the column has another type.
    pub fn encode(&self, column: &ArrayRef) -> Result<Rows> {
        self.converter
            .convert_columns(&[normalize_floats(column)])
            .map_err(|e| Error::internal("sequence column has another type").with_source(e))
    }

    /// Decodes rows that this encoder (or one of the same type) made.
    ///
    /// # Errors
    /// `INTERNAL` when the bytes are of another type.
    pub fn decode<'a>(&self, rows: impl IntoIterator<Item = Row<'a>>) -> Result<ArrayRef> {
        let mut columns = self
            .converter
            .convert_rows(rows)
            .map_err(|e| Error::internal("sequence bytes of another type").with_source(e))?;
        columns
            .pop()
            .ok_or_else(|| Error::internal("sequence without a column"))
    }

    /// Decodes owned bytes; NULL where there are none.
    ///
    /// # Errors
    /// `INTERNAL` when the bytes are of another type.
    pub fn decode_bytes<'a>(
        &self,
        values: impl IntoIterator<Item = Option<&'a SequenceBytes>>,
    ) -> Result<ArrayRef> {
        let parser = self.converter.parser();
        let values: Vec<_> = values.into_iter().collect();
        let rows = values.iter().flatten().map(|bytes| parser.parse(&bytes.0));
        let dense = self.decode(rows)?;
        if dense.len() == values.len() {
            return Ok(dense);
        }
        if dense.is_empty() {
            return Ok(new_null_array(&self.data_type, values.len()));
        }
        let mut next = 0u32;
        let positions: UInt32Array = values
            .iter()
            .map(|value| {
                value.map(|_| {
                    next += 1;
                    next - 1
                })
            })
            .collect();
        arrow::compute::take(&dense, &positions, None)
            .map_err(|e| Error::internal("sequences cannot be gathered").with_source(e))
    }
}

/// 0001-01-01 in days since the epoch: the least date that a sequence may be (R-K9).
const FIRST_DAY: i32 = -719_162;
/// 0001-01-01T00:00:00 in microseconds since the epoch.
const FIRST_MICROSECOND: i64 = -62_135_596_800_000_000;

/// The least sequence of a type, as an array of one value: what rows of foreign origin have, so that every
/// event beats them. No event has less; a struct of NULLs is even invalid as one (R-S3).
///
/// # Errors
/// `UNSUPPORTED` for a type that sequences do not have.
pub fn lowest(data_type: &DataType) -> Result<ArrayRef> {
    Ok(match data_type {
        DataType::Boolean => Arc::new(BooleanArray::from(vec![false])),
        DataType::Int8 => Arc::new(Int8Array::from(vec![i8::MIN])),
        DataType::Int16 => Arc::new(Int16Array::from(vec![i16::MIN])),
        DataType::Int32 => Arc::new(Int32Array::from(vec![i32::MIN])),
        DataType::Int64 => Arc::new(Int64Array::from(vec![i64::MIN])),
        DataType::Float32 => Arc::new(Float32Array::from(vec![f32::NEG_INFINITY])),
        DataType::Float64 => Arc::new(Float64Array::from(vec![f64::NEG_INFINITY])),
        DataType::Utf8 => Arc::new(StringArray::from(vec![""])),
        DataType::Binary => Arc::new(BinaryArray::from_vec(vec![&[][..]])),
        DataType::Date32 => Arc::new(Date32Array::from(vec![FIRST_DAY])),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let first = TimestampMicrosecondArray::from(vec![FIRST_MICROSECOND]);
            Arc::new(first.with_timezone_opt(zone.clone()))
        }
        DataType::Decimal128(precision, scale) => {
            let least = 1 - 10i128.pow(u32::from(*precision));
            let values = Decimal128Array::from(vec![least]);
            let typed = values.with_precision_and_scale(*precision, *scale);
            Arc::new(typed.map_err(|e| no_least(data_type).with_source(e))?)
        }
        DataType::Struct(fields) => {
            let nulls = fields
                .iter()
                .map(|field| new_null_array(field.data_type(), 1));
            let made = StructArray::try_new(fields.clone(), nulls.collect(), None);
            Arc::new(made.map_err(|e| no_least(data_type).with_source(e))?)
        }
        _ => return Err(no_least(data_type)),
    })
}

fn no_least(data_type: &DataType) -> Error {
    let message = format!("sequence type {data_type} has no least value");
    Error::new(Code::Unsupported, message)
}

/// The same values with one NaN and one zero (R-S5, R-K4), also inside structs.
#[must_use]
pub fn normalize_floats(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float64 => {
            let values: Float64Array = column
                .as_primitive::<Float64Type>()
                .unary(|v| if v.is_nan() { f64::NAN } else { v + 0.0 });
            Arc::new(values)
        }
        DataType::Float32 => {
            let values: Float32Array = column
                .as_primitive::<Float32Type>()
                .unary(|v| if v.is_nan() { f32::NAN } else { v + 0.0 });
            Arc::new(values)
        }
        DataType::Struct(fields) => {
            let parts = column.as_struct();
            let columns = parts.columns().iter().map(normalize_floats).collect();
            match StructArray::try_new(fields.clone(), columns, parts.nulls().cloned()) {
                Ok(array) => Arc::new(array),
                Err(_) => Arc::clone(column),
            }
        }
        _ => Arc::clone(column),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn floats_order_by_value_with_nan_on_top() {
        let encoder = SequenceEncoder::new(&DataType::Float64).unwrap();
        let column: ArrayRef = Arc::new(Float64Array::from(vec![
            -0.0,
            0.0,
            -f64::NAN,
            f64::NAN,
            f64::INFINITY,
        ]));
        let rows = encoder.encode(&column).unwrap();
        assert_eq!(rows.row(0), rows.row(1));
        assert_eq!(rows.row(2), rows.row(3));
        assert!(rows.row(4) < rows.row(3));
    }

    #[test]
    fn nothing_is_below_the_lowest() {
        let pair = vec![
            Field::new("a", DataType::Utf8, true),
            Field::new("b", DataType::Int64, true),
        ];
        let least: Vec<(DataType, ArrayRef)> = vec![
            (DataType::Int64, Arc::new(Int64Array::from(vec![i64::MIN]))),
            (DataType::Utf8, Arc::new(StringArray::from(vec![""]))),
            (
                DataType::Float64,
                Arc::new(Float64Array::from(vec![f64::MIN])),
            ),
            (
                DataType::Decimal128(5, 2),
                Arc::new(
                    Decimal128Array::from(vec![-99_999])
                        .with_precision_and_scale(5, 2)
                        .unwrap(),
                ),
            ),
            (
                DataType::Struct(pair.clone().into()),
                Arc::new(StructArray::new(
                    pair.into(),
                    vec![
                        Arc::new(StringArray::from(vec![None::<&str>])),
                        Arc::new(Int64Array::from(vec![i64::MIN])),
                    ],
                    None,
                )),
            ),
        ];
        for (data_type, other) in least {
            let encoder = SequenceEncoder::new(&data_type).unwrap();
            let lowest = encoder.encode(&lowest(&data_type).unwrap()).unwrap();
            let other = encoder.encode(&other).unwrap();
            assert!(lowest.row(0) <= other.row(0), "{data_type}");
        }
    }

    #[test]
    fn a_null_member_sorts_first() {
        let fields = vec![
            Field::new("ts", DataType::Utf8, true),
            Field::new("n", DataType::Int64, true),
        ];
        let data_type = DataType::Struct(fields.clone().into());
        let column: ArrayRef = Arc::new(StructArray::new(
            fields.into(),
            vec![
                Arc::new(StringArray::from(vec!["a", "a"])),
                Arc::new(Int64Array::from(vec![None, Some(i64::MIN)])),
            ],
            None,
        ));
        let encoder = SequenceEncoder::new(&data_type).unwrap();
        let rows = encoder.encode(&column).unwrap();
        assert!(rows.row(0) < rows.row(1));
        let bytes = SequenceBytes::from_row(rows.row(1));
        let back = encoder.decode_bytes([None, Some(&bytes), None]).unwrap();
        assert_eq!(back.null_count(), 2);
        assert_eq!(&back.slice(1, 1), &column.slice(1, 1));
    }
}
