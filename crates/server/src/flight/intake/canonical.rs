//! Values as bytes that depend on nothing but the values: not on batches, offsets, dictionaries or what lies
//! under a null.

use arrow::array::{Array, AsArray, PrimitiveArray, downcast_primitive_array};
use arrow::datatypes::{ArrowPrimitiveType, DataType, ToByteSlice};
use tidegate_change::{Code, Error, Result};

const NULL: u8 = 0;
const VALID: u8 = 1;

/// Appends each value: a mark, and what is not null in a form that says where it ends.
pub(super) fn append_values(array: &dyn Array, bytes: &mut Vec<u8>) -> Result<()> {
    downcast_primitive_array!(
        array => append_primitive(array, bytes),
        DataType::Null => bytes.extend(std::iter::repeat_n(NULL, array.len())),
        DataType::Boolean => {
            let values = array.as_boolean();
            append_each(array, bytes, |row, bytes| bytes.push(u8::from(values.value(row))));
        }
        DataType::Utf8 => {
            let values = array.as_string::<i32>();
            append_each(array, bytes, |row, bytes| append_bytes(values.value(row).as_bytes(), bytes));
        }
        DataType::LargeUtf8 => {
            let values = array.as_string::<i64>();
            append_each(array, bytes, |row, bytes| append_bytes(values.value(row).as_bytes(), bytes));
        }
        DataType::Utf8View => {
            let values = array.as_string_view();
            append_each(array, bytes, |row, bytes| append_bytes(values.value(row).as_bytes(), bytes));
        }
        DataType::Binary => {
            let values = array.as_binary::<i32>();
            append_each(array, bytes, |row, bytes| append_bytes(values.value(row), bytes));
        }
        DataType::LargeBinary => {
            let values = array.as_binary::<i64>();
            append_each(array, bytes, |row, bytes| append_bytes(values.value(row), bytes));
        }
        DataType::BinaryView => {
            let values = array.as_binary_view();
            append_each(array, bytes, |row, bytes| append_bytes(values.value(row), bytes));
        }
        DataType::FixedSizeBinary(_) => {
            let values = array.as_fixed_size_binary();
            append_each(array, bytes, |row, bytes| append_bytes(values.value(row), bytes));
        }
        other => return append_nested(array, other, bytes),
    );
    Ok(())
}

fn append_nested(array: &dyn Array, data_type: &DataType, bytes: &mut Vec<u8>) -> Result<()> {
    for row in 0..array.len() {
        if array.is_null(row) {
            bytes.push(NULL);
            continue;
        }
        // What a key stands for says itself whether it is a value.
        if !matches!(data_type, DataType::Dictionary(_, _)) {
            bytes.push(VALID);
        }
        match data_type {
            DataType::Struct(_) => {
                for column in array.as_struct().columns() {
                    append_values(&column.slice(row, 1), bytes)?;
                }
            }
            DataType::List(_) => append_list(&array.as_list::<i32>().value(row), bytes)?,
            DataType::LargeList(_) => append_list(&array.as_list::<i64>().value(row), bytes)?,
            DataType::FixedSizeList(_, _) => {
                append_list(&array.as_fixed_size_list().value(row), bytes)?;
            }
            DataType::Map(_, _) => append_list(&array.as_map().value(row), bytes)?,
            DataType::Dictionary(_, _) => {
                let dictionary = array.as_any_dictionary();
                let key = dictionary.normalized_keys().get(row).copied();
                append_values(
                    &dictionary.values().slice(key.unwrap_or_default(), 1),
                    bytes,
                )?;
            }
            other => {
                let message = format!("the put has a column of type {other}, which no source has");
                return Err(Error::new(Code::Unsupported, message));
            }
        }
    }
    Ok(())
}

fn append_list(values: &dyn Array, bytes: &mut Vec<u8>) -> Result<()> {
    bytes.extend_from_slice(&(values.len() as u64).to_le_bytes());
    append_values(values, bytes)
}

fn append_primitive<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>, bytes: &mut Vec<u8>) {
    append_each(array, bytes, |row, bytes| {
        bytes.extend_from_slice(array.value(row).to_byte_slice());
    });
}

fn append_each(array: &dyn Array, bytes: &mut Vec<u8>, append: impl Fn(usize, &mut Vec<u8>)) {
    for row in 0..array.len() {
        if array.is_null(row) {
            bytes.push(NULL);
        } else {
            bytes.push(VALID);
            append(row, bytes);
        }
    }
}

fn append_bytes(value: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
    bytes.extend_from_slice(value);
}

/// What the bytes of a type mean, where their length does not say it.
pub(super) fn type_tag(data_type: &DataType) -> String {
    match data_type {
        DataType::Timestamp(unit, zone) => {
            format!("timestamp {unit:?} {}", zone.is_some())
        }
        DataType::Date32 => "date days".to_owned(),
        DataType::Date64 => "date ms".to_owned(),
        DataType::Time32(unit) | DataType::Time64(unit) => format!("time {unit:?}"),
        DataType::Duration(unit) => format!("duration {unit:?}"),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => "float".to_owned(),
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            "unsigned".to_owned()
        }
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => format!("decimal {scale}"),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => format!("list({})", type_tag(field.data_type())),
        DataType::Struct(fields) => {
            let fields = fields
                .iter()
                .map(|field| format!("{}:{}", field.name(), type_tag(field.data_type())));
            format!("struct({})", fields.collect::<Vec<_>>().join(","))
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, DictionaryArray, Int32Array, Int64Array, ListArray, StringArray, StructArray,
    };
    use arrow::datatypes::{Field, Fields, Int32Type};

    use super::*;

    fn bytes_of(array: &dyn Array) -> Vec<u8> {
        let mut bytes = Vec::new();
        append_values(array, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_cut_into_batches_does_not_matter() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
        ]);
        let texts = StringArray::from(vec![Some("a"), None, Some("")]);
        let fields = Fields::from(vec![
            Field::new("l", lists.data_type().clone(), true),
            Field::new("t", DataType::Utf8, true),
        ]);
        let columns: Vec<ArrayRef> = vec![Arc::new(lists), Arc::new(texts)];
        let rows = StructArray::new(fields, columns, None);
        let whole = bytes_of(&rows);
        let mut pieces = bytes_of(&rows.slice(0, 1));
        pieces.extend(bytes_of(&rows.slice(1, 2)));
        assert_eq!(whole, pieces);
    }

    #[test]
    fn dictionaries_are_their_values_and_nulls_hide_what_is_under_them() {
        let plain = StringArray::from(vec![Some("b"), None, Some("a"), Some("b")]);
        let coded: DictionaryArray<Int32Type> = vec![Some("b"), None, Some("a"), Some("b")]
            .into_iter()
            .collect();
        assert_eq!(bytes_of(&plain), bytes_of(&coded));
        let hidden = Int64Array::new(vec![1, 9].into(), Some(vec![true, false].into()));
        let other = Int64Array::new(vec![1, 7].into(), Some(vec![true, false].into()));
        assert_eq!(bytes_of(&hidden), bytes_of(&other));
        assert_ne!(bytes_of(&hidden), bytes_of(&Int64Array::from(vec![1, 9])));
        assert_ne!(
            bytes_of(&Int32Array::from(vec![1])),
            bytes_of(&Int64Array::from(vec![1]))
        );
    }

    #[test]
    fn values_say_where_they_end() {
        let one = StringArray::from(vec!["ab", "c"]);
        let other = StringArray::from(vec!["a", "bc"]);
        assert_ne!(bytes_of(&one), bytes_of(&other));
    }
}
