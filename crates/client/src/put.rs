//! Local files, sent up in pieces.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightData, FlightDescriptor};
use futures::{Stream, StreamExt};
use tidegate_change::{BatchResult, Code, Error, Result};
use tidegate_rpc::flight::{
    CHUNK, FILE, FILE_NUMBER, PutAnswer, PutContent, PutOffsets, PutRequest, from_json, to_json,
};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

use crate::batches::SubmitOptions;
use crate::client::Client;
use crate::repeat::Repeat;

/// Bytes of a piece.
const PIECE_BYTES: usize = 1 << 20;
/// Pieces that wait to be sent.
const PIECES_WAITING: usize = 4;

/// A file that is sent up.
#[derive(Debug)]
pub struct SentFile {
    /// Name that errors, rejects and `_source_file` show.
    pub name: String,
    /// Where its bytes are.
    pub input: SentInput,
}

/// Where the bytes of a file are.
pub enum SentInput {
    /// A local file, which can be sent again.
    Path(PathBuf),
    /// A stream, which can be read once.
    Stream(Box<dyn Read + Send>),
}

impl fmt::Debug for SentInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.debug_tuple("Path").field(path).finish(),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

/// What a put came to.
#[derive(Debug)]
pub(crate) enum PutOutcome {
    /// The batch runs, or ran, under this id.
    Taken(String),
    /// It is done.
    Done(Box<BatchResult>),
}

impl Client {
    /// Sends files up as one batch and answers as soon as it is taken, with its id.
    ///
    /// Sent again while no node answers, unless a file is a stream.
    ///
    /// # Errors
    /// `BATCH_CONTENT_MISMATCH`, a file that cannot be read, or what refuses the put.
    pub async fn send(
        &self,
        table: &str,
        files: Vec<SentFile>,
        options: &SubmitOptions,
    ) -> Result<String> {
        let options = SubmitOptions {
            dry_run: false,
            ..options.clone()
        };
        match self.put(table, files, &options).await? {
            PutOutcome::Taken(batch_id) => Ok(batch_id),
            PutOutcome::Done(result) => Ok(result.batch_id.0),
        }
    }

    /// Sends files up and counts what they would do; commits nothing.
    ///
    /// # Errors
    /// As [`Self::send`], and what refuses the batch.
    pub async fn send_dry_run(
        &self,
        table: &str,
        files: Vec<SentFile>,
        options: &SubmitOptions,
    ) -> Result<BatchResult> {
        let options = SubmitOptions {
            dry_run: true,
            ..options.clone()
        };
        match self.put(table, files, &options).await? {
            PutOutcome::Done(result) => Ok(*result),
            PutOutcome::Taken(_) => Err(Error::internal("a dry run was taken as a batch")),
        }
    }

    async fn put(
        &self,
        table: &str,
        files: Vec<SentFile>,
        options: &SubmitOptions,
    ) -> Result<PutOutcome> {
        let request = to_json("a put", &put_request(options))?;
        let paths: Option<Vec<(String, PathBuf)>> = files.iter().map(path_of).collect();
        let Some(paths) = paths else {
            // The one try is not wasted on a node that is not there.
            self.cluster_status().await?;
            // A stream is gone once it was read: one try.
            let once = std::sync::Mutex::new(Some(files));
            let call = |channel| {
                let files = once.lock().ok().and_then(|mut files| files.take());
                try_put(channel, table, request.clone(), files)
            };
            return self.call(Repeat::WhenNotDone, call).await?;
        };
        // By force the same content twice is two batches.
        let repeat = match options.force {
            true => Repeat::WhenNotDone,
            false => Repeat::Always,
        };
        let call = |channel| {
            let files = paths.iter().map(|(name, path)| SentFile {
                name: name.clone(),
                input: SentInput::Path(path.clone()),
            });
            try_put(channel, table, request.clone(), Some(files.collect()))
        };
        self.call(repeat, call).await?
    }
}

fn path_of(file: &SentFile) -> Option<(String, PathBuf)> {
    match &file.input {
        SentInput::Path(path) => Some((file.name.clone(), path.clone())),
        SentInput::Stream(_) => None,
    }
}

fn put_request(options: &SubmitOptions) -> PutRequest {
    PutRequest {
        batch_id: options.batch_id.clone(),
        offsets: options
            .offsets
            .iter()
            .map(|(partition, (from, to))| {
                let range = PutOffsets {
                    from: *from,
                    to: *to,
                };
                (partition.clone(), range)
            })
            .collect(),
        content: Some(PutContent::Files),
        rows: None,
        format: options.format.clone(),
        force: options.force,
        dry_run: options.dry_run,
    }
}

/// One try. A status is what may be repeated; an error of this side is not.
async fn try_put(
    channel: Channel,
    table: &str,
    request: Vec<u8>,
    files: Option<Vec<SentFile>>,
) -> std::result::Result<Result<PutOutcome>, Status> {
    let Some(files) = files else {
        let message = "the connection broke, and a stream cannot be sent a second time";
        return Ok(Err(Error::new(Code::Unavailable, message)));
    };
    let (failure, failed) = oneshot::channel();
    let messages = messages(table, request, pieces(files), failure);
    let mut service = FlightServiceClient::new(channel);
    let answered = async {
        let mut answers = service.do_put(messages).await?.into_inner();
        while let Some(answer) = answers.message().await? {
            match outcome_in(&answer.app_metadata) {
                Ok(None) => {}
                Ok(Some(outcome)) => return Ok(Ok(outcome)),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Err(Error::internal("a put ended without an answer")))
    };
    tokio::select! {
        biased;
        Ok(error) = failed => Ok(Err(error)),
        answer = answered => answer,
    }
}

fn outcome_in(answer: &[u8]) -> Result<Option<PutOutcome>> {
    match from_json::<PutAnswer>("an answer", answer)? {
        PutAnswer::Received { .. } | PutAnswer::Progress { .. } => Ok(None),
        PutAnswer::Taken { batch_id } => Ok(Some(PutOutcome::Taken(batch_id))),
        PutAnswer::Result(result) => {
            let result = BatchResult::from_json(&result)?;
            Ok(Some(PutOutcome::Done(Box::new(result))))
        }
    }
}

/// The messages of a put. Where a file cannot be read they do not end: an end would say that all was sent,
/// and a part would be applied. The caller hears of the failure and drops the call.
fn messages(
    table: &str,
    request: Vec<u8>,
    pieces: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
    failure: oneshot::Sender<Error>,
) -> impl Stream<Item = FlightData> + Send + 'static {
    let descriptor = FlightDescriptor::new_path(vec![table.to_owned()]);
    let pieces = pieces.map(|piece| piece.map_err(|e| FlightError::ExternalError(Box::new(e))));
    let encoder = FlightDataEncoderBuilder::new()
        .with_schema(schema())
        .with_metadata(request.into())
        .with_flight_descriptor(Some(descriptor))
        .build(pieces);
    futures::stream::unfold(
        (encoder, Some(failure)),
        |(mut encoder, mut failure)| async move {
            match encoder.next().await? {
                Ok(message) => Some((message, (encoder, failure))),
                Err(error) => {
                    if let Some(failure) = failure.take() {
                        // A caller that is gone has no use for it.
                        let _ = failure.send(local(error));
                    }
                    std::future::pending().await
                }
            }
        },
    )
}

fn local(error: FlightError) -> Error {
    match error {
        FlightError::ExternalError(inner) => match inner.downcast::<Error>() {
            Ok(error) => *error,
            Err(other) => Error::internal("a file cannot be sent").with_source(other),
        },
        other => Error::internal("a file cannot be sent").with_source(other),
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(FILE, DataType::Utf8, false),
        Field::new(CHUNK, DataType::Binary, false),
        Field::new(FILE_NUMBER, DataType::Int64, false),
    ]))
}

/// The files in pieces, read ahead of what is sent.
fn pieces(files: Vec<SentFile>) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
    let (sender, receiver) = mpsc::channel(PIECES_WAITING);
    drop(tokio::task::spawn_blocking(move || {
        for (number, file) in (0_i64..).zip(files) {
            if let Err(error) = read_file(number, file, &sender) {
                // Nobody waits for pieces any more when this fails.
                let _ = sender.blocking_send(Err(error));
                return;
            }
        }
    }));
    ReceiverStream::new(receiver)
}

fn read_file(
    number: i64,
    file: SentFile,
    pieces: &mpsc::Sender<Result<RecordBatch>>,
) -> Result<()> {
    let failed = |e| Error::io(format!("source {}", file.name), e);
    let mut input: Box<dyn Read + Send> = match file.input {
        SentInput::Path(path) => Box::new(File::open(path).map_err(failed)?),
        SentInput::Stream(stream) => stream,
    };
    let mut is_first = true;
    loop {
        let mut chunk = Vec::with_capacity(PIECE_BYTES);
        let limit = PIECE_BYTES as u64;
        let count = input.by_ref().take(limit).read_to_end(&mut chunk);
        let count = count.map_err(failed)?;
        // An empty file is one piece, so that it is a file.
        if count == 0 && !is_first {
            return Ok(());
        }
        is_first = false;
        if pieces
            .blocking_send(piece(&file.name, &chunk, number))
            .is_err()
        {
            return Ok(());
        }
        if count < PIECE_BYTES {
            return Ok(());
        }
    }
}

fn piece(name: &str, chunk: &[u8], number: i64) -> Result<RecordBatch> {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec![name])),
        Arc::new(BinaryArray::from(vec![chunk])),
        Arc::new(Int64Array::from(vec![number])),
    ];
    RecordBatch::try_new(schema(), columns)
        .map_err(|e| Error::internal("a piece of a file").with_source(e))
}
