//! Rows as text or Parquet, batch by batch, in the five forms of `--output`.

mod csv;
mod json;
mod parquet;
mod table;

use std::fmt::Debug;
use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidegate_change::{Code, Error, Result};

pub use table::align;

/// Where rows are written to.
pub type Output = Box<dyn Write + Send>;

/// A form of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// Aligned columns, for people.
    Table,
    /// One JSON array of objects.
    Json,
    /// One JSON object a line.
    JsonLines,
    /// RFC 4180 with a header; an empty cell is NULL, `""` the empty string.
    Csv,
    /// A Parquet file.
    Parquet,
}

impl OutputFormat {
    /// The words of `--output`.
    pub const WORDS: [&str; 5] = ["table", "json", "jsonl", "csv", "parquet"];

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Json => "json",
            Self::JsonLines => "jsonl",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }

    /// The form with that word.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for another word.
    pub fn from_word(word: &str) -> Result<Self> {
        Ok(match word {
            "table" => Self::Table,
            "json" => Self::Json,
            "jsonl" => Self::JsonLines,
            "csv" => Self::Csv,
            "parquet" => Self::Parquet,
            _ => {
                let message = format!("output {word:?} is none of {}", Self::WORDS.join(", "));
                return Err(Error::new(Code::InvalidArgument, message));
            }
        })
    }
}

/// Takes batches of one schema and writes them in one form.
pub trait RowWriter: Debug + Send {
    /// Writes the rows of a batch.
    ///
    /// # Errors
    /// `IO` when the output fails, `UNSUPPORTED` for a type without that form.
    fn write(&mut self, batch: &RecordBatch) -> Result<()>;

    /// Makes what was written visible; a table may hold back rows until then to align them.
    ///
    /// # Errors
    /// As [`Self::write`].
    fn flush(&mut self) -> Result<()>;

    /// Writes what ends the form and flushes.
    ///
    /// # Errors
    /// As [`Self::write`].
    fn finish(self: Box<Self>) -> Result<()>;
}

/// A writer of rows of a schema.
///
/// # Errors
/// As [`RowWriter::write`].
pub fn row_writer(
    format: OutputFormat,
    schema: &SchemaRef,
    output: Output,
) -> Result<Box<dyn RowWriter>> {
    Ok(match format {
        OutputFormat::Table => Box::new(table::TableWriter::new(schema, output)),
        OutputFormat::Json => Box::new(json::ArrayWriter::new(output)),
        OutputFormat::JsonLines => Box::new(json::LineWriter::new(output)),
        OutputFormat::Csv => Box::new(csv::CsvWriter::new(schema, output)?),
        OutputFormat::Parquet => Box::new(parquet::ParquetWriter::new(schema, output)?),
    })
}

fn failed(error: std::io::Error) -> Error {
    Error::io("output", error)
}

#[cfg(test)]
mod output_test;
