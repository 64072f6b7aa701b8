//! Reading without a lock: tables are found by the catalog file, versions in their own logs.

use std::path::Path;

use tidegate_change::spec::ResolvedSpec;
use tidegate_change::{Code, Error, Result, TableVersion};
use tidegate_cluster::Stores;
use tidegate_cluster::catalog::{Catalog, CatalogTable};
use tidegate_cluster::heads::Heads;
use tidegate_cluster::metadata::State;
use tidegate_delta::{DeltaLog, TableRoot, TableSnapshot};

use crate::description::{HistoryLine, TableDescription, TableListing, resolved_spec};
use crate::embedded::RAFT_DIRECTORY;
use crate::lake::Lake;
use crate::stores::RemoteStores;

/// The tables of a directory as they were when it was opened; their versions are always the newest.
#[derive(Clone, Debug)]
pub struct Reader {
    lake: Lake,
    tables: Vec<CatalogTable>,
    heads: Heads,
}

impl Reader {
    /// Opens a directory for reading; one that does not exist holds no tables.
    ///
    /// # Errors
    /// `CORRUPT` when the catalog cannot be read, or an I/O error.
    pub fn open(directory: &Path) -> Result<Self> {
        let stores = RemoteStores::default();
        Self::open_in(directory, None, &stores)
    }

    /// The same with the address of a lake that the directory may not have used yet.
    ///
    /// # Errors
    /// As [`Self::open`], and [`Lake::of`].
    pub fn open_in(directory: &Path, lake: Option<&str>, stores: &RemoteStores) -> Result<Self> {
        let raft = directory.join(RAFT_DIRECTORY);
        let catalog = Catalog::read(&raft)?;
        let tables = catalog.map(|catalog| catalog.tables).unwrap_or_default();
        Ok(Self {
            lake: Lake::of(directory, lake, stores, None)?,
            tables,
            heads: Heads::read(&raft),
        })
    }

    pub(crate) fn new(lake: Lake, state: &State) -> Self {
        Self {
            lake,
            tables: Catalog::of(state).tables,
            heads: Heads::of(state),
        }
    }

    /// The tables in name order.
    ///
    /// # Errors
    /// What the store says.
    pub async fn list(&self) -> Result<Vec<TableListing>> {
        let mut listings = Vec::with_capacity(self.tables.len());
        for table in &self.tables {
            listings.push(self.listing(&table.name).await?);
        }
        Ok(listings)
    }

    /// A table as lists show it.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, or what the store says.
    pub async fn listing(&self, name: &str) -> Result<TableListing> {
        let location = self.lake.shown(&self.table(name)?.location);
        let version = self.log(name)?.latest_version().await?;
        Ok(TableListing {
            name: name.to_owned(),
            location,
            version: version.unwrap_or_default(),
        })
    }

    /// The names of the tables behind a name, in order; of all without one.
    pub fn names_after(&self, name: Option<&str>) -> impl Iterator<Item = &str> {
        let names = self.tables.iter().map(|table| table.name.as_str());
        names.filter(move |known| name.is_none_or(|name| *known > name))
    }

    /// Everything about a table.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, or what the log says.
    pub async fn describe(&self, name: &str) -> Result<TableDescription> {
        let location = self.lake.shown(&self.table(name)?.location);
        TableDescription::of(name, location, &self.snapshot(name, None).await?)
    }

    /// The versions of a table, newest first.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, or what the log says.
    pub async fn history(&self, name: &str, limit: Option<usize>) -> Result<Vec<HistoryLine>> {
        self.check(name).await?;
        let entries = self.log(name)?.history(limit).await?;
        entries.into_iter().map(HistoryLine::of).collect()
    }

    /// Where a table lies.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`.
    pub fn root(&self, name: &str) -> Result<TableRoot> {
        self.lake.open(&self.table(name)?.location)
    }

    /// The log of a table.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`.
    pub fn log(&self, name: &str) -> Result<DeltaLog> {
        Ok(DeltaLog::new(self.root(name)?))
    }

    /// Compares a table's log with the newest version that was acknowledged when the directory was opened,
    /// so that nobody reads an older table for the newest one.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`; `LOG_BEHIND_RAFT` when that version is not there, `CORRUPT` when it was changed.
    pub async fn check(&self, name: &str) -> Result<()> {
        let table = self.table(name)?;
        match self.heads.get(&table.id) {
            Some(head) => {
                let checked = head.check(&table.id, &self.log(name)?).await;
                checked.map_err(|e| e.context(format!("table {name}")))
            }
            None => Ok(()),
        }
    }

    /// A version of a table, the newest without a number.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, or what the log says.
    pub async fn snapshot(
        &self,
        name: &str,
        version: Option<TableVersion>,
    ) -> Result<TableSnapshot> {
        self.check(name).await?;
        let snapshot = self.log(name)?.snapshot(version).await;
        snapshot.map_err(|e| e.context(format!("table {name}")))
    }

    /// The spec that a table has at its newest version.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, or what the log says.
    pub async fn resolved(&self, name: &str) -> Result<ResolvedSpec> {
        resolved_spec(name, &self.snapshot(name, None).await?)
    }

    fn table(&self, name: &str) -> Result<&CatalogTable> {
        self.tables
            .iter()
            .find(|table| table.name == name)
            .ok_or_else(|| Error::new(Code::TableNotFound, format!("table {name}: does not exist")))
    }
}
