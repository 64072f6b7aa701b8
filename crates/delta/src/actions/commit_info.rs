//! What a commit was for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidegate_change::{BatchResult, Result};

/// What a commit was for, in the fields that `DESCRIBE HISTORY` knows, and others that engines add.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct CommitInfo {
    /// The commit's time, ms since the epoch, which rises with every version.
    pub in_commit_timestamp: Option<i64>,
    /// When it was written, ms since the epoch.
    pub timestamp: Option<i64>,
    /// What was done, in capitals.
    pub operation: Option<String>,
    /// How.
    pub operation_parameters: BTreeMap<String, String>,
    /// With what effect; numbers as text.
    pub operation_metrics: BTreeMap<String, String>,
    /// Who wrote it.
    pub engine_info: Option<String>,
    /// The attempt.
    pub txn_id: Option<String>,
    /// Everything else.
    pub other: Map<String, Value>,
}

impl CommitInfo {
    /// The field of `other` in which Tidegate says what a commit was for.
    pub const OWN_FIELD: &str = "tidegate";

    /// The result of the batch that the commit holds; None where it holds none.
    ///
    /// # Errors
    /// `CORRUPT` when what stands there is no result.
    pub fn batch_result(&self) -> Result<Option<BatchResult>> {
        let own = self.other.get(Self::OWN_FIELD);
        let result = own.and_then(|own| own.get("result"));
        result.map(BatchResult::from_json).transpose()
    }
}

const IN_COMMIT_TIMESTAMP: &str = "inCommitTimestamp";
const TIMESTAMP: &str = "timestamp";
const OPERATION: &str = "operation";
const PARAMETERS: &str = "operationParameters";
const METRICS: &str = "operationMetrics";
const ENGINE_INFO: &str = "engineInfo";
const TXN_ID: &str = "txnId";

impl From<Map<String, Value>> for CommitInfo {
    fn from(mut map: Map<String, Value>) -> Self {
        Self {
            in_commit_timestamp: map.remove(IN_COMMIT_TIMESTAMP).and_then(|v| v.as_i64()),
            timestamp: map.remove(TIMESTAMP).and_then(|v| v.as_i64()),
            operation: take_text(&mut map, OPERATION),
            operation_parameters: take_texts(&mut map, PARAMETERS),
            operation_metrics: take_texts(&mut map, METRICS),
            engine_info: take_text(&mut map, ENGINE_INFO),
            txn_id: take_text(&mut map, TXN_ID),
            other: map,
        }
    }
}

impl From<CommitInfo> for Map<String, Value> {
    fn from(info: CommitInfo) -> Self {
        let mut map = Self::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                map.insert(name.to_owned(), value);
            }
        };
        put(
            IN_COMMIT_TIMESTAMP,
            info.in_commit_timestamp.map(Value::from),
        );
        put(TIMESTAMP, info.timestamp.map(Value::from));
        put(OPERATION, info.operation.map(Value::from));
        // Spark's DESCRIBE HISTORY expects both maps to be there.
        put(PARAMETERS, Some(texts(info.operation_parameters)));
        put(METRICS, Some(texts(info.operation_metrics)));
        put(ENGINE_INFO, info.engine_info.map(Value::from));
        put(TXN_ID, info.txn_id.map(Value::from));
        map.extend(info.other);
        map
    }
}

fn take_text(map: &mut Map<String, Value>, name: &str) -> Option<String> {
    match map.remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

fn take_texts(map: &mut Map<String, Value>, name: &str) -> BTreeMap<String, String> {
    let Some(Value::Object(entries)) = map.remove(name) else {
        return BTreeMap::new();
    };
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    entries
        .into_iter()
        .map(|(name, value)| (name, text(value)))
        .collect()
}

fn texts(entries: BTreeMap<String, String>) -> Value {
    Value::Object(
        entries
            .into_iter()
            .map(|(name, text)| (name, Value::String(text)))
            .collect(),
    )
}
