//! The results of the batches that a table's log remembers.

use tidegate_change::{BatchResult, Result};
use tidegate_delta::DeltaLog;
use tidegate_delta::actions::CommitInfo;

/// Field of `commitInfo` in which Tidegate says what a commit was for.
const TIDEGATE: &str = "tidegate";

/// The results of the batches whose commits are in the log, the newest first.
///
/// # Errors
/// What reading the log says.
pub async fn batches(log: &DeltaLog) -> Result<Vec<BatchResult>> {
    let entries = log.history(None).await?;
    let results = entries.into_iter().filter_map(|entry| {
        // The commit's place in the log is what counts, wherever its attempt meant it to go.
        result_of(&entry.info).map(|result| BatchResult {
            version: entry.version,
            ..result
        })
    });
    Ok(results.collect())
}

/// The result of the batch that a commit holds, if it holds one.
pub(crate) fn result_of(info: &CommitInfo) -> Option<BatchResult> {
    let result = info.other.get(TIDEGATE)?.get("result")?;
    serde_json::from_value(result.clone()).ok()
}
