//! Values of the model: plain data with the order of the rules (R-T2, R-S4, R-S5, R-K4), read from
//! and printed as the JSON of the interface document. Deliberately no Arrow: nothing is shared with
//! the product but type names.

use std::cmp::Ordering;

use arrow::datatypes::{DataType, TimeUnit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime};
use serde_json::{Map, Number, Value as Json};

/// One value. Which type it has is known from the column.
#[derive(Clone, Debug)]
pub enum Value {
    /// NULL; sorts below every other value.
    Null,
    /// A boolean.
    Boolean(bool),
    /// An integer, the days of a date, the microseconds of a timestamp, the unscaled decimal.
    Integer(i128),
    /// A float; NaN is greatest and the two zeros are one (R-S5).
    Float(f64),
    /// A string, ordered by its UTF-8 bytes.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// An array, ordered element by element.
    List(Vec<Value>),
    /// A struct, ordered field by field.
    Struct(Vec<Value>),
}

impl Value {
    /// Whether it is NULL itself.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Whether nothing in it has a value: NULL, or a struct of such (R-S3).
    #[must_use]
    pub fn is_all_null(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Struct(members) => members.iter().all(Self::is_all_null),
            _ => false,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Boolean(_) => 1,
            Self::Integer(_) => 2,
            Self::Float(_) => 3,
            Self::Text(_) => 4,
            Self::Bytes(_) => 5,
            Self::List(_) => 6,
            Self::Struct(_) => 7,
        }
    }
}

fn compare_floats(a: f64, b: f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Boolean(a), Self::Boolean(b)) => a.cmp(b),
            (Self::Integer(a), Self::Integer(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => compare_floats(*a, *b),
            (Self::Text(a), Self::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            (Self::List(a), Self::List(b)) | (Self::Struct(a), Self::Struct(b)) => a.cmp(b),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

/// Reads a value of a type from JSON; None when the JSON is no value of the type.
#[must_use]
pub fn from_json(data_type: &DataType, json: &Json) -> Option<Value> {
    Some(match (data_type, json) {
        (_, Json::Null) => Value::Null,
        (DataType::Boolean, Json::Bool(b)) => Value::Boolean(*b),
        (DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64, json) => {
            let wide: i64 = text_or_number(json)?.parse().ok()?;
            in_range(data_type, wide).then_some(Value::Integer(i128::from(wide)))?
        }
        (DataType::Float64 | DataType::Float32, json) => Value::Float(float(data_type, json)?),
        (DataType::Utf8, Json::String(text)) => Value::Text(text.clone()),
        (DataType::Binary, Json::String(text)) => Value::Bytes(BASE64.decode(text).ok()?),
        (DataType::Date32, Json::String(text)) => Value::Integer(i128::from(date(text)?)),
        (DataType::Timestamp(TimeUnit::Microsecond, _), Json::String(text)) => {
            Value::Integer(i128::from(timestamp(text)?))
        }
        (DataType::Decimal128(precision, scale), json) => {
            Value::Integer(decimal(&text_or_number(json)?, *precision, *scale)?)
        }
        (DataType::List(item), Json::Array(items)) => Value::List(
            items
                .iter()
                .map(|i| from_json(item.data_type(), i))
                .collect::<Option<_>>()?,
        ),
        (DataType::Struct(fields), Json::Object(members)) => Value::Struct(
            fields
                .iter()
                .map(|f| from_json(f.data_type(), members.get(f.name()).unwrap_or(&Json::Null)))
                .collect::<Option<_>>()?,
        ),
        _ => return None,
    })
}

/// Prints a value of a type as JSON.
#[must_use]
pub fn to_json(data_type: &DataType, value: &Value) -> Json {
    match (data_type, value) {
        (_, Value::Null) => Json::Null,
        (_, Value::Boolean(b)) => Json::Bool(*b),
        (DataType::Date32, Value::Integer(days)) => Json::String(print_date(*days)),
        (DataType::Timestamp(_, zone), Value::Integer(micros)) => {
            Json::String(print_timestamp(*micros, zone.is_some()))
        }
        (DataType::Decimal128(_, scale), Value::Integer(unscaled)) => {
            Json::String(print_decimal(*unscaled, *scale))
        }
        (_, Value::Integer(i)) => Json::Number(Number::from_i128(*i).unwrap_or_else(|| 0.into())),
        (_, Value::Float(f)) => print_float(*f),
        (_, Value::Text(text)) => Json::String(text.clone()),
        (_, Value::Bytes(bytes)) => Json::String(BASE64.encode(bytes)),
        (DataType::List(item), Value::List(items)) => {
            Json::Array(items.iter().map(|i| to_json(item.data_type(), i)).collect())
        }
        (DataType::Struct(fields), Value::Struct(members)) => {
            let mut object = Map::new();
            for (field, member) in fields.iter().zip(members) {
                object.insert(field.name().clone(), to_json(field.data_type(), member));
            }
            Json::Object(object)
        }
        (_, Value::List(_) | Value::Struct(_)) => Json::Null,
    }
}

fn text_or_number(json: &Json) -> Option<String> {
    match json {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn in_range(data_type: &DataType, wide: i64) -> bool {
    match data_type {
        DataType::Int8 => i8::try_from(wide).is_ok(),
        DataType::Int16 => i16::try_from(wide).is_ok(),
        DataType::Int32 => i32::try_from(wide).is_ok(),
        _ => true,
    }
}

fn float(data_type: &DataType, json: &Json) -> Option<f64> {
    let wide = match json {
        Json::String(text) => match text.as_str() {
            "NaN" => f64::NAN,
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            other => other.parse().ok()?,
        },
        Json::Number(number) => number.to_string().parse().ok()?,
        _ => return None,
    };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float column holds single precision"
    )]
    let narrow = f64::from(wide as f32);
    Some(if *data_type == DataType::Float32 {
        narrow
    } else {
        wide
    })
}

fn print_float(value: f64) -> Json {
    match Number::from_f64(value) {
        Some(number) => Json::Number(number),
        None if value.is_nan() => "NaN".into(),
        None if value > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}

const DAYS_TO_EPOCH: i32 = 719_163;

fn date(text: &str) -> Option<i32> {
    let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
    Some(date.num_days_from_ce() - DAYS_TO_EPOCH)
}

fn print_date(days: i128) -> String {
    i32::try_from(days)
        .ok()
        .and_then(|days| NaiveDate::from_num_days_from_ce_opt(days + DAYS_TO_EPOCH))
        .map_or_else(String::new, |date| date.format("%Y-%m-%d").to_string())
}

fn timestamp(text: &str) -> Option<i64> {
    if let Ok(zoned) = DateTime::parse_from_rfc3339(text) {
        return Some(zoned.timestamp_micros());
    }
    let plain = text.trim_end_matches('Z').replace('T', " ");
    let parsed = NaiveDateTime::parse_from_str(&plain, "%Y-%m-%d %H:%M:%S%.f").ok()?;
    Some(parsed.and_utc().timestamp_micros())
}

fn print_timestamp(micros: i128, zoned: bool) -> String {
    let time = i64::try_from(micros)
        .ok()
        .and_then(DateTime::from_timestamp_micros);
    let text = time.map_or_else(String::new, |t| {
        t.format("%Y-%m-%dT%H:%M:%S%.6f").to_string()
    });
    if zoned { text + "Z" } else { text }
}

fn decimal(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let scale = usize::try_from(scale).ok()?;
    if fraction.len() > scale {
        return None;
    }
    let all = format!("{whole}{fraction:0<scale$}");
    let unscaled: i128 = all.parse().ok()?;
    let limit = 10i128.checked_pow(u32::from(precision))?;
    (unscaled < limit).then_some(if negative { -unscaled } else { unscaled })
}

fn print_decimal(unscaled: i128, scale: i8) -> String {
    let scale = usize::try_from(scale).unwrap_or(0);
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if unscaled < 0 { "-" } else { "" };
    if scale == 0 {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_that_of_the_rules() {
        let text = |t: &str| Value::Text(t.into());
        assert!(Value::Null < Value::Float(f64::NEG_INFINITY));
        assert!(Value::Float(f64::INFINITY) < Value::Float(-f64::NAN));
        assert_eq!(Value::Float(0.0), Value::Float(-0.0));
        assert!(text("a") < text("a "));
        assert!(text("Z") < text("a"));
        assert!(text("\u{ffff}") < text("\u{10000}"));
        assert!(
            Value::Struct(vec![Value::Null, text("b")]) < Value::Struct(vec![text(""), text("a")])
        );
        assert!(Value::List(vec![text("a")]) < Value::List(vec![text("a"), Value::Null]));
    }

    #[test]
    fn values_survive_json() {
        for (name, json) in [
            ("long", "9223372036854775807"),
            ("double", "\"NaN\""),
            ("double", "-0.5"),
            ("decimal(20,3)", "\"-12345678901234567.890\""),
            ("decimal(5,2)", "\"-0.05\""),
            ("date", "\"1969-12-31\""),
            ("timestamp", "\"2026-05-01T10:00:00.000001Z\""),
            ("timestamp_ntz", "\"0001-01-01T00:00:00.000000\""),
            (
                "struct<a:long,b:array<string>>",
                "{\"a\":null,\"b\":[\"x\",null]}",
            ),
            ("binary", "\"AAEC\""),
        ] {
            let data_type = tidegate_change::types::parse_type(name).unwrap();
            let json: Json = serde_json::from_str(json).unwrap();
            let value = from_json(&data_type, &json).unwrap();
            assert_eq!(to_json(&data_type, &value), json, "{name}");
        }
        let long = DataType::Int64;
        assert!(from_json(&long, &Json::String("abc".into())).is_none());
    }
}
