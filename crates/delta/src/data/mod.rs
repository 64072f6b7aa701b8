//! Parquet files of a table: data files, and private files of any shape.
//!
//! - [`DataFileWriter`] and [`encode_file`]: rows of the table to a data file and its `add` action.
//! - [`read_file`]: rows of a data file by position, with its deletion vector applied or not.
//! - [`write_rows`] and [`read_rows`]: hidden state, rejects and the like.
//!
//! Data files hold hidden columns (`__tidegate_…`) beside the visible ones; readers that go by the
//! table's schema do not see them.

#[cfg(test)]
mod data_test;
mod object;
mod plain;
mod reader;
mod scan;
mod stats;
mod writer;

pub use plain::{RowsFile, read_rows, write_rows};
pub use reader::{FileBatch, FileStream, ReadOptions, RowSelection, read_file};
pub use writer::{DataFileWriter, EncodedFile, WriterOptions, encode_file};

pub(crate) use object::ObjectReader;
