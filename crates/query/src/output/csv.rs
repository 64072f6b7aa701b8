//! CSV by RFC 4180, in the form that `apply` reads back.

use std::fmt;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::Schema;
use tidegate_change::Result;
use tidegate_change::json::Encoder;

use super::{Output, RowWriter, failed};

/// Text that is gathered before it is written, bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Writes a header and a record a row.
pub(super) struct CsvWriter {
    output: Output,
}

impl CsvWriter {
    pub(super) fn new(schema: &Schema, mut output: Output) -> Result<Self> {
        let mut header = Vec::new();
        for (position, field) in schema.fields().iter().enumerate() {
            if position > 0 {
                header.push(b',');
            }
            write_cell(field.name().as_bytes(), &mut header);
        }
        header.extend_from_slice(b"\n");
        output.write_all(&header).map_err(failed)?;
        Ok(Self { output })
    }
}

impl RowWriter for CsvWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = batch
            .columns()
            .iter()
            .map(|column| Ok((column.logical_nulls(), Encoder::new(column)?)))
            .collect::<Result<Vec<_>>>()?;
        let (mut text, mut cell) = (Vec::with_capacity(CHUNK_BYTES + 4096), Vec::new());
        for row in 0..batch.num_rows() {
            for (position, (nulls, encoder)) in columns.iter().enumerate() {
                if position > 0 {
                    text.push(b',');
                }
                if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                    cell.clear();
                    encoder.write_text(row, &mut cell);
                    write_cell(&cell, &mut text);
                }
            }
            text.push(b'\n');
            if text.len() >= CHUNK_BYTES {
                self.output.write_all(&text).map_err(failed)?;
                text.clear();
            }
        }
        self.output.write_all(&text).map_err(failed)
    }

    fn flush(&mut self) -> Result<()> {
        self.output.flush().map_err(failed)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.flush()
    }
}

/// A value: quoted where it is empty (an unquoted empty cell is NULL) or holds what separates.
fn write_cell(value: &[u8], text: &mut Vec<u8>) {
    let needs_quotes = value.is_empty()
        || value
            .iter()
            .any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r'));
    if !needs_quotes {
        text.extend_from_slice(value);
        return;
    }
    text.push(b'"');
    for byte in value {
        if *byte == b'"' {
            text.push(b'"');
        }
        text.push(*byte);
    }
    text.push(b'"');
}

impl fmt::Debug for CsvWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CsvWriter").finish_non_exhaustive()
    }
}
