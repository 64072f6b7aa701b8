//! Values in a canonical text form that keeps their type, so that rows compare as bags whatever wrote
//! them.
//!
//! Two values of one declared type are equal exactly when their canonical forms are: decimals by value,
//! floats bit for bit (all NaN alike), instants in microseconds, nested values element by element.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use arrow::datatypes::{DataType, Fields};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use chrono::{NaiveDate, NaiveTime};
use serde_json::{Map, Value};

/// The canonical form of NULL.
pub const NULL: &str = "NULL";

/// Canonical form of a JSON value, as Tidegate prints it, of a declared type.
///
/// # Errors
/// When the value is none of the type.
pub fn canonical(data_type: &DataType, value: &Value) -> Result<String> {
    if value.is_null() {
        return Ok(NULL.to_owned());
    }
    let wrong = || format!("no {data_type}: {value}");
    Ok(match data_type {
        DataType::Boolean => value.as_bool().with_context(wrong)?.to_string(),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            value.as_i64().with_context(wrong)?.to_string()
        }
        DataType::Float32 => single(parse_float(value).with_context(wrong)?),
        DataType::Float64 => double(parse_float(value).with_context(wrong)?),
        DataType::Decimal128(..) => decimal(&scalar_text(value)).with_context(wrong)?,
        DataType::Date32 => date(value.as_str().with_context(wrong)?).with_context(wrong)?,
        DataType::Timestamp(..) => {
            instant(value.as_str().with_context(wrong)?).with_context(wrong)?
        }
        DataType::Binary => bytes(&BASE64.decode(value.as_str().with_context(wrong)?)?),
        DataType::Utf8 => text(value.as_str().with_context(wrong)?),
        DataType::List(item) => {
            let items = value.as_array().with_context(wrong)?;
            list(items.iter().map(|one| canonical(item.data_type(), one)))?
        }
        DataType::Struct(fields) => {
            canonical_struct(fields, value.as_object().with_context(wrong)?)?
        }
        DataType::Map(entries, _) => {
            let DataType::Struct(pair) = entries.data_type() else {
                bail!("a map without pairs")
            };
            let of = pair.get(1).context("a map without values")?.data_type();
            let pairs = value.as_object().with_context(wrong)?;
            let forms = pairs
                .iter()
                .map(|(key, one)| Ok((key.clone(), canonical(of, one)?)));
            structure(forms.collect::<Result<BTreeMap<_, _>>>()?)
        }
        other => bail!("no canonical form of {other}"),
    })
}

fn canonical_struct(fields: &Fields, object: &Map<String, Value>) -> Result<String> {
    let forms = fields.iter().map(|field| {
        let value = object.get(field.name()).unwrap_or(&Value::Null);
        Ok((field.name().clone(), canonical(field.data_type(), value)?))
    });
    Ok(structure(forms.collect::<Result<BTreeMap<_, _>>>()?))
}

fn scalar_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn parse_float(value: &Value) -> Option<f64> {
    float_of(&scalar_text(value))
}

/// A float in any usual spelling.
#[must_use]
pub fn float_of(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// Canonical form of a float of 32 bits.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the value was written from 32 bits"
)]
pub fn single(value: f64) -> String {
    format!("{:?}", value as f32)
}

/// Canonical form of a float of 64 bits.
#[must_use]
pub fn double(value: f64) -> String {
    format!("{value:?}")
}

/// Canonical form of binary.
#[must_use]
pub fn bytes(value: &[u8]) -> String {
    value
        .iter()
        .fold("0x".to_owned(), |form, byte| form + &format!("{byte:02x}"))
}

/// Canonical form of a string.
#[must_use]
pub fn text(value: &str) -> String {
    Value::from(value).to_string()
}

/// Canonical form of a list of canonical forms.
///
/// # Errors
/// Of the elements.
pub fn list(items: impl Iterator<Item = Result<String>>) -> Result<String> {
    Ok(format!(
        "[{}]",
        items.collect::<Result<Vec<_>>>()?.join(", ")
    ))
}

/// Canonical form of named canonical forms.
#[must_use]
pub fn structure(members: BTreeMap<String, String>) -> String {
    let members: Vec<String> = members
        .into_iter()
        .map(|(name, form)| format!("{name}: {form}"))
        .collect();
    format!("{{{}}}", members.join(", "))
}

/// Canonical form of a decimal: no exponent, no zeros that say nothing.
#[must_use]
pub fn decimal(written: &str) -> Option<String> {
    let (mantissa, exponent) = match written.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (written, 0),
    };
    let unsigned = mantissa.trim_start_matches(['-', '+']);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let mut scale = i32::try_from(fraction.len()).ok()? - exponent;
    while scale > 0 && digits.ends_with('0') {
        digits.pop();
        scale -= 1;
    }
    digits.extend(std::iter::repeat_n(
        '0',
        usize::try_from(-scale).unwrap_or(0),
    ));
    let places = usize::try_from(scale).unwrap_or(0);
    let padded = format!("{digits:0>width$}", width = places + 1);
    let (whole, fraction) = padded.split_at(padded.len() - places);
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let number = if fraction.is_empty() {
        whole.to_owned()
    } else {
        format!("{whole}.{fraction}")
    };
    let negative = mantissa.starts_with('-') && number != "0";
    Some(if negative {
        format!("-{number}")
    } else {
        number
    })
}

/// Canonical form of a date `YYYY-MM-DD`.
#[must_use]
pub fn date(written: &str) -> Option<String> {
    let day = NaiveDate::parse_from_str(written, "%Y-%m-%d").ok()?;
    Some(day.format("%Y-%m-%d").to_string())
}

/// Canonical form of a timestamp: microseconds since the epoch; without offset it is read as UTC.
#[must_use]
pub fn instant(written: &str) -> Option<String> {
    let (day, time) = written.split_once(['T', ' '])?;
    let days = NaiveDate::parse_from_str(day, "%Y-%m-%d")
        .ok()?
        .signed_duration_since(NaiveDate::default());
    let (clock, offset_us) = split_offset(time)?;
    let micros = days.num_days() * 86_400_000_000 + time_of_day_us(clock)? - offset_us;
    Some(format!("{micros}us"))
}

/// A time of day and its offset from UTC in microseconds.
#[must_use]
pub fn split_offset(time: &str) -> Option<(&str, i64)> {
    if let Some(clock) = time.strip_suffix('Z') {
        return Some((clock, 0));
    }
    let Some(sign) = time.rfind(['+', '-']) else {
        return Some((time, 0));
    };
    let (clock, offset) = time.split_at(sign);
    let mut parts = offset.get(1..)?.split(':');
    let mut part = || {
        parts
            .next()
            .map_or(Some(0), |part| part.parse::<i64>().ok())
    };
    let seconds = part()? * 3_600 + part()? * 60 + part()?;
    let signed = if offset.starts_with('-') {
        -seconds
    } else {
        seconds
    };
    Some((clock, signed * 1_000_000))
}

/// Microseconds since midnight.
#[must_use]
pub fn time_of_day_us(clock: &str) -> Option<i64> {
    let time = NaiveTime::parse_from_str(clock, "%H:%M:%S%.f")
        .or_else(|_| NaiveTime::parse_from_str(clock, "%H:%M"))
        .ok()?;
    (time - NaiveTime::MIN).num_microseconds()
}

/// Canonical form of a row, column by column.
pub type Row = BTreeMap<String, String>;

/// Rows with their number of occurrences.
pub type Bag = BTreeMap<Row, usize>;

/// The canonical form of a row whose columns have these types; every column of the row needs one.
///
/// # Errors
/// When a value is none of its type or a column has none.
pub fn row(types: &BTreeMap<String, DataType>, object: &Value) -> Result<Row> {
    let columns = object
        .as_object()
        .with_context(|| format!("no row: {object}"))?;
    let forms = columns.iter().map(|(name, value)| {
        let data_type = types
            .get(name)
            .with_context(|| format!("column {name} is not expected"))?;
        let form = canonical(data_type, value).with_context(|| format!("column {name}"))?;
        Ok((name.clone(), form))
    });
    forms.collect()
}

/// A bag of rows.
///
/// # Errors
/// As [`row`].
pub fn bag(types: &BTreeMap<String, DataType>, rows: &[Value]) -> Result<Bag> {
    let mut bag = Bag::new();
    for object in rows {
        *bag.entry(row(types, object)?).or_default() += 1;
    }
    Ok(bag)
}

/// What two bags differ in, a line a row; None when they are equal.
#[must_use]
pub fn bag_difference(expected: &Bag, found: &Bag) -> Option<String> {
    let count = |bag: &Bag, row: &Row| bag.get(row).copied().unwrap_or(0);
    let all: std::collections::BTreeSet<&Row> = expected.keys().chain(found.keys()).collect();
    let lines: Vec<String> = all
        .into_iter()
        .filter(|row| count(expected, row) != count(found, row))
        .map(|row| {
            let forms: Vec<String> = row
                .iter()
                .map(|(name, form)| format!("{name}={form}"))
                .collect();
            let (wanted, got) = (count(expected, row), count(found, row));
            format!("    expected {wanted}, found {got}: {}", forms.join(" "))
        })
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_compare_by_value() {
        for (written, form) in [
            ("100.50", "100.5"),
            ("-0.00", "0"),
            ("1e3", "1000"),
            ("-1E-20", "-0.00000000000000000001"),
            ("007", "7"),
            ("12.50e1", "125"),
        ] {
            assert_eq!(decimal(written).as_deref(), Some(form), "{written}");
        }
        assert_eq!(decimal("NaN"), None);
    }

    #[test]
    fn instants_compare_across_offsets() {
        assert_eq!(
            instant("2026-05-05 05:05:05.123456+02"),
            instant("2026-05-05T03:05:05.123456Z")
        );
        assert_eq!(
            instant("1969-12-31 23:59:59.5"),
            Some("-500000us".to_owned())
        );
    }

    #[test]
    fn a_difference_names_the_row() {
        let types = BTreeMap::from([("id".to_owned(), DataType::Int64)]);
        let one = bag(&types, &[serde_json::json!({"id": 1})]).unwrap();
        let none = Bag::new();
        assert_eq!(bag_difference(&one, &one), None);
        assert!(bag_difference(&one, &none).unwrap().contains("id=1"));
    }
}
