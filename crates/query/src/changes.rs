//! Which versions of the feed are read: ranges with their bounds, and the view of a stream reader.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use futures::TryStreamExt;
use tidegate_change::{Code, Error, Result, TableVersion};
use tidegate_delta::{DeltaLog, TableSnapshot};

use crate::feed::{feed_rows, feed_schema};
use crate::{ReadOptions, Rows, read};

/// One end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedBound {
    /// A version, included.
    Version(TableVersion),
    /// A time, milliseconds since the epoch; versions committed at that time are included.
    TimestampMs(i64),
}

/// A range of the feed, as a batch read asks for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChangesRange {
    /// The start; there must be one (R-F1).
    pub from: Option<FeedBound>,
    /// The end; None = the newest version.
    pub to: Option<FeedBound>,
    /// Whether what lies beyond the newest version is left out instead of refused (R-F3, R-F4).
    pub allow_out_of_range: bool,
}

/// Where a stream reader starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangesStart {
    /// With the table as it is, as inserts (R-F9).
    Table,
    /// With the changes of a version or time.
    From(FeedBound),
    /// After a version that it has seen (R-F10).
    After(TableVersion),
}

/// What a stream reader gets: whole commits.
#[derive(Debug)]
pub struct StreamedChanges {
    /// The changes.
    pub rows: Rows,
    /// The version that they reach; None when nothing was there to read.
    pub until: Option<TableVersion>,
}

/// The changes of a range of versions. A batch read consumes nothing (R-F8).
///
/// # Errors
/// `NO_START`, `INVALID_RANGE`, `START_AFTER_LATEST`, `END_AFTER_LATEST`, `NOT_RECORDED`, `EXPIRED` by the
/// rules R-F1 to R-F6, before the first row.
pub async fn changes(log: &DeltaLog, range: &ChangesRange) -> Result<Rows> {
    let Some(from) = range.from else {
        return Err(Error::new(Code::NoStart, "the changes of a range need a start")
            .with_hint("give --from or --from-timestamp, or --stream for all of the table"));
    };
    check_order(from, range.to)?;
    let head = log.snapshot(None).await?;
    let first = match from {
        FeedBound::Version(version) if version <= head.version => Some(version),
        FeedBound::Version(_) => None,
        FeedBound::TimestampMs(time) => first_from(log, time).await?,
    };
    let Some(first) = first else {
        return match range.allow_out_of_range {
            true => Ok(Rows::empty(feed_schema(&head))),
            false => Err(start_after_latest(from, head.version)),
        };
    };
    let last = match range.to {
        None => Some(head.version),
        Some(FeedBound::Version(version)) if version <= head.version => Some(version),
        Some(FeedBound::TimestampMs(time)) if time <= log.timestamp_of(head.version).await? => {
            log.last_version_until(time).await?
        }
        Some(_) if range.allow_out_of_range => Some(head.version),
        Some(to) => return Err(end_after_latest(to, head.version)),
    };
    // Two times between two commits leave nothing between them (R-F2).
    match last {
        Some(last) if last >= first => feed_rows(log, &head, first, last).await,
        _ => Ok(Rows::empty(feed_schema(&head))),
    }
}

/// What a stream reader gets from its start to the newest version.
///
/// With `waits`, a start beyond the newest version gives nothing yet.
///
/// # Errors
/// As [`changes`].
pub async fn stream_changes(
    log: &DeltaLog,
    start: ChangesStart,
    waits: bool,
) -> Result<StreamedChanges> {
    let head = log.snapshot(None).await?;
    let from = match start {
        ChangesStart::Table => return table_as_inserts(log, &head).await,
        ChangesStart::From(from) => from,
        ChangesStart::After(seen) if seen == head.version => return Ok(nothing(&head)),
        ChangesStart::After(seen) => FeedBound::Version(seen.next()),
    };
    let first = match from {
        FeedBound::Version(version) if version <= head.version => Some(version),
        FeedBound::Version(_) => None,
        FeedBound::TimestampMs(time) => first_from(log, time).await?,
    };
    match first {
        Some(first) => {
            let rows = feed_rows(log, &head, first, head.version).await?;
            Ok(StreamedChanges { rows, until: Some(head.version) })
        }
        None if waits => Ok(nothing(&head)),
        None => Err(start_after_latest(from, head.version)),
    }
}

async fn table_as_inserts(log: &DeltaLog, head: &TableSnapshot) -> Result<StreamedChanges> {
    let timestamp_ms = match head.in_commit_timestamp_ms {
        Some(timestamp_ms) => timestamp_ms,
        None => log.timestamp_of(head.version).await?,
    };
    let version = i64::try_from(head.version.0).unwrap_or(i64::MAX);
    let schema = feed_schema(head);
    let with_type = Arc::clone(&schema);
    let rows = read(log.root(), head, &ReadOptions::default())?;
    let stream = rows.into_stream().and_then(move |batch| {
        let count = batch.num_rows();
        let times = TimestampMicrosecondArray::from_value(timestamp_ms.saturating_mul(1000), count);
        let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
        columns.push(Arc::new(StringArray::from(vec!["insert"; count])));
        columns.push(Arc::new(Int64Array::from_value(version, count)));
        columns.push(Arc::new(times.with_timezone("UTC")));
        std::future::ready(RecordBatch::try_new(Arc::clone(&with_type), columns).map_err(|e| {
            Error::internal("rows of a table do not fit its feed").with_source(e)
        }))
    });
    Ok(StreamedChanges { rows: Rows::new(schema, stream), until: Some(head.version) })
}

fn nothing(head: &TableSnapshot) -> StreamedChanges {
    StreamedChanges { rows: Rows::empty(feed_schema(head)), until: None }
}

/// The first version committed at a time or later; changes that may be lost before it are an error (R-F6).
async fn first_from(log: &DeltaLog, time_ms: i64) -> Result<Option<TableVersion>> {
    let first = log.first_version_from(time_ms).await?;
    if let Some(version) = first
        && version.0 > 0
        && log.read_commit_if_there(TableVersion(version.0 - 1)).await?.is_none()
        && log.timestamp_of(version).await? > time_ms
    {
        let message = format!("changes before version {version} are gone, the log starts there");
        return Err(Error::new(Code::Expired, message));
    }
    Ok(first)
}

fn check_order(from: FeedBound, to: Option<FeedBound>) -> Result<()> {
    let text = match (from, to) {
        (FeedBound::Version(from), Some(FeedBound::Version(to))) if to < from => {
            format!("the range ends at version {to}, before it starts at version {from}")
        }
        (FeedBound::TimestampMs(from), Some(FeedBound::TimestampMs(to))) if to < from => {
            "the range ends at a time before its start".to_owned()
        }
        _ => return Ok(()),
    };
    Err(Error::new(Code::InvalidRange, text))
}

fn start_after_latest(from: FeedBound, latest: TableVersion) -> Error {
    let what = match from {
        FeedBound::Version(version) => format!("start version {version}"),
        FeedBound::TimestampMs(_) => "the start time".to_owned(),
    };
    let message = format!("{what} lies after the newest version, {latest}");
    Error::new(Code::StartAfterLatest, message)
        .with_hint("--allow-out-of-range reads such a range as empty")
}

fn end_after_latest(to: FeedBound, latest: TableVersion) -> Error {
    let what = match to {
        FeedBound::Version(version) => format!("end version {version}"),
        FeedBound::TimestampMs(_) => "the end time".to_owned(),
    };
    let message = format!("{what} lies after the newest version, {latest}");
    Error::new(Code::EndAfterLatest, message)
        .with_hint("--allow-out-of-range reads up to the newest version")
}
