//! Results and progress of batches as messages, and back.

use std::sync::Arc;

use serde_json::Value;
use tidegate_change::{BatchId, BatchResult, Counters, Error, Result, TableVersion};

use crate::status::causes_of;
use crate::{time, v1};

/// The message of a result.
#[must_use]
pub fn result_message(result: &BatchResult) -> v1::BatchResult {
    let counters = &result.counters;
    v1::BatchResult {
        version: version_message(result.version),
        watermark: result.watermark.to_string(),
        offsets: result.offsets.clone(),
        events: counters.events,
        inserted: counters.inserted,
        updated: counters.updated,
        deleted: counters.deleted,
        unchanged: counters.unchanged,
        late: counters.late,
        duplicates: counters.duplicates,
        ties: counters.ties,
        ignored: counters.ignored,
        unresolved: counters.unresolved,
        absent: counters.absent,
        unrepresentable: counters.unrepresentable,
        quarantined: counters.quarantined,
        files_written: counters.files_written,
        files_touched: counters.files_touched,
        bytes_written: counters.bytes_written,
        elapsed: Some(time::duration(result.seconds)),
        other: result.other.clone(),
    }
}

/// The result of a message, which does not hold the names.
///
/// # Errors
/// `INTERNAL` for a message that no server of Tidegate sends.
pub fn result_from(table: &str, batch_id: &str, message: v1::BatchResult) -> Result<BatchResult> {
    Ok(BatchResult {
        table: table.to_owned(),
        batch_id: BatchId(batch_id.to_owned()),
        version: version_from(message.version)?,
        watermark: json_from("watermark", &message.watermark)?,
        offsets: message.offsets,
        counters: Counters {
            events: message.events,
            inserted: message.inserted,
            updated: message.updated,
            deleted: message.deleted,
            unchanged: message.unchanged,
            late: message.late,
            duplicates: message.duplicates,
            ties: message.ties,
            ignored: message.ignored,
            unresolved: message.unresolved,
            absent: message.absent,
            unrepresentable: message.unrepresentable,
            quarantined: message.quarantined,
            files_written: message.files_written,
            files_touched: message.files_touched,
            bytes_written: message.bytes_written,
        },
        other: message.other,
        seconds: message.elapsed.as_ref().map_or(0.0, time::seconds),
    })
}

/// The result as the object that `apply` prints.
///
/// # Errors
/// `INTERNAL` when it cannot be written.
pub fn result_to_json(result: &BatchResult) -> Result<Value> {
    serde_json::to_value(result)
        .map_err(|e| Error::internal("a result cannot be written").with_source(e))
}

/// The message of why a batch failed.
#[must_use]
pub fn error_message(error: &Arc<Error>) -> v1::BatchError {
    v1::BatchError {
        code: error.code().as_str().to_owned(),
        message: error.to_string(),
        hint: error.hint().unwrap_or_default().to_owned(),
        causes: causes_of(error),
    }
}

/// A version as messages hold it.
#[must_use]
pub fn version_message(version: TableVersion) -> i64 {
    i64::try_from(version.0).unwrap_or(i64::MAX)
}

/// The version of a message.
///
/// # Errors
/// `INTERNAL` for one below zero, which no server of Tidegate sends.
pub fn version_from(version: i64) -> Result<TableVersion> {
    u64::try_from(version)
        .map(TableVersion)
        .map_err(|_| Error::internal(format!("version {version} is below zero")))
}

/// JSON text in a message; empty text is null.
///
/// # Errors
/// `INTERNAL` for what is no JSON, which no server of Tidegate sends.
pub fn json_from(field: &str, text: &str) -> Result<Value> {
    if text.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(text)
        .map_err(|e| Error::internal(format!("field {field} is no JSON")).with_source(e))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_result_comes_back_as_it_went() {
        let result = BatchResult {
            table: "t".into(),
            batch_id: BatchId("b".into()),
            version: TableVersion(7),
            watermark: serde_json::from_str("{\"lsn\":18446744073709551615,\"rank\":2}").unwrap(),
            offsets: BTreeMap::from([("topic/0".to_owned(), 12)]),
            counters: Counters {
                events: 1,
                inserted: 2,
                updated: 3,
                deleted: 4,
                unchanged: 5,
                late: 6,
                duplicates: 7,
                ties: 8,
                ignored: 9,
                unresolved: 10,
                absent: 11,
                unrepresentable: 12,
                quarantined: 13,
                files_written: 14,
                files_touched: 15,
                bytes_written: 16,
            },
            other: BTreeMap::from([("heartbeat".to_owned(), 2)]),
            seconds: 0.5,
        };
        let back = result_from("t", "b", result_message(&result)).unwrap();
        assert_eq!(back, result);
        let object = result_to_json(&result).unwrap();
        let text = serde_json::to_string(&object).unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(BatchResult::from_json(&read).unwrap(), result);
    }
}
