//! A Parquet file that several threads may read at once.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, TimeUnit};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::Type;
use parquet::file::reader::{ChunkReader, Length};
use tidegate_change::{Error, Result};

use super::{broken, guarded};
use crate::input::Input;

/// Bytes of an input that is no file and has to be held in memory.
const STREAM_BYTES_MAX: u64 = 4 << 30;

/// A file with its footer.
#[derive(Clone, Debug)]
pub(crate) struct ParquetFile {
    bytes: Stored,
    pub(super) metadata: ArrowReaderMetadata,
}

#[derive(Clone, Debug)]
enum Stored {
    Memory(Bytes),
    /// Read at positions, so that clones do not move each other's cursor.
    Disk(Arc<File>, u64),
}

/// A file, read at a position.
pub(crate) struct ReadAt {
    file: Arc<File>,
    position: u64,
}

impl Read for ReadAt {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.position)?;
        self.position += u64::try_from(count).unwrap_or(0);
        Ok(count)
    }
}

impl Length for ParquetFile {
    fn len(&self) -> u64 {
        self.bytes.len()
    }
}

impl Length for Stored {
    fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            Self::Disk(_, length) => *length,
        }
    }
}

impl ChunkReader for ParquetFile {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        self.bytes.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        self.bytes.get_bytes(start, length)
    }
}

impl ChunkReader for Stored {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        Ok(match self {
            Self::Memory(bytes) => {
                let start = usize::try_from(start)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                Box::new(Cursor::new(bytes.slice(start..)))
            }
            Self::Disk(file, _) => Box::new(ReadAt {
                file: Arc::clone(file),
                position: start,
            }),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let wanted = u64::try_from(length).unwrap_or(u64::MAX);
        if start.checked_add(wanted).is_none_or(|end| end > self.len()) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        match self {
            Self::Memory(bytes) => {
                let start = usize::try_from(start).unwrap_or(usize::MAX);
                Ok(bytes.slice(start..start.saturating_add(length)))
            }
            Self::Disk(file, _) => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, start)?;
                Ok(bytes.into())
            }
        }
    }
}

impl ParquetFile {
    fn open(input: Input) -> Result<Self> {
        let bytes = match input {
            Input::Bytes(bytes) => Stored::Memory(bytes),
            Input::File(file) => {
                let length = file.metadata().map_err(|e| Error::io("input", e))?.len();
                Stored::Disk(Arc::new(file), length)
            }
            Input::Read(reader) => {
                let mut bytes = Vec::new();
                let read = reader.take(STREAM_BYTES_MAX).read_to_end(&mut bytes);
                read.map_err(|e| Error::io("input", e))?;
                Stored::Memory(bytes.into())
            }
        };
        guarded(move || {
            let options = ArrowReaderOptions::new();
            let metadata = ArrowReaderMetadata::load(&bytes, options.clone()).map_err(broken)?;
            let metadata = match microseconds(&metadata) {
                None => metadata,
                Some(schema) => {
                    let options = options.with_schema(Arc::new(schema));
                    ArrowReaderMetadata::load(&bytes, options).map_err(broken)?
                }
            };
            Ok(Self { bytes, metadata })
        })
    }
}

/// The schema with INT96 timestamps in microseconds, because nanoseconds end in the year 2262.
fn microseconds(metadata: &ArrowReaderMetadata) -> Option<Schema> {
    let roots = metadata.parquet_schema().root_schema().get_fields();
    let mut any = false;
    let fields: Vec<_> = metadata
        .schema()
        .fields()
        .iter()
        .zip(roots)
        .map(|(field, root)| {
            if !root.is_primitive() || root.get_physical_type() != Type::INT96 {
                return Arc::clone(field);
            }
            any = true;
            let data_type = DataType::Timestamp(TimeUnit::Microsecond, None);
            Arc::new(field.as_ref().clone().with_data_type(data_type))
        })
        .collect();
    any.then(|| Schema::new_with_metadata(fields, metadata.schema().metadata().clone()))
}

/// The row groups of a file, in order.
#[derive(Debug)]
pub(crate) struct ParquetCutter {
    file: ParquetFile,
    row_group: usize,
}

impl ParquetCutter {
    pub(crate) fn new(input: Input) -> Result<Self> {
        Ok(Self {
            file: ParquetFile::open(input)?,
            row_group: 0,
        })
    }

    /// The next row group with its number of rows.
    pub(crate) fn next(&mut self) -> Option<(ParquetFile, usize, u64)> {
        let group = self
            .file
            .metadata
            .metadata()
            .row_groups()
            .get(self.row_group)?;
        let rows = u64::try_from(group.num_rows()).unwrap_or(0);
        self.row_group += 1;
        Some((self.file.clone(), self.row_group - 1, rows))
    }
}
