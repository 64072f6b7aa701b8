//! What a put holds, on its way to disk.
//!
//! The schema tells what comes: [`files`] in pieces, raw [`records`], or the source's [`columns`]. Each is
//! written to the spool as files that are decoded like any others, and digested as it was sent: however a
//! caller cuts the same content into messages, it has the same digest.

mod canonical;
mod columns;
mod files;
mod guard;
mod records;

use std::path::PathBuf;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use arrow_flight::FlightData;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use futures::{Stream, StreamExt};
use tidegate_apply::work::{SourceFile, SourceInput};
use tidegate_change::{Code, Digest, Error, Result};
use tidegate_decode::FileFormat;
use tidegate_rpc::flight::{CHUNK, FILE, FILE_NUMBER, PutContent};

use crate::source::SourceSet;
use crate::spool::{Spool, SpoolDirectory};

/// Columns of raw records.
const RECORD_COLUMNS: [&str; 6] = ["value", "key", "topic", "partition", "offset", "headers"];
/// Columns of files in pieces.
const FILE_COLUMNS: [&str; 3] = [FILE, CHUNK, FILE_NUMBER];
/// Digits of the digest in the name of what came as columns or records.
const NAME_DIGITS: usize = 16;

/// Brings the messages of a put to disk.
#[derive(Debug)]
pub(super) struct Intake {
    pub(super) spool: Spool,
    /// Whether the table's source is a flat one: its columns may come as they are.
    pub(super) is_flat: bool,
    /// Whether rows are known by their place in the source (R-K7).
    pub(super) is_append: bool,
    /// What the messages hold, where the caller says it.
    pub(super) content: Option<PutContent>,
    /// Rows that must come, where the caller says it.
    pub(super) rows: Option<u64>,
    /// Format of files.
    pub(super) format: Option<FileFormat>,
    pub(super) limits: IntakeLimits,
}

/// Bounds of a put.
#[derive(Clone, Copy, Debug)]
pub(super) struct IntakeLimits {
    pub(super) columns_max: usize,
    pub(super) files_max: usize,
    /// Bytes of the rows of one message, decompressed and with every value for itself.
    pub(super) batch_bytes_max: u64,
}

/// A put on disk.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) sources: SourceSet,
    pub(super) input_digest: Digest,
}

/// One kind of content, batch by batch.
trait Content {
    fn write(&mut self, batch: &RecordBatch, spool: &mut SpoolDirectory) -> Result<()>;
    fn finish(self: Box<Self>) -> Result<Written>;
}

/// Files that were written.
struct Written {
    files: Vec<SourceFile>,
    input_digest: Digest,
}

impl Intake {
    /// Reads all messages. Blocks: it writes to disk, and it decodes what others sent.
    ///
    /// # Errors
    /// What is wrong with the messages, or what the disk says.
    pub(super) fn run(
        self,
        messages: impl Stream<Item = FlightData> + Send + 'static,
    ) -> Result<Received> {
        let mut spool = self.spool.open()?;
        let mut content: Option<Box<dyn Content>> = None;
        let mut rows_count = 0;
        let bytes_max = self.limits.batch_bytes_max;
        // ORDER: what a message says of its size is checked before anything is made of it.
        let messages = messages.map(move |message| {
            let checked = guard::check_message(&message, bytes_max);
            checked
                .map(|()| message)
                .map_err(|e| FlightError::ExternalError(Box::new(e)))
        });
        for message in futures::executor::block_on_stream(FlightDataDecoder::new(messages)) {
            match (message.map_err(unreadable)?.payload, &mut content) {
                (DecodedPayload::None, _) => {}
                (DecodedPayload::Schema(schema), None) => {
                    content = Some(self.content(&schema, &spool)?);
                }
                (DecodedPayload::RecordBatch(batch), Some(content)) => {
                    guard::check_batch(&batch, bytes_max)?;
                    rows_count += batch.num_rows() as u64;
                    content.write(&batch, &mut spool)?;
                }
                (DecodedPayload::Schema(_), Some(_)) => return Err(invalid("two schemas")),
                (DecodedPayload::RecordBatch(_), None) => return Err(invalid("no schema")),
            }
        }
        let content = content.ok_or_else(|| invalid("no schema"))?;
        // A caller that fails half-way may end its stream as if all had been sent.
        if let Some(expected) = self.rows.filter(|expected| *expected != rows_count) {
            return Err(invalid(&format!("{rows_count} rows instead of {expected}")));
        }
        let written = content.finish()?;
        Ok(Received {
            sources: SourceSet::spooled(written.files, spool),
            input_digest: written.input_digest,
        })
    }

    fn content(&self, schema: &Schema, spool: &SpoolDirectory) -> Result<Box<dyn Content>> {
        let count = columns_count(schema);
        if count > self.limits.columns_max {
            let message = format!("the put has {count} columns");
            return Err(Error::new(Code::ResourceExhausted, message)
                .with_hint("limits.columns bounds them"));
        }
        let directory = spool.path().to_owned();
        let kind = self.content.unwrap_or_else(|| kind_of(schema));
        if self.is_append && !matches!(kind, PutContent::Files) {
            // The place that tells rows apart is not kept by a put of single records or columns.
            let message = "an append table takes puts of files only";
            return Err(Error::new(Code::Unsupported, message)
                .with_hint("put files (`file`, `chunk`), whose names and rows are places"));
        }
        match kind {
            PutContent::Files => {
                let files = files::Files::new(schema, directory, self.format, self.limits)?;
                Ok(Box::new(files))
            }
            PutContent::Records => {
                let records = records::Records::new(schema, directory)?;
                Ok(Box::new(records))
            }
            PutContent::Columns if self.is_flat => {
                Ok(Box::new(columns::Columns::new(schema, directory)?))
            }
            PutContent::Columns => {
                let message = "the table's source has an envelope, a put of its columns has none";
                Err(Error::new(Code::InvalidArgument, message)
                    .with_hint("put raw records (`value`, …) or files (`file`, `chunk`)"))
            }
        }
    }
}

/// What a schema holds: files and records by the names of all its columns, else columns of the source.
fn kind_of(schema: &Schema) -> PutContent {
    let only = |names: &[&str]| {
        let fields = schema.fields().iter();
        let mut names_of = fields.map(|field| field.name().as_str());
        names_of.all(|name| names.contains(&name))
    };
    let has_binary = |name: &str| {
        let field = schema.field_with_name(name);
        field.is_ok_and(|field| is_binary(field.data_type()))
    };
    if has_binary(CHUNK) && only(&FILE_COLUMNS) {
        PutContent::Files
    } else if has_binary("value") && only(&RECORD_COLUMNS) {
        PutContent::Records
    } else {
        PutContent::Columns
    }
}

fn is_binary(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView
    )
}

/// Columns with everything nested in them.
fn columns_count(schema: &Schema) -> usize {
    schema.flattened_fields().len()
}

/// A column in the type that it is worked with.
fn column(batch: &RecordBatch, name: &str, data_type: &DataType) -> Result<arrow::array::ArrayRef> {
    let column = batch
        .column_by_name(name)
        .ok_or_else(|| invalid(&format!("no column {name}")))?;
    arrow::compute::cast(column, data_type).map_err(|e| {
        let message = format!("the put's column {name} is no {data_type}");
        Error::new(Code::InvalidArgument, message).with_source(e)
    })
}

/// Name of what came as columns or records, in errors and in `_source_file`: other content has another
/// name, since a record of a table without keys is told by its place.
fn stream_name(input_digest: Digest) -> String {
    let hex = input_digest.to_hex();
    format!("stream-{}", hex.get(..NAME_DIGITS).unwrap_or(&hex))
}

fn source_file(name: &str, path: PathBuf, format: Option<FileFormat>) -> SourceFile {
    SourceFile {
        name: name.to_owned(),
        input: SourceInput::Path(path),
        format,
    }
}

fn invalid(what: &str) -> Error {
    Error::new(Code::InvalidArgument, format!("the put has {what}"))
}

fn unreadable(error: FlightError) -> Error {
    match error {
        FlightError::ExternalError(inner) => match inner.downcast::<Error>() {
            Ok(error) => *error,
            Err(other) => Error::internal("a put cannot be read").with_source(other),
        },
        other => Error::new(Code::InvalidArgument, "the put's Arrow data cannot be read")
            .with_source(other),
    }
}
