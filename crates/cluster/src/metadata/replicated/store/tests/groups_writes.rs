//! Writes that wait together share one sync; entries beyond the cache come from the file.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use openraft::RaftLogReader;
use openraft::storage::{RaftLogStorage, RaftLogStorageExt};
use tidegate_delta::store::{Step, StepHook, StepKind};

use super::super::WriteMode;
use super::support::{directory, entry, flushed, open, options};

/// Counts syncs, and holds them back while a gate is closed.
#[derive(Debug, Default)]
struct Gate {
    syncs: AtomicU64,
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.opened.notify_all();
    }
}

impl StepHook for Gate {
    fn before(&self, step: &Step<'_>) -> io::Result<()> {
        if step.kind == StepKind::Sync {
            let closed = self.closed.lock().unwrap();
            drop(self.opened.wait_while(closed, |closed| *closed).unwrap());
            self.syncs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn after(&self, _: &Step<'_>) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn what_waits_shares_a_sync() {
    let dir = directory();
    let gate = Arc::new(Gate::default());
    let hook: Arc<dyn StepHook> = Arc::<Gate>::clone(&gate);
    let mut opened = open(dir.path(), &options(Some(hook), WriteMode::Thread)).unwrap();
    gate.set(true);
    let mut waiting = Vec::new();
    for index in 0..100 {
        let (callback, receiver) = flushed();
        opened
            .log
            .append([entry(1, index)], callback)
            .await
            .unwrap();
        waiting.push(receiver);
        // Readable before it is durable.
        let read = opened.log.try_get_log_entries(0..=index).await.unwrap();
        assert_eq!(read.len() as u64, index + 1);
    }
    let before = gate.syncs.load(Ordering::Relaxed);
    gate.set(false);
    for receiver in waiting {
        receiver.await.unwrap();
    }
    let syncs = gate.syncs.load(Ordering::Relaxed) - before;
    assert!((1..=4).contains(&syncs), "{syncs} syncs for 100 appends");
}

#[tokio::test]
async fn entries_come_from_the_file_when_memory_has_dropped_them() {
    let dir = directory();
    let mut opened = open(dir.path(), &options(None, WriteMode::Thread)).unwrap();
    for index in 0..200 {
        let appended = opened.log.blocking_append([entry(1, index)]).await;
        appended.unwrap();
    }
    let all = opened.log.try_get_log_entries(..).await.unwrap();
    let expected: Vec<_> = (0..200).map(|index| entry(1, index)).collect();
    assert_eq!(all, expected);
    let some = opened.log.try_get_log_entries(3..6).await.unwrap();
    assert_eq!(some, expected[3..6]);
    assert!(
        opened
            .log
            .try_get_log_entries(200..300)
            .await
            .unwrap()
            .is_empty()
    );
    let limited = opened.log.limited_get_log_entries(10, 190).await.unwrap();
    assert_eq!(limited, expected[10..190], "far below the limit");
}
