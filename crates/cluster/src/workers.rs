//! What the coordinator needs from outside: workers that execute, stores that hold tables.

use std::fmt::Debug;

use async_trait::async_trait;
use tidegate_apply::{ForeignWork, Integration, Manifest, Work};
use tidegate_change::Result;
use tidegate_delta::TableRoot;

/// Executes the work of an attempt.
#[async_trait]
pub trait Workers: Debug + Send + Sync {
    /// Writes the files of an attempt, under its name, and says what its commit must hold.
    ///
    /// # Errors
    /// When the batch is refused or storage fails; what was written is collected by the caller.
    async fn execute(&self, work: Work) -> Result<Manifest>;

    /// Takes in what other engines committed: writes files under the attempt's name and says what its commit
    /// must hold. In this process, unless a worker does it elsewhere.
    ///
    /// # Errors
    /// `FOREIGN_DUPLICATE`, `FOREIGN_REWRITE`, or failures of storage.
    async fn integrate(&self, work: ForeignWork) -> Result<Integration> {
        tidegate_apply::integrate(&work).await
    }
}

/// The worker of embedded mode: executes in this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalWorkers;

#[async_trait]
impl Workers for LocalWorkers {
    async fn execute(&self, work: Work) -> Result<Manifest> {
        tidegate_apply::execute(&work).await
    }
}

/// Opens the places where tables lie.
pub trait Stores: Debug + Send + Sync {
    /// The root of a table at a location, as the replicated state holds it.
    ///
    /// # Errors
    /// `INVALID_LOCATION` for a place outside the configured roots.
    fn open(&self, location: &str) -> Result<TableRoot>;

    /// Removes unfinished writes below a location; only called by the holder of the directory.
    ///
    /// # Errors
    /// What the store says.
    fn remove_temporaries(&self, location: &str) -> Result<u64> {
        let _ = location;
        Ok(0)
    }

    /// Removes the directories at and below a location that hold nothing, where the store has directories.
    ///
    /// # Errors
    /// What the store says.
    fn remove_empty_directories(&self, location: &str) -> Result<()> {
        let _ = location;
        Ok(())
    }
}
