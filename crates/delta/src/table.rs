//! Where a table lies: a store and the path of its root.

use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use tidegate_change::{Code, Error, Result};

use crate::error::storage;

/// A store and the path of a table's root in it.
#[derive(Clone, Debug)]
pub struct TableRoot {
    store: Arc<dyn ObjectStore>,
    root: Path,
}

impl TableRoot {
    /// The table at a path of a store.
    pub fn new(store: Arc<dyn ObjectStore>, root: Path) -> Self {
        Self { store, root }
    }

    /// The table in a local directory.
    pub fn local(directory: impl Into<std::path::PathBuf>) -> Self {
        Self::new(
            Arc::new(crate::store::LocalStore::new(directory)),
            Path::default(),
        )
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// The root's path in the store.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// The location of a file by its path relative to the root, as it stands on storage.
    ///
    /// # Errors
    /// `CORRUPT` when the path leaves the root or is no path.
    pub fn location(&self, relative: &str) -> Result<Path> {
        let parsed = Path::parse(relative).map_err(|e| {
            Error::corrupt(format!("path {relative}: not inside the table")).with_source(e)
        })?;
        let mut location = self.root.clone();
        location.extend(parsed.parts());
        Ok(location)
    }

    /// The bytes of a file.
    ///
    /// # Errors
    /// `NOT_FOUND` when there is none, else what the store says.
    pub async fn read(&self, relative: &str) -> Result<Bytes> {
        let location = self.location(relative)?;
        let result = self
            .store
            .get(&location)
            .await
            .map_err(|e| storage(&location, e))?;
        result.bytes().await.map_err(|e| storage(&location, e))
    }

    /// The bytes of a file; None when there is none.
    ///
    /// # Errors
    /// What the store says.
    pub async fn read_if_there(&self, relative: &str) -> Result<Option<Bytes>> {
        match self.read(relative).await {
            Err(e) if e.code() == Code::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// Writes a file in place of what has the name.
    ///
    /// # Errors
    /// What the store says.
    pub async fn write(&self, relative: &str, bytes: impl Into<PutPayload>) -> Result<()> {
        let location = self.location(relative)?;
        let put = self
            .store
            .put_opts(&location, bytes.into(), PutMode::Overwrite.into())
            .await;
        put.map(|_| ()).map_err(|e| storage(&location, e))
    }

    /// Removes a file; one that is not there is no failure.
    ///
    /// # Errors
    /// What the store says.
    pub async fn delete(&self, relative: &str) -> Result<()> {
        let location = self.location(relative)?;
        match self.store.delete(&location).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(storage(&location, e)),
        }
    }
}
