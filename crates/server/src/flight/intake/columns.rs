//! The source's columns as they are: one Parquet file, read like any other.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use tidegate_change::{Code, Digest, Error, Result};
use tidegate_decode::FileFormat;

use super::canonical::{append_values, type_tag};
use super::{Content, Written, source_file, stream_name};
use crate::spool::SpoolDirectory;

/// Begins every digest of columns, so that a change of what is hashed changes all of them.
const DIGEST_CONTEXT: &str = "tidegate column digest 1";
/// Rows of a row group: what is read at one time.
const ROW_GROUP_ROWS: usize = 128 << 10;

/// Columns as a Parquet file.
pub(super) struct Columns {
    path: PathBuf,
    schema: SchemaRef,
    writer: ArrowWriter<File>,
    /// One a column: each is hashed down its rows, so that the cut into batches does not matter.
    hashers: Vec<blake3::Hasher>,
    rows_count: u64,
}

impl Columns {
    pub(super) fn new(schema: &Schema, directory: PathBuf) -> Result<Self> {
        let path = directory.join("columns.parquet");
        let file = File::create(&path).map_err(|e| Error::io(path.display(), e))?;
        let schema: SchemaRef = Arc::new(plain(schema));
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .build();
        // What only Arrow knows of types is of no use to a source.
        let options = ArrowWriterOptions::new()
            .with_properties(properties)
            .with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(file, Arc::clone(&schema), options)
            .map_err(|e| {
                let message = "the put has a column of a type that no source has";
                Error::new(Code::Unsupported, message).with_source(e)
            })?;
        let hasher = || blake3::Hasher::new_derive_key(DIGEST_CONTEXT);
        Ok(Self {
            path,
            hashers: schema.fields().iter().map(|_| hasher()).collect(),
            schema,
            writer,
            rows_count: 0,
        })
    }

    fn failed(&self, error: parquet::errors::ParquetError) -> Error {
        Error::new(
            Code::Io,
            format!("{}: cannot be written", self.path.display()),
        )
        .with_source(error)
    }
}

impl Content for Columns {
    fn write(&mut self, batch: &RecordBatch, spool: &mut SpoolDirectory) -> Result<()> {
        let columns = batch
            .columns()
            .iter()
            .zip(self.schema.fields())
            .map(|(column, field)| in_type(column, field))
            .collect::<Result<Vec<_>>>()?;
        let mut bytes = Vec::new();
        for (column, hasher) in columns.iter().zip(&mut self.hashers) {
            append_values(column, &mut bytes)?;
            hasher.update(&bytes);
            bytes.clear();
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|e| {
            let message = "the put's columns are not those of its schema";
            Error::new(Code::InvalidArgument, message).with_source(e)
        })?;
        let before = self.writer.bytes_written() + self.writer.in_progress_size();
        let written = self.writer.write(&batch);
        written.map_err(|e| self.failed(e))?;
        let after = self.writer.bytes_written() + self.writer.in_progress_size();
        spool.reserve(after.saturating_sub(before) as u64)?;
        self.rows_count += batch.num_rows() as u64;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Written> {
        let finished = self.writer.finish();
        finished.map_err(|e| self.failed(e))?;
        let mut hasher = blake3::Hasher::new_derive_key(DIGEST_CONTEXT);
        hasher.update(&self.rows_count.to_le_bytes());
        for (field, column) in self.schema.fields().iter().zip(&self.hashers) {
            let head = format!("{}\0{}\0", field.name(), type_tag(field.data_type()));
            hasher.update(&(head.len() as u64).to_le_bytes());
            hasher.update(head.as_bytes());
            hasher.update(column.finalize().as_bytes());
        }
        let input_digest = Digest(*hasher.finalize().as_bytes());
        let name = stream_name(input_digest);
        Ok(Written {
            files: vec![source_file(&name, self.path, Some(FileFormat::Parquet))],
            input_digest,
        })
    }
}

/// The schema without dictionaries: how values are encoded on the wire says nothing of them.
fn plain(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().map(|field| match field.data_type() {
        DataType::Dictionary(_, values) => {
            Field::new(field.name(), values.as_ref().clone(), field.is_nullable())
        }
        other => Field::new(field.name(), other.clone(), field.is_nullable()),
    });
    Schema::new(fields.collect::<Vec<_>>())
}

fn in_type(column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    if column.data_type() == field.data_type() {
        return Ok(Arc::clone(column));
    }
    arrow::compute::cast(column, field.data_type()).map_err(|e| {
        let message = format!("the put's column {} cannot be read", field.name());
        Error::new(Code::InvalidArgument, message).with_source(e)
    })
}
