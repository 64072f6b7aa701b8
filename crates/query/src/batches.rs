//! The results of the batches that a table's log remembers.

use tidegate_change::{BatchResult, Result};
use tidegate_delta::DeltaLog;

/// The results of the batches whose commits are in the log, the newest first.
///
/// # Errors
/// `CORRUPT` when a stored result cannot be read, else what reading the log says.
pub async fn batches(log: &DeltaLog) -> Result<Vec<BatchResult>> {
    let entries = log.history(None).await?;
    let results = entries.into_iter().filter_map(|entry| {
        let result = entry.info.batch_result();
        let result = result.map_err(|e| e.context(format!("version {}", entry.version)));
        // The commit's place in the log is what counts, wherever its attempt meant it to go.
        let version = entry.version;
        result
            .transpose()
            .map(|result| result.map(|result| BatchResult { version, ..result }))
    });
    results.collect()
}
