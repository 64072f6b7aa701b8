//! A Parquet file that several threads may read at once.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
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

/// Bytes of values that are decoded at a time, about.
const DECODED_BYTES: u64 = 16 << 20;
/// Fewest rows that are decoded at a time, however large they are.
const ROWS_MIN: usize = 1 << 10;
/// Bytes that are read at once where a reader takes few at a time, as that of page headers does.
const READ_AHEAD_BYTES: usize = 1 << 9;

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
            Self::Disk(file, _) => {
                let read = ReadAt {
                    file: Arc::clone(file),
                    position: start,
                };
                Box::new(BufReader::with_capacity(READ_AHEAD_BYTES, read))
            }
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
            Input::Read(_) => return Err(Error::internal("a Parquet file that is a stream")),
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

/// Some rows of a row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupRows {
    pub(crate) row_group: usize,
    /// The first row, in the row group.
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// The rows of a file in order, cut so that decoding holds little: a row group may be the whole file.
#[derive(Debug)]
pub(crate) struct ParquetCutter {
    file: ParquetFile,
    next: GroupRows,
}

impl ParquetCutter {
    pub(crate) fn new(input: Input) -> Result<Self> {
        Ok(Self {
            file: ParquetFile::open(input)?,
            next: GroupRows {
                row_group: 0,
                first: 0,
                count: 0,
            },
        })
    }

    /// The next rows, and about how many bytes of the file they take.
    pub(crate) fn next(&mut self) -> Option<(ParquetFile, GroupRows, u64)> {
        loop {
            let metadata = self.file.metadata.metadata();
            let group = metadata.row_groups().get(self.next.row_group)?;
            let size = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
            let total = usize::try_from(group.num_rows()).unwrap_or(0);
            if self.next.first >= total {
                self.next.row_group += 1;
                self.next.first = 0;
                continue;
            }
            let rows = rows_at_once(total, size(group.total_byte_size()));
            let cut = GroupRows {
                count: rows.min(total - self.next.first),
                ..self.next
            };
            self.next.first += cut.count;
            let share = u128::from(size(group.compressed_size()))
                * u128::try_from(cut.count).unwrap_or(0)
                / u128::try_from(total).unwrap_or(1).max(1);
            let bytes = u64::try_from(share).unwrap_or(u64::MAX);
            return Some((self.file.clone(), cut, bytes));
        }
    }
}

/// Rows of a row group that are decoded at a time: all of a usual one.
fn rows_at_once(rows: usize, bytes: u64) -> usize {
    let parts = bytes.div_ceil(DECODED_BYTES).max(1);
    let parts = usize::try_from(parts).unwrap_or(usize::MAX);
    rows.div_ceil(parts).max(ROWS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_row_groups_are_cut_and_usual_ones_are_not() {
        assert_eq!(rows_at_once(100_000, 10 << 20), 100_000);
        assert_eq!(rows_at_once(1_000_000, 160 << 20), 100_000);
        assert_eq!(rows_at_once(2_000, 1 << 40), ROWS_MIN);
        assert_eq!(rows_at_once(0, 0), ROWS_MIN);
    }
}
