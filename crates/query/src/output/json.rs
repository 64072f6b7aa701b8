//! JSON: an array of objects, or an object a line.

use std::fmt;
use std::io::Write;

use arrow::array::RecordBatch;
use tidegate_change::{Result, json};

use super::{Output, RowWriter, failed};

/// One object a line.
pub(super) struct LineWriter {
    output: Output,
}

impl LineWriter {
    pub(super) fn new(output: Output) -> Self {
        Self { output }
    }
}

impl RowWriter for LineWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        json::write_rows(batch, &mut self.output)
    }

    fn flush(&mut self) -> Result<()> {
        self.output.flush().map_err(failed)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.flush()
    }
}

/// One array, with an object a line in it.
pub(super) struct ArrayWriter {
    output: Output,
    is_empty: bool,
}

impl ArrayWriter {
    pub(super) fn new(output: Output) -> Self {
        Self {
            output,
            is_empty: true,
        }
    }
}

impl RowWriter for ArrayWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let start: &[u8] = if self.is_empty { b"[\n" } else { b",\n" };
        self.is_empty = false;
        self.output.write_all(start).map_err(failed)?;
        json::write_rows(
            batch,
            &mut Separated {
                output: &mut self.output,
                ended: false,
            },
        )
    }

    fn flush(&mut self) -> Result<()> {
        self.output.flush().map_err(failed)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let end: &[u8] = if self.is_empty { b"[]\n" } else { b"\n]\n" };
        self.output.write_all(end).map_err(failed)?;
        self.flush()
    }
}

/// Lines of objects to members of an array: `,` before every line end but the last. An object holds no
/// line end of its own, because JSON text escapes them.
struct Separated<'a> {
    output: &'a mut Output,
    /// Whether the text so far ends with an object.
    ended: bool,
}

impl Write for Separated<'_> {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            if self.ended {
                self.output.write_all(b",\n")?;
            }
            self.ended = line.ends_with(b"\n");
            self.output
                .write_all(line.strip_suffix(b"\n").unwrap_or(line))?;
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.output.flush()
    }
}

impl fmt::Debug for LineWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineWriter").finish_non_exhaustive()
    }
}

impl fmt::Debug for ArrayWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayWriter")
            .field("is_empty", &self.is_empty)
            .finish_non_exhaustive()
    }
}
