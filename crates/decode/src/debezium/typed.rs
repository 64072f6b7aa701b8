//! How JSON values decode whose type a Connect schema names (R-K8).

use tidegate_change::spec::TimestampEncoding as Unit;
use tidegate_change::text::{Failure, Parsed, binary, number, time};

use super::types::SourceType;
use crate::column::{Column, Scalar, epoch_micros, last_members, note, single, variable_scale};
use crate::scan::{Kind, Malformed, Raw};

/// Most digits on either side of a decimal's point; PostgreSQL's numeric has fewer.
const DIGITS_MAX: u32 = 131_072;

/// Adds a JSON value of a source type to a column, cast without loss; else NULL.
pub(crate) fn append_typed(column: &mut Column, raw: Raw<'_>, source: &SourceType) -> Parsed<()> {
    if raw.is_null() {
        column.append_null();
        return Ok(());
    }
    match source {
        SourceType::List(_) | SourceType::Map(_) | SourceType::Struct(_) if column.is_text() => {
            let natural = single(&source.natural(), |column| {
                append_typed(column, raw, source)
            });
            match natural {
                Ok(array) => column.append_printed(&array),
                Err(failure) => refuse(column, failure),
            }
        }
        SourceType::List(item) => column.append_list(|items| {
            let mut all = Ok(());
            let scanned = raw.elements(|element| {
                note(&mut all, append_typed(items, element, item));
                Ok(())
            });
            scanned.map_err(|Malformed| Failure::Invalid).and(all)
        }),
        SourceType::Map(value_type) => column.append_map(|keys, values| {
            let mut all = Ok(());
            for (name, value) in last_members(raw)? {
                note(&mut all, keys.append_text(&name));
                note(&mut all, append_typed(values, value, value_type));
            }
            all
        }),
        SourceType::Struct(members) => match last_members(raw) {
            Err(failure) => refuse(column, failure),
            Ok(found) => column.append_struct(|name, member| {
                let value = found.iter().find(|(found, _)| found == name);
                let value = value.map_or(Raw::NULL, |(_, value)| *value);
                match members.iter().find(|(known, _)| known == name) {
                    Some((_, source)) => append_typed(member, value, source),
                    None => member.append_json(value),
                }
            }),
        },
        SourceType::Decimal { scale, .. } if raw.kind() == Kind::String => {
            match raw
                .string()
                .ok_or(Failure::Invalid)
                .and_then(|text| binary::parse_base64(&text))
            {
                Ok(bytes) => append_decimal(column, &bytes, *scale),
                Err(failure) => refuse(column, failure),
            }
        }
        SourceType::VariableScaleDecimal => match variable_scale(raw) {
            Ok((bytes, scale)) => append_decimal(column, &bytes, scale),
            Err(failure) => refuse(column, failure),
        },
        _ => append_leaf(column, raw, source),
    }
}

fn refuse(column: &mut Column, failure: Failure) -> Parsed<()> {
    column.append_null();
    Err(failure)
}

fn append_decimal(column: &mut Column, bytes: &[u8], scale: i32) -> Parsed<()> {
    match number::parse_unscaled(bytes) {
        Ok(unscaled) if i8::try_from(scale).is_ok() => {
            column.append(Scalar::Decimal { unscaled, scale })
        }
        _ if column.is_text() && scale.unsigned_abs() <= DIGITS_MAX => {
            column.append_text(&big_decimal(bytes, scale))
        }
        _ => refuse(column, Failure::Invalid),
    }
}

fn append_leaf(column: &mut Column, raw: Raw<'_>, source: &SourceType) -> Parsed<()> {
    let number = raw.kind() == Kind::Number;
    let scalar = match source {
        SourceType::Boolean if raw.kind() == Kind::Boolean => Ok(Scalar::Boolean(raw.0 == "true")),
        SourceType::Integer(_) if number => number::parse_integer(raw.0).map(Scalar::Integer),
        SourceType::Float => number::parse_float(raw.0.trim_matches('"')).map(Scalar::Float),
        SourceType::Double => number::parse_double(raw.0.trim_matches('"')).map(Scalar::Double),
        SourceType::Date if number => match number::parse_integer(raw.0).map(i32::try_from) {
            Ok(Ok(days)) => Ok(Scalar::Date(days)),
            _ => Err(Failure::Unrepresentable),
        },
        SourceType::Timestamp(unit) if number => number::parse_integer(raw.0)
            .and_then(|value| epoch_micros(value, *unit))
            .map(|micros| Scalar::Timestamp {
                micros,
                zoned: false,
            }),
        SourceType::Span(unit) if number => number::parse_integer(raw.0)
            .and_then(|value| span(value, *unit))
            .map(Scalar::Span),
        _ => return append_string(column, raw, source),
    };
    match scalar {
        Ok(scalar) => column.append(scalar),
        Err(failure) => refuse(column, failure),
    }
}

fn append_string(column: &mut Column, raw: Raw<'_>, source: &SourceType) -> Parsed<()> {
    let Some(text) = raw.string() else {
        return refuse(column, Failure::Invalid);
    };
    let bare = text.strip_suffix('Z').unwrap_or(&text);
    let scalar = match source {
        SourceType::Text => return column.append_text(&text),
        SourceType::Bytes => match binary::parse_base64(&text) {
            Ok(bytes) => return column.append(Scalar::Bytes(&bytes)),
            Err(failure) => Err(failure),
        },
        SourceType::ZonedTimestamp => {
            time::parse_timestamp(&text).map(|parsed| Scalar::Timestamp {
                micros: parsed.micros,
                zoned: true,
            })
        }
        SourceType::IsoTimestamp => time::parse_timestamp(&text).map(|parsed| Scalar::Timestamp {
            micros: parsed.micros,
            zoned: false,
        }),
        SourceType::IsoDate => time::parse_date(bare).map(Scalar::Date),
        SourceType::IsoTime => time::parse_time(bare).map(Scalar::Span),
        _ => Err(Failure::Invalid),
    };
    match scalar {
        Ok(scalar) => column.append(scalar),
        // Text holds what no calendar type does.
        Err(Failure::Unrepresentable) if column.is_text() => column.append_text(&text),
        Err(failure) => refuse(column, failure),
    }
}

fn span(value: i64, unit: Unit) -> Parsed<i64> {
    match unit {
        Unit::EpochMillis => value.checked_mul(1_000).ok_or(Failure::Invalid),
        Unit::EpochMicros => Ok(value),
        Unit::EpochNanos if value % 1_000 == 0 => Ok(value / 1_000),
        _ => Err(Failure::Invalid),
    }
}

/// Decimal text of a big-endian two's-complement integer of any length.
fn big_decimal(bytes: &[u8], scale: i32) -> String {
    const GROUP: u64 = 1_000_000_000;
    let negative = bytes.first().is_some_and(|first| first & 0x80 != 0);
    let mut words: Vec<u32> = Vec::new();
    let mut carry = true;
    // Negated while it is copied, least byte first, so that the rest works on the magnitude.
    let magnitude: Vec<u8> = bytes
        .iter()
        .rev()
        .map(|byte| {
            if !negative {
                return *byte;
            }
            let (value, overflow) = (!byte).overflowing_add(u8::from(carry));
            carry = overflow;
            value
        })
        .collect();
    for chunk in magnitude.chunks(4) {
        let mut word = [0; 4];
        word.iter_mut()
            .zip(chunk)
            .for_each(|(place, byte)| *place = *byte);
        words.push(u32::from_le_bytes(word));
    }
    let mut groups = Vec::new();
    while words.iter().any(|word| *word != 0) {
        let mut rest = 0u64;
        for word in words.iter_mut().rev() {
            let value = (rest << 32) | u64::from(*word);
            *word = u32::try_from(value / GROUP).unwrap_or(u32::MAX);
            rest = value % GROUP;
        }
        groups.push(rest);
        while words.last() == Some(&0) {
            words.pop();
        }
    }
    let mut digits: String = groups.pop().unwrap_or(0).to_string();
    groups
        .iter()
        .rev()
        .for_each(|group| digits.push_str(&format!("{group:09}")));
    let shift = usize::try_from(scale.unsigned_abs()).unwrap_or(0);
    if scale < 0 && digits != "0" {
        digits.push_str(&"0".repeat(shift));
    } else if scale > 0 {
        let scale = shift;
        if digits.len() <= scale {
            digits = format!("{}{digits}", "0".repeat(scale + 1 - digits.len()));
        }
        digits.insert(digits.len() - scale, '.');
    }
    if negative {
        format!("-{digits}")
    } else {
        digits
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tidegate_change::{json, types};

    use super::*;

    fn decoded(target: &str, raw: &str, source: &SourceType) -> Parsed<Value> {
        let target = types::parse_type(target).unwrap();
        let array = single(&target, |column| append_typed(column, Raw(raw), source))?;
        Ok(json::value_at(&array, 0).unwrap())
    }

    #[test]
    fn logical_types_decode_before_they_are_cast() {
        for (target, raw, source, expected) in logical_cases() {
            let value = decoded(target, raw, &source).unwrap();
            assert_eq!(value.to_string(), expected, "{target} {raw}");
        }
    }

    /// Declared type, JSON, source type, and the JSON of the result.
    fn logical_cases() -> Vec<(&'static str, &'static str, SourceType, &'static str)> {
        let decimal = SourceType::Decimal {
            scale: 2,
            precision: Some(10),
        };
        #[rustfmt::skip]
        let cases = vec![
            ("decimal(12,3)", "\"AYag\"", decimal.clone(), "\"1000.000\""),
            ("string", "\"/w==\"", decimal, "\"-0.01\""),
            ("date", "19782", SourceType::Date, "\"2024-02-29\""),
            ("timestamp_ntz", "19782", SourceType::Date, "\"2024-02-29T00:00:00.000000\""),
            ("string", "1772280000123", SourceType::Timestamp(Unit::EpochMillis), "\"2026-02-28T12:00:00.123000\""),
            ("timestamp", "0", SourceType::Timestamp(Unit::EpochMicros), "\"1970-01-01T00:00:00.000000Z\""),
            ("long", "86399999", SourceType::Span(Unit::EpochMillis), "86399999000"),
            ("string", "45296123456", SourceType::Span(Unit::EpochMicros), "\"12:34:56.123456\""),
            ("long", "\"12:00:00Z\"", SourceType::IsoTime, "43200000000"),
            ("date", "\"2026-01-01Z\"", SourceType::IsoDate, "\"2026-01-01\""),
            ("timestamp_ntz", "\"2026-01-01T00:00:00Z\"", SourceType::IsoTimestamp, "\"2026-01-01T00:00:00.000000\""),
            ("string", "\"infinity\"", SourceType::ZonedTimestamp, "\"infinity\""),
            ("binary", "\"3q0=\"", SourceType::Bytes, "\"3q0=\""),
            ("double", "\"NaN\"", SourceType::Double, "\"NaN\""),
            ("float", "3.4028235e+38", SourceType::Float, "3.4028235e+38"),
            ("decimal(20,0)", "9223372036854775807", SourceType::Integer(8), "\"9223372036854775807\""),
            ("string", "{\"scale\":9,\"value\":\"XODppWAV/sWq36MorjmBFQ==\"}", SourceType::VariableScaleDecimal, "\"123456789012345678901234567890.123456789\""),
            ("decimal(5,1)", "\"1.5\"", SourceType::Text, "\"1.5\""),
        ];
        cases
    }

    #[test]
    fn nested_values_print_as_json_where_text_is_declared() {
        let list = SourceType::List(Box::new(SourceType::Decimal {
            scale: 2,
            precision: Some(8),
        }));
        let value = decoded("string", "[\"bg==\", null]", &list).unwrap();
        assert_eq!(value, Value::from("[\"1.10\",null]"));
    }

    #[test]
    fn what_is_lost_or_beyond_the_calendar_is_told_apart() {
        let cases = [
            (
                "timestamp_ntz",
                "\"2026-01-01T00:00:00Z\"",
                SourceType::ZonedTimestamp,
                Failure::Invalid,
            ),
            (
                "date",
                "-2147472692",
                SourceType::Date,
                Failure::Unrepresentable,
            ),
            (
                "timestamp_ntz",
                "9223372036825200000",
                SourceType::Timestamp(Unit::EpochMicros),
                Failure::Unrepresentable,
            ),
            (
                "timestamp",
                "\"infinity\"",
                SourceType::ZonedTimestamp,
                Failure::Unrepresentable,
            ),
            (
                "decimal(10,2)",
                "\"NAN\"",
                SourceType::Text,
                Failure::Unrepresentable,
            ),
            ("decimal(10,2)", "0.1", SourceType::Double, Failure::Invalid),
            (
                "integer",
                "3000000000",
                SourceType::Integer(8),
                Failure::Invalid,
            ),
            (
                "double",
                "9007199254740993",
                SourceType::Integer(8),
                Failure::Invalid,
            ),
            ("boolean", "1", SourceType::Integer(2), Failure::Invalid),
        ];
        for (target, raw, source, expected) in cases {
            assert_eq!(
                decoded(target, raw, &source),
                Err(expected),
                "{target} {raw}"
            );
        }
    }

    #[test]
    fn numbers_of_any_length_print_all_digits() {
        let mut bytes = vec![0x7f];
        bytes.extend([0xff; 31]);
        assert_eq!(
            big_decimal(&bytes, 0),
            "57896044618658097711785492504343953926634992332820282019728792003956564819967"
        );
        assert_eq!(big_decimal(&[0xff], 3), "-0.001");
        assert_eq!(big_decimal(&[0x80, 0, 0, 0, 0], 0), "-549755813888");
        assert_eq!(big_decimal(&[], 0), "0");
    }
}
