//! The results of the batches that a table's log remembers.

use tidegate_change::{BatchResult, Result};
use tidegate_delta::DeltaLog;

/// Field of `commitInfo` in which Tidegate says what a commit was for.
const TIDEGATE: &str = "tidegate";

/// The results of the batches whose commits are in the log, the newest first.
///
/// # Errors
/// What reading the log says.
pub async fn batches(log: &DeltaLog) -> Result<Vec<BatchResult>> {
    let entries = log.history(None).await?;
    let results = entries.into_iter().filter_map(|mut entry| {
        let mut ours = entry.info.other.remove(TIDEGATE)?;
        let result = ours.get_mut("result")?.take();
        let mut result: BatchResult = serde_json::from_value(result).ok()?;
        // The commit's place in the log is what counts, wherever its attempt meant it to go.
        result.version = entry.version;
        Some(result)
    });
    Ok(results.collect())
}
