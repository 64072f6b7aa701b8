//! Ids, versions and the result of a batch.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Error, Result};

/// A version of a table: the number of its commit in the Delta log.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct TableVersion(pub u64);

impl TableVersion {
    /// The version after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for TableVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Random id of a metadata directory; its attempts never meet those of another directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WriterId(pub u32);

impl fmt::Display for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// One try to apply a batch: the writer and the log index of its `OpenAttempt`.
///
/// It is part of the name of every file that the try writes: `<writer>-<attempt>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    /// The metadata directory.
    pub writer: WriterId,
    /// The log index.
    pub index: u64,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.writer, self.index)
    }
}

/// The id of a batch, chosen by the submitter or derived from the content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchId(pub String);

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A BLAKE3 digest, as hex in text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The digest as 64 hex digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// The digest that these 64 hex digits write.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        blake3::Hash::from_hex(text)
            .ok()
            .map(|hash| Self(*hash.as_bytes()))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_hex(&text).ok_or_else(|| serde::de::Error::custom("not a BLAKE3 digest"))
    }
}

/// What a batch did, counted. The interface document says what each counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Upserts, deletes and truncates read for this table, quarantined ones included.
    pub events: u64,
    /// Rows that appeared.
    pub inserted: u64,
    /// Rows whose visible values changed.
    pub updated: u64,
    /// Rows that disappeared.
    pub deleted: u64,
    /// Rows that were met and stayed as they were.
    pub unchanged: u64,
    /// Events below the state before the batch.
    pub late: u64,
    /// Events equal to another of the batch or to the stored state (R-U1).
    pub duplicates: u64,
    /// Losers at one key and sequence (R-T4).
    pub ties: u64,
    /// Truncates under `on_truncate: ignore`.
    pub ignored: u64,
    /// Unavailable values that could not be carried (R-K6).
    pub unresolved: u64,
    /// Declared fields that a JSON event lacked (R-N5).
    pub absent: u64,
    /// Values that Delta cannot hold (R-K9).
    pub unrepresentable: u64,
    /// Events in the rejects table.
    pub quarantined: u64,
    /// Data files written.
    pub files_written: u64,
    /// Data files whose deletion vector changed or that were removed.
    pub files_touched: u64,
    /// Bytes of all files written.
    pub bytes_written: u64,
}

impl Counters {
    /// Adds another part's counts.
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.inserted += other.inserted;
        self.updated += other.updated;
        self.deleted += other.deleted;
        self.unchanged += other.unchanged;
        self.late += other.late;
        self.duplicates += other.duplicates;
        self.ties += other.ties;
        self.ignored += other.ignored;
        self.unresolved += other.unresolved;
        self.absent += other.absent;
        self.unrepresentable += other.unrepresentable;
        self.quarantined += other.quarantined;
        self.files_written += other.files_written;
        self.files_touched += other.files_touched;
        self.bytes_written += other.bytes_written;
    }
}

/// The answer to a batch; the same for every retry of the same batch id.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BatchResult {
    /// The table's name.
    pub table: String,
    /// The batch's id.
    pub batch_id: BatchId,
    /// The version that holds the batch.
    pub version: TableVersion,
    /// The greatest sequence of any accepted event of the table (R-W1), as JSON; null before the first.
    pub watermark: Value,
    /// Next offset by `topic/partition`, as found in records or sent by the submitter.
    pub offsets: BTreeMap<String, i64>,
    /// The counts.
    #[serde(flatten)]
    pub counters: Counters,
    /// Records that are no row events, by class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub other: BTreeMap<String, u64>,
    /// Duration of the apply, seconds.
    pub seconds: f64,
}

/// The members of a stored result that stand beside its counters.
#[derive(Deserialize)]
struct StoredResult {
    table: String,
    batch_id: BatchId,
    version: TableVersion,
    #[serde(default)]
    watermark: Value,
    #[serde(default)]
    offsets: BTreeMap<String, i64>,
    #[serde(default)]
    other: BTreeMap<String, u64>,
    #[serde(default)]
    seconds: f64,
}

impl BatchResult {
    /// The result that this JSON holds. Counters that it lacks are 0: an older writer did not know them.
    ///
    /// # Errors
    /// `CORRUPT` when it is no result.
    pub fn from_json(json: &Value) -> Result<Self> {
        // Apart: numbers of any precision do not pass through a flattened struct.
        let damaged = |e| Error::corrupt("the stored result of a batch").with_source(e);
        let stored = StoredResult::deserialize(json).map_err(damaged)?;
        let counters = Counters::deserialize(json).map_err(damaged)?;
        Ok(Self {
            table: stored.table,
            batch_id: stored.batch_id,
            version: stored.version,
            watermark: stored.watermark,
            offsets: stored.offsets,
            counters,
            other: stored.other,
            seconds: stored.seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_comes_back_from_its_json() {
        let result = BatchResult {
            table: "t".into(),
            batch_id: BatchId("b".into()),
            version: TableVersion(7),
            watermark: serde_json::json!({"lsn": 9_007_199_254_740_993_i64}),
            offsets: BTreeMap::from([("orders/0".into(), 12)]),
            counters: Counters {
                events: 3,
                bytes_written: u64::MAX,
                ..Counters::default()
            },
            other: BTreeMap::from([("heartbeat".into(), 1)]),
            seconds: 0.25,
        };
        let text = serde_json::to_string(&result).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(BatchResult::from_json(&json).unwrap(), result);
        let damaged = serde_json::json!({"table": "t", "batch_id": "b", "version": "seven"});
        assert_eq!(
            BatchResult::from_json(&damaged).unwrap_err().code(),
            crate::Code::Corrupt
        );
    }
}
