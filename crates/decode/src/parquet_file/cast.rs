//! Arrow arrays of any type to columns of the declared type, without loss (R-K8).

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Field, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use tidegate_change::text::{Failure, Parsed, time};
use tidegate_change::types;

use crate::column::{Column, Scalar, map_types, note};

/// The Delta type that holds all values of an Arrow type.
pub(super) fn natural(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Float16 => DataType::Float32,
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) => {
            DataType::Decimal128(*p, *s)
        }
        DataType::Decimal256(p, s) if *p <= types::DECIMAL_DIGITS_MAX => {
            DataType::Decimal128(*p, *s)
        }
        DataType::Decimal256(..) => DataType::Utf8,
        DataType::Date32 | DataType::Date64 => DataType::Date32,
        DataType::Timestamp(_, Some(_)) => types::timestamp_utc(),
        DataType::Timestamp(_, None) => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Time32(_) | DataType::Time64(_) | DataType::Duration(_) => DataType::Int64,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Dictionary(_, value) => natural(value)?,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            types::list_of(natural(item.data_type())?)
        }
        DataType::Map(entries, _) => {
            let (key, value) = map_types(entries)?;
            types::map_of(natural(key)?, natural(value)?)
        }
        DataType::Struct(fields) => {
            let member = |field: &std::sync::Arc<Field>| {
                Some(Field::new(field.name(), natural(field.data_type())?, true))
            };
            DataType::Struct(
                fields
                    .iter()
                    .map(member)
                    .collect::<Option<Vec<_>>>()?
                    .into(),
            )
        }
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64 => data_type.clone(),
        _ => return None,
    })
}

/// Whether an array is a column of the declared type as it is.
pub(super) fn is_ready(array: &ArrayRef, declared: &DataType) -> bool {
    if array.data_type() != declared {
        return false;
    }
    // Dates and timestamps may lie beyond the calendar, and members of nested types too.
    match declared {
        DataType::Date32 => {
            let days = array.as_primitive::<Date32Type>();
            days.iter()
                .flatten()
                .all(|days| time::date_in_range(days).is_ok())
        }
        DataType::Timestamp(..) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>();
            micros
                .iter()
                .flatten()
                .all(|micros| time::timestamp_in_range(micros).is_ok())
        }
        DataType::List(_) | DataType::Map(..) | DataType::Struct(_) => false,
        _ => true,
    }
}

/// Adds one value of an array to a column, cast without loss; else NULL.
pub(crate) fn append_arrow(column: &mut Column, array: &ArrayRef, row: usize) -> Parsed<()> {
    if array.is_null(row) || array.data_type() == &DataType::Null {
        column.append_null();
        return Ok(());
    }
    let is_nested = array.data_type().is_nested();
    if is_nested && column.is_text() {
        return column.append_printed(&array.slice(row, 1));
    }
    match array.data_type() {
        DataType::List(_) => append_items(column, &array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => append_items(column, &array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => append_items(column, &array.as_fixed_size_list().value(row)),
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let [names, contents] = entries.columns() else {
                return refuse(column, Failure::Invalid);
            };
            column.append_map(|keys, values| {
                let mut all = Ok(());
                for entry in 0..entries.len() {
                    note(&mut all, append_arrow(keys, names, entry));
                    note(&mut all, append_arrow(values, contents, entry));
                }
                all
            })
        }
        DataType::Struct(_) => {
            let members = array.as_struct();
            column.append_struct(|name, member| match members.column_by_name(name) {
                Some(values) => append_arrow(member, values, row),
                None => {
                    member.append_null();
                    Ok(())
                }
            })
        }
        _ => append_leaf(column, array, row),
    }
}

fn append_items(column: &mut Column, values: &ArrayRef) -> Parsed<()> {
    column.append_list(|items| {
        let mut all = Ok(());
        for item in 0..values.len() {
            note(&mut all, append_arrow(items, values, item));
        }
        all
    })
}

fn refuse(column: &mut Column, failure: Failure) -> Parsed<()> {
    column.append_null();
    Err(failure)
}

fn append_leaf(column: &mut Column, array: &ArrayRef, row: usize) -> Parsed<()> {
    match array.data_type() {
        DataType::Utf8 => column.append_text(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => column.append_text(array.as_string::<i64>().value(row)),
        DataType::Utf8View => column.append_text(array.as_string_view().value(row)),
        DataType::Binary => column.append(Scalar::Bytes(array.as_binary::<i32>().value(row))),
        DataType::LargeBinary => column.append(Scalar::Bytes(array.as_binary::<i64>().value(row))),
        DataType::BinaryView => column.append(Scalar::Bytes(array.as_binary_view().value(row))),
        DataType::FixedSizeBinary(_) => {
            column.append(Scalar::Bytes(array.as_fixed_size_binary().value(row)))
        }
        DataType::Decimal256(_, scale) => {
            let value = array.as_primitive::<Decimal256Type>().value(row);
            match value.to_i128() {
                Some(unscaled) => column.append(Scalar::Decimal {
                    unscaled,
                    scale: (*scale).into(),
                }),
                None if column.is_text() => {
                    column.append_text(&array.as_primitive::<Decimal256Type>().value_as_string(row))
                }
                None => refuse(column, Failure::Invalid),
            }
        }
        _ => match scalar(array, row) {
            Ok(value) => column.append(value),
            Err(failure) => refuse(column, failure),
        },
    }
}

/// The value of a primitive array.
macro_rules! value {
    ($array:ident, $row:ident, $type:ty) => {
        $array.as_primitive::<$type>().value($row)
    };
}

fn scalar(array: &ArrayRef, row: usize) -> Parsed<Scalar<'static>> {
    Ok(match array.data_type() {
        DataType::Boolean => Scalar::Boolean(array.as_boolean().value(row)),
        DataType::Int8 => Scalar::Integer(value!(array, row, Int8Type).into()),
        DataType::Int16 => Scalar::Integer(value!(array, row, Int16Type).into()),
        DataType::Int32 => Scalar::Integer(value!(array, row, Int32Type).into()),
        DataType::Int64 => Scalar::Integer(value!(array, row, Int64Type)),
        DataType::UInt8 => Scalar::Integer(value!(array, row, UInt8Type).into()),
        DataType::UInt16 => Scalar::Integer(value!(array, row, UInt16Type).into()),
        DataType::UInt32 => Scalar::Integer(value!(array, row, UInt32Type).into()),
        DataType::UInt64 => {
            let value = value!(array, row, UInt64Type);
            match i64::try_from(value) {
                Ok(value) => Scalar::Integer(value),
                Err(_) => Scalar::Decimal {
                    unscaled: value.into(),
                    scale: 0,
                },
            }
        }
        DataType::Float16 => Scalar::Float(value!(array, row, Float16Type).to_f32()),
        DataType::Float32 => Scalar::Float(value!(array, row, Float32Type)),
        DataType::Float64 => Scalar::Double(value!(array, row, Float64Type)),
        DataType::Decimal32(_, s) => Scalar::Decimal {
            unscaled: value!(array, row, Decimal32Type).into(),
            scale: (*s).into(),
        },
        DataType::Decimal64(_, s) => Scalar::Decimal {
            unscaled: value!(array, row, Decimal64Type).into(),
            scale: (*s).into(),
        },
        DataType::Decimal128(_, s) => Scalar::Decimal {
            unscaled: value!(array, row, Decimal128Type),
            scale: (*s).into(),
        },
        _ => return temporal(array, row),
    })
}

fn temporal(array: &ArrayRef, row: usize) -> Parsed<Scalar<'static>> {
    Ok(match array.data_type() {
        DataType::Date32 => Scalar::Date(value!(array, row, Date32Type)),
        DataType::Date64 => {
            let days = exact(value!(array, row, Date64Type), 86_400_000)?;
            Scalar::Date(i32::try_from(days).map_err(|_| Failure::Unrepresentable)?)
        }
        DataType::Timestamp(unit, zone) => {
            let micros = match unit {
                TimeUnit::Second => scaled(value!(array, row, TimestampSecondType), 1_000_000)?,
                TimeUnit::Millisecond => {
                    scaled(value!(array, row, TimestampMillisecondType), 1_000)?
                }
                TimeUnit::Microsecond => value!(array, row, TimestampMicrosecondType),
                TimeUnit::Nanosecond => exact(value!(array, row, TimestampNanosecondType), 1_000)?,
            };
            Scalar::Timestamp {
                micros,
                zoned: zone.is_some(),
            }
        }
        DataType::Time32(TimeUnit::Second) => Scalar::Span(scaled(
            value!(array, row, Time32SecondType).into(),
            1_000_000,
        )?),
        DataType::Time32(_) => Scalar::Span(scaled(
            value!(array, row, Time32MillisecondType).into(),
            1_000,
        )?),
        DataType::Time64(TimeUnit::Nanosecond) => {
            Scalar::Span(exact(value!(array, row, Time64NanosecondType), 1_000)?)
        }
        DataType::Time64(_) => Scalar::Span(value!(array, row, Time64MicrosecondType)),
        DataType::Duration(unit) => Scalar::Span(match unit {
            TimeUnit::Second => scaled(value!(array, row, DurationSecondType), 1_000_000)?,
            TimeUnit::Millisecond => scaled(value!(array, row, DurationMillisecondType), 1_000)?,
            TimeUnit::Microsecond => value!(array, row, DurationMicrosecondType),
            TimeUnit::Nanosecond => exact(value!(array, row, DurationNanosecondType), 1_000)?,
        }),
        _ => return Err(Failure::Invalid),
    })
}

fn scaled(value: i64, factor: i64) -> Parsed<i64> {
    value.checked_mul(factor).ok_or(Failure::Unrepresentable)
}

fn exact(value: i64, divisor: i64) -> Parsed<i64> {
    if value % divisor == 0 {
        Ok(value / divisor)
    } else {
        Err(Failure::Invalid)
    }
}
