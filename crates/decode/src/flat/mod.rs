//! Rows without envelope: JSON objects and CSV records. The spec's conditions say what they do (R-D1).

mod csv;
mod header;
mod json;

pub(crate) use csv::{CsvBoundary, CsvRecords, cells_json, decode_csv, json_text};
pub(crate) use header::{Needs, parse_header};
pub(crate) use json::decode_lines;
