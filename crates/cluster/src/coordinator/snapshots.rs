//! The newest snapshot of each table, taken along from commit to commit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_change::{Digest, Error, Result, TableVersion};
use tidegate_delta::{DeltaLog, TableSnapshot};

use super::Coordinator;
use crate::metadata::{Refusal, TableId};

/// Commits up to which a cached snapshot is advanced instead of read anew.
const ADVANCE_MAX: u64 = 64;

/// Snapshots by table.
#[derive(Debug, Default)]
pub(crate) struct SnapshotCache {
    snapshots: Mutex<BTreeMap<TableId, Arc<TableSnapshot>>>,
}

impl SnapshotCache {
    fn get(&self, id: &TableId) -> Option<Arc<TableSnapshot>> {
        self.snapshots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(id)
            .map(Arc::clone)
    }

    fn put(&self, id: &TableId, snapshot: &Arc<TableSnapshot>) {
        let mut snapshots = self
            .snapshots
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        snapshots.insert(id.clone(), Arc::clone(snapshot));
    }

    pub(super) fn forget(&self, id: &TableId) {
        self.snapshots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(id);
    }

    /// Whether that version was read.
    pub(super) fn holds(&self, id: &TableId, version: TableVersion) -> bool {
        self.get(id).is_some_and(|cached| cached.version == version)
    }

    /// The table at exactly that version, whose commit must have that digest where it is known.
    pub(crate) async fn at(
        &self,
        id: &TableId,
        log: &DeltaLog,
        (version, digest): (TableVersion, Option<Digest>),
    ) -> Result<Arc<TableSnapshot>> {
        let cached = self.get(id).filter(|cached| {
            cached.version <= version && version.0 - cached.version.0 <= ADVANCE_MAX
        });
        let snapshot = match cached {
            Some(cached) if cached.version == version => return Ok(cached),
            Some(cached) => advance(cached, log, (version, digest)).await?,
            None => {
                let slot = log.read_slot(version).await?;
                require(version, slot.map(|slot| Digest::of(&slot)), digest)?;
                Arc::new(log.snapshot(Some(version)).await?)
            }
        };
        self.put(id, &snapshot);
        Ok(snapshot)
    }
}

async fn advance(
    mut snapshot: Arc<TableSnapshot>,
    log: &DeltaLog,
    (version, digest): (TableVersion, Option<Digest>),
) -> Result<Arc<TableSnapshot>> {
    while snapshot.version < version {
        let next = snapshot.version.next();
        let commit = log.read_commit(next).await?;
        if next == version {
            require(version, Some(commit.digest()), digest)?;
        }
        snapshot = Arc::new(snapshot.advance(next, &commit.actions)?);
    }
    Ok(snapshot)
}

/// Refuses bytes that are not those that were acknowledged.
fn require(version: TableVersion, found: Option<Digest>, known: Option<Digest>) -> Result<()> {
    match (found, known) {
        (Some(found), Some(known)) if found != known => Err(Error::corrupt(format!(
            "version {version}: its commit is not the one that was acknowledged"
        ))),
        _ => Ok(()),
    }
}

impl Coordinator {
    /// The newest decided version of a table.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, or what the log says.
    pub async fn snapshot(&self, name: &str) -> Result<Arc<TableSnapshot>> {
        let (id, table) = self.table_named(name).await?;
        let head = table
            .head
            .ok_or_else(|| Refusal::TableUnknown.into_error(name))?;
        let head = (head, table.head_digest);
        self.snapshots.at(&id, &self.log(&table)?, head).await
    }
}
