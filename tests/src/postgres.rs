//! Values of a PostgreSQL dump in canonical form, next to the same values as Tidegate holds them.
//!
//! Most source types have a Delta counterpart, whose type says how the dumped text is read. The others
//! have a [`Kind`], which says for both sides what the value is.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use arrow::datatypes::DataType;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::Value;

use crate::csv::Cell;
use crate::value;

/// What a column of the source is, where its Delta type does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The Delta type tells.
    #[default]
    Plain,
    /// A time of day.
    Time,
    /// A time of day with offset, held in UTC.
    TimeWithZone,
    /// An interval held as ISO 8601 text.
    Interval,
    /// An interval held as microseconds, months counted as the connector counts them.
    IntervalMicros,
    /// An amount with currency sign and thousands separators.
    Money,
    /// A number of any precision, held as text.
    NumberText,
    /// Pairs, held as JSON text.
    Pairs,
    /// A bit string, held as little-endian binary.
    Bits,
    /// One bit, held as a boolean.
    Bit,
    /// A point, held as a struct with `x` and `y`.
    Point,
}

/// Canonical form of a dumped cell. What its type cannot hold keeps its text.
#[must_use]
pub fn of_source(kind: Kind, data_type: &DataType, cell: &Cell) -> String {
    let Some(text) = cell else {
        return value::NULL.to_owned();
    };
    source_form(kind, data_type, text).unwrap_or_else(|| format!("source {}", value::text(text)))
}

fn source_form(kind: Kind, data_type: &DataType, text: &str) -> Option<String> {
    match kind {
        Kind::Plain => plain_form(data_type, text),
        Kind::Time => Some(format!("{}us of day", value::time_of_day_us(text)?)),
        Kind::TimeWithZone => time_with_zone(text),
        Kind::Interval => Some(Interval::of_source(text)?.canonical()),
        Kind::IntervalMicros => Some(Interval::of_source(text)?.micros().to_string()),
        Kind::Money => value::decimal(&text.replace(['$', ','], "")),
        Kind::NumberText => Some(number_text(text)),
        Kind::Pairs => Some(value::structure(pairs_of_source(text)?)),
        Kind::Bits => Some(format!("bits {}", text.trim_start_matches('0'))),
        Kind::Bit => Some((text == "1").to_string()),
        Kind::Point => {
            let (x, y) = text.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
            Some(point(value::float_of(x)?, value::float_of(y)?))
        }
    }
}

fn plain_form(data_type: &DataType, text: &str) -> Option<String> {
    match data_type {
        DataType::Boolean => match text {
            "t" => Some("true".to_owned()),
            "f" => Some("false".to_owned()),
            _ => None,
        },
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            text.parse::<i64>().ok().map(|number| number.to_string())
        }
        DataType::Float32 => value::float_of(text).map(value::single),
        DataType::Float64 => value::float_of(text).map(value::double),
        DataType::Decimal128(..) => value::decimal(text),
        DataType::Date32 => value::date(text),
        DataType::Timestamp(..) => value::instant(text),
        DataType::Binary => {
            let digits = text.strip_prefix("\\x")?;
            digits
                .bytes()
                .all(|digit| digit.is_ascii_hexdigit())
                .then(|| format!("0x{digits}"))
        }
        DataType::Utf8 => Some(value::text(text)),
        DataType::List(item) => {
            let items = array_items(text)?;
            let forms = items.iter().map(|item_text| match item_text {
                None => Ok(value::NULL.to_owned()),
                Some(one) => plain_form(item.data_type(), one).context("no element"),
            });
            value::list(forms).ok()
        }
        _ => None,
    }
}

/// Canonical form of a value that Tidegate printed.
///
/// # Errors
/// When the value is none of its type.
pub fn of_table(kind: Kind, data_type: &DataType, printed: &Value) -> Result<String> {
    if printed.is_null() {
        return Ok(value::NULL.to_owned());
    }
    let text = || {
        printed
            .as_str()
            .with_context(|| format!("no text: {printed}"))
    };
    let form = match kind {
        Kind::Plain | Kind::IntervalMicros | Kind::Money | Kind::Bit => {
            return value::canonical(data_type, printed);
        }
        Kind::Time => {
            let clock = text()?.trim_end_matches('Z');
            value::time_of_day_us(clock).map(|micros| format!("{micros}us of day"))
        }
        Kind::TimeWithZone => time_with_zone(text()?),
        Kind::Interval => Interval::of_iso(text()?).map(|interval| interval.canonical()),
        Kind::NumberText => Some(number_text(text()?)),
        Kind::Pairs => {
            let pairs: BTreeMap<String, Option<String>> = serde_json::from_str(text()?)?;
            Some(value::structure(pairs.into_iter().map(pair_form).collect()))
        }
        Kind::Bits => {
            let bytes = BASE64.decode(text()?)?;
            let bits: String = bytes
                .iter()
                .rev()
                .map(|byte| format!("{byte:08b}"))
                .collect();
            Some(format!("bits {}", bits.trim_start_matches('0')))
        }
        Kind::Point => {
            let member = |name: &str| {
                printed
                    .get(name)
                    .and_then(|number| value::float_of(&number.to_string()))
            };
            member("x").zip(member("y")).map(|(x, y)| point(x, y))
        }
    };
    match form {
        Some(form) => Ok(form),
        None => bail!("no value of its kind: {printed}"),
    }
}

fn time_with_zone(text: &str) -> Option<String> {
    let (clock, offset_us) = value::split_offset(text)?;
    let utc = (value::time_of_day_us(clock)? - offset_us).rem_euclid(86_400_000_000);
    Some(format!("{utc}us of day"))
}

/// Numbers by value; what is no number (NaN) by its spelling without case.
fn number_text(text: &str) -> String {
    value::decimal(text).unwrap_or_else(|| text.to_ascii_lowercase())
}

fn point(x: f64, y: f64) -> String {
    let members = [
        ("x".to_owned(), value::double(x)),
        ("y".to_owned(), value::double(y)),
    ];
    value::structure(members.into())
}

fn pair_form((key, one): (String, Option<String>)) -> (String, String) {
    (
        key,
        one.map_or_else(|| value::NULL.to_owned(), |text| value::text(&text)),
    )
}

/// `"a"=>"1", "b"=>NULL`
fn pairs_of_source(text: &str) -> Option<BTreeMap<String, String>> {
    if text.is_empty() {
        return Some(BTreeMap::new());
    }
    let pairs = text.split(", ").map(|pair| {
        let (key, one) = pair.split_once("=>")?;
        let unquoted = |quoted: &str| Some(quoted.strip_prefix('"')?.strip_suffix('"')?.to_owned());
        Some(pair_form((
            unquoted(key)?,
            if one == "NULL" {
                None
            } else {
                Some(unquoted(one)?)
            },
        )))
    });
    pairs.collect()
}

/// The elements of an array literal of one dimension; None for NULL.
fn array_items(text: &str) -> Option<Vec<Cell>> {
    let mut rest = text.strip_prefix('{')?.strip_suffix('}')?;
    let mut items = Vec::new();
    while !rest.is_empty() {
        let mut item = String::new();
        let quoted = rest.strip_prefix('"');
        let mut chars = quoted.unwrap_or(rest).char_indices();
        let mut end = quoted.unwrap_or(rest).len();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => item.push(chars.next()?.1),
                '"' if quoted.is_some() => {
                    end = at + 1;
                    break;
                }
                ',' if quoted.is_none() => {
                    end = at;
                    break;
                }
                '{' | '}' if quoted.is_none() => return None,
                _ => item.push(c),
            }
        }
        items.push(if quoted.is_none() && item == "NULL" {
            None
        } else {
            Some(item)
        });
        rest = quoted.unwrap_or(rest).get(end..)?;
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    Some(items)
}

/// Months, days and microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Interval {
    months: i64,
    days: i64,
    micros: i64,
}

impl Interval {
    /// `1 year 2 mons 3 days 04:05:06.789`
    fn of_source(text: &str) -> Option<Self> {
        let mut interval = Self::default();
        let mut words = text.split(' ');
        while let Some(word) = words.next() {
            if word.contains(':') {
                let (sign, clock) = match word.strip_prefix('-') {
                    Some(clock) => (-1, clock),
                    None => (1, word),
                };
                interval.micros = sign * value::time_of_day_us(clock)?;
                continue;
            }
            let number: i64 = word.parse().ok()?;
            match words.next()?.trim_end_matches('s') {
                "year" => interval.months += number * 12,
                "mon" => interval.months += number,
                "day" => interval.days += number,
                _ => return None,
            }
        }
        Some(interval)
    }

    /// `P1Y2M3DT4H5M6.789S`
    fn of_iso(text: &str) -> Option<Self> {
        let mut interval = Self::default();
        let (date, time) = text
            .strip_prefix('P')?
            .split_once('T')
            .unwrap_or((text.get(1..)?, ""));
        for (part, is_date) in [(date, true), (time, false)] {
            let mut rest = part;
            while !rest.is_empty() {
                let (number, after) = rest.split_at(rest.find(|c: char| c.is_ascii_alphabetic())?);
                let (unit, after) = after.split_at(1);
                let micros_of =
                    |scale: f64| Some((number.parse::<f64>().ok()? * scale * 1e6).round());
                match (unit, is_date) {
                    ("Y", true) => interval.months += number.parse::<i64>().ok()? * 12,
                    ("M", true) => interval.months += number.parse::<i64>().ok()?,
                    ("D", true) => interval.days += number.parse::<i64>().ok()?,
                    ("H", false) => interval.micros += whole(micros_of(3_600.0)?),
                    ("M", false) => interval.micros += whole(micros_of(60.0)?),
                    ("S", false) => interval.micros += whole(micros_of(1.0)?),
                    _ => return None,
                }
                rest = after;
            }
        }
        Some(interval)
    }

    fn canonical(self) -> String {
        format!(
            "{} months {} days {}us",
            self.months, self.days, self.micros
        )
    }

    /// A month counts a twelfth of 365.25 days.
    fn micros(self) -> i64 {
        self.months * 2_629_800_000_000 + self.days * 86_400_000_000 + self.micros
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a rounded number of microseconds"
)]
fn whole(micros: f64) -> i64 {
    micros as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list_of(item: DataType) -> DataType {
        tidegate_change::types::list_of(item)
    }

    #[test]
    fn arrays_keep_quotes_and_nulls() {
        let cell = Some(r#"{"a,b","c\"d",NULL,""}"#.to_owned());
        let form = of_source(Kind::Plain, &list_of(DataType::Utf8), &cell);
        assert_eq!(form, r#"["a,b", "c\"d", NULL, ""]"#);
        let nested = Some("{{1,2}}".to_owned());
        assert_eq!(
            of_source(Kind::Plain, &list_of(DataType::Int32), &nested),
            "source \"{{1,2}}\""
        );
    }

    #[test]
    fn intervals_compare_across_spellings() {
        let dumped = Interval::of_source("1 year 2 mons 3 days 04:05:06.789").unwrap();
        assert_eq!(Some(dumped), Interval::of_iso("P1Y2M3DT4H5M6.789S"));
        assert_eq!(dumped.micros(), 37_091_106_789_000);
        let negative = Interval::of_source("-1 mons -2 days -00:00:00.000001").unwrap();
        assert_eq!(
            negative,
            Interval {
                months: -1,
                days: -2,
                micros: -1
            }
        );
    }

    #[test]
    fn bits_are_little_endian() {
        let cell = Some("1011".to_owned());
        let printed = of_table(Kind::Bits, &DataType::Binary, &Value::from("Cw==")).unwrap();
        assert_eq!(of_source(Kind::Bits, &DataType::Binary, &cell), printed);
    }

    #[test]
    fn pairs_compare_with_their_json() {
        let cell = Some(r#""a"=>"1", "b"=>NULL"#.to_owned());
        let printed = Value::from(r#"{"a":"1","b":null}"#);
        let form = of_table(Kind::Pairs, &DataType::Utf8, &printed).unwrap();
        assert_eq!(of_source(Kind::Pairs, &DataType::Utf8, &cell), form);
    }
}
