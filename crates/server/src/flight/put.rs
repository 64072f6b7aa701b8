//! A put, from its first message to the result of its batch.
//!
//! What comes is written to the spool by `intake` on a thread of its own, at the speed of the disk; the
//! caller hears how much arrived. Then the batch is taken, and goes on without the caller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::{FlightData, PutResult};
use futures::StreamExt;
use futures::stream::BoxStream;
use tidegate_change::spec::TableMode;
use tidegate_change::{BatchResult, Code, Error, Result};
use tidegate_cluster::metadata::OffsetRange;
use tidegate_decode::FileFormat;
use tidegate_rpc::batch::result_to_json;
use tidegate_rpc::flight::{PutAnswer, PutRequest, from_json, to_json};
use tidegate_rpc::status::{error_of, status_of};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::intake::{Intake, IntakeLimits, Received};
use super::table_of;
use crate::apply::{ApplyOptions, Submission};
use crate::batches::{BatchRecord, BatchStatus};
use crate::node::Serving;
use crate::services::{Answers, deadline, phase_word};

/// Messages that wait for the disk.
const MESSAGES_WAITING: usize = 4;
/// Answers that wait for the caller.
const ANSWERS_WAITING: usize = 16;
/// Time between two answers on the batch, at least; the result comes at once.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Messages that may come before the first rows.
const HEAD_MESSAGES_MAX: usize = 8;
/// Times that a message's rows may be larger than the message: they are compressed, or share values.
const EXPANSION_MAX: u64 = 16;
/// Bytes between two answers on how much arrived.
const RECEIVED_STEP_BYTES: u64 = 8 << 20;

type Answer = Result<PutResult, Status>;

/// Takes a put; the answers come while it goes on.
pub(super) fn take(serving: Serving, messages: Streaming<FlightData>) -> Answers<PutResult> {
    let (answers, stream) = mpsc::channel::<Answer>(ANSWERS_WAITING);
    tokio::spawn(async move {
        let mut put = Put {
            serving,
            answers: answers.clone(),
        };
        if let Err(error) = put.run(messages).await {
            // A caller that is gone hears nothing.
            let _ = answers.send(Err(status_of(&error))).await;
        }
    });
    ReceiverStream::new(stream).boxed()
}

struct Put {
    serving: Serving,
    answers: mpsc::Sender<Answer>,
}

impl Put {
    async fn run(&mut self, messages: Streaming<FlightData>) -> Result<()> {
        let mut messages = messages.boxed();
        let head = head_of(&mut messages).await?;
        let descriptor = head
            .first()
            .and_then(|first| first.flight_descriptor.as_ref());
        let descriptor = descriptor.ok_or_else(|| {
            let message = "descriptor: the first message names the table";
            Error::new(Code::InvalidArgument, message)
        })?;
        let table = table_of(descriptor)?;
        let request = request_of(&head)?;
        let messages = futures::stream::iter(head.into_iter().map(Ok)).chain(messages);
        let received = self.receive(&table, &request, messages.boxed()).await?;
        let submission = Submission {
            table,
            sources: received.sources,
            input_digest: received.input_digest,
            offsets: ranges(&request),
            options: options_of(&request),
        };
        if request.dry_run {
            let result = self.serving.batches.dry_run(submission).await?;
            self.tell(PutAnswer::Result(result_to_json(&result)?)).await;
            return Ok(());
        }
        let record = self.serving.batches.submit(submission).await?;
        let batch_id = record.batch_id.0.clone();
        self.tell(PutAnswer::Taken { batch_id }).await;
        let result = self.follow(&record).await?;
        self.tell(PutAnswer::Result(result_to_json(&result)?)).await;
        Ok(())
    }

    /// Brings all messages to disk.
    async fn receive(
        &self,
        table: &str,
        request: &PutRequest,
        mut messages: BoxStream<'static, Result<FlightData, Status>>,
    ) -> Result<Received> {
        let reader = self.serving.embedded.current_reader().await?;
        let resolved = reader.resolved(table).await?;
        let limits = &self.serving.config.limits;
        // While a put waits for its turn the caller's stream fills and stops.
        let _turn = tokio::select! {
            turn = self.serving.puts.acquire() => {
                turn.map_err(|e| Error::internal("the turns of puts").with_source(e))?
            }
            () = self.serving.stopped() => return Err(Serving::stopping()),
        };
        let message_bytes = limits.flight_message_bytes.0;
        let intake = Intake {
            spool: self.serving.spool.clone(),
            is_flat: resolved.spec.source.format == "flat",
            is_append: resolved.spec.mode == TableMode::Append,
            content: request.content,
            rows: request.rows,
            format: request
                .format
                .as_deref()
                .map(FileFormat::from_word)
                .transpose()?,
            limits: IntakeLimits {
                columns_max: limits.columns,
                files_max: limits.put_files,
                batch_bytes_max: message_bytes.saturating_mul(EXPANSION_MAX),
            },
        };
        let (pieces, waiting) = mpsc::channel(MESSAGES_WAITING);
        let writing = tokio::task::spawn_blocking(move || intake.run(ReceiverStream::new(waiting)));
        let (mut bytes, mut told) = (0_u64, 0_u64);
        loop {
            let next = tokio::select! {
                next = messages.next() => next,
                () = self.serving.stopped() => return Err(Serving::stopping()),
            };
            let Some(message) = next else { break };
            let message = message.map_err(|status| error_of(&status))?;
            bytes += (message.data_body.len() + message.data_header.len()) as u64;
            if bytes > limits.put_bytes.0 {
                let message = format!("the put is larger than {}", limits.put_bytes);
                return Err(Error::new(Code::ResourceExhausted, message)
                    .with_hint("cut it into several batches, or raise limits.put_bytes"));
            }
            // What holds metadata alone is no Arrow message.
            if message.data_header.is_empty() {
                continue;
            }
            // A writer that is gone says below why.
            if pieces.send(message).await.is_err() {
                break;
            }
            if bytes - told >= RECEIVED_STEP_BYTES {
                told = bytes;
                self.tell(PutAnswer::Received { bytes }).await;
            }
        }
        drop(pieces);
        let received = writing.await.map_err(|panic| {
            // Bytes of others that no reader of Arrow expected: a fault of theirs or of the reader's.
            Error::new(Code::InvalidRecord, "the put's Arrow data cannot be read")
                .with_source(panic)
        })??;
        self.tell(PutAnswer::Received { bytes }).await;
        Ok(received)
    }

    /// Tells how the batch goes until it ends.
    async fn follow(&self, record: &BatchRecord) -> Result<Arc<BatchResult>> {
        let mut changes = record.watch();
        loop {
            let status = changes.borrow_and_update().clone();
            match status {
                BatchStatus::Queued => {}
                BatchStatus::Running(progress) => {
                    self.tell(PutAnswer::Progress {
                        phase: phase_word(progress.phase).to_owned(),
                        events_read_count: progress.events_read,
                    })
                    .await;
                    // Progress comes from every thread; nobody looks ten times a second.
                    deadline::within(Some(PROGRESS_INTERVAL), record.ended()).await;
                }
                BatchStatus::Succeeded(result) => return Ok(result),
                BatchStatus::Failed(error, _) => return Err(error_again(&error)),
                BatchStatus::Cancelled(_) => {
                    return Err(Error::new(Code::Cancelled, "the batch was cancelled"));
                }
            }
            tokio::select! {
                changed = changes.changed() => {
                    changed.map_err(|e| Error::internal("a batch is forgotten").with_source(e))?;
                }
                () = self.serving.stopped() => return Err(Serving::stopping()),
            }
        }
    }

    async fn tell(&self, answer: PutAnswer) {
        let result = to_json("an answer", &answer)
            .map(|text| PutResult {
                app_metadata: text.into(),
            })
            .map_err(|error| status_of(&error));
        // The batch goes on without a caller.
        let _ = self.answers.send(result).await;
    }
}

/// An error that several hear.
fn error_again(error: &Error) -> Error {
    error_of(&status_of(error))
}

/// The first messages, up to the one with the caller's metadata or with the first rows. Some clients can
/// give metadata to rows only, not to the schema before them.
async fn head_of(
    messages: &mut BoxStream<'static, Result<FlightData, Status>>,
) -> Result<Vec<FlightData>> {
    let mut head = Vec::new();
    while head.len() < HEAD_MESSAGES_MAX {
        let Some(message) = messages.next().await else {
            break;
        };
        let message = message.map_err(|status| error_of(&status))?;
        let is_last = !message.app_metadata.is_empty() || !message.data_body.is_empty();
        head.push(message);
        if is_last {
            break;
        }
    }
    match head.is_empty() {
        true => Err(Error::new(Code::InvalidArgument, "the put is empty")),
        false => Ok(head),
    }
}

fn request_of(head: &[FlightData]) -> Result<PutRequest> {
    match head.last().map(|message| message.app_metadata.as_ref()) {
        None | Some([]) => Ok(PutRequest::default()),
        Some(metadata) => from_json("metadata of the first message", metadata),
    }
}

fn options_of(request: &PutRequest) -> ApplyOptions {
    ApplyOptions {
        batch_id: request.batch_id.clone().filter(|id| !id.is_empty()),
        format: None,
        force: request.force,
        dry_run: request.dry_run,
        observer: None,
    }
}

fn ranges(request: &PutRequest) -> BTreeMap<String, OffsetRange> {
    request
        .offsets
        .iter()
        .map(|(partition, range)| {
            let range = OffsetRange {
                from: range.from,
                to: range.to,
            };
            (partition.clone(), range)
        })
        .collect()
}
