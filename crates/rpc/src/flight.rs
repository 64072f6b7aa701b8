//! What the JSON in Flight tickets, in the metadata of a put and in its answers says.
//!
//! Unknown members are refused in what clients send, and left unread in what servers answer.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_change::{Code, Error, Result};

/// Column of a put of files: name of the file that a piece is of.
pub const FILE: &str = "file";
/// Column of a put of files: the bytes of a piece.
pub const CHUNK: &str = "chunk";
/// Column of a put of files: tells files of one name apart; may be left out.
pub const FILE_NUMBER: &str = "file_number";

/// What a `DoGet` is to give: one member, named by what is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ticket {
    /// A version of a table.
    Read(ReadTicket),
    /// The feed of a range of versions.
    Changes(ChangesTicket),
    /// The feed as a stream reader sees it. The metadata of the schema message says where it ends.
    Stream(StreamTicket),
    /// Quarantined events.
    Rejects(RejectsTicket),
}

/// Which rows of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReadTicket {
    /// Name of the table.
    pub table: String,
    /// The version; the newest without it and without a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// The version that was the newest at that time, milliseconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp_ms: Option<i64>,
    /// Columns in their order; all without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// SQL condition over the table's columns.
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// In order of the primary key.
    pub order: bool,
    /// Rows at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The newest version must be at least this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_version: Option<i64>,
}

/// Which changes of a table (R-F1 to R-F7).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChangesTicket {
    /// Name of the table.
    pub table: String,
    /// First version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_version: Option<i64>,
    /// Versions that were committed then or later, milliseconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_timestamp_ms: Option<i64>,
    /// Last version; the newest without it and without a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_version: Option<i64>,
    /// Versions that were committed until then, milliseconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_timestamp_ms: Option<i64>,
    /// Take a range beyond the newest version as far as it goes.
    pub allow_out_of_range: bool,
}

/// Where a stream reader stands (R-F9 to R-F11). Without `after` and without a start the table comes first,
/// as inserts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamTicket {
    /// Name of the table.
    pub table: String,
    /// The last version that the reader has seen; wins over a start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<i64>,
    /// First version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_version: Option<i64>,
    /// Versions that were committed then or later, milliseconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_timestamp_ms: Option<i64>,
    /// A start beyond the newest version gives nothing yet, instead of failing.
    pub waits: bool,
}

/// Metadata of the schema message of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEnd {
    /// The version that the changes reach; None where there was nothing to read.
    pub until: Option<i64>,
}

/// Whose quarantined events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RejectsTicket {
    /// Name of the table.
    pub table: String,
    /// Rows at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// Metadata of the first message of a `DoPut`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PutRequest {
    /// Idempotency key; derived from content and table without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<String>,
    /// By `topic/partition`; checked against the table.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub offsets: BTreeMap<String, PutOffsets>,
    /// What the messages hold; told from their columns without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<PutContent>,
    /// Rows that the messages hold together: a put that ends before is refused. Not checked without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// jsonl, csv or parquet, for files in pieces; told from content and name without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Apply content once more that a batch with a derived id holds already.
    pub force: bool,
    /// Execute and count, but commit nothing.
    pub dry_run: bool,
}

/// What the messages of a put hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PutContent {
    /// The source's columns.
    Columns,
    /// Raw records: `value`, and `key`, `topic`, `partition`, `offset`, `headers` where there are any.
    Records,
    /// Files in pieces: `file` and `chunk`, and `file_number` where names repeat.
    Files,
}

/// Offsets of one partition of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutOffsets {
    /// The first offset; not checked without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<i64>,
    /// The next offset after the last.
    pub to: i64,
}

/// Metadata of an answer to a `DoPut`: one member, named by what it tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PutAnswer {
    /// That much was received and is on disk.
    Received {
        /// Bytes of all messages.
        bytes: u64,
    },
    /// All was received and the batch is taken: it goes on without the caller.
    Taken {
        /// Id of the batch.
        batch_id: String,
    },
    /// The batch runs.
    Progress {
        /// queue, decode, merge or commit; empty where it is not known.
        phase: String,
        /// Events read.
        events_read_count: u64,
    },
    /// The batch is done: the object that `apply` prints.
    Result(Value),
}

/// Reads JSON that a client sent.
///
/// # Errors
/// `INVALID_ARGUMENT` that names what it is.
pub fn from_json<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|e| {
        Error::new(Code::InvalidArgument, format!("{what} cannot be read")).with_source(e)
    })
}

/// Writes JSON of this module.
///
/// # Errors
/// `INTERNAL` when it cannot be written.
pub fn to_json<T: Serialize>(what: &str, value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value)
        .map_err(|e| Error::internal(format!("{what} cannot be written")).with_source(e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_names_what_is_read() {
        let text = "{\"read\":{\"table\":\"t\",\"version\":3,\"where\":\"a > 1\"}}";
        let Ticket::Read(read) = from_json("ticket", text.as_bytes()).unwrap() else {
            panic!("another kind");
        };
        assert_eq!(
            (read.version, read.filter.as_deref()),
            (Some(3), Some("a > 1"))
        );
        let again = to_json("ticket", &Ticket::Read(read.clone())).unwrap();
        assert_eq!(
            from_json::<Ticket>("ticket", &again).unwrap(),
            Ticket::Read(read)
        );
    }

    #[test]
    fn unknown_members_are_refused() {
        for text in [
            "{\"read\":{\"table\":\"t\",\"versoin\":3}}",
            "{\"write\":{\"table\":\"t\"}}",
            "not JSON",
        ] {
            let error = from_json::<Ticket>("ticket", text.as_bytes()).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{text}");
        }
        assert!(from_json::<PutRequest>("metadata", b"{\"batchid\":\"x\"}").is_err());
    }

    #[test]
    fn an_answer_says_in_one_member_what_it_tells() {
        let taken = PutAnswer::Taken {
            batch_id: "b".into(),
        };
        let text = String::from_utf8(to_json("answer", &taken).unwrap()).unwrap();
        assert_eq!(text, "{\"taken\":{\"batch_id\":\"b\"}}");
    }
}
