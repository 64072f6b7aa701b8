//! Rows without envelope: JSON objects and CSV records. The spec's conditions say what they do (R-D1).

mod csv;
mod json;

pub(crate) use csv::{CsvBoundary, CsvRecords, decode_csv};
pub(crate) use json::decode_lines;
