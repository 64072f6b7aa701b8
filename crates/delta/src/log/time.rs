//! Versions by time, and what the versions were for.

use futures::{StreamExt, TryStreamExt};
use tidegate_change::{Code, Error, Result, TableVersion};

use super::DeltaLog;
use crate::actions::CommitInfo;

/// Commits read at once for a history.
const CONCURRENT_READS: usize = 16;

/// A version and what it was for.
#[derive(Clone, Debug)]
pub struct HistoryEntry {
    /// The version.
    pub version: TableVersion,
    /// Its commit's time, ms since the epoch.
    pub timestamp_ms: i64,
    /// What it was for.
    pub info: CommitInfo,
}

impl DeltaLog {
    /// The newest version whose commit is not later than a time.
    ///
    /// # Errors
    /// `EXPIRED` when the time lies before the oldest commit that is left, `INVALID_VERSION` when it
    /// lies before version 0, `TABLE_NOT_FOUND` without log.
    pub async fn version_at(&self, timestamp_ms: i64) -> Result<TableVersion> {
        let (oldest, _) = self.range().await?;
        if let Some(version) = self.last_version_until(timestamp_ms).await? {
            return Ok(version);
        }
        let (code, what) = match oldest.0 {
            0 => (Code::InvalidVersion, "the table was made later"),
            _ => (Code::Expired, "the log of that time is gone"),
        };
        Err(Error::new(
            code,
            format!("timestamp {timestamp_ms}: {what}"),
        ))
    }

    /// The newest version whose commit is not later than a time; None when all are later.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND` without log, else what the store says.
    pub async fn last_version_until(&self, timestamp_ms: i64) -> Result<Option<TableVersion>> {
        let (oldest, newest) = self.range().await?;
        let first_later = self.first_after(oldest, newest, timestamp_ms).await?;
        Ok(first_later
            .checked_sub(1)
            .map(TableVersion)
            .filter(|version| *version >= oldest))
    }

    /// The oldest version whose commit is not earlier than a time; None when all are earlier.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND` without log, else what the store says.
    pub async fn first_version_from(&self, timestamp_ms: i64) -> Result<Option<TableVersion>> {
        let (oldest, newest) = self.range().await?;
        let first = self
            .first_after(oldest, newest, timestamp_ms.saturating_sub(1))
            .await?;
        Ok(Some(TableVersion(first)).filter(|version| *version <= newest))
    }

    /// The newest versions, newest first, at most `limit`.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND` without log, else what the store says.
    pub async fn history(&self, limit: Option<usize>) -> Result<Vec<HistoryEntry>> {
        self.history_below(None, limit).await
    }

    /// The newest versions below one, newest first, at most `limit`; without it from the newest on.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND` without log, else what the store says.
    pub async fn history_below(
        &self,
        end: Option<TableVersion>,
        limit: Option<usize>,
    ) -> Result<Vec<HistoryEntry>> {
        let (oldest, newest) = self.range().await?;
        let end = end.map_or(newest.0 + 1, |end| end.0.min(newest.0 + 1));
        let versions = (oldest.0..end).rev().map(TableVersion);
        // Each read owns its log: a future that borrows could not be sent between threads.
        let reads = versions
            .take(limit.unwrap_or(usize::MAX))
            .map(|version| entry_of(self.clone(), version));
        let reads = futures::stream::iter(reads);
        reads.buffered(CONCURRENT_READS).try_collect().await
    }

    /// The time of a commit, ms since the epoch.
    ///
    /// # Errors
    /// `EXPIRED` when the commit is gone, `CORRUPT` when it has no time.
    pub async fn timestamp_of(&self, version: TableVersion) -> Result<i64> {
        let commit = self.read_commit(version).await?;
        let info = commit.into_info().unwrap_or_default();
        let time = info.in_commit_timestamp.or(info.timestamp);
        time.ok_or_else(|| Error::corrupt(format!("version {version}: its commit has no time")))
    }

    async fn range(&self) -> Result<(TableVersion, TableVersion)> {
        let range = self.commit_range().await?;
        range.ok_or_else(|| {
            let message = format!("location {}: no table", self.root().path());
            Error::new(Code::TableNotFound, message)
        })
    }

    /// The first version later than a time, or the one behind the newest: times rise with versions.
    async fn first_after(
        &self,
        oldest: TableVersion,
        newest: TableVersion,
        timestamp_ms: i64,
    ) -> Result<u64> {
        let (mut low, mut high) = (oldest.0, newest.0 + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.timestamp_of(TableVersion(middle)).await? <= timestamp_ms {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}

async fn entry_of(log: DeltaLog, version: TableVersion) -> Result<HistoryEntry> {
    let info = log.commit_info(version).await?.unwrap_or_default();
    let timestamp_ms = info
        .in_commit_timestamp
        .or(info.timestamp)
        .unwrap_or_default();
    Ok(HistoryEntry {
        version,
        timestamp_ms,
        info,
    })
}
