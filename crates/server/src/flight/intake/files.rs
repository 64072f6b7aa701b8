//! Files in pieces: columns `file` and `chunk`, and `file_number` where names repeat.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int64Type, Schema};
use tidegate_apply::work::SourceFile;
use tidegate_change::{Code, Error, Result};
use tidegate_decode::FileFormat;
use tidegate_rpc::flight::{CHUNK, FILE, FILE_NUMBER};

use super::{Content, IntakeLimits, Written, column, invalid, source_file};
use crate::source::InputDigest;
use crate::spool::SpoolDirectory;

/// Longest name of a file, bytes.
const NAME_BYTES_MAX: usize = 4_096;

/// Files as they come, one after the other.
pub(super) struct Files {
    directory: PathBuf,
    format: Option<FileFormat>,
    limits: IntakeLimits,
    has_numbers: bool,
    open: Option<OpenFile>,
    digest: InputDigest,
    files: Vec<SourceFile>,
}

struct OpenFile {
    name: String,
    number: Option<i64>,
    path: PathBuf,
    output: BufWriter<File>,
}

impl Files {
    pub(super) fn new(
        schema: &Schema,
        directory: PathBuf,
        format: Option<FileFormat>,
        limits: IntakeLimits,
    ) -> Result<Self> {
        for name in [FILE, CHUNK] {
            if schema.field_with_name(name).is_err() {
                return Err(invalid(&format!("no column {name}")));
            }
        }
        Ok(Self {
            directory,
            format,
            limits,
            has_numbers: schema.field_with_name(FILE_NUMBER).is_ok(),
            open: None,
            digest: InputDigest::default(),
            files: Vec::new(),
        })
    }

    fn piece(&mut self, name: &str, number: Option<i64>, chunk: &[u8]) -> Result<()> {
        let goes_on = self
            .open
            .as_ref()
            .is_some_and(|open| open.name == name && open.number == number);
        if !goes_on {
            self.end()?;
            self.begin(name, number)?;
        }
        self.digest.update(chunk);
        match &mut self.open {
            Some(open) => open
                .output
                .write_all(chunk)
                .map_err(|e| Error::io(open.path.display(), e)),
            None => Ok(()),
        }
    }

    /// Begins a file. Its name is only shown: on disk files have numbers.
    fn begin(&mut self, name: &str, number: Option<i64>) -> Result<()> {
        check_name(name)?;
        if self.files.len() >= self.limits.files_max {
            let message = format!("the put has more than {} files", self.limits.files_max);
            return Err(Error::new(Code::ResourceExhausted, message)
                .with_hint("limits.put_files bounds them"));
        }
        let path = self.directory.join(self.files.len().to_string());
        let file = File::create(&path).map_err(|e| Error::io(path.display(), e))?;
        self.digest.begin(name);
        self.open = Some(OpenFile {
            name: name.to_owned(),
            number,
            path,
            output: BufWriter::with_capacity(256 << 10, file),
        });
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let Some(mut open) = self.open.take() else {
            return Ok(());
        };
        let flushed = open.output.flush();
        flushed.map_err(|e| Error::io(open.path.display(), e))?;
        self.digest.end();
        self.files
            .push(source_file(&open.name, open.path, self.format));
        Ok(())
    }
}

impl Content for Files {
    fn write(&mut self, batch: &RecordBatch, spool: &mut SpoolDirectory) -> Result<()> {
        let names = column(batch, FILE, &DataType::Utf8)?;
        let chunks = column(batch, CHUNK, &DataType::LargeBinary)?;
        let numbers = match self.has_numbers {
            true => Some(column(batch, FILE_NUMBER, &DataType::Int64)?),
            false => None,
        };
        let (names, chunks) = (names.as_string::<i32>(), chunks.as_binary::<i64>());
        spool.reserve(chunks.value_data().len() as u64)?;
        for row in 0..batch.num_rows() {
            if names.is_null(row) || chunks.is_null(row) {
                return Err(invalid("a piece without file or chunk"));
            }
            let number = numbers.as_ref().map(|numbers| {
                let numbers = numbers.as_primitive::<Int64Type>();
                numbers.value(row)
            });
            self.piece(names.value(row), number, chunks.value(row))?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Written> {
        self.end()?;
        if self.files.is_empty() {
            return Err(invalid("no file"));
        }
        Ok(Written {
            files: self.files,
            input_digest: self.digest.finish(),
        })
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let message = format!("the put has a file name that is none: {} bytes", name.len());
        return Err(Error::new(Code::InvalidArgument, message));
    }
    Ok(())
}
