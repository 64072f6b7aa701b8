//! Rows without envelope: JSON objects, by themselves or in records of a broker, and CSV records. The spec's
//! conditions say what they do (R-D1).

mod csv;
mod header;
mod json;
mod record;

pub(crate) use csv::{CsvBoundary, CsvRecords, cells_json, decode_csv, json_text};
pub(crate) use header::{Needs, parse_header};
pub(crate) use json::decode_lines;
pub(crate) use record::decode_records;
