//! Arrays of files as arrays of the table: types widened, members matched by name, lost ones NULL.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, MapArray, StructArray, make_array, new_null_array,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Fields};
use tidegate_change::{Error, Result};

/// The array as a value of the target type, whose names are physical like the array's.
pub(crate) fn conform(array: &ArrayRef, target: &DataType) -> Result<ArrayRef> {
    let failed = |e: arrow::error::ArrowError| {
        let message = format!("{} is no {target}", array.data_type());
        Error::corrupt(message).with_source(e)
    };
    if array.data_type() == target {
        return Ok(Arc::clone(array));
    }
    match (array.data_type(), target) {
        (DataType::Struct(_), DataType::Struct(fields)) => {
            conform_struct(array.as_struct(), fields).map(shared)
        }
        (DataType::List(_), DataType::List(item)) => {
            let list: &ListArray = array.as_list();
            let values = conform(list.values(), item.data_type())?;
            ListArray::try_new(
                Arc::clone(item),
                list.offsets().clone(),
                values,
                list.nulls().cloned(),
            )
            .map(shared)
            .map_err(failed)
        }
        (DataType::Map(..), DataType::Map(entries, sorted)) => {
            let map = array.as_map();
            let DataType::Struct(pair) = entries.data_type() else {
                return Err(Error::internal("a map without entries"));
            };
            let columns = map
                .entries()
                .columns()
                .iter()
                .zip(pair)
                .map(|(column, field)| conform(column, field.data_type()))
                .collect::<Result<Vec<_>>>()?;
            let rows = StructArray::try_new(pair.clone(), columns, None).map_err(failed)?;
            let offsets = map.offsets().clone();
            MapArray::try_new(
                Arc::clone(entries),
                offsets,
                rows,
                map.nulls().cloned(),
                *sorted,
            )
            .map(shared)
            .map_err(failed)
        }
        _ => {
            let options = CastOptions {
                safe: false,
                ..CastOptions::default()
            };
            cast_with_options(array, target, &options).map_err(failed)
        }
    }
}

fn shared(array: impl Array + 'static) -> ArrayRef {
    Arc::new(array)
}

fn conform_struct(array: &StructArray, fields: &Fields) -> Result<StructArray> {
    let columns = fields
        .iter()
        .map(|field| match array.column_by_name(field.name()) {
            Some(column) => conform(column, field.data_type()),
            None => Ok(new_null_array(field.data_type(), array.len())),
        })
        .collect::<Result<Vec<_>>>()?;
    StructArray::try_new_with_length(fields.clone(), columns, array.nulls().cloned(), array.len())
        .map_err(|e| Error::corrupt("a struct does not fit the table's").with_source(e))
}

/// The same values under the names of another type of the same shape.
pub(crate) fn relabel(array: &ArrayRef, target: &DataType) -> Result<ArrayRef> {
    if array.data_type() == target {
        return Ok(Arc::clone(array));
    }
    let data = relabel_data(array.to_data(), target)?;
    Ok(make_array(data))
}

fn relabel_data(
    data: arrow::array::ArrayData,
    target: &DataType,
) -> Result<arrow::array::ArrayData> {
    let parts: Vec<&Field> = match target {
        DataType::Struct(fields) => fields.iter().map(AsRef::as_ref).collect(),
        DataType::List(item) => vec![item.as_ref()],
        DataType::Map(entries, _) => vec![entries.as_ref()],
        _ => Vec::new(),
    };
    let children = data
        .child_data()
        .iter()
        .zip(parts)
        .map(|(child, field)| relabel_data(child.clone(), field.data_type()))
        .collect::<Result<Vec<_>>>()?;
    data.into_builder()
        .data_type(target.clone())
        .child_data(children)
        .build()
        .map_err(|e| Error::internal("types of unlike shape").with_source(e))
}
