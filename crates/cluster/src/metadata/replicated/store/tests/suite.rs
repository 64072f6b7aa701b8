//! openraft's own suite for stores.

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};

use super::super::{RaftLog, StateMachine, Store, WriteMode};
use super::support::{directory, open, options};
use crate::metadata::replicated::types::Types;

struct Builder(WriteMode);

/// What must live as long as a store.
struct Guard {
    _store: Store,
    _dir: tempfile::TempDir,
}

impl StoreBuilder<Types, RaftLog, StateMachine, Guard> for Builder {
    async fn build(&self) -> Result<(Guard, RaftLog, StateMachine), StorageError<Types>> {
        let dir = directory();
        let opened = open(dir.path(), &options(None, self.0)).unwrap();
        let guard = Guard {
            _store: opened.store,
            _dir: dir,
        };
        Ok((guard, opened.log, opened.state_machine))
    }
}

#[tokio::test]
async fn the_store_passes_the_suite_of_openraft() {
    Suite::test_all(Builder(WriteMode::Thread)).await.unwrap();
}

#[tokio::test]
async fn the_store_passes_the_suite_without_a_thread() {
    Suite::test_all(Builder(WriteMode::Inline)).await.unwrap();
}
