//! Text parsed by the declared type, exactly (R-K8): JSON without types, CSV cells, text columns.

use std::borrow::Cow;

use tidegate_change::spec::TimestampEncoding;
use tidegate_change::text::{Failure, Parsed, binary, number, parse_boolean, time};

use super::{Column, TextRules, Values, note};
use crate::scan::{Kind, Malformed, Raw, Scanner};

impl Column {
    /// Adds a JSON value by the column's type; else NULL.
    ///
    /// # Errors
    /// Why the value does not fit.
    pub(crate) fn append_json(&mut self, raw: Raw<'_>) -> Parsed<()> {
        match raw.kind() {
            Kind::Null => {
                self.append_null();
                Ok(())
            }
            Kind::String => match raw.string() {
                Some(text) => self.append_text(&text),
                None => self.refuse(Failure::Invalid),
            },
            Kind::Number | Kind::Boolean => self.append_literal(raw),
            Kind::Array => self.append_array(raw),
            Kind::Object => self.append_object(raw),
        }
    }

    /// Adds a text by the column's type; else NULL.
    ///
    /// # Errors
    /// Why the value does not fit.
    pub(crate) fn append_text(&mut self, text: &str) -> Parsed<()> {
        if self.is_nested() {
            // Text columns hold JSON where formats have no nested values (CSV, hstore).
            return match Scanner::document(text) {
                Ok(raw) if matches!(raw.kind(), Kind::Array | Kind::Object) => {
                    self.append_json(raw)
                }
                _ => self.refuse(Failure::Invalid),
            };
        }
        let parsed = self.try_append_text(text);
        parsed.or_else(|failure| self.refuse(failure))
    }

    fn refuse(&mut self, failure: Failure) -> Parsed<()> {
        self.append_null();
        Err(failure)
    }

    fn try_append_text(&mut self, text: &str) -> Parsed<()> {
        let rules = self.rules;
        match &mut self.values {
            Values::Text(values) => values.append_value(text),
            Values::Boolean(values) => values.append_value(parse_boolean(text)?),
            Values::Byte(values) => values.append_value(parse_integer(text)?),
            Values::Short(values) => values.append_value(parse_integer(text)?),
            Values::Integer(values) => values.append_value(parse_integer(text)?),
            Values::Long(values) => values.append_value(parse_long(text, rules)?),
            Values::Float(values) => values.append_value(number::parse_float(text)?),
            Values::Double(values) => values.append_value(number::parse_double(text)?),
            Values::Decimal {
                values,
                precision,
                scale,
            } => {
                values.append_value(parse_decimal(text, rules, *precision, *scale)?);
            }
            Values::Date(values) => values.append_value(parse_date(text, rules)?),
            Values::Timestamp { values, zoned } => {
                values.append_value(parse_timestamp(text, rules, *zoned)?);
            }
            Values::Binary(values) => values.append_value(parse_bytes(text, rules)?),
            Values::List { .. } | Values::Map { .. } | Values::Struct { .. } => {
                return Err(Failure::Invalid);
            }
        }
        Ok(())
    }

    /// Numbers and booleans.
    fn append_literal(&mut self, raw: Raw<'_>) -> Parsed<()> {
        let parsed = self.try_append_literal(raw);
        parsed.or_else(|failure| self.refuse(failure))
    }

    fn try_append_literal(&mut self, raw: Raw<'_>) -> Parsed<()> {
        let text = raw.0;
        let rules = self.rules;
        let number = raw.kind() == Kind::Number;
        match &mut self.values {
            Values::Text(values) => values.append_value(text),
            Values::Boolean(values) if !number => values.append_value(parse_boolean(text)?),
            _ if !number => return Err(Failure::Invalid),
            Values::Byte(values) => values.append_value(parse_integer(text)?),
            Values::Short(values) => values.append_value(parse_integer(text)?),
            Values::Integer(values) => values.append_value(parse_integer(text)?),
            Values::Long(values) => values.append_value(parse_integer(text)?),
            Values::Float(values) => values.append_value(number::parse_float(text)?),
            Values::Double(values) => {
                // A whole number of 64 bits is one (R-K8), so it must fit exactly.
                let lost = |whole: i64| number::long_as_double(whole).is_none();
                if text.parse().is_ok_and(lost) {
                    return Err(Failure::Invalid);
                }
                values.append_value(number::parse_double(text)?);
            }
            Values::Decimal {
                values,
                precision,
                scale,
            } => {
                values.append_value(number::parse_decimal(text, *precision, *scale)?);
            }
            Values::Date(values) => {
                let days = i32::try_from(number::parse_integer(text)?);
                values.append_value(time::date_in_range(
                    days.map_err(|_| Failure::Unrepresentable)?,
                )?);
            }
            Values::Timestamp { values, .. } => {
                let epoch = rules.encoding.ok_or(Failure::Invalid)?;
                values.append_value(epoch_micros(number::parse_integer(text)?, epoch)?);
            }
            _ => return Err(Failure::Invalid),
        }
        Ok(())
    }

    fn append_array(&mut self, raw: Raw<'_>) -> Parsed<()> {
        match &mut self.values {
            Values::Text(values) => {
                values.append_value(raw.0);
                Ok(())
            }
            Values::List { .. } => self.append_list(|items| {
                let mut all = Ok(());
                let scanned = raw.elements(|item| {
                    note(&mut all, items.append_json(item));
                    Ok(())
                });
                scanned.map_err(|Malformed| Failure::Invalid).and(all)
            }),
            _ => self.refuse(Failure::Invalid),
        }
    }

    fn append_object(&mut self, raw: Raw<'_>) -> Parsed<()> {
        match &mut self.values {
            Values::Text(values) => {
                values.append_value(raw.0);
                Ok(())
            }
            Values::Map { .. } => self.append_map(|keys, values| {
                let mut all = Ok(());
                for (name, value) in last_members(raw)? {
                    note(&mut all, keys.append_text(&name));
                    note(&mut all, values.append_json(value));
                }
                all
            }),
            Values::Struct { .. } => {
                let Ok(found) = last_members(raw) else {
                    return self.refuse(Failure::Invalid);
                };
                self.append_struct(|name, member| {
                    let value = found.iter().find(|(found, _)| found == name);
                    member.append_json(value.map_or(Raw::NULL, |(_, value)| *value))
                })
            }
            // Debezium's decimals of any scale, where no schema says so.
            Values::Decimal { .. } => {
                let parsed = variable_scale(raw);
                match parsed {
                    Ok((bytes, scale)) => match number::parse_unscaled(&bytes) {
                        Ok(unscaled) => self.append(super::Scalar::Decimal { unscaled, scale }),
                        Err(failure) => self.refuse(failure),
                    },
                    Err(failure) => self.refuse(failure),
                }
            }
            _ => self.refuse(Failure::Invalid),
        }
    }
}

/// The members of an object in order of their first place; of two with one name the last counts.
pub(crate) fn last_members<'a>(raw: Raw<'a>) -> Parsed<Vec<(Cow<'a, str>, Raw<'a>)>> {
    let mut found: Vec<(Cow<'a, str>, Raw<'a>)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    let scanned = raw.members(|name, value| {
        let name = name.decode()?;
        let place = *places.entry(name.clone()).or_insert(found.len());
        match found.get_mut(place) {
            Some(member) => member.1 = value,
            None => found.push((name, value)),
        }
        Ok(())
    });
    scanned
        .map(|()| found)
        .map_err(|Malformed| Failure::Invalid)
}

/// Unscaled bytes and scale of `{"scale": n, "value": "base64"}`.
pub(crate) fn variable_scale(raw: Raw<'_>) -> Parsed<(Vec<u8>, i32)> {
    let (mut scale, mut bytes) = (None, None);
    let scanned = raw.members(|name, value| {
        match name.plain() {
            Some("scale") => scale = value.0.parse().ok(),
            Some("value") => bytes = value.string(),
            _ => {}
        }
        Ok(())
    });
    match (scanned, scale, bytes) {
        (Ok(()), Some(scale), Some(text)) => Ok((binary::parse_base64(&text)?, scale)),
        _ => Err(Failure::Invalid),
    }
}

fn parse_integer<T: TryFrom<i64>>(text: &str) -> Parsed<T> {
    T::try_from(number::parse_integer(text)?).map_err(|_| Failure::Invalid)
}

fn parse_long(text: &str, rules: TextRules) -> Parsed<i64> {
    let parsed = number::parse_integer(text);
    match parsed {
        Err(Failure::Invalid) if rules.stray_z && text.contains(':') => {
            time::parse_time(text.strip_suffix('Z').unwrap_or(text))
        }
        parsed => parsed,
    }
}

fn parse_decimal(text: &str, rules: TextRules, precision: u8, scale: i8) -> Parsed<i128> {
    match rules.scale {
        None => number::parse_decimal(text, precision, scale),
        Some(from) => {
            let unscaled = number::parse_unscaled(&binary::parse_base64(text)?)?;
            number::rescale_decimal(unscaled, from.into(), precision, scale)
        }
    }
}

fn parse_date(text: &str, rules: TextRules) -> Parsed<i32> {
    match text.strip_suffix('Z') {
        Some(bare) if rules.stray_z => time::parse_date(bare),
        _ => time::parse_date(text),
    }
}

fn parse_timestamp(text: &str, rules: TextRules, zoned: bool) -> Parsed<i64> {
    if let (Some(epoch), Ok(value)) = (rules.encoding, number::parse_integer(text)) {
        return epoch_micros(value, epoch);
    }
    let parsed = time::parse_timestamp(text)?;
    let refused = match parsed.offset_s {
        Some(_) if zoned => false,
        Some(0) => !(rules.stray_z && text.ends_with('Z')),
        Some(_) => true,
        None => false,
    };
    if refused {
        Err(Failure::Invalid)
    } else {
        Ok(parsed.micros)
    }
}

fn parse_bytes(text: &str, rules: TextRules) -> Parsed<Vec<u8>> {
    match rules.encoding {
        Some(TimestampEncoding::Hex) => binary::parse_hex(text),
        _ => binary::parse_base64(text),
    }
}

/// Microseconds of a number since the epoch.
pub(crate) fn epoch_micros(value: i64, encoding: TimestampEncoding) -> Parsed<i64> {
    let micros = match encoding {
        TimestampEncoding::EpochSeconds => value.checked_mul(1_000_000),
        TimestampEncoding::EpochMillis => value.checked_mul(1_000),
        TimestampEncoding::EpochMicros => Some(value),
        TimestampEncoding::EpochNanos if value == i64::MAX || value == i64::MIN => None,
        TimestampEncoding::EpochNanos if value % 1_000 == 0 => Some(value / 1_000),
        _ => return Err(Failure::Invalid),
    };
    time::timestamp_in_range(micros.ok_or(Failure::Unrepresentable)?)
}
