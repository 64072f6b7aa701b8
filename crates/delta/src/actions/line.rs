//! Commits as bytes: one action a line.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_change::{Error, Result};

use super::{
    Action, AddFile, CdcFile, CommitInfo, DomainMetadata, Metadata, Protocol, RemoveFile, Txn,
};

/// One line of a commit, or one row of a checkpoint: exactly one field is set.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ActionLine {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) add: Option<AddFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remove: Option<RemoveFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cdc: Option<CdcFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) meta_data: Option<Metadata>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) protocol: Option<Protocol>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) txn: Option<Txn>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) domain_metadata: Option<DomainMetadata>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit_info: Option<CommitInfo>,
}

impl ActionLine {
    pub(crate) fn into_action(self) -> Option<Action> {
        let add = self.add.map(Action::Add);
        add.or_else(|| self.remove.map(Action::Remove))
            .or_else(|| self.cdc.map(Action::Cdc))
            .or_else(|| self.meta_data.map(Action::Metadata))
            .or_else(|| self.protocol.map(Action::Protocol))
            .or_else(|| self.txn.map(Action::Txn))
            .or_else(|| self.domain_metadata.map(Action::Domain))
            .or_else(|| self.commit_info.map(Action::CommitInfo))
    }
}

/// The bytes of a commit file.
///
/// # Errors
/// `INTERNAL` when an action cannot be written as JSON, as an [`Action::Unknown`] cannot.
pub fn to_bytes(actions: &[Action]) -> Result<Bytes> {
    let mut bytes = Vec::with_capacity(actions.len().saturating_mul(256));
    for action in actions {
        serde_json::to_writer(&mut bytes, action)
            .map_err(|e| Error::internal("an action has no JSON form").with_source(e))?;
        bytes.push(b'\n');
    }
    Ok(bytes.into())
}

/// The actions in the bytes of a commit file; `name` is the file's name in errors.
///
/// # Errors
/// `CORRUPT` that names the line.
pub fn parse_commit(name: &str, bytes: &[u8]) -> Result<Vec<Action>> {
    let mut actions = Vec::new();
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let damaged = |e: serde_json::Error| {
            Error::corrupt(format!("{name} line {}: no action", number + 1)).with_source(e)
        };
        let parsed: ActionLine = serde_json::from_slice(line).map_err(damaged)?;
        match parsed.into_action() {
            Some(action) => actions.push(action),
            None => actions.extend(unknown(line).map_err(damaged)?),
        }
    }
    if actions.is_empty() {
        return Err(Error::corrupt(format!("{name}: holds no action")));
    }
    Ok(actions)
}

fn unknown(line: &[u8]) -> serde_json::Result<Option<Action>> {
    let fields: std::collections::BTreeMap<String, &RawValue> = serde_json::from_slice(line)?;
    Ok(fields.into_keys().next().map(Action::Unknown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_actions_and_fields_are_tolerated() {
        let text = br#"{"commitInfo":{"timestamp":5,"operation":"WRITE","operationParameters":{"mode":"Append","n":3},"readVersion":0}}
{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[],"writerFeatures":[]}}
{"checkpointMetadata":{"version":3}}
{"add":{"path":"p","partitionValues":{"c":null},"size":1,"modificationTime":2,"dataChange":true,"future":{"a":1}}}
"#;
        let actions = parse_commit("0.json", text).unwrap();
        assert_eq!(actions.len(), 4);
        assert!(
            matches!(&actions[0], Action::CommitInfo(info) if info.timestamp == Some(5)
            && info.other.contains_key("readVersion")
            && info.operation_parameters["n"] == "3")
        );
        assert_eq!(actions[2], Action::Unknown("checkpointMetadata".into()));
        assert!(matches!(&actions[3], Action::Add(add) if add.partition_values["c"].is_none()));
    }

    #[test]
    fn written_actions_are_read_back() {
        let info = CommitInfo {
            in_commit_timestamp: Some(7),
            txn_id: Some("w-1".into()),
            ..CommitInfo::default()
        };
        let actions = vec![
            Action::CommitInfo(info),
            Action::Domain(DomainMetadata::set("tidegate.spec", "{\"a\":1}")),
            Action::Remove(RemoveFile {
                path: "x".into(),
                data_change: true,
                ..RemoveFile::default()
            }),
        ];
        let bytes = to_bytes(&actions).unwrap();
        assert_eq!(parse_commit("0.json", &bytes).unwrap(), actions);
    }

    #[test]
    fn damage_names_the_line() {
        let error = parse_commit(
            "7.json",
            b"{\"txn\":{\"appId\":\"a\",\"version\":1}}\n{oops\n",
        )
        .unwrap_err();
        assert!(error.to_string().contains("7.json line 2"), "{error}");
    }
}
