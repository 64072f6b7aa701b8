//! A Parquet file as output.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use tidegate_change::{Code, Error, Result};

use super::{Output, RowWriter};

/// Writes row groups as they fill.
pub(super) struct ParquetWriter {
    writer: ArrowWriter<Output>,
}

impl ParquetWriter {
    pub(super) fn new(schema: &SchemaRef, output: Output) -> Result<Self> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).map_err(refused)?))
            .set_max_row_group_bytes(Some(64 << 20))
            .build();
        let writer =
            ArrowWriter::try_new(output, Arc::clone(schema), Some(properties)).map_err(refused)?;
        Ok(Self { writer })
    }
}

impl RowWriter for ParquetWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.writer.write(batch).map_err(refused)
    }

    /// Nothing: half a row group cannot be shown.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let mut output = self.writer.into_inner().map_err(refused)?;
        output.flush().map_err(super::failed)
    }
}

fn refused(error: ParquetError) -> Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(error) => super::failed(*error),
            Err(cause) => Error::new(Code::Io, "output: cannot be written").with_source(cause),
        },
        other => Error::new(
            Code::Unsupported,
            "output: rows cannot be written as Parquet",
        )
        .with_source(other),
    }
}

impl fmt::Debug for ParquetWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParquetWriter").finish_non_exhaustive()
    }
}
