//! The actions of the Delta log, as serde types.
//!
//! Unknown actions and unknown fields are tolerated: other engines write their own. Source: Delta
//! protocol, "Actions".

mod commit_info;
mod file;
mod line;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use commit_info::CommitInfo;
pub use file::{AddFile, CdcFile, DeletionVectorDescriptor, RemoveFile, tags};
pub use line::{parse_commit, to_bytes};

pub(crate) use line::ActionLine;

/// Engine name that every commit of Tidegate carries, followed by its release.
pub const ENGINE: &str = "Tidegate";

/// One action of a commit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Action {
    /// What the commit was for; always the first action (Delta protocol: in-commit timestamps).
    #[serde(rename = "commitInfo")]
    CommitInfo(CommitInfo),
    /// What readers and writers must understand.
    #[serde(rename = "protocol")]
    Protocol(Protocol),
    /// Schema, partition columns and properties.
    #[serde(rename = "metaData")]
    Metadata(Metadata),
    /// Progress of an application.
    #[serde(rename = "txn")]
    Txn(Txn),
    /// A named piece of state that survives checkpoints.
    #[serde(rename = "domainMetadata")]
    Domain(DomainMetadata),
    /// A data file leaves the table.
    #[serde(rename = "remove")]
    Remove(RemoveFile),
    /// A data file joins the table.
    #[serde(rename = "add")]
    Add(AddFile),
    /// A file of change data.
    #[serde(rename = "cdc")]
    Cdc(CdcFile),
    /// An action of a kind that Tidegate does not know, by name.
    #[serde(skip_serializing)]
    Unknown(String),
}

/// What a reader and a writer must understand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Protocol {
    /// Reader version.
    pub min_reader_version: i32,
    /// Writer version.
    pub min_writer_version: i32,
    /// Features that a reader must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader_features: Option<Vec<String>>,
    /// Features that a writer must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer_features: Option<Vec<String>>,
}

/// Format of the data files: always Parquet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    /// `parquet`.
    pub provider: String,
    /// None are in use.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

impl Default for Format {
    fn default() -> Self {
        Self {
            provider: "parquet".into(),
            options: BTreeMap::new(),
        }
    }
}

/// Schema, partition columns and properties of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// The table's id, a UUID.
    pub id: String,
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Format of the data files.
    #[serde(default)]
    pub format: Format,
    /// The schema as JSON.
    pub schema_string: String,
    /// Partition columns by name.
    #[serde(default)]
    pub partition_columns: Vec<String>,
    /// When the table was made, ms since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_time: Option<i64>,
    /// Table properties.
    #[serde(default)]
    pub configuration: BTreeMap<String, String>,
}

/// Progress of an application: a version that only rises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Txn {
    /// The application.
    pub app_id: String,
    /// Its progress.
    pub version: i64,
    /// When, ms since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<i64>,
}

/// A named piece of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainMetadata {
    /// Name.
    pub domain: String,
    /// Content, JSON by custom.
    pub configuration: String,
    /// Whether the domain goes.
    #[serde(default)]
    pub removed: bool,
}

impl DomainMetadata {
    /// A domain with content.
    pub fn set(domain: impl Into<String>, configuration: impl Into<String>) -> Self {
        Self {
            domain: domain.into(),
            configuration: configuration.into(),
            removed: false,
        }
    }

    /// The end of a domain.
    pub fn unset(domain: impl Into<String>) -> Self {
        Self {
            domain: domain.into(),
            configuration: String::new(),
            removed: true,
        }
    }
}

/// The domain that holds the resolved spec ([`tidegate_change::spec::ResolvedSpec`]).
pub const SPEC_DOMAIN: &str = "tidegate.spec";
/// The domain that names the clustering columns (Delta protocol: "Clustered Table").
pub const CLUSTERING_DOMAIN: &str = "delta.clustering";
