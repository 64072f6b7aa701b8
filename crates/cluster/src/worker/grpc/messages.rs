//! Orders as messages, and back.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_apply::work::{SourceFile, SourceInput};
use tidegate_apply::{BatchPhase, BatchProgress};
use tidegate_change::{AttemptId, Code, Error, Result, WriterId};
use tidegate_rpc::internal;

use crate::metadata::NodeId;
use crate::placement::Seat;
use crate::worker::{FinishOrder, MergeOrder, ReadOrder, ReaderAt, WorkToken};

pub(super) fn to_json<T: Serialize>(what: &str, value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value)
        .map_err(|e| Error::internal(format!("{what} cannot be written")).with_source(e))
}

pub(super) fn from_json<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|e| invalid(&format!("{what} cannot be read")).with_source(e))
}

fn invalid(message: &str) -> Error {
    Error::new(Code::InvalidArgument, message)
}

pub(super) fn token_to(token: WorkToken) -> internal::WorkToken {
    internal::WorkToken {
        writer_id: token.attempt.writer.0,
        attempt_index: token.attempt.index,
        secret: token.secret,
        placement_epoch: token.epoch,
    }
}

pub(super) fn token_from(token: Option<internal::WorkToken>) -> Result<WorkToken> {
    let token = token.ok_or_else(|| invalid("a call without a token"))?;
    Ok(WorkToken {
        attempt: AttemptId {
            writer: WriterId(token.writer_id),
            index: token.attempt_index,
        },
        secret: token.secret,
        epoch: token.placement_epoch,
    })
}

pub(super) fn seat_to(seat: &Seat) -> internal::Seat {
    internal::Seat {
        node_id: seat.node.0,
        incarnation: seat.incarnation,
        endpoint: seat.endpoint.clone(),
    }
}

pub(super) fn seat_from(seat: Option<internal::Seat>) -> Result<Seat> {
    let seat = seat.ok_or_else(|| invalid("a call that says not whom it means"))?;
    Ok(Seat {
        node: NodeId(seat.node_id),
        incarnation: seat.incarnation,
        endpoint: seat.endpoint,
    })
}

pub(super) fn progress_to(progress: BatchProgress) -> internal::WorkProgress {
    internal::WorkProgress {
        is_merging: progress.phase == BatchPhase::Merging,
        events_read_count: progress.events_read,
        read_bytes: progress.bytes_read,
        total_bytes: progress.bytes_total,
        buckets_merged_count: progress.buckets_merged,
        buckets_count: progress.buckets_total,
    }
}

pub(super) fn progress_from(progress: internal::WorkProgress) -> BatchProgress {
    BatchProgress {
        phase: match progress.is_merging {
            true => BatchPhase::Merging,
            false => BatchPhase::Reading,
        },
        events_read: progress.events_read_count,
        bytes_read: progress.read_bytes,
        bytes_total: progress.total_bytes,
        buckets_merged: progress.buckets_merged_count,
        buckets_total: progress.buckets_count,
    }
}

pub(super) fn read_to(order: &ReadOrder, seat: &Seat) -> Result<internal::ReadSourcesRequest> {
    let source = |(number, source): &(u32, SourceFile)| {
        let SourceInput::Shared(path) = &source.input else {
            let message = format!("source {}: other nodes do not reach it", source.name);
            return Err(Error::internal(message));
        };
        let path = path.to_str().ok_or_else(|| {
            let message = format!("source {}: its path is no UTF-8", source.name);
            Error::new(Code::Unsupported, message)
        })?;
        let format = match source.format {
            Some(format) => serde_json::to_string(&format)
                .map_err(|e| Error::internal("a format cannot be written").with_source(e))?,
            None => String::new(),
        };
        Ok(internal::SharedSource {
            number: *number,
            name: source.name.clone(),
            path: path.to_owned(),
            format,
        })
    };
    Ok(internal::ReadSourcesRequest {
        token: Some(token_to(order.token)),
        spec: to_json("how sources are read", &order.spec)?,
        part: order.part,
        sources: order.sources.iter().map(source).collect::<Result<_>>()?,
        seat: Some(seat_to(seat)),
    })
}

pub(super) fn read_from(request: internal::ReadSourcesRequest) -> Result<ReadOrder> {
    let source = |source: internal::SharedSource| {
        let format = match source.format.as_str() {
            "" => None,
            text => Some(from_json("a format", text.as_bytes())?),
        };
        let file = SourceFile {
            name: source.name,
            input: SourceInput::Shared(PathBuf::from(source.path)),
            format,
        };
        Ok((source.number, file))
    };
    Ok(ReadOrder {
        token: token_from(request.token)?,
        spec: from_json("how sources are read", &request.spec)?,
        part: request.part,
        sources: request
            .sources
            .into_iter()
            .map(source)
            .collect::<Result<_>>()?,
    })
}

pub(super) fn merge_to(order: &MergeOrder, seat: &Seat) -> Result<internal::MergeBucketsRequest> {
    let range = |range: &Range<u32>| internal::BucketRange {
        first: range.start,
        end: range.end,
    };
    let reader = |reader: &ReaderAt| internal::Reader {
        seat: Some(seat_to(&reader.seat)),
        part: reader.part,
    };
    Ok(internal::MergeBucketsRequest {
        token: Some(token_to(order.token)),
        table: to_json("a table", &order.table)?,
        plan: to_json("a plan", &order.plan)?,
        owner: order.owner,
        buckets: order.buckets.iter().map(range).collect(),
        readers: order.readers.iter().map(reader).collect(),
        seat: Some(seat_to(seat)),
    })
}

pub(super) fn merge_from(request: internal::MergeBucketsRequest) -> Result<MergeOrder> {
    let reader = |reader: internal::Reader| {
        Ok(ReaderAt {
            seat: seat_from(reader.seat)?,
            part: reader.part,
        })
    };
    let buckets = request.buckets.into_iter();
    Ok(MergeOrder {
        token: token_from(request.token)?,
        table: Arc::new(from_json("a table", &request.table)?),
        plan: Arc::new(from_json("a plan", &request.plan)?),
        owner: request.owner,
        buckets: buckets.map(|range| range.first..range.end).collect(),
        readers: request
            .readers
            .into_iter()
            .map(reader)
            .collect::<Result<_>>()?,
    })
}

pub(super) fn finish_to(order: &FinishOrder) -> Result<internal::FinishMergeRequest> {
    let decision = serde_json::to_string(&order.decision)
        .map_err(|e| Error::internal("a decision cannot be written").with_source(e))?;
    Ok(internal::FinishMergeRequest {
        token: Some(token_to(order.token)),
        owner: order.owner,
        decision,
    })
}

pub(super) fn finish_from(request: internal::FinishMergeRequest) -> Result<FinishOrder> {
    Ok(FinishOrder {
        token: token_from(request.token)?,
        owner: request.owner,
        decision: from_json("a decision", request.decision.as_bytes())?,
    })
}
