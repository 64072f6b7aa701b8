//! Which versions a reader's bounds ask for.

use tidegate_change::{Code, Error, Result, TableVersion};

use crate::log::{DeltaLog, TableSnapshot};

/// Versions `first..=last`; empty when `last` is below `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRange {
    /// The first version.
    pub first: TableVersion,
    /// The last version.
    pub last: TableVersion,
}

/// The bounds of a batch read of the feed, inclusive. A start is required, the end is the latest by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedBounds {
    /// Start by version.
    pub start_version: Option<i64>,
    /// Start by time, ms since the epoch.
    pub start_timestamp_ms: Option<i64>,
    /// End by version.
    pub end_version: Option<i64>,
    /// End by time, ms since the epoch.
    pub end_timestamp_ms: Option<i64>,
    /// Whether bounds behind the latest version are cut to it (R-F3, R-F4).
    pub allow_out_of_range: bool,
}

impl FeedBounds {
    /// The versions that the bounds ask for; None when they ask for none.
    ///
    /// # Errors
    /// `NO_START`, `INVALID_VERSION`, `START_AFTER_LATEST`, `END_AFTER_LATEST`, `INVALID_RANGE` by the
    /// rules R-F1 to R-F4 and R-F7; `EXPIRED` for a start before the oldest commit that is left.
    pub async fn resolve(
        &self,
        log: &DeltaLog,
        latest: &TableSnapshot,
    ) -> Result<Option<VersionRange>> {
        let Some(first) = self.first(log, latest).await? else {
            return Ok(None);
        };
        let Some(last) = self.last(log, latest).await? else {
            return self.below(first, "the first commit");
        };
        if last < first {
            return self.below(first, &format!("version {last}"));
        }
        Ok(Some(VersionRange { first, last }))
    }

    /// The outcome of an end below the start: times between two commits ask for nothing (R-F2).
    fn below(&self, first: TableVersion, last: &str) -> Result<Option<VersionRange>> {
        match (self.start_timestamp_ms, self.end_timestamp_ms) {
            (Some(start), Some(end)) if start <= end => Ok(None),
            _ => {
                let message = format!("feed range: ends at {last}, before its start {first}");
                Err(Error::new(Code::InvalidRange, message))
            }
        }
    }

    async fn first(&self, log: &DeltaLog, latest: &TableSnapshot) -> Result<Option<TableVersion>> {
        let newest = latest.version;
        let found = match (self.start_version, self.start_timestamp_ms) {
            (None, None) => {
                return Err(Error::new(Code::NoStart, "feed range: no start")
                    .with_hint("give a start version or a start time"));
            }
            (Some(_), Some(_)) => return Err(twice("start")),
            (Some(version), None) => Some(checked(version)?),
            (None, Some(time)) => {
                refuse_expired(log, time).await?;
                log.first_version_from(time).await?
            }
        };
        match found.filter(|version| *version <= newest) {
            Some(version) => Ok(Some(version)),
            None if self.allow_out_of_range => Ok(None),
            None => {
                let message = format!("feed range: starts after the latest version {newest}");
                Err(Error::new(Code::StartAfterLatest, message))
            }
        }
    }

    async fn last(&self, log: &DeltaLog, latest: &TableSnapshot) -> Result<Option<TableVersion>> {
        let newest = latest.version;
        let too_late = match (self.end_version, self.end_timestamp_ms) {
            (None, None) => return Ok(Some(newest)),
            (Some(_), Some(_)) => return Err(twice("end")),
            (Some(version), None) => {
                let version = checked(version)?;
                if version <= newest {
                    return Ok(Some(version));
                }
                format!("version {version}")
            }
            (None, Some(time)) => {
                if latest
                    .in_commit_timestamp_ms
                    .is_none_or(|newest| time <= newest)
                {
                    let found = log.last_version_until(time).await?;
                    return Ok(found.map(|version| version.min(newest)));
                }
                format!("timestamp {time}")
            }
        };
        if self.allow_out_of_range {
            return Ok(Some(newest));
        }
        let message = format!("feed range: ends at {too_late}, after the latest version {newest}");
        Err(Error::new(Code::EndAfterLatest, message))
    }
}

fn twice(bound: &str) -> Error {
    let message = format!("feed range: its {bound} is given by version and by time");
    Error::new(Code::InvalidVersion, message)
}

fn checked(version: i64) -> Result<TableVersion> {
    u64::try_from(version).map(TableVersion).map_err(|_| {
        Error::new(
            Code::InvalidVersion,
            format!("feed range: version {version} is negative"),
        )
    })
}

/// A start before the oldest commit would leave out what the log no longer has (R-F6).
async fn refuse_expired(log: &DeltaLog, time: i64) -> Result<()> {
    let Some((oldest, _)) = log.commit_range().await? else {
        return Ok(());
    };
    if oldest > TableVersion(0) && time < log.timestamp_of(oldest).await? {
        let message = format!("feed range: starts before version {oldest}, the oldest in the log");
        return Err(Error::new(Code::Expired, message));
    }
    Ok(())
}
