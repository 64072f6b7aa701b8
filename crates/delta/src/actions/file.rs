//! The actions that name files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_change::{Error, Result};

use crate::{dv, names, path};

/// Where a deletion vector lies and how large it is (Delta protocol: "Deletion Vectors").
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionVectorDescriptor {
    /// `u`: a file in the table's root; `p`: a file by absolute path; `i`: inline.
    pub storage_type: String,
    /// The encoded UUID, the path, or the bytes.
    pub path_or_inline_dv: String,
    /// Where the vector starts in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<i32>,
    /// Bytes of the vector.
    pub size_in_bytes: i32,
    /// Rows that it deletes.
    pub cardinality: i64,
}

impl DeletionVectorDescriptor {
    /// Tells vectors of one file apart (Delta protocol: "Derived Fields").
    #[must_use]
    pub fn unique_id(&self) -> String {
        let offset = self
            .offset
            .map(|offset| format!("@{offset}"))
            .unwrap_or_default();
        format!("{}{}{offset}", self.storage_type, self.path_or_inline_dv)
    }

    /// The vector's file below the table's root; None for a vector that lies elsewhere or in the action.
    #[must_use]
    pub fn relative_path(&self) -> Option<String> {
        (self.storage_type == "u")
            .then(|| dv::descriptor_file(&self.path_or_inline_dv))
            .flatten()
    }
}

/// A data file of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddFile {
    /// URL-encoded path relative to the table's root.
    pub path: String,
    /// Values of the partition columns, by physical name.
    #[serde(default)]
    pub partition_values: BTreeMap<String, Option<String>>,
    /// Bytes.
    pub size: i64,
    /// When it was written, ms since the epoch.
    pub modification_time: i64,
    /// Whether rows change with it; false for compaction.
    pub data_change: bool,
    /// Statistics as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<String>,
    /// Our notes, see [`tags`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, Option<String>>>,
    /// The rows of the file that are deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_vector: Option<DeletionVectorDescriptor>,
    /// Row tracking of other engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_row_id: Option<i64>,
    /// Row tracking of other engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_row_commit_version: Option<i64>,
    /// Who clustered the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clustering_provider: Option<String>,
}

/// A data file that left the table and that older versions still need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemoveFile {
    /// URL-encoded path relative to the table's root.
    pub path: String,
    /// When it left, ms since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<i64>,
    /// Whether rows change with it; false for compaction.
    #[serde(default = "yes")]
    pub data_change: bool,
    /// Whether the fields below are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extended_file_metadata: Option<bool>,
    /// Values of the partition columns, by physical name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_values: Option<BTreeMap<String, Option<String>>>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// Statistics as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<String>,
    /// Our notes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, Option<String>>>,
    /// The vector of the `add` that this cancels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_vector: Option<DeletionVectorDescriptor>,
    /// Row tracking of other engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_row_id: Option<i64>,
    /// Row tracking of other engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_row_commit_version: Option<i64>,
}

fn yes() -> bool {
    true
}

/// A file of change data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CdcFile {
    /// URL-encoded path relative to the table's root.
    pub path: String,
    /// Values of the partition columns, by physical name.
    #[serde(default)]
    pub partition_values: BTreeMap<String, Option<String>>,
    /// Bytes.
    pub size: i64,
    /// Always false: the rows stand in other actions.
    pub data_change: bool,
    /// Our notes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, Option<String>>>,
}

/// Names of the tags that data files carry, also in their Parquet metadata.
pub mod tags {
    /// Greatest sequence of the file's rows, as JSON.
    pub const MAX_SEQUENCE: &str = "tidegate.max_seq";
    /// Whether some row has a floor, leaf sequences or deletes of its own.
    pub const SPARSE: &str = "tidegate.sparse";
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RowCount {
    num_records: Option<u64>,
}

impl AddFile {
    /// Rows in the file, dead ones included.
    ///
    /// # Errors
    /// `CORRUPT` when the file has no statistics, which deletion vectors need.
    pub fn num_records(&self) -> Result<u64> {
        let counted = self
            .stats
            .as_deref()
            .and_then(|stats| serde_json::from_str::<RowCount>(stats).ok())
            .and_then(|stats| stats.num_records);
        counted.ok_or_else(|| {
            Error::corrupt(format!(
                "file {}: no row count in its statistics",
                self.path
            ))
        })
    }

    /// Rows that its deletion vector deletes.
    #[must_use]
    pub fn deleted_count(&self) -> u64 {
        let vector = self.deletion_vector.as_ref();
        vector
            .and_then(|vector| u64::try_from(vector.cardinality).ok())
            .unwrap_or(0)
    }

    /// The greatest sequence of its rows as JSON text, if the file says so.
    #[must_use]
    pub fn max_sequence(&self) -> Option<&str> {
        self.tag(tags::MAX_SEQUENCE)
    }

    /// Whether some row has hidden state besides its sequence; true where the file does not say.
    #[must_use]
    pub fn is_sparse(&self) -> bool {
        self.tag(tags::SPARSE) != Some("false")
    }

    fn tag(&self, name: &str) -> Option<&str> {
        self.tags.as_ref()?.get(name)?.as_deref()
    }

    /// The file's path in the store, relative to the table's root.
    ///
    /// # Errors
    /// `CORRUPT` when the path is no URL-encoded relative path.
    pub fn relative_path(&self) -> Result<String> {
        path::decode(&self.path)
    }

    /// Whether the file and its deletion vector have the names that Tidegate gives, so that it holds the
    /// hidden columns and the index knows its rows; files of other engines have neither.
    #[must_use]
    pub fn is_own(&self) -> bool {
        let is_named = |path: &str| names::attempt_of(path).is_some();
        let vector = self.deletion_vector.as_ref();
        self.relative_path().is_ok_and(|path| is_named(&path))
            && vector.is_none_or(|vector| vector.relative_path().is_some_and(|p| is_named(&p)))
    }

    /// The action that takes the file, with its deletion vector, out of the table.
    #[must_use]
    pub fn to_remove(&self, deletion_timestamp_ms: i64, data_change: bool) -> RemoveFile {
        RemoveFile {
            path: self.path.clone(),
            deletion_timestamp: Some(deletion_timestamp_ms),
            data_change,
            extended_file_metadata: Some(true),
            partition_values: Some(self.partition_values.clone()),
            size: Some(self.size),
            deletion_vector: self.deletion_vector.clone(),
            base_row_id: self.base_row_id,
            default_row_commit_version: self.default_row_commit_version,
            ..RemoveFile::default()
        }
    }

    /// The same file with another deletion vector; its bounds are no longer tight.
    #[must_use]
    pub fn with_deletion_vector(
        &self,
        vector: DeletionVectorDescriptor,
        data_change: bool,
    ) -> Self {
        let mut next = self.clone();
        next.deletion_vector = Some(vector);
        next.data_change = data_change;
        next.stats = self.stats.as_deref().map(loosen_bounds);
        next
    }
}

/// The statistics with `tightBounds: false`, otherwise unchanged (Delta protocol: "Per-file Statistics").
fn loosen_bounds(stats: &str) -> String {
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(stats) {
        Ok(mut map) => {
            map.insert("tightBounds".into(), false.into());
            serde_json::Value::Object(map).to_string()
        }
        Err(_) => stats.to_owned(),
    }
}

impl RemoveFile {
    /// The `add` that this cancels, as far as the action tells: enough to read the file again.
    #[must_use]
    pub fn to_add(&self) -> AddFile {
        AddFile {
            path: self.path.clone(),
            partition_values: self.partition_values.clone().unwrap_or_default(),
            size: self.size.unwrap_or_default(),
            data_change: self.data_change,
            stats: self.stats.clone(),
            tags: self.tags.clone(),
            deletion_vector: self.deletion_vector.clone(),
            ..AddFile::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add() -> AddFile {
        AddFile {
            path: "a%20b.parquet".into(),
            stats: Some(
                r#"{"numRecords":3,"maxValues":{"n":12345678901234567890.5},"tightBounds":true}"#
                    .into(),
            ),
            ..AddFile::default()
        }
    }

    #[test]
    fn a_vector_loosens_bounds_and_keeps_exact_numbers() {
        let vector = DeletionVectorDescriptor {
            storage_type: "u".into(),
            path_or_inline_dv: "x".into(),
            offset: Some(1),
            size_in_bytes: 4,
            cardinality: 2,
        };
        let next = add().with_deletion_vector(vector, true);
        let stats = next.stats.clone().unwrap();
        assert!(stats.contains(r#""tightBounds":false"#));
        assert!(stats.contains("12345678901234567890.5"));
        assert_eq!(next.deleted_count(), 2);
        assert_eq!(
            next.to_remove(5, true).deletion_vector,
            next.deletion_vector
        );
    }

    #[test]
    fn a_file_without_row_count_is_damaged() {
        assert_eq!(add().num_records().unwrap(), 3);
        assert!(AddFile::default().num_records().is_err());
    }
}
