//! Values compared by the order of ties (R-T2) and by equality (R-U1): NULL lowest, numbers by value, one
//! NaN on top and one zero, strings by UTF-8 bytes, structs field by field, arrays element by element,
//! maps as entries sorted by key.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, StructArray, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::take;
use arrow::datatypes::{DataType, FieldRef};
use arrow::row::{RowConverter, Rows, SortField};
use tidegate_change::sequence::normalize_floats;

use crate::sequences::{handle, position};
use crate::{Error, Result};

/// Values of one type whose encoded bytes compare as the values do.
#[derive(Debug)]
pub(crate) struct Comparable(Rows);

impl Comparable {
    pub(crate) fn new(array: &ArrayRef) -> Result<Self> {
        let failed = |e| Error::internal("values of a type without order").with_source(e);
        let array = canonical(array)?;
        let converter =
            RowConverter::new(vec![SortField::new(array.data_type().clone())]).map_err(failed)?;
        converter
            .convert_columns(&[array])
            .map(Self)
            .map_err(failed)
    }

    pub(crate) fn compare(&self, row: usize, other: &Self, other_row: usize) -> Ordering {
        self.0.row(row).data().cmp(other.0.row(other_row).data())
    }
}

/// Which rows of two arrays are equal, NULL = NULL.
pub(crate) fn equal(left: &ArrayRef, right: &ArrayRef) -> Result<BooleanBuffer> {
    let failed = |e| Error::internal("values cannot be compared").with_source(e);
    if left.data_type().is_nested() {
        let (left, right) = (Comparable::new(left)?, Comparable::new(right)?);
        let rows = left.0.num_rows();
        return Ok(BooleanBuffer::collect_bool(rows, |row| {
            left.compare(row, &right, row).is_eq()
        }));
    }
    let (left, right) = (normalize_floats(left), normalize_floats(right));
    let same = arrow::compute::kernels::cmp::not_distinct(&left, &right).map_err(failed)?;
    Ok(same.values().clone())
}

/// The same values in the one form that their bytes are compared in.
fn canonical(array: &ArrayRef) -> Result<ArrayRef> {
    let rebuilt = |e| Error::internal("nested values cannot be rebuilt").with_source(e);
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the types of arrow are an open set"
    )]
    match array.data_type() {
        DataType::Struct(fields) => {
            let parts = array.as_struct();
            if fields.is_empty() {
                return Ok(Arc::clone(array));
            }
            let columns = parts
                .columns()
                .iter()
                .map(canonical)
                .collect::<Result<Vec<_>>>()?;
            let built = StructArray::try_new(fields.clone(), columns, parts.nulls().cloned());
            Ok(Arc::new(built.map_err(rebuilt)?))
        }
        DataType::List(item) => {
            let list = array.as_list::<i32>();
            let values = canonical(list.values())?;
            let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
            let built = ListArray::try_new(Arc::clone(item), offsets, values, nulls);
            Ok(Arc::new(built.map_err(rebuilt)?))
        }
        DataType::Map(entries, _) => canonical_map(array.as_map(), entries),
        _ => Ok(normalize_floats(array)),
    }
}

/// Sorts the entries of each map by key.
fn canonical_map(map: &MapArray, field: &FieldRef) -> Result<ArrayRef> {
    let failed = |e| Error::internal("map entries cannot be sorted").with_source(e);
    let keys = Comparable::new(map.keys())?;
    let mut order: Vec<u32> = (0..map.entries().len()).map(handle).collect();
    for bounds in map.offsets().windows(2) {
        let range = bound(bounds.first())..bound(bounds.last());
        if let Some(entries) = order.get_mut(range) {
            entries.sort_by(|a, b| keys.compare(position(*a), &keys, position(*b)));
        }
    }
    let sorted = take(map.entries(), &UInt32Array::from(order), None).map_err(failed)?;
    let columns = sorted
        .as_struct()
        .columns()
        .iter()
        .map(canonical)
        .collect::<Result<Vec<_>>>()?;
    let fields = sorted.as_struct().fields().clone();
    let entries = StructArray::try_new(fields, columns, None).map_err(failed)?;
    let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
    let built = MapArray::try_new(Arc::clone(field), offsets, entries, nulls, false);
    Ok(Arc::new(built.map_err(failed)?))
}

fn bound(value: Option<&i32>) -> usize {
    value
        .and_then(|value| usize::try_from(*value).ok())
        .unwrap_or_default()
}
