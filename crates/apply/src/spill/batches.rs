//! Record batches in temporary files, each an Arrow IPC stream of its own, compressed with LZ4.

use std::io::Cursor;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::ipc::CompressionType;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use tidegate_change::{Error, Result};

use super::{Extent, SpillFile};

/// A record batch in a temporary file.
#[derive(Clone, Debug)]
pub(crate) struct SpilledBatch {
    file: Arc<SpillFile>,
    extent: Extent,
    /// Rows.
    pub(crate) rows: usize,
    /// Bytes that the batch takes in memory.
    pub(crate) bytes: usize,
}

impl SpilledBatch {
    /// A batch that was encoded and appended there.
    pub(crate) fn new(file: &Arc<SpillFile>, extent: Extent, batch: (usize, usize)) -> Self {
        let (rows, bytes) = batch;
        Self {
            file: Arc::clone(file),
            extent,
            rows,
            bytes,
        }
    }

    /// The batch.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn load(&self) -> Result<RecordBatch> {
        decode(self.file.read(self.extent)?)
    }
}

/// The bytes of a batch.
///
/// # Errors
/// `INTERNAL` when Arrow cannot write the batch.
pub(crate) fn encode(batch: &RecordBatch) -> Result<Vec<u8>> {
    let written = || -> Result<Vec<u8>, ArrowError> {
        let options =
            IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME))?;
        let schema = batch.schema_ref();
        let mut writer = StreamWriter::try_new_with_options(Vec::new(), schema, options)?;
        writer.write(batch)?;
        writer.into_inner()
    };
    written().map_err(|e| Error::internal("events cannot be written as IPC").with_source(e))
}

/// The one batch that these bytes hold.
///
/// # Errors
/// `CORRUPT` when they hold something else.
fn decode(bytes: Vec<u8>) -> Result<RecordBatch> {
    let read = || -> Result<Option<RecordBatch>, ArrowError> {
        StreamReader::try_new(Cursor::new(bytes), None)?
            .next()
            .transpose()
    };
    read()
        .map_err(|e| Error::corrupt("events cannot be read from IPC").with_source(e))?
        .ok_or_else(|| Error::corrupt("an IPC stream without events"))
}
