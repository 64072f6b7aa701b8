//! Types that Connect schemas name.

use arrow::datatypes::{DataType, Field, Fields};
use serde_json::Value;
use tidegate_change::spec::TimestampEncoding as Unit;
use tidegate_change::types;

/// Deepest nesting of a schema.
const NESTING_MAX: usize = 32;

/// A type of the source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SourceType {
    Boolean,
    /// A whole number of that many bytes.
    Integer(u8),
    Float,
    Double,
    Text,
    Bytes,
    Decimal {
        scale: i32,
        precision: Option<u8>,
    },
    VariableScaleDecimal,
    /// Days since the epoch.
    Date,
    /// Without zone, as a number.
    Timestamp(Unit),
    ZonedTimestamp,
    IsoDate,
    IsoTimestamp,
    IsoTime,
    /// Time of day or duration, as a number.
    Span(Unit),
    List(Box<SourceType>),
    Map(Box<SourceType>),
    Struct(Vec<(String, SourceType)>),
}

impl SourceType {
    /// The type that a Connect schema describes.
    pub(crate) fn parse(schema: &Value) -> Option<Self> {
        Self::parse_nested(schema, 0)
    }

    fn parse_nested(schema: &Value, depth: usize) -> Option<Self> {
        if depth > NESTING_MAX {
            return None;
        }
        let name = schema
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if let Some(logical) = Self::logical(name, schema) {
            return Some(logical);
        }
        let nested = |member: &str| {
            schema
                .get(member)
                .and_then(|schema| Self::parse_nested(schema, depth + 1))
        };
        Some(match schema.get("type").and_then(Value::as_str)? {
            "boolean" => Self::Boolean,
            "int8" => Self::Integer(1),
            "int16" => Self::Integer(2),
            "int32" => Self::Integer(4),
            "int64" => Self::Integer(8),
            "float" | "float32" => Self::Float,
            "double" | "float64" => Self::Double,
            "string" => Self::Text,
            "bytes" => Self::Bytes,
            "array" => Self::List(Box::new(nested("items")?)),
            "map" => Self::Map(Box::new(nested("values")?)),
            "struct" => {
                let fields = schema.get("fields").and_then(Value::as_array)?;
                let member = |field: &Value| {
                    let name = field.get("field").and_then(Value::as_str)?.to_owned();
                    Some((name, Self::parse_nested(field, depth + 1)?))
                };
                Self::Struct(fields.iter().map(member).collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }

    fn logical(name: &str, schema: &Value) -> Option<Self> {
        Some(match name {
            "org.apache.kafka.connect.data.Decimal" => {
                let parameter = |name: &str| {
                    schema
                        .get("parameters")
                        .and_then(|p| p.get(name))
                        .and_then(Value::as_str)
                };
                Self::Decimal {
                    scale: parameter("scale")
                        .and_then(|scale| scale.parse().ok())
                        .unwrap_or(0),
                    precision: parameter("connect.decimal.precision").and_then(|p| p.parse().ok()),
                }
            }
            "io.debezium.data.VariableScaleDecimal" => Self::VariableScaleDecimal,
            "io.debezium.time.Date" | "org.apache.kafka.connect.data.Date" => Self::Date,
            "io.debezium.time.Timestamp" | "org.apache.kafka.connect.data.Timestamp" => {
                Self::Timestamp(Unit::EpochMillis)
            }
            "io.debezium.time.MicroTimestamp" => Self::Timestamp(Unit::EpochMicros),
            "io.debezium.time.NanoTimestamp" => Self::Timestamp(Unit::EpochNanos),
            "io.debezium.time.ZonedTimestamp" => Self::ZonedTimestamp,
            "io.debezium.time.IsoDate" => Self::IsoDate,
            "io.debezium.time.IsoTimestamp" => Self::IsoTimestamp,
            "io.debezium.time.IsoTime" => Self::IsoTime,
            "io.debezium.time.Time" | "org.apache.kafka.connect.data.Time" => {
                Self::Span(Unit::EpochMillis)
            }
            "io.debezium.time.MicroTime" | "io.debezium.time.MicroDuration" => {
                Self::Span(Unit::EpochMicros)
            }
            "io.debezium.time.NanoTime" | "io.debezium.time.NanoDuration" => {
                Self::Span(Unit::EpochNanos)
            }
            _ => return None,
        })
    }

    /// The type of a column that nobody declared.
    pub(crate) fn natural(&self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Integer(1) => DataType::Int8,
            Self::Integer(2) => DataType::Int16,
            Self::Integer(4) => DataType::Int32,
            Self::Integer(_) | Self::Span(_) | Self::IsoTime => DataType::Int64,
            Self::Float => DataType::Float32,
            Self::Double => DataType::Float64,
            Self::Bytes => DataType::Binary,
            Self::Decimal { scale, precision } => decimal_type(*scale, *precision),
            Self::Date | Self::IsoDate => DataType::Date32,
            Self::Timestamp(_) | Self::IsoTimestamp => {
                DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None)
            }
            Self::ZonedTimestamp => types::timestamp_utc(),
            // Its scale differs from value to value, so only text keeps all digits.
            Self::Text | Self::VariableScaleDecimal => DataType::Utf8,
            Self::List(item) => types::list_of(item.natural()),
            Self::Map(value) => types::map_of(DataType::Utf8, value.natural()),
            Self::Struct(members) if members.is_empty() => DataType::Utf8,
            Self::Struct(members) => {
                let field =
                    |(name, member): &(String, Self)| Field::new(name, member.natural(), true);
                DataType::Struct(members.iter().map(field).collect::<Fields>())
            }
        }
    }
}

fn decimal_type(scale: i32, precision: Option<u8>) -> DataType {
    let precision = precision.unwrap_or(types::DECIMAL_DIGITS_MAX);
    match i8::try_from(scale) {
        Ok(scale) if precision <= types::DECIMAL_DIGITS_MAX => match u8::try_from(scale) {
            Ok(digits) if digits <= precision => DataType::Decimal128(precision, scale),
            _ => DataType::Utf8,
        },
        _ => DataType::Utf8,
    }
}
