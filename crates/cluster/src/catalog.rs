//! The catalog file: where readers, which take no lock, find the tables of a directory.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_change::{Error, Result, WriterId};
use tidegate_delta::store::{Step, StepHook, StepKind};

use crate::metadata::{State, TableId, TableStatus};

const CATALOG_FILE: &str = "catalog.json";
const NEW_CATALOG_FILE: &str = "catalog.json.new";

/// A table that readers may open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogTable {
    /// The name.
    pub name: String,
    /// The id.
    pub id: TableId,
    /// The root: a path below the lake's root, or a URL.
    pub location: String,
}

/// The tables of a directory, in name order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalog {
    /// Format of this file.
    pub format: u32,
    /// Id of the log that attempts carry.
    pub writer: WriterId,
    /// The tables.
    pub tables: Vec<CatalogTable>,
}

impl Catalog {
    /// The tables of a state that have a version.
    #[must_use]
    pub fn of(state: &State) -> Self {
        let tables = state.names.iter().filter_map(|(name, id)| {
            let table = state.tables.get(id)?;
            let visible =
                table.head.is_some() && !matches!(table.status, TableStatus::Dropping { .. });
            visible.then(|| CatalogTable {
                name: name.clone(),
                id: id.clone(),
                location: table.location.clone(),
            })
        });
        Self {
            format: 1,
            writer: state.writer,
            tables: tables.collect(),
        }
    }

    /// A table by name.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<&CatalogTable> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// Reads the catalog of a metadata directory; none where there is no file.
    ///
    /// # Errors
    /// `CORRUPT` when the file is no catalog, or an I/O error.
    pub fn read(directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(CATALOG_FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io(path.display(), e)),
        };
        let catalog = serde_json::from_slice(&bytes)
            .map_err(|e| Error::corrupt(format!("catalog {}", path.display())).with_source(e))?;
        Ok(Some(catalog))
    }

    /// Replaces the catalog of a metadata directory, durably.
    ///
    /// # Errors
    /// An I/O error.
    pub fn write(&self, directory: &Path, hook: Option<&Arc<dyn StepHook>>) -> Result<()> {
        let (path, new) = (
            directory.join(CATALOG_FILE),
            directory.join(NEW_CATALOG_FILE),
        );
        let bytes = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::internal("the catalog cannot be written").with_source(e))?;
        let run = || -> io::Result<()> {
            let count = bytes.len() as u64;
            let mut file = None;
            step(hook, StepKind::CreateTemporary, &new, 0, || {
                file = Some(File::create(&new)?);
                Ok(())
            })?;
            let Some(mut file) = file else { return Ok(()) };
            step(hook, StepKind::Append, &new, count, || {
                file.write_all(&bytes)
            })?;
            step(hook, StepKind::Sync, &new, 0, || file.sync_all())?;
            step(hook, StepKind::Rename, &path, 0, || fs::rename(&new, &path))?;
            step(hook, StepKind::SyncDirectory, directory, 0, || {
                File::open(directory)?.sync_all()
            })
        };
        run().map_err(|e| Error::io(path.display(), e))
    }
}

/// Runs a durable step between the two calls of the hook.
pub(crate) fn step(
    hook: Option<&Arc<dyn StepHook>>,
    kind: StepKind,
    path: &Path,
    bytes: u64,
    run: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let Some(hook) = hook else { return run() };
    let step = Step { kind, path, bytes };
    hook.before(&step)?;
    run()?;
    hook.after(&step)
}
