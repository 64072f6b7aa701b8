//! Delta type names, as specs and table schemas write them, and the Arrow types that stand for them.
//!
//! Source: Delta protocol, "Schema Serialization Format". Timestamps count microseconds.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, TimeUnit};

use crate::{Code, Error, Result};

/// Most digits that a Delta decimal holds.
pub const DECIMAL_DIGITS_MAX: u8 = 38;

/// Deepest nesting of a declared type.
const NESTING_MAX: usize = 32;

/// The Arrow type of a Delta `timestamp`.
#[must_use]
pub fn timestamp_utc() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// Parses a type as a spec writes it: `long`, `decimal(10,2)`, `array<string>`, `struct<a:long,b:…>`.
///
/// # Errors
/// `INVALID_SPEC` for an unknown name, with a hint that offers `string` for decimals of more than 38 digits (R-K9).
pub fn parse_type(text: &str) -> Result<DataType> {
    let mut parser = Parser { rest: text, text };
    let parsed = parser.parse(0)?;
    parser.skip_space();
    if parser.rest.is_empty() {
        Ok(parsed)
    } else {
        Err(parser.invalid("text after the type"))
    }
}

/// The name of an Arrow type, as specs write it; the inverse of [`parse_type`].
///
/// # Errors
/// `UNSUPPORTED` for an Arrow type that no Delta type stands for.
pub fn type_name(data_type: &DataType) -> Result<String> {
    Ok(match data_type {
        DataType::Utf8 => "string".into(),
        DataType::Int64 => "long".into(),
        DataType::Int32 => "integer".into(),
        DataType::Int16 => "short".into(),
        DataType::Int8 => "byte".into(),
        DataType::Float64 => "double".into(),
        DataType::Float32 => "float".into(),
        DataType::Boolean => "boolean".into(),
        DataType::Date32 => "date".into(),
        DataType::Binary => "binary".into(),
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => "timestamp".into(),
        DataType::Timestamp(TimeUnit::Microsecond, None) => "timestamp_ntz".into(),
        DataType::Decimal128(precision, scale) => format!("decimal({precision},{scale})"),
        DataType::List(item) => format!("array<{}>", type_name(item.data_type())?),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                let mut names = pair.iter().map(|field| type_name(field.data_type()));
                let key = names.next().transpose()?.unwrap_or_default();
                let value = names.next().transpose()?.unwrap_or_default();
                format!("map<{key},{value}>")
            }
            _ => return Err(no_delta_type(data_type)),
        },
        DataType::Struct(fields) => {
            let mut members = Vec::with_capacity(fields.len());
            for field in fields {
                members.push(format!(
                    "{}:{}",
                    field.name(),
                    type_name(field.data_type())?
                ));
            }
            format!("struct<{}>", members.join(","))
        }
        _ => return Err(no_delta_type(data_type)),
    })
}

/// An array type with nullable elements, in the form that every Tidegate array has.
#[must_use]
pub fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("element", item, true)))
}

/// A map type with nullable values, in the form that every Tidegate array has.
#[must_use]
pub fn map_of(key: DataType, value: DataType) -> DataType {
    let pair = Fields::from(vec![
        Field::new("key", key, false),
        Field::new("value", value, true),
    ]);
    DataType::Map(
        Arc::new(Field::new("key_value", DataType::Struct(pair), false)),
        false,
    )
}

/// Whether values of `from` are values of `to` without loss (R-E2: widening).
#[must_use]
pub fn widens_to(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Decimal128, Float32, Float64, Int8, Int16, Int32, Int64, Timestamp};
    match (from, to) {
        (a, b) if a == b => true,
        (Int8, Int16 | Int32 | Int64) | (Int16, Int32 | Int64) | (Int32, Int64) => true,
        (Float32, Float64) | (Int8 | Int16 | Int32, Float64) => true,
        (Date32, Timestamp(TimeUnit::Microsecond, None)) => true,
        (Decimal128(p, s), Decimal128(q, t)) => {
            t >= s && i16::from(*q) - i16::from(*t) >= i16::from(*p) - i16::from(*s)
        }
        (Int8 | Int16 | Int32, Decimal128(p, s)) => i16::from(*p) - i16::from(*s) >= 10,
        (Int64, Decimal128(p, s)) => i16::from(*p) - i16::from(*s) >= 20,
        _ => false,
    }
}

/// Whether the type orders its values, as keys and sequences need (R-S1, R-K4).
#[must_use]
pub fn is_orderable(data_type: &DataType) -> bool {
    match data_type {
        DataType::Map(..) | DataType::List(_) => false,
        DataType::Struct(fields) => fields.iter().all(|field| is_orderable(field.data_type())),
        _ => true,
    }
}

fn no_delta_type(data_type: &DataType) -> Error {
    Error::new(
        Code::Unsupported,
        format!("arrow type {data_type} has no Delta type"),
    )
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
}

impl Parser<'_> {
    fn parse(&mut self, depth: usize) -> Result<DataType> {
        if depth > NESTING_MAX {
            return Err(self.invalid("nested too deeply"));
        }
        let name = self.word();
        Ok(match name.to_ascii_lowercase().as_str() {
            "string" => DataType::Utf8,
            "long" | "bigint" => DataType::Int64,
            "integer" | "int" => DataType::Int32,
            "short" | "smallint" => DataType::Int16,
            "byte" | "tinyint" => DataType::Int8,
            "double" => DataType::Float64,
            "float" => DataType::Float32,
            "boolean" => DataType::Boolean,
            "date" => DataType::Date32,
            "timestamp" => timestamp_utc(),
            "timestamp_ntz" => DataType::Timestamp(TimeUnit::Microsecond, None),
            "binary" => DataType::Binary,
            "decimal" => self.decimal()?,
            "array" => {
                self.expect('<')?;
                let item = self.parse(depth + 1)?;
                self.expect('>')?;
                list_of(item)
            }
            "map" => {
                self.expect('<')?;
                let key = self.parse(depth + 1)?;
                self.expect(',')?;
                let value = self.parse(depth + 1)?;
                self.expect('>')?;
                map_of(key, value)
            }
            "struct" => self.members(depth)?,
            _ => return Err(self.invalid(&format!("unknown type name {name:?}"))),
        })
    }

    fn decimal(&mut self) -> Result<DataType> {
        self.skip_space();
        if !self.rest.starts_with('(') {
            return Ok(DataType::Decimal128(10, 0));
        }
        self.expect('(')?;
        let precision = self.word();
        let scale = if self.take(',') {
            self.word()
        } else {
            "0".into()
        };
        self.expect(')')?;
        let (Ok(precision), Ok(scale)) = (precision.parse::<u16>(), scale.parse::<u16>()) else {
            return Err(self.invalid("decimal needs (precision, scale)"));
        };
        if precision > u16::from(DECIMAL_DIGITS_MAX) {
            let hint =
                "Delta decimals hold 38 digits; declare the column as string to keep all digits";
            return Err(self
                .invalid("decimal of more than 38 digits")
                .with_hint(hint));
        }
        match (u8::try_from(precision), i8::try_from(scale)) {
            (Ok(p), Ok(s)) if p >= 1 && scale <= precision => Ok(DataType::Decimal128(p, s)),
            _ => Err(self.invalid("decimal scale must lie between 0 and the precision")),
        }
    }

    fn members(&mut self, depth: usize) -> Result<DataType> {
        self.expect('<')?;
        let mut fields = Vec::new();
        while !self.take('>') {
            if !fields.is_empty() {
                self.expect(',')?;
            }
            self.skip_space();
            let Some(colon) = self.rest.find(':') else {
                return Err(self.invalid("struct members are written name:type"));
            };
            let (name, rest) = self.rest.split_at(colon);
            self.rest = rest.get(1..).unwrap_or_default();
            let member = self.parse(depth + 1)?;
            fields.push(Field::new(name.trim(), member, true));
        }
        if fields.is_empty() {
            return Err(self.invalid("a struct needs a member"));
        }
        Ok(DataType::Struct(fields.into()))
    }

    fn word(&mut self) -> String {
        self.skip_space();
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word.to_owned()
    }

    fn take(&mut self, c: char) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, c: char) -> Result<()> {
        if self.take(c) {
            Ok(())
        } else {
            Err(self.invalid(&format!("expected {c:?}")))
        }
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn invalid(&self, what: &str) -> Error {
        Error::new(Code::InvalidSpec, format!("type {:?}: {what}", self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_round_trip() {
        for name in [
            "string",
            "long",
            "integer",
            "short",
            "byte",
            "double",
            "float",
            "boolean",
            "date",
            "timestamp",
            "timestamp_ntz",
            "binary",
            "decimal(38,10)",
            "array<array<long>>",
            "map<string,decimal(5,0)>",
            "struct<a:long,b c:struct<d:string>>",
        ] {
            assert_eq!(type_name(&parse_type(name).unwrap()).unwrap(), name);
        }
    }

    #[test]
    fn decimals_beyond_38_digits_are_refused_with_a_way_out() {
        let error = parse_type("decimal(39,0)").unwrap_err();
        assert_eq!(error.code(), Code::InvalidSpec);
        assert!(error.hint().unwrap().contains("string"));
    }

    #[test]
    fn deep_nesting_is_refused() {
        let text = format!("{}long{}", "array<".repeat(100), ">".repeat(100));
        assert!(parse_type(&text).is_err());
    }

    #[test]
    fn decimals_widen_only_when_no_digit_is_lost() {
        let decimal = |p, s| DataType::Decimal128(p, s);
        assert!(widens_to(&decimal(10, 2), &decimal(14, 4)));
        assert!(!widens_to(&decimal(10, 2), &decimal(11, 4)));
        assert!(!widens_to(&DataType::Int64, &DataType::Int32));
    }
}
