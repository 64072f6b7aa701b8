//! JSON values to columns, by the type and without loss (R-K8).

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int8Array, Int16Array, Int32Array, Int64Array, ListArray, MapArray, StringArray, StructArray,
    TimestampMicrosecondArray, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};
use serde_json::{Map, Value};

use crate::text::{Failure, Parsed, binary, number, parse_boolean, time};

/// A column of that type from JSON values; None and JSON null are NULL.
///
/// # Errors
/// The failure of the first value that the type cannot hold.
pub fn array(data_type: &DataType, values: &[Option<&Value>]) -> Parsed<ArrayRef> {
    Ok(match data_type {
        DataType::Boolean => Arc::new(BooleanArray::from(each(values, boolean)?)),
        DataType::Int8 => Arc::new(Int8Array::from(each(values, integer)?)),
        DataType::Int16 => Arc::new(Int16Array::from(each(values, integer)?)),
        DataType::Int32 => Arc::new(Int32Array::from(each(values, integer)?)),
        DataType::Int64 => Arc::new(Int64Array::from(each(values, integer)?)),
        DataType::Float32 => Arc::new(Float32Array::from(each(values, float)?)),
        DataType::Float64 => Arc::new(Float64Array::from(each(values, double)?)),
        DataType::Decimal128(precision, scale) => {
            let parsed = each(values, |v| {
                number::parse_decimal(scalar_text(v)?, *precision, *scale)
            })?;
            let array = Decimal128Array::from(parsed).with_precision_and_scale(*precision, *scale);
            Arc::new(array.map_err(|_| Failure::Invalid)?)
        }
        DataType::Date32 => Arc::new(Date32Array::from(each(values, date)?)),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let parsed = each(values, |value| timestamp(value, zone.is_some()))?;
            Arc::new(TimestampMicrosecondArray::from(parsed).with_timezone_opt(zone.clone()))
        }
        DataType::Utf8 => Arc::new(StringArray::from(each(values, |v| Ok(text(v)))?)),
        DataType::Binary => {
            let parsed = each(values, |v| {
                binary::parse_base64(v.as_str().ok_or(Failure::Invalid)?)
            })?;
            Arc::new(BinaryArray::from_iter(parsed))
        }
        DataType::List(item) => list(item, values)?,
        DataType::Map(entries, sorted) => map(entries, *sorted, values)?,
        DataType::Struct(fields) => structure(fields, values)?,
        DataType::Null => new_null_array(&DataType::Null, values.len()),
        _ => return Err(Failure::Invalid),
    })
}

fn each<'a, T>(
    values: &[Option<&'a Value>],
    parse: impl Fn(&'a Value) -> Parsed<T>,
) -> Parsed<Vec<Option<T>>> {
    values
        .iter()
        .map(|value| match value {
            None | Some(Value::Null) => Ok(None),
            Some(value) => parse(value).map(Some),
        })
        .collect()
}

/// The digits of a number, or the text of a string.
fn scalar_text(value: &Value) -> Parsed<&str> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.as_str()),
        _ => Err(Failure::Invalid),
    }
}

fn boolean(value: &Value) -> Parsed<bool> {
    match value {
        Value::Bool(value) => Ok(*value),
        Value::String(text) => parse_boolean(text),
        _ => Err(Failure::Invalid),
    }
}

fn integer<T: TryFrom<i64>>(value: &Value) -> Parsed<T> {
    let wide = number::parse_integer(scalar_text(value)?)?;
    T::try_from(wide).map_err(|_| Failure::Invalid)
}

fn double(value: &Value) -> Parsed<f64> {
    let text = scalar_text(value)?;
    let parsed = number::parse_double(text)?;
    let exact = |whole: i64| number::long_as_double(whole).is_some();
    match value {
        Value::Number(_) if text.parse().is_ok_and(|whole| !exact(whole)) => Err(Failure::Invalid),
        _ => Ok(parsed),
    }
}

fn float(value: &Value) -> Parsed<f32> {
    number::parse_float(scalar_text(value)?)
}

fn date(value: &Value) -> Parsed<i32> {
    match value {
        Value::String(text) => time::parse_date(text),
        _ => time::date_in_range(integer(value)?),
    }
}

fn timestamp(value: &Value, zoned: bool) -> Parsed<i64> {
    let parsed = time::parse_timestamp(value.as_str().ok_or(Failure::Invalid)?)?;
    if zoned || parsed.offset_s.is_none() {
        Ok(parsed.micros)
    } else {
        Err(Failure::Invalid)
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn list(item: &FieldRef, values: &[Option<&Value>]) -> Parsed<ArrayRef> {
    let lists = each(values, |value| value.as_array().ok_or(Failure::Invalid))?;
    let items: Vec<_> = lists
        .iter()
        .flatten()
        .flat_map(|list| list.iter().map(Some))
        .collect();
    let lengths = lists.iter().map(|list| list.map_or(0, Vec::len));
    let array = ListArray::try_new(
        FieldRef::clone(item),
        OffsetBuffer::from_lengths(lengths),
        array(item.data_type(), &items)?,
        nulls_of(&lists),
    );
    Ok(Arc::new(array.map_err(|_| Failure::Invalid)?))
}

fn map(entries: &FieldRef, sorted: bool, values: &[Option<&Value>]) -> Parsed<ArrayRef> {
    let maps = each(values, |value| value.as_object().ok_or(Failure::Invalid))?;
    let DataType::Struct(pair) = entries.data_type() else {
        return Err(Failure::Invalid);
    };
    let [key, value] = &pair[..] else {
        return Err(Failure::Invalid);
    };
    let names: Vec<Value> = maps
        .iter()
        .flatten()
        .flat_map(|map| map.keys().map(|name| Value::String(name.clone())))
        .collect();
    let keys = array(key.data_type(), &names.iter().map(Some).collect::<Vec<_>>())?;
    let contents: Vec<_> = maps
        .iter()
        .flatten()
        .flat_map(|map| map.values().map(Some))
        .collect();
    let contents = array(value.data_type(), &contents)?;
    let pairs = StructArray::try_new(pair.clone(), vec![keys, contents], None);
    let array = MapArray::try_new(
        FieldRef::clone(entries),
        OffsetBuffer::from_lengths(maps.iter().map(|map| map.map_or(0, Map::len))),
        pairs.map_err(|_| Failure::Invalid)?,
        nulls_of(&maps),
        sorted,
    );
    Ok(Arc::new(array.map_err(|_| Failure::Invalid)?))
}

fn structure(fields: &Fields, values: &[Option<&Value>]) -> Parsed<ArrayRef> {
    let objects = each(values, |value| value.as_object().ok_or(Failure::Invalid))?;
    let known = |name: &String| fields.iter().any(|field| field.name() == name);
    if objects
        .iter()
        .flatten()
        .any(|object| !object.keys().all(known))
    {
        return Err(Failure::Invalid);
    }
    let member = |field: &Arc<Field>| {
        let values: Vec<_> = objects
            .iter()
            .map(|object| object.and_then(|o| o.get(field.name())))
            .collect();
        array(field.data_type(), &values)
    };
    let columns = fields.iter().map(member).collect::<Parsed<Vec<_>>>()?;
    let array =
        StructArray::try_new_with_length(fields.clone(), columns, nulls_of(&objects), values.len());
    Ok(Arc::new(array.map_err(|_| Failure::Invalid)?))
}

fn nulls_of<T>(values: &[Option<T>]) -> Option<NullBuffer> {
    values.iter().any(Option::is_none).then(|| {
        values
            .iter()
            .map(Option::is_some)
            .collect::<Vec<bool>>()
            .into()
    })
}
