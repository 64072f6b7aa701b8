//! The feed over a range of versions, and as a stream reader sees it.

use std::sync::Arc;

use tidegate_change::{Code, Error, Result, TableVersion};
use tidegate_delta::feed::{self, FeedBounds, FeedStream, VersionRange};
use tidegate_delta::{DeltaLog, TableSnapshot};

use crate::Rows;

/// Where a stream reader starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangesStart {
    /// With the table as it is, as inserts (R-F9).
    Table,
    /// With the changes from a bound on; ends are not looked at.
    From(FeedBounds),
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
/// `NO_START`, `INVALID_VERSION`, `INVALID_RANGE`, `START_AFTER_LATEST`, `END_AFTER_LATEST`, `NOT_RECORDED`,
/// `EXPIRED` by the rules R-F1 to R-F7, before the first row.
pub async fn changes(log: &DeltaLog, bounds: &FeedBounds) -> Result<Rows> {
    let latest = log.snapshot(None).await?;
    match bounds.resolve(log, &latest).await.map_err(with_way_out)? {
        Some(range) => Ok(rows(feed::changes(log, &latest, range).await?)),
        None => Ok(no_rows(&latest)),
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
    let latest = log.snapshot(None).await?;
    let range = match start {
        ChangesStart::Table => {
            let rows = rows(feed::inserts(log, &latest)?);
            return Ok(StreamedChanges {
                rows,
                until: Some(latest.version),
            });
        }
        ChangesStart::After(seen) if seen == latest.version => None,
        ChangesStart::After(seen) if seen < latest.version => Some(VersionRange {
            first: seen.next(),
            last: latest.version,
        }),
        ChangesStart::After(_) if waits => None,
        ChangesStart::After(seen) => return Err(beyond(seen, latest.version)),
        ChangesStart::From(bounds) => {
            let bounds = FeedBounds {
                end_version: None,
                end_timestamp_ms: None,
                allow_out_of_range: waits,
                ..bounds
            };
            bounds.resolve(log, &latest).await.map_err(with_way_out)?
        }
    };
    match range {
        Some(range) => {
            let rows = rows(feed::changes(log, &latest, range).await?);
            Ok(StreamedChanges {
                rows,
                until: Some(range.last),
            })
        }
        None => Ok(StreamedChanges {
            rows: no_rows(&latest),
            until: None,
        }),
    }
}

fn rows(stream: FeedStream) -> Rows {
    Rows::new(Arc::clone(stream.schema()), stream.into_stream())
}

fn no_rows(latest: &TableSnapshot) -> Rows {
    Rows::empty(feed::feed_schema(latest.schema()))
}

/// A checkpoint beyond the newest version is one of another table, or of a restored one.
fn beyond(seen: TableVersion, latest: TableVersion) -> Error {
    let message = format!("checkpoint {seen} lies after the newest version, {latest}");
    Error::new(Code::StartAfterLatest, message)
}

fn with_way_out(error: Error) -> Error {
    match error.code() {
        Code::StartAfterLatest | Code::EndAfterLatest => {
            error.with_hint("--allow-out-of-range reads such a range as far as it goes")
        }
        Code::NoStart => error.with_hint("give --from or --from-timestamp, or --stream for all"),
        _ => error,
    }
}

#[cfg(test)]
#[path = "changes_tests.rs"]
mod tests;
