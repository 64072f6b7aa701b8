//! Lossless casts from source types to declared types (R-K8).

use arrow::array::ArrayRef;
use tidegate_change::json::Encoder;
use tidegate_change::text::{Failure, Parsed, binary, number, time};

use super::{Column, Values};

/// A decoded value of a source type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scalar<'a> {
    Boolean(bool),
    Integer(i64),
    Float(f32),
    Double(f64),
    Decimal {
        unscaled: i128,
        scale: i32,
    },
    /// Days since the epoch.
    Date(i32),
    Timestamp {
        micros: i64,
        zoned: bool,
    },
    /// Time of day or duration, microseconds.
    Span(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// Whole numbers that a float holds exactly.
const FLOAT_WHOLE_MAX: i64 = 1 << 24;

impl Column {
    /// Adds a value, cast to the column's type if nothing is lost; else NULL.
    ///
    /// # Errors
    /// Why the value does not fit.
    pub(crate) fn append(&mut self, value: Scalar<'_>) -> Parsed<()> {
        if let Scalar::Text(text) = value {
            return self.append_text(text);
        }
        let cast = self.try_append(value);
        if cast.is_err() {
            self.append_null();
        }
        cast
    }

    fn try_append(&mut self, value: Scalar<'_>) -> Parsed<()> {
        match (&mut self.values, value) {
            (Values::Boolean(values), Scalar::Boolean(v)) => values.append_value(v),
            (Values::Byte(values), Scalar::Integer(v)) => values.append_value(narrow(v)?),
            (Values::Short(values), Scalar::Integer(v)) => values.append_value(narrow(v)?),
            (Values::Integer(values), Scalar::Integer(v)) => values.append_value(narrow(v)?),
            (Values::Long(values), Scalar::Integer(v) | Scalar::Span(v)) => values.append_value(v),
            (Values::Float(values), Scalar::Float(v)) => values.append_value(v),
            (Values::Float(values), Scalar::Integer(v)) => values.append_value(float_of(v)?),
            (Values::Double(values), Scalar::Double(v)) => values.append_value(v),
            (Values::Double(values), Scalar::Float(v)) => values.append_value(f64::from(v)),
            (Values::Double(values), Scalar::Integer(v)) => {
                values.append_value(number::long_as_double(v).ok_or(Failure::Invalid)?);
            }
            (
                Values::Decimal {
                    values,
                    precision,
                    scale,
                },
                Scalar::Integer(v),
            ) => {
                values.append_value(number::rescale_decimal(v.into(), 0, *precision, *scale)?);
            }
            (
                Values::Decimal {
                    values,
                    precision,
                    scale,
                },
                Scalar::Decimal {
                    unscaled,
                    scale: from,
                },
            ) => {
                values.append_value(number::rescale_decimal(unscaled, from, *precision, *scale)?);
            }
            (Values::Date(values), Scalar::Date(days)) => {
                values.append_value(time::date_in_range(days)?);
            }
            (Values::Timestamp { values, .. }, Scalar::Date(days)) => {
                values.append_value(i64::from(time::date_in_range(days)?) * time::DAY_US);
            }
            (
                Values::Timestamp { values, zoned },
                Scalar::Timestamp {
                    micros,
                    zoned: has_zone,
                },
            ) => {
                if has_zone && !*zoned {
                    return Err(Failure::Invalid);
                }
                values.append_value(time::timestamp_in_range(micros)?);
            }
            (Values::Binary(values), Scalar::Bytes(bytes)) => values.append_value(bytes),
            (Values::Text(values), value) => {
                self.scratch.clear();
                print(value, &mut self.scratch)?;
                values.append_value(
                    std::str::from_utf8(&self.scratch).map_err(|_| Failure::Invalid)?,
                );
            }
            _ => return Err(Failure::Invalid),
        }
        Ok(())
    }

    /// Adds the JSON text of a one-entry array to a text column.
    pub(crate) fn append_printed(&mut self, printed: &ArrayRef) -> Parsed<()> {
        let Values::Text(values) = &mut self.values else {
            self.append_null();
            return Err(Failure::Invalid);
        };
        let mut text = Vec::new();
        let encoded = Encoder::new(printed).map(|encoder| encoder.write_text(0, &mut text));
        // A part of a type that no Delta type stands for has no JSON form.
        match (encoded, String::from_utf8(text)) {
            (Ok(()), Ok(text)) => {
                values.append_value(text);
                Ok(())
            }
            (Err(_), _) | (_, Err(_)) => {
                self.append_null();
                Err(Failure::Invalid)
            }
        }
    }
}

/// The form that `read` prints.
fn print(value: Scalar<'_>, out: &mut Vec<u8>) -> Parsed<()> {
    match value {
        Scalar::Boolean(v) => out.extend_from_slice(if v { b"true" } else { b"false" }),
        Scalar::Integer(v) => print_number(&v, out),
        Scalar::Float(v) if v.is_finite() => print_number(&v, out),
        Scalar::Double(v) if v.is_finite() => print_number(&v, out),
        Scalar::Float(v) => print_no_number(v.into(), out),
        Scalar::Double(v) => print_no_number(v, out),
        Scalar::Decimal { unscaled, scale } => {
            number::write_decimal(
                unscaled,
                i8::try_from(scale).map_err(|_| Failure::Invalid)?,
                out,
            );
        }
        Scalar::Date(days) => time::write_date(time::date_in_range(days)?, out),
        Scalar::Timestamp { micros, zoned } => {
            time::write_timestamp(time::timestamp_in_range(micros)?, zoned, out);
        }
        Scalar::Span(micros) => time::write_time(micros, out),
        Scalar::Text(text) => out.extend_from_slice(text.as_bytes()),
        Scalar::Bytes(bytes) => binary::write_base64(bytes, out),
    }
    Ok(())
}

fn print_number<T: serde::Serialize>(value: &T, out: &mut Vec<u8>) {
    // Writing a number to a Vec never fails.
    let _ = serde_json::to_writer(out, value);
}

fn print_no_number(value: f64, out: &mut Vec<u8>) {
    let name: &[u8] = if value.is_nan() {
        b"NaN"
    } else if value > 0.0 {
        b"Infinity"
    } else {
        b"-Infinity"
    };
    out.extend_from_slice(name);
}

fn narrow<T: TryFrom<i64>>(value: i64) -> Parsed<T> {
    T::try_from(value).map_err(|_| Failure::Invalid)
}

fn float_of(value: i64) -> Parsed<f32> {
    if value.abs() > FLOAT_WHOLE_MAX {
        return Err(Failure::Invalid);
    }
    let value = i32::try_from(value).map_err(|_| Failure::Invalid)?;
    // Exact: the range was checked, and a double of 24 bits is a float.
    f64::from(value)
        .to_string()
        .parse()
        .map_err(|_| Failure::Invalid)
}
