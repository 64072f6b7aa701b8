//! What a commit says about the table beside its files: watermark, horizons, truncates, and the pointers
//! to hidden state, index and rejects (commit protocol 2.3, table format "Hidden state").

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_change::sequence::{SequenceBytes, SequenceEncoder};
use tidegate_change::{Error, Result, json};
use tidegate_delta::TableSnapshot;
use tidegate_delta::actions::{Action, DomainMetadata};

/// Domain of [`Progress`].
pub const PROGRESS: &str = "tidegate.progress";
/// Domain of the hidden state files.
pub const STATE: &str = "tidegate.state.0";
/// Domain of the index runs.
pub const INDEX: &str = "tidegate.state.1";
/// Domain of the rejects files.
pub const REJECTS: &str = "tidegate.state.2";

/// Table-wide numbers of the merge rules. Sequences are stored as JSON of the sequence's type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// Greatest sequence of any accepted event (R-W1).
    pub watermark: Value,
    /// Truncates: the greatest with hard deletes, all with soft deletes (R-X3); ascending.
    pub truncates: Vec<Value>,
    /// Greatest sequence of a purged delete (R-G4).
    pub horizon: Value,
    /// Tombstones that arrived before this moment, ms, are purged (R-G2).
    pub purged_before_ms: Option<i64>,
}

/// The hidden state files of a version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StateManifest {
    /// Files, oldest first.
    pub files: Vec<StateFile>,
}

/// One file of tombstones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateFile {
    /// Path below the table's root.
    pub path: String,
    /// Rows.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
    /// First arrival of a deciding delete, ms.
    pub arrived_min_ms: i64,
    /// Last arrival of a deciding delete, ms.
    pub arrived_max_ms: i64,
}

/// The rejects files of a table, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RejectsManifest {
    /// Paths below the table's root, with their rows.
    pub files: Vec<RejectsFile>,
}

/// One file of quarantined events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RejectsFile {
    /// Path below the table's root.
    pub path: String,
    /// Rows.
    pub rows: u64,
    /// The version whose batch brought them.
    pub version: u64,
}

/// Reads a domain of the snapshot; the default where the table has none.
///
/// # Errors
/// `CORRUPT` when the domain is not what it should be.
pub fn read_domain<T: DeserializeOwned + Default>(
    snapshot: &TableSnapshot,
    domain: &str,
) -> Result<T> {
    match snapshot.domains.get(domain) {
        None => Ok(T::default()),
        Some(text) => serde_json::from_str(text).map_err(|e| {
            Error::corrupt(format!("domain {domain} of version {}", snapshot.version))
                .with_source(e)
        }),
    }
}

/// The action that writes a domain.
///
/// # Errors
/// `INTERNAL` when the value cannot be written as JSON.
pub fn domain_action<T: Serialize>(domain: &str, value: &T) -> Result<Action> {
    let configuration = serde_json::to_string(value).map_err(|e| {
        Error::internal(format!("domain {domain} cannot be written")).with_source(e)
    })?;
    Ok(Action::Domain(DomainMetadata::set(domain, configuration)))
}

/// Comparable bytes of a stored sequence; None for null.
///
/// # Errors
/// `CORRUPT` when the JSON is no sequence of the table.
pub fn sequence_from_json(
    encoder: &SequenceEncoder,
    value: &Value,
) -> Result<Option<SequenceBytes>> {
    if value.is_null() {
        return Ok(None);
    }
    let array = json::scalar(encoder.data_type(), value)
        .map_err(|e| Error::corrupt("a stored sequence is of another type").with_source(e))?;
    let rows = encoder.encode(&array)?;
    Ok(Some(SequenceBytes::from_row(rows.row(0))))
}

/// The stored form of a sequence.
///
/// # Errors
/// `INTERNAL` when the bytes are of another type.
pub fn sequence_to_json(encoder: &SequenceEncoder, bytes: Option<&SequenceBytes>) -> Result<Value> {
    match bytes {
        None => Ok(Value::Null),
        Some(bytes) => json::value_at(&encoder.decode_bytes([Some(bytes)])?, 0),
    }
}
