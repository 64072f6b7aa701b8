//! What `list`, `describe` and `history` show.

use serde::Serialize;
use serde_json::Value;
use tidegate_change::spec::ResolvedSpec;
use tidegate_change::{BatchId, Error, Result, TableVersion};
use tidegate_cluster::coordinator::answer::files_of;
use tidegate_delta::TableSnapshot;
use tidegate_delta::actions::SPEC_DOMAIN;
use tidegate_delta::log::HistoryEntry;

/// Domain whose field `watermark` holds the table's.
const PROGRESS_DOMAIN: &str = "tidegate.progress";

/// A table in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableListing {
    /// The name.
    pub name: String,
    /// Where it lies.
    pub location: String,
    /// The newest version.
    pub version: TableVersion,
}

/// A table in full.
#[derive(Clone, Debug, Serialize)]
pub struct TableDescription {
    /// The name.
    pub name: String,
    /// The id.
    pub id: String,
    /// Where it lies.
    pub location: String,
    /// The newest version.
    pub version: TableVersion,
    /// Greatest sequence of any accepted event.
    pub watermark: Value,
    /// Visible rows.
    pub rows: u64,
    /// Live data files.
    pub files: u64,
    /// Bytes of the live data files.
    pub bytes: u64,
    /// The spec with everything that the first batches fixed.
    pub spec: ResolvedSpec,
}

/// A version in a history.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryLine {
    /// The version.
    pub version: TableVersion,
    /// Commit time, milliseconds.
    pub timestamp_ms: i64,
    /// What was done.
    pub operation: String,
    /// The batch, for a version that holds one.
    pub batch_id: Option<BatchId>,
    /// Watermark after the batch.
    pub watermark: Value,
    /// Rows that appeared.
    pub inserted: Option<u64>,
    /// Rows whose visible values changed.
    pub updated: Option<u64>,
    /// Rows that disappeared.
    pub deleted: Option<u64>,
    /// Data files that the version added.
    pub files_added: Option<u64>,
    /// Data files that the version removed.
    pub files_removed: Option<u64>,
    /// Bytes written.
    pub bytes_written: Option<u64>,
}

impl HistoryLine {
    /// The line of a version.
    ///
    /// # Errors
    /// `CORRUPT` when the result that it stores cannot be read.
    pub fn of(entry: HistoryEntry) -> Result<Self> {
        let result = entry.info.batch_result();
        let result = result.map_err(|e| e.context(format!("version {}", entry.version)))?;
        let files = files_of(&entry.info);
        let counters = result.as_ref().map(|result| result.counters);
        Ok(Self {
            version: entry.version,
            timestamp_ms: entry.timestamp_ms,
            operation: entry.info.operation.unwrap_or_default(),
            watermark: result
                .as_ref()
                .map(|result| result.watermark.clone())
                .unwrap_or_default(),
            batch_id: result.map(|result| result.batch_id),
            inserted: counters.map(|counters| counters.inserted),
            updated: counters.map(|counters| counters.updated),
            deleted: counters.map(|counters| counters.deleted),
            files_added: files.map(|files| files.0),
            files_removed: files.map(|files| files.1),
            bytes_written: counters.map(|counters| counters.bytes_written),
        })
    }
}

impl TableDescription {
    /// The description of a snapshot.
    ///
    /// # Errors
    /// `CORRUPT` when the table's own state or statistics cannot be read.
    pub fn of(name: &str, location: String, snapshot: &TableSnapshot) -> Result<Self> {
        let (mut rows, mut bytes) = (0_u64, 0_u64);
        for file in snapshot.files.iter() {
            rows += file.num_records()?.saturating_sub(file.deleted_count());
            bytes += u64::try_from(file.size).unwrap_or_default();
        }
        Ok(Self {
            name: name.to_owned(),
            id: snapshot.metadata.id.clone(),
            location,
            version: snapshot.version,
            watermark: watermark_of(snapshot)?,
            rows,
            files: snapshot.files.len() as u64,
            bytes,
            spec: resolved_spec(name, snapshot)?,
        })
    }
}

/// The spec that a version of a table stores.
pub(crate) fn resolved_spec(name: &str, snapshot: &TableSnapshot) -> Result<ResolvedSpec> {
    let text = snapshot.domains.get(SPEC_DOMAIN).ok_or_else(|| {
        Error::corrupt(format!(
            "table {name}: version {} holds no spec",
            snapshot.version
        ))
    })?;
    serde_json::from_str(text)
        .map_err(|e| Error::corrupt(format!("table {name}: the stored spec")).with_source(e))
}

fn watermark_of(snapshot: &TableSnapshot) -> Result<Value> {
    let Some(text) = snapshot.domains.get(PROGRESS_DOMAIN) else {
        return Ok(Value::Null);
    };
    let progress: Value = serde_json::from_str(text).map_err(|e| {
        Error::corrupt(format!("domain {PROGRESS_DOMAIN} cannot be read")).with_source(e)
    })?;
    Ok(progress.get("watermark").cloned().unwrap_or_default())
}
