//! Values as JSON, in the form that `read` prints and that specs and progress store.

use arrow::array::Array;
use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use serde_json::Value;

use crate::{Error, Result};

/// The JSON of one value (interface document: "JSON values").
///
/// # Errors
/// `UNSUPPORTED` for a type that no Delta type stands for.
pub fn value_at(array: &dyn Array, row: usize) -> Result<Value> {
    let _ = (array, row);
    Err(Error::internal("json::value_at is not written"))
}

/// A one-element array of that type from JSON; the inverse of [`value_at`].
///
/// # Errors
/// `INVALID_VALUE` when the JSON is no value of the type.
pub fn scalar(data_type: &DataType, value: &Value) -> Result<ArrayRef> {
    let _ = (data_type, value);
    Err(Error::internal("json::scalar is not written"))
}
