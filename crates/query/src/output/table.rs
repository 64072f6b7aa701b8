//! Aligned text for people.

use std::fmt;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, Schema};
use tidegate_change::Result;
use tidegate_change::json::Encoder;

use super::{Output, RowWriter, failed};

/// Rows that are looked at to find the widths of columns; what comes later is fitted to them.
const SAMPLE_ROWS: usize = 1000;
/// Between two columns.
const GAP: &str = "  ";

/// Writes columns under a header.
pub(super) struct TableWriter {
    output: Output,
    header: Vec<String>,
    is_number: Vec<bool>,
    /// Rows held back until the widths are known.
    sample: Vec<Vec<String>>,
    /// Widths of the columns, once known.
    widths: Option<Vec<usize>>,
}

impl TableWriter {
    pub(super) fn new(schema: &Schema, output: Output) -> Self {
        let fields = schema.fields();
        Self {
            output,
            header: fields.iter().map(|f| printable(f.name())).collect(),
            is_number: fields.iter().map(|f| is_number(f.data_type())).collect(),
            sample: Vec::new(),
            widths: None,
        }
    }

    fn release(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.sample);
        let mut text = String::new();
        let widths = match self.widths.take() {
            Some(widths) => widths,
            None => {
                let widths = widths(&self.header, &rows);
                push_line(&self.header, &widths, &self.is_number, &mut text);
                let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
                push_line(&rule, &widths, &self.is_number, &mut text);
                widths
            }
        };
        for row in &rows {
            push_line(row, &widths, &self.is_number, &mut text);
        }
        self.widths = Some(widths);
        self.output.write_all(text.as_bytes()).map_err(failed)
    }
}

impl RowWriter for TableWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = batch
            .columns()
            .iter()
            .map(|column| Ok((column.logical_nulls(), Encoder::new(column)?)))
            .collect::<Result<Vec<_>>>()?;
        let mut cell = Vec::new();
        for row in 0..batch.num_rows() {
            let cells = columns.iter().map(|(nulls, encoder)| {
                if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                    return "NULL".to_owned();
                }
                cell.clear();
                encoder.write_text(row, &mut cell);
                printable(&String::from_utf8_lossy(&cell))
            });
            self.sample.push(cells.collect());
            if self.sample.len() >= SAMPLE_ROWS {
                self.release()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.release()?;
        self.output.flush().map_err(failed)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.flush()
    }
}

/// Lines of cells under a header, in aligned columns; a column whose flag is set stands to the right.
#[must_use]
pub fn align(header: &[String], rows: &[Vec<String>], right: &[bool]) -> String {
    let widths = widths(header, rows);
    let mut text = String::new();
    for row in std::iter::once(header).chain(rows.iter().map(Vec::as_slice)) {
        push_line(row, &widths, right, &mut text);
    }
    text
}

fn widths(header: &[String], rows: &[Vec<String>]) -> Vec<usize> {
    let width_of = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .chain(header.get(column));
        cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    (0..header.len()).map(width_of).collect()
}

fn push_line(cells: &[String], widths: &[usize], right: &[bool], text: &mut String) {
    let start = text.len();
    for (position, (cell, width)) in cells.iter().zip(widths).enumerate() {
        if position > 0 {
            text.push_str(GAP);
        }
        let padding = width.saturating_sub(cell.chars().count());
        let is_right = right.get(position).copied().unwrap_or_default();
        if is_right {
            text.extend(std::iter::repeat_n(' ', padding));
        }
        text.push_str(cell);
        if !is_right {
            text.extend(std::iter::repeat_n(' ', padding));
        }
    }
    let end = text.trim_end_matches(' ').len().max(start);
    text.truncate(end);
    text.push('\n');
}

/// The text without what would move the cursor of a terminal.
fn printable(text: &str) -> String {
    if !text.chars().any(char::is_control) {
        return text.to_owned();
    }
    text.chars()
        .flat_map(|c| match c {
            c if c.is_control() => c.escape_default().collect::<Vec<_>>(),
            c => vec![c],
        })
        .collect()
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric()
}

impl fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableWriter")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}
