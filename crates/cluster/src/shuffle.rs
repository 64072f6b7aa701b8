//! Rows on their way between nodes: record batches as messages of Arrow Flight, compressed.
//!
//! A stream holds batches of one schema. Both ends work batch by batch: what was sent and not taken yet is
//! bounded by the window of the connection and a few messages.

use arrow::array::{Array, RecordBatch};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::FlightData;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::encode::{DictionaryHandling, FlightDataEncoderBuilder};
use arrow_flight::error::FlightError;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use tidegate_change::{Code, Error, Result};
use tidegate_rpc::status::status_of;
use tonic::Status;

use crate::worker::grpc::lost_or_decided;
use crate::worker::{CallError, Called, Fetch, Rows};

/// Bytes of rows in a message, about.
pub const MESSAGE_BYTES: usize = 512 << 10;
/// Bytes of a message at most: one with a single row may be larger than the rest.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// How a ticket of this module begins; those of the public interface begin with a brace.
const TICKET_PREFIX: &[u8] = b"work:";

/// The ticket for rows that a worker holds.
///
/// # Errors
/// `INTERNAL` when it cannot be written.
pub fn ticket_of(fetch: &Fetch) -> Result<Vec<u8>> {
    let json = serde_json::to_vec(fetch)
        .map_err(|e| Error::internal("a ticket cannot be written").with_source(e))?;
    Ok([TICKET_PREFIX, &json].concat())
}

/// What a ticket asks of a worker; None for one of the public interface.
///
/// # Errors
/// `INVALID_ARGUMENT` for one that says nothing.
pub fn fetch_of(ticket: &[u8]) -> Result<Option<Fetch>> {
    let Some(json) = ticket.strip_prefix(TICKET_PREFIX) else {
        return Ok(None);
    };
    serde_json::from_slice(json)
        .map(Some)
        .map_err(|e| Error::new(Code::InvalidArgument, "a ticket cannot be read").with_source(e))
}

/// Bytes of the rows of a batch, which may be a slice of larger buffers.
fn bytes_of(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    // What has no such size has that of its buffers.
    let bytes = columns.map(|column| {
        let data = column.to_data();
        data.get_slice_memory_size()
            .unwrap_or_else(|_| data.get_buffer_memory_size())
    });
    bytes.sum()
}

/// Rows in batches of about the size of a message, so that no more are on their way than are taken.
pub fn cut(rows: Rows) -> Rows {
    let pieces = rows.map_ok(|batch| {
        let pieces = bytes_of(&batch).div_ceil(MESSAGE_BYTES).max(1);
        let step = batch.num_rows().div_ceil(pieces).max(1);
        let starts = (0..batch.num_rows()).step_by(step);
        let pieces: Vec<Called<RecordBatch>> = starts
            .map(|start| Ok(batch.slice(start, step.min(batch.num_rows() - start))))
            .collect();
        stream::iter(pieces)
    });
    pieces.try_flatten().boxed()
}

/// Rows as messages.
///
/// # Errors
/// `INTERNAL` when this build cannot compress.
pub fn encode(rows: Rows) -> Result<BoxStream<'static, Result<FlightData, Status>>> {
    let options = IpcWriteOptions::default()
        .try_with_compression(Some(CompressionType::LZ4_FRAME))
        .map_err(|e| Error::internal("rows cannot be compressed").with_source(e))?;
    let rows = rows.map_err(|e| FlightError::from(status_of(&e.into_error())));
    let messages = FlightDataEncoderBuilder::new()
        .with_options(options)
        .with_max_flight_data_size(MESSAGE_BYTES)
        .with_dictionary_handling(DictionaryHandling::Resend)
        .build(rows);
    Ok(messages.map_err(Status::from).boxed())
}

/// Messages as rows.
pub fn decode(messages: impl Stream<Item = Result<FlightData, Status>> + Send + 'static) -> Rows {
    let messages = messages.map_err(FlightError::from);
    let rows = FlightRecordBatchStream::new_from_flight_data(messages);
    rows.map(|rows: Result<RecordBatch, FlightError>| rows.map_err(broken))
        .boxed()
}

fn broken(error: FlightError) -> CallError {
    match error {
        FlightError::Tonic(status) => lost_or_decided(&status),
        other => CallError::Lost(
            Error::new(Code::Unavailable, "rows of another node cannot be read").with_source(other),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use arrow::array::{ArrayRef, StringDictionaryBuilder, UInt64Array};
    use arrow::datatypes::UInt32Type;

    fn batch(first: u64, rows: u64) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values(first..first + rows));
        let mut names = StringDictionaryBuilder::<UInt32Type>::new();
        for number in first..first + rows {
            names.append_option((number % 3 > 0).then(|| format!("file-{}", number % 7)));
        }
        let names: ArrayRef = Arc::new(names.finish());
        RecordBatch::try_from_iter_with_nullable([("n", numbers, false), ("name", names, true)])
            .unwrap()
    }

    #[tokio::test]
    async fn rows_come_as_they_went_in_messages_of_bounded_size() {
        let sent = vec![batch(0, 10), batch(10, 400_000), batch(7, 1)];
        let rows = stream::iter(sent.clone().into_iter().map(Ok)).boxed();
        let messages: Vec<_> = encode(cut(rows)).unwrap().collect().await;
        for message in &messages {
            let bytes = message.as_ref().unwrap().data_body.len();
            assert!(bytes <= 2 * MESSAGE_BYTES, "{bytes}");
        }
        assert!(messages.len() > 6, "the large batch is cut");
        let came: Vec<RecordBatch> = decode(stream::iter(messages))
            .map(|rows| rows.unwrap())
            .collect()
            .await;
        let all = |batches: &[RecordBatch]| {
            let numbers = batches.iter().flat_map(|batch| {
                let numbers = batch.column(0).to_data();
                UInt64Array::from(numbers).values().to_vec()
            });
            numbers.collect::<Vec<u64>>()
        };
        assert_eq!(all(&came), all(&sent));
        assert_eq!(came[0].schema(), sent[0].schema());
        assert_eq!(came[0], sent[0]);
        assert!(came.len() > 6, "the large batch comes in pieces");
    }

    #[tokio::test]
    async fn what_a_worker_decided_is_told_and_a_broken_stream_is_a_lost_worker() {
        let decided = CallError::Failed(Error::corrupt("a file"));
        let rows = stream::iter([Ok(batch(0, 1)), Err(decided)]).boxed();
        let mut rows = decode(encode(rows).unwrap());
        rows.next().await.unwrap().unwrap();
        let error = rows.next().await.unwrap().unwrap_err();
        assert!(
            matches!(&error, CallError::Failed(e) if e.code() == Code::Corrupt),
            "{error:?}"
        );
        let cut = stream::iter([Err(Status::unavailable("reset"))]);
        let error = decode(cut).next().await.unwrap().unwrap_err();
        assert!(matches!(error, CallError::Lost(_)), "{error:?}");
    }
}
