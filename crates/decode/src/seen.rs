//! Types of fields that no column declares, from their JSON values.

use arrow::datatypes::{DataType, Field, Fields};
use serde::{Deserialize, Serialize};
use tidegate_change::types;

use crate::scan::{Kind, Raw};
use crate::type_text;

/// Most fields that are remembered, of a record and of an object in it: names may be data.
pub(crate) const FIELDS_MAX: usize = 4096;

/// The least type that holds the values seen so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) enum Seen {
    /// Nothing but NULL.
    #[default]
    Nothing,
    Boolean,
    Long,
    /// Whole numbers beyond 64 bits.
    Big,
    Double,
    Text,
    /// A type that a schema names.
    Typed(#[serde(with = "type_text")] DataType),
    List(Box<Seen>),
    Struct(Vec<(String, Seen)>),
}

impl Seen {
    /// Takes one more JSON value into account.
    pub(crate) fn observe(&mut self, raw: Raw<'_>) {
        match (&mut *self, raw.kind()) {
            (_, Kind::Null) | (Self::Text, _) => {}
            (Self::Boolean, Kind::Boolean) => {}
            (Self::List(items), Kind::Array) => observe_items(items, raw),
            (Self::Struct(members), Kind::Object) => observe_members(members, raw),
            _ => self.join(Self::of(raw)),
        }
    }

    /// Takes what another part saw into account.
    pub(crate) fn join(&mut self, other: Self) {
        let this = std::mem::take(self);
        *self = match (this, other) {
            (Self::Nothing, seen) | (seen, Self::Nothing) => seen,
            (a, b) if a == b => a,
            (Self::Long, Self::Big) | (Self::Big, Self::Long) => Self::Big,
            (Self::Long | Self::Big | Self::Double, Self::Long | Self::Big | Self::Double) => {
                Self::Double
            }
            (Self::List(mut a), Self::List(b)) => {
                a.join(*b);
                Self::List(a)
            }
            (Self::Struct(mut a), Self::Struct(b)) => {
                for (name, seen) in b {
                    join_member(&mut a, &name, seen);
                }
                Self::Struct(a)
            }
            (Self::Typed(a), Self::Typed(b)) => Self::Typed(wider(a, b)),
            _ => Self::Text,
        };
    }

    /// The type of a CSV cell: numbers and booleans in their one usual spelling, all else text.
    pub(crate) fn of_text(text: &str, quoted: bool) -> Self {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let leading_zero = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
        let numeric = digits.starts_with(|c: char| c.is_ascii_digit()) && !leading_zero;
        match text {
            _ if quoted => Self::Text,
            "true" | "false" => Self::Boolean,
            _ if numeric && text.parse::<i64>().is_ok() => Self::Long,
            _ if numeric && text.contains('.') && text.parse::<f64>().is_ok() => Self::Double,
            _ => Self::Text,
        }
    }

    /// The type, if any value was seen.
    pub(crate) fn data_type(&self) -> Option<DataType> {
        Some(match self {
            Self::Nothing => return None,
            Self::Boolean => DataType::Boolean,
            Self::Long => DataType::Int64,
            Self::Big => DataType::Decimal128(types::DECIMAL_DIGITS_MAX, 0),
            Self::Double => DataType::Float64,
            Self::Text => DataType::Utf8,
            Self::Typed(data_type) => data_type.clone(),
            // What has no value yet reads as text, which holds any later one.
            Self::List(items) => types::list_of(items.data_type().unwrap_or(DataType::Utf8)),
            Self::Struct(members) if members.is_empty() => DataType::Utf8,
            Self::Struct(members) => {
                let field = |(name, seen): &(String, Self)| {
                    Field::new(name, seen.data_type().unwrap_or(DataType::Utf8), true)
                };
                DataType::Struct(members.iter().map(field).collect::<Fields>())
            }
        })
    }

    fn of(raw: Raw<'_>) -> Self {
        match raw.kind() {
            Kind::Null => Self::Nothing,
            Kind::Boolean => Self::Boolean,
            Kind::String => Self::Text,
            Kind::Number if raw.0.parse::<i64>().is_ok() => Self::Long,
            Kind::Number if raw.0.bytes().all(|b| b.is_ascii_digit() || b == b'-') => {
                if raw.0.len() <= 38 {
                    Self::Big
                } else {
                    Self::Text
                }
            }
            Kind::Number => Self::Double,
            Kind::Array => {
                let mut items = Self::Nothing;
                observe_items(&mut items, raw);
                Self::List(Box::new(items))
            }
            Kind::Object => {
                let mut members = Vec::new();
                observe_members(&mut members, raw);
                Self::Struct(members)
            }
        }
    }
}

fn observe_items(items: &mut Seen, raw: Raw<'_>) {
    // The record was scanned as a whole, so its parts are well-formed.
    let _ = raw.elements(|item| {
        items.observe(item);
        Ok(())
    });
}

fn observe_members(members: &mut Vec<(String, Seen)>, raw: Raw<'_>) {
    let _ = raw.members(|name, value| {
        observe_member(members, &name.decode()?, value);
        Ok(())
    });
}

fn observe_member(members: &mut Vec<(String, Seen)>, name: &str, value: Raw<'_>) {
    let has_room = members.len() < FIELDS_MAX;
    match members.iter_mut().find(|(known, _)| known == name) {
        Some((_, seen)) => seen.observe(value),
        None if has_room => members.push((name.to_owned(), Seen::of(value))),
        None => {}
    }
}

fn join_member(members: &mut Vec<(String, Seen)>, name: &str, other: Seen) {
    let has_room = members.len() < FIELDS_MAX;
    match members.iter_mut().find(|(known, _)| known == name) {
        Some((_, seen)) => seen.join(other),
        None if has_room => members.push((name.to_owned(), other)),
        None => {}
    }
}

/// The least type that holds values of both; text where there is no better one.
pub(crate) fn wider(a: DataType, b: DataType) -> DataType {
    if types::widens_to(&a, &b) {
        return b;
    }
    if types::widens_to(&b, &a) {
        return a;
    }
    let zoned = |t: &DataType| matches!(t, DataType::Timestamp(_, Some(_)));
    match (&a, &b) {
        // A timestamp without zone reads as UTC (R-K8).
        (DataType::Timestamp(..), DataType::Timestamp(..)) => {
            if zoned(&a) {
                a
            } else {
                b
            }
        }
        _ => wider_number(&as_decimal(&a), &as_decimal(&b)),
    }
}

/// Whole numbers as the decimals that Delta widens them to.
fn as_decimal(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Int8 | DataType::Int16 | DataType::Int32 => DataType::Decimal128(10, 0),
        DataType::Int64 => DataType::Decimal128(20, 0),
        other => other.clone(),
    }
}

fn wider_number(a: &DataType, b: &DataType) -> DataType {
    match (a, b) {
        (DataType::Decimal128(p, s), DataType::Decimal128(q, t)) => {
            let whole = (i16::from(*p) - i16::from(*s)).max(i16::from(*q) - i16::from(*t));
            let scale = (*s).max(*t);
            match u8::try_from(whole + i16::from(scale)) {
                Ok(digits) if digits <= types::DECIMAL_DIGITS_MAX => {
                    DataType::Decimal128(digits, scale)
                }
                _ => DataType::Utf8,
            }
        }
        _ => DataType::Utf8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(values: &[&str]) -> Option<String> {
        let mut seen = Seen::default();
        values.iter().for_each(|value| seen.observe(Raw(value)));
        seen.data_type()
            .map(|data_type| types::type_name(&data_type).unwrap())
    }

    #[test]
    fn types_grow_with_the_values() {
        assert_eq!(seen(&["null"]), None);
        assert_eq!(seen(&["1", "null", "2"]).unwrap(), "long");
        assert_eq!(
            seen(&["1", "18446744073709551615"]).unwrap(),
            "decimal(38,0)"
        );
        assert_eq!(seen(&["1", "1.5"]).unwrap(), "double");
        assert_eq!(seen(&["1", "\"x\""]).unwrap(), "string");
        assert_eq!(seen(&["true", "1"]).unwrap(), "string");
        assert_eq!(seen(&["[]", "[1]", "[null]"]).unwrap(), "array<long>");
        let objects = ["{\"a\":1}", "{\"b\":{\"c\":null}}", "{\"a\":2.5}"];
        assert_eq!(
            seen(&objects).unwrap(),
            "struct<a:double,b:struct<c:string>>"
        );
        assert_eq!(seen(&["{}"]).unwrap(), "string");
    }
}
