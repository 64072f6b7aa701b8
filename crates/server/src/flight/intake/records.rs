//! Raw records: `value`, and what a broker keeps beside it.
//!
//! They become lines as a dump tool would write them, and are decoded like such a dump.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int64Type, Schema};
use tidegate_change::json::{Encoder, write_string};
use tidegate_change::{Digest, Error, Result};
use tidegate_decode::FileFormat;

use super::canonical::append_values;
use super::{Content, RECORD_COLUMNS, Written, column, invalid, source_file, stream_name};
use crate::spool::SpoolDirectory;

/// Begins every digest of records, so that a change of what is hashed changes all of them.
const DIGEST_CONTEXT: &str = "tidegate record digest 1";
/// Bytes of lines that are gathered before they are written.
const CHUNK_BYTES: usize = 256 << 10;

/// Records as lines of one file.
pub(super) struct Records {
    path: PathBuf,
    output: BufWriter<File>,
    /// The columns that the put has, of those that records may have.
    names: Vec<&'static str>,
    hasher: blake3::Hasher,
}

/// The columns of a batch, in the types that they are worked with.
struct Parts {
    value: ArrayRef,
    key: Option<ArrayRef>,
    topic: Option<ArrayRef>,
    partition: Option<ArrayRef>,
    offset: Option<ArrayRef>,
    headers: Option<ArrayRef>,
}

impl Records {
    pub(super) fn new(schema: &Schema, directory: PathBuf) -> Result<Self> {
        let has = |name: &str| schema.field_with_name(name).is_ok();
        if !has("value") {
            return Err(invalid("no column value"));
        }
        let path = directory.join("records.jsonl");
        let file = File::create(&path).map_err(|e| Error::io(path.display(), e))?;
        Ok(Self {
            path,
            output: BufWriter::new(file),
            names: RECORD_COLUMNS
                .into_iter()
                .filter(|name| has(name))
                .collect(),
            hasher: blake3::Hasher::new_derive_key(DIGEST_CONTEXT),
        })
    }

    fn parts(&self, batch: &RecordBatch) -> Result<Parts> {
        let optional = |name: &str, data_type: &DataType| match self.names.contains(&name) {
            true => column(batch, name, data_type).map(Some),
            false => Ok(None),
        };
        Ok(Parts {
            value: column(batch, "value", &DataType::LargeBinary)?,
            key: optional("key", &DataType::LargeBinary)?,
            topic: optional("topic", &DataType::Utf8)?,
            partition: optional("partition", &DataType::Int64)?,
            offset: optional("offset", &DataType::Int64)?,
            headers: batch.column_by_name("headers").map(std::sync::Arc::clone),
        })
    }

    /// One row after the other, so that the cut into messages does not matter.
    fn digest(&mut self, parts: &Parts, rows: usize) -> Result<()> {
        let mut bytes = Vec::new();
        for row in 0..rows {
            for column in parts.all() {
                append_values(&column.slice(row, 1), &mut bytes)?;
            }
            if bytes.len() >= CHUNK_BYTES {
                self.hasher.update(&bytes);
                bytes.clear();
            }
        }
        self.hasher.update(&bytes);
        Ok(())
    }
}

impl Parts {
    fn all(&self) -> impl Iterator<Item = &ArrayRef> {
        let optional = [
            &self.key,
            &self.topic,
            &self.partition,
            &self.offset,
            &self.headers,
        ];
        std::iter::once(&self.value).chain(optional.into_iter().flatten())
    }

    /// The record as a dump tool writes it.
    fn write(&self, headers: Option<&Encoder>, row: usize, line: &mut Vec<u8>) {
        line.extend_from_slice(b"{");
        if let Some(topic) = text(&self.topic, row) {
            line.extend_from_slice(b"\"topic\":");
            write_string(topic, line);
            line.push(b',');
        }
        for (name, column) in [("partition", &self.partition), ("offset", &self.offset)] {
            if let Some(number) = whole(column, row) {
                line.extend_from_slice(format!("\"{name}\":{number},").as_bytes());
            }
        }
        if let Some(key) = bytes(self.key.as_ref(), row) {
            line.extend_from_slice(b"\"key\":");
            write_string(&String::from_utf8_lossy(key), line);
            line.push(b',');
        }
        if let Some(headers) = headers {
            line.extend_from_slice(b"\"headers\":");
            headers.write(row, line);
            line.push(b',');
        }
        line.extend_from_slice(b"\"value\":");
        match bytes(Some(&self.value), row) {
            Some(value) => write_string(&String::from_utf8_lossy(value), line),
            None => line.extend_from_slice(b"null"),
        }
        line.extend_from_slice(b"}\n");
    }
}

impl Content for Records {
    fn write(&mut self, batch: &RecordBatch, spool: &mut SpoolDirectory) -> Result<()> {
        let parts = self.parts(batch)?;
        let rows = batch.num_rows();
        self.digest(&parts, rows)?;
        let headers = match &parts.headers {
            Some(headers) => Some(Encoder::new(headers)?),
            None => None,
        };
        let mut lines = Vec::with_capacity(CHUNK_BYTES);
        for row in 0..rows {
            parts.write(headers.as_ref(), row, &mut lines);
            if lines.len() >= CHUNK_BYTES || row + 1 == rows {
                spool.reserve(lines.len() as u64)?;
                let written = self.output.write_all(&lines);
                written.map_err(|e| Error::io(self.path.display(), e))?;
                lines.clear();
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Written> {
        let flushed = self.output.flush();
        flushed.map_err(|e| Error::io(self.path.display(), e))?;
        let mut hasher = self.hasher;
        hasher.update(self.names.join(",").as_bytes());
        let input_digest = Digest(*hasher.finalize().as_bytes());
        let name = stream_name(input_digest);
        Ok(Written {
            files: vec![source_file(&name, self.path, Some(FileFormat::Records))],
            input_digest,
        })
    }
}

fn bytes(column: Option<&ArrayRef>, row: usize) -> Option<&[u8]> {
    let column = column?.as_binary::<i64>();
    column.is_valid(row).then(|| column.value(row))
}

fn text(column: &Option<ArrayRef>, row: usize) -> Option<&str> {
    let column = column.as_ref()?.as_string::<i32>();
    column.is_valid(row).then(|| column.value(row))
}

fn whole(column: &Option<ArrayRef>, row: usize) -> Option<i64> {
    let column = column.as_ref()?.as_primitive::<Int64Type>();
    column.is_valid(row).then(|| column.value(row))
}
