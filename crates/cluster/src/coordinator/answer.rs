//! The result of a batch inside its commit, from which a retry is answered.

use serde_json::{Map, Value, json};
use tidegate_change::{BatchId, BatchResult, Counters, Error, TableVersion};
use tidegate_delta::DeltaLog;
use tidegate_delta::actions::CommitInfo;

use crate::metadata::{BatchKey, CommitKind};

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
    info.other.insert(CommitInfo::OWN_FIELD.into(), own);
}

/// Moves the result in a `commitInfo` to another version.
pub(super) fn move_result(info: &mut CommitInfo, version: TableVersion) {
    if let Some(result) = info
        .other
        .get_mut(CommitInfo::OWN_FIELD)
        .and_then(|own| own.get_mut("result"))
    {
        result["version"] = json!(version);
    }
}

/// Numbers of files that a commit added and removed.
#[must_use]
pub fn files_of(info: &CommitInfo) -> Option<(u64, u64)> {
    let own = info.other.get(CommitInfo::OWN_FIELD)?;
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
    let stored = match &commit {
        Some(commit) => {
            let lacks =
                || Error::corrupt(format!("table {table}: version {version} lost its batch"));
            commit.info().ok_or_else(lacks)?.batch_result()?
        }
        None => None,
    };
    // A commit of several batches holds the result of none of them alone.
    let stored = stored.filter(|result| result.batch_id == *id);
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
