//! A version of a table in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_change::{Code, Error, Result, TableVersion};

use super::FileMap;
use crate::actions::{Action, CommitInfo, Metadata, Protocol, RemoveFile, Txn};
use crate::schema::TableSchema;

/// Reader features that Tidegate has.
const READER_FEATURES: [&str; 6] = [
    "deletionVectors",
    "columnMapping",
    "timestampNtz",
    "typeWidening",
    "vacuumProtocolCheck",
    "typeWidening-preview",
];

/// Removed files by path and deletion vector.
pub type Tombstones = BTreeMap<(Arc<str>, Option<String>), Arc<RemoveFile>>;

/// A version of a table: what is live, and what the log remembers besides.
#[derive(Clone, Debug)]
pub struct TableSnapshot {
    /// The version.
    pub version: TableVersion,
    /// The protocol.
    pub protocol: Protocol,
    /// Schema and properties.
    pub metadata: Arc<Metadata>,
    /// Live files by path.
    pub files: FileMap,
    /// State by domain.
    pub domains: BTreeMap<String, String>,
    /// Progress by application.
    pub transactions: BTreeMap<String, Txn>,
    /// Removed files that older versions may need.
    pub tombstones: Arc<Tombstones>,
    /// The commit's time, ms since the epoch; None where the log does not say.
    pub in_commit_timestamp_ms: Option<i64>,
    schema: TableSchema,
}

impl TableSnapshot {
    /// The schema.
    #[must_use]
    pub fn schema(&self) -> &TableSchema {
        &self.schema
    }

    /// A property of the table.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&str> {
        self.metadata.configuration.get(name).map(String::as_str)
    }

    /// The next version: this one with the actions of its commit.
    ///
    /// Costs what the commit changes, not what the table holds.
    ///
    /// # Errors
    /// `INTERNAL` when the version is not the next; `CORRUPT` and `UNSUPPORTED` for what
    /// the actions make of schema and protocol.
    pub fn advance(&self, version: TableVersion, actions: &[Action]) -> Result<Self> {
        if version != self.version.next() {
            let message = format!(
                "version {version}: does not follow version {}",
                self.version
            );
            return Err(Error::internal(message));
        }
        let mut builder = Builder {
            version: Some(self.version),
            protocol: Some(self.protocol.clone()),
            metadata: Some(Arc::clone(&self.metadata)),
            files: self.files.clone(),
            domains: self.domains.clone(),
            transactions: self.transactions.clone(),
            tombstones: Arc::clone(&self.tombstones),
            in_commit_timestamp_ms: None,
            schema: Some(self.schema.clone()),
        };
        builder.apply_commit(version, actions);
        builder.finish()
    }

    /// Version 0, from the actions of its commit.
    ///
    /// # Errors
    /// `CORRUPT` without protocol or metadata.
    pub fn first(actions: &[Action]) -> Result<Self> {
        let mut builder = Builder::default();
        builder.apply_commit(TableVersion(0), actions);
        builder.finish()
    }
}

/// Replays actions, oldest first.
#[derive(Debug, Default)]
pub(super) struct Builder {
    version: Option<TableVersion>,
    protocol: Option<Protocol>,
    metadata: Option<Arc<Metadata>>,
    files: FileMap,
    domains: BTreeMap<String, String>,
    transactions: BTreeMap<String, Txn>,
    tombstones: Arc<Tombstones>,
    in_commit_timestamp_ms: Option<i64>,
    schema: Option<TableSchema>,
}

impl Builder {
    /// A replay that starts with the checkpoint of a version.
    pub(super) fn at(version: TableVersion) -> Self {
        Self {
            version: Some(version),
            ..Self::default()
        }
    }

    pub(super) fn in_commit_timestamp(&mut self, info: Option<CommitInfo>) {
        let info = info.unwrap_or_default();
        self.in_commit_timestamp_ms = info.in_commit_timestamp.or(info.timestamp);
    }

    pub(super) fn apply_commit(&mut self, version: TableVersion, actions: &[Action]) {
        self.version = Some(version);
        self.in_commit_timestamp_ms = None;
        for action in actions {
            self.apply(action.clone());
        }
    }

    pub(super) fn apply(&mut self, action: Action) {
        match action {
            Action::CommitInfo(info) => self.in_commit_timestamp(Some(info)),
            Action::Protocol(protocol) => self.protocol = Some(protocol),
            Action::Metadata(metadata) => {
                self.metadata = Some(Arc::new(metadata));
                self.schema = None;
            }
            Action::Txn(txn) => {
                self.transactions.insert(txn.app_id.clone(), txn);
            }
            Action::Domain(domain) if domain.removed => {
                self.domains.remove(&domain.domain);
            }
            Action::Domain(domain) => {
                self.domains.insert(domain.domain, domain.configuration);
            }
            Action::Add(add) => {
                let vector = add
                    .deletion_vector
                    .as_ref()
                    .map(|vector| vector.unique_id());
                let id = (Arc::from(add.path.as_str()), vector);
                if self.tombstones.contains_key(&id) {
                    Arc::make_mut(&mut self.tombstones).remove(&id);
                }
                self.files.insert(Arc::new(add));
            }
            Action::Remove(remove) => {
                let vector = remove
                    .deletion_vector
                    .as_ref()
                    .map(|vector| vector.unique_id());
                let live = self.files.get(&remove.path).map(|add| {
                    add.deletion_vector
                        .as_ref()
                        .map(|vector| vector.unique_id())
                });
                // Actions of one commit have no order: a remove cancels only the vector that it names.
                if live.is_some_and(|live| live == vector) {
                    self.files.remove(&remove.path);
                }
                let id = (Arc::from(remove.path.as_str()), vector);
                Arc::make_mut(&mut self.tombstones).insert(id, Arc::new(remove));
            }
            Action::Cdc(_) | Action::Unknown(_) => {}
        }
    }

    pub(super) fn finish(self) -> Result<TableSnapshot> {
        let version = self.version.unwrap_or_default();
        let lacks =
            |what: &str| Error::corrupt(format!("version {version}: the log has no {what}"));
        let protocol = self.protocol.ok_or_else(|| lacks("protocol"))?;
        let metadata = self.metadata.ok_or_else(|| lacks("metaData"))?;
        check_readable(version, &protocol)?;
        let schema = match self.schema {
            Some(schema) => schema,
            None => TableSchema::from_metadata(&metadata)
                .map_err(|e| e.context(format!("version {version}")))?,
        };
        Ok(TableSnapshot {
            version,
            protocol,
            metadata,
            files: self.files,
            domains: self.domains,
            transactions: self.transactions,
            tombstones: self.tombstones,
            in_commit_timestamp_ms: self.in_commit_timestamp_ms,
            schema,
        })
    }
}

fn check_readable(version: TableVersion, protocol: &Protocol) -> Result<()> {
    let features = protocol.reader_features.iter().flatten();
    let unknown = features
        .into_iter()
        .find(|name| !READER_FEATURES.contains(&name.as_str()));
    let what = match unknown {
        Some(feature) => format!("reader feature {feature}"),
        None if protocol.min_reader_version > 3 => {
            format!("reader version {}", protocol.min_reader_version)
        }
        None => return Ok(()),
    };
    Err(Error::new(
        Code::Unsupported,
        format!("version {version}: needs {what}"),
    ))
}
