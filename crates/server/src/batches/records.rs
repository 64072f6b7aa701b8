//! The batches that run, and the newest that ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_change::{BatchId, Code, Error, Result};
use tidegate_cluster::metadata::TableId;

use super::record::BatchRecord;

/// Ended batches that are remembered.
const ENDED_MAX: usize = 1_024;

type Key = (TableId, BatchId);

/// What a node remembers of its batches, newest last.
#[derive(Debug, Default)]
pub(super) struct Records(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    by_key: BTreeMap<Key, Arc<BatchRecord>>,
    /// Ended ones, oldest first; a key may be here that runs again.
    ended: VecDeque<Arc<BatchRecord>>,
    running_count: usize,
}

impl Records {
    /// A batch by its ids.
    pub(super) fn get(&self, table: &TableId, batch: &BatchId) -> Option<Arc<BatchRecord>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .by_key
            .get(&(table.clone(), batch.clone()))
            .map(Arc::clone)
    }

    /// Takes a new batch, or the same one that runs; says which.
    pub(super) fn take(&self, new: BatchRecord, running_max: usize) -> Result<Taken> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (new.table_id.clone(), new.batch_id.clone());
        if let Some(record) = known.by_key.get(&key)
            && !record.status().is_final()
        {
            record.check_content(new.input_digest)?;
            return Ok(Taken::Running(Arc::clone(record)));
        }
        if known.running_count >= running_max {
            let message = format!("{} batches wait already", known.running_count);
            return Err(Error::new(Code::ResourceExhausted, message));
        }
        let record = Arc::new(new);
        known.by_key.insert(key, Arc::clone(&record));
        known.running_count += 1;
        Ok(Taken::New(record))
    }

    /// Notes that a batch ended.
    pub(super) fn end(&self, record: &Arc<BatchRecord>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.running_count = known.running_count.saturating_sub(1);
        known.ended.push_back(Arc::clone(record));
        while known.ended.len() > ENDED_MAX {
            let Some(oldest) = known.ended.pop_front() else {
                return;
            };
            let key = (oldest.table_id.clone(), oldest.batch_id.clone());
            let is_current = known
                .by_key
                .get(&key)
                .is_some_and(|current| Arc::ptr_eq(current, &oldest));
            if is_current {
                known.by_key.remove(&key);
            }
        }
    }

    /// All batches that are remembered.
    pub(super) fn all(&self) -> Vec<Arc<BatchRecord>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.by_key.values().map(Arc::clone).collect()
    }
}

/// What taking a batch came to.
pub(super) enum Taken {
    /// It is to be run.
    New(Arc<BatchRecord>),
    /// The same one runs.
    Running(Arc<BatchRecord>),
}
