//! The result of a batch inside its commit, from which a retry is answered.

use serde_json::{Map, Value, json};
use tidegate_change::{BatchId, BatchResult, Counters, TableVersion};
use tidegate_delta::DeltaLog;
use tidegate_delta::actions::CommitInfo;

use crate::metadata::{BatchKey, CommitKind};

/// Field of `commitInfo` that is Tidegate's own.
const OWN_FIELD: &str = "tidegate";

/// What `commitInfo` says of the batches of a commit.
pub(super) fn own_field(
    kind: CommitKind,
    batches: &[BatchKey],
    result: Option<&BatchResult>,
    files: (usize, usize),
) -> Value {
    let mut own = Map::new();
    own.insert("kind".into(), json!(kind));
    own.insert("files_added".into(), json!(files.0));
    own.insert("files_removed".into(), json!(files.1));
    if !batches.is_empty() {
        let named = |batch: &BatchKey| json!({"id": batch.id, "digest": batch.input_digest});
        own.insert("batches".into(), batches.iter().map(named).collect());
    }
    if let Some(result) = result {
        own.insert("result".into(), json!(result));
    }
    Value::Object(own)
}

/// Puts Tidegate's own field into a `commitInfo`.
pub(super) fn put(info: &mut CommitInfo, own: Value) {
    info.other.insert(OWN_FIELD.into(), own);
}

/// Moves the result in a `commitInfo` to another version.
pub(super) fn move_result(info: &mut CommitInfo, version: TableVersion) {
    if let Some(result) = info
        .other
        .get_mut(OWN_FIELD)
        .and_then(|own| own.get_mut("result"))
    {
        result["version"] = json!(version);
    }
}

/// The result that a commit holds of a batch; None when it holds none of that id.
#[must_use]
pub fn result_in(info: &CommitInfo, id: &BatchId) -> Option<BatchResult> {
    let result = result_of(info)?;
    (result.batch_id == *id).then_some(result)
}

/// The result of a commit's batch.
#[must_use]
pub fn result_of(info: &CommitInfo) -> Option<BatchResult> {
    let result = info.other.get(OWN_FIELD)?.get("result")?;
    // Field by field: numbers of any precision do not pass through a flattened struct.
    let field = |name: &str| result.get(name).cloned().unwrap_or_default();
    Some(BatchResult {
        table: field("table").as_str()?.to_owned(),
        batch_id: BatchId(field("batch_id").as_str()?.to_owned()),
        version: serde_json::from_value(field("version")).ok()?,
        watermark: field("watermark"),
        offsets: serde_json::from_value(field("offsets")).unwrap_or_default(),
        counters: serde_json::from_value(result.clone()).unwrap_or_default(),
        other: serde_json::from_value(field("other")).unwrap_or_default(),
        seconds: field("seconds").as_f64().unwrap_or_default(),
    })
}

/// Numbers of files that a commit added and removed.
#[must_use]
pub fn files_of(info: &CommitInfo) -> Option<(u64, u64)> {
    let own = info.other.get(OWN_FIELD)?;
    Some((
        own.get("files_added")?.as_u64()?,
        own.get("files_removed")?.as_u64()?,
    ))
}

/// The answer to a batch that is in a version: as its commit holds it, or id and version alone.
pub(super) async fn stored_answer(
    log: &DeltaLog,
    table: &str,
    id: &BatchId,
    version: TableVersion,
) -> tidegate_change::Result<BatchResult> {
    let commit = log.read_commit_if_there(version).await?;
    let stored = commit
        .as_ref()
        .and_then(|commit| commit.info())
        .and_then(|info| result_in(info, id));
    Ok(stored.unwrap_or_else(|| BatchResult {
        table: table.to_owned(),
        batch_id: id.clone(),
        version,
        watermark: Value::Null,
        offsets: Default::default(),
        counters: Counters::default(),
        other: Default::default(),
        seconds: 0.0,
    }))
}
