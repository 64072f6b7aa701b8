//! The newest snapshot of each table, taken along from commit to commit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_change::{Result, TableVersion};
use tidegate_delta::{DeltaLog, TableSnapshot};

use super::Coordinator;
use crate::metadata::{Refusal, TableId};

/// Commits up to which a cached snapshot is advanced instead of read anew.
const ADVANCE_MAX: u64 = 64;

/// Snapshots by table.
#[derive(Debug, Default)]
pub(super) struct SnapshotCache {
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

    /// The table at exactly that version.
    pub(super) async fn at(
        &self,
        id: &TableId,
        log: &DeltaLog,
        version: TableVersion,
    ) -> Result<Arc<TableSnapshot>> {
        let cached = self.get(id).filter(|cached| {
            cached.version <= version && version.0 - cached.version.0 <= ADVANCE_MAX
        });
        let snapshot = match cached {
            Some(cached) if cached.version == version => return Ok(cached),
            Some(cached) => advance(cached, log, version).await?,
            None => Arc::new(log.snapshot(Some(version)).await?),
        };
        self.put(id, &snapshot);
        Ok(snapshot)
    }
}

async fn advance(
    mut snapshot: Arc<TableSnapshot>,
    log: &DeltaLog,
    version: TableVersion,
) -> Result<Arc<TableSnapshot>> {
    while snapshot.version < version {
        let next = snapshot.version.next();
        let commit = log.read_commit(next).await?;
        snapshot = Arc::new(snapshot.advance(next, &commit.actions)?);
    }
    Ok(snapshot)
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
        self.snapshots.at(&id, &self.log(&table)?, head).await
    }
}
