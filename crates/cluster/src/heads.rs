//! The heads file: the newest versions that were acknowledged, which a reader must not miss.
//!
//! It is replaced after each commit and not synced, since it only adds a check to reading: after a crash of
//! the machine it may be old or unreadable, and then asks for less. A version never leaves a table's log, so
//! an old head holds for ever.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tidegate_change::{Digest, Error, Result, TableVersion};
use tidegate_delta::DeltaLog;

use crate::metadata::{State, TableId};

const HEADS_FILE: &str = "heads.json";
const NEW_HEADS_FILE: &str = "heads.json.new";

/// The newest version of a table, and what its commit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The version.
    pub version: TableVersion,
    /// Digest of the commit's bytes.
    pub digest: Digest,
}

/// Heads by table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Heads(BTreeMap<TableId, Head>);

impl Heads {
    /// The heads of a state.
    #[must_use]
    pub fn of(state: &State) -> Self {
        let heads = state.tables.iter().filter_map(|(id, table)| {
            let head = Head {
                version: table.head?,
                digest: table.head_digest?,
            };
            Some((id.clone(), head))
        });
        Self(heads.collect())
    }

    /// The head of a table, if it is known.
    #[must_use]
    pub fn get(&self, id: &TableId) -> Option<Head> {
        self.0.get(id).copied()
    }

    /// Reads the heads of a metadata directory; none where there is no file, or no readable one.
    #[must_use]
    pub fn read(directory: &Path) -> Self {
        let path = directory.join(HEADS_FILE);
        let read = match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Self::default(),
            Err(e) => Err(Error::io(path.display(), e)),
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|e| Error::corrupt(path.display().to_string()).with_source(e)),
        };
        read.unwrap_or_else(|error| {
            tracing::warn!(%error, "the heads of the tables are not known");
            Self::default()
        })
    }

    /// Replaces the heads of a metadata directory.
    ///
    /// # Errors
    /// An I/O error.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let (path, new) = (directory.join(HEADS_FILE), directory.join(NEW_HEADS_FILE));
        let bytes = serde_json::to_vec(self)
            .map_err(|e| Error::internal("the heads cannot be written").with_source(e))?;
        fs::write(&new, bytes)
            .and_then(|()| fs::rename(&new, &path))
            .map_err(|e| Error::io(path.display(), e))
    }
}

impl Head {
    /// Compares a table's log with the head that was acknowledged.
    ///
    /// # Errors
    /// `LOG_BEHIND_RAFT` when the log ends before it, `CORRUPT` when its commit is another; what the store
    /// says.
    pub async fn check(&self, table: &TableId, log: &DeltaLog) -> Result<()> {
        let head = self.version;
        let error = match log.read_slot(head).await? {
            Some(bytes) if Digest::of(&bytes) == self.digest => return Ok(()),
            Some(_) => Error::corrupt(format!(
                "the commit of version {head} is not the one that was acknowledged"
            )),
            None => {
                let latest = log.latest_version().await?;
                // A checkpoint of it or of a later version stands for a commit that was cleaned away.
                if latest >= Some(head) {
                    return Ok(());
                }
                let shown = latest.map_or_else(|| "none".to_owned(), |latest| latest.to_string());
                let message =
                    format!("its log ends at version {shown}, version {head} was acknowledged");
                Error::new(tidegate_change::Code::LogBehindRaft, message)
            }
        };
        // Dropped and made anew since the head was read: another table, whose log is another.
        match log.snapshot(None).await {
            Ok(snapshot) if snapshot.metadata.id != table.0 => Ok(()),
            Ok(_) | Err(_) => Err(error),
        }
    }
}
