//! Rows without envelope: JSON objects, by themselves or in records of a broker, and CSV records. The spec's
//! conditions say what they do (R-D1).

mod csv;
mod json;
mod record;

pub(crate) use csv::{CsvBoundary, CsvRecords, decode_csv};
pub(crate) use json::decode_lines;
pub(crate) use record::decode_records;
