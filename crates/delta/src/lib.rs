//! The table format: Delta Lake tables on an object store, as Tidegate writes and reads them.
//!
//! - [`store`]: the object store for local directories, durable and with faults on demand.
//! - [`TableRoot`]: where a table lies; everything below takes it.
//! - [`actions`], [`log`]: commits, snapshots, checkpoints, history.
//! - [`TableDefinition`], [`TableSchema`]: what a table declares of itself.
//! - [`data`], [`dv`], [`cdc`]: data files, deletion vectors, change data files.
//! - [`feed`]: the changes of a range of versions.
//! - [`names`], [`path`]: names of files, escaping of paths.
//!
//! Nothing else does I/O on tables. Every published version is readable by other Delta readers; hidden
//! columns never show. Spec: the table format document and the Delta protocol.

#![deny(clippy::as_conversions)]

pub mod actions;
pub mod cdc;
pub mod data;
mod definition;
pub mod dv;
pub mod error;
pub mod feed;
pub mod log;
pub mod names;
pub mod path;
pub mod schema;
pub mod store;
mod table;
mod upload;

pub use definition::{TableDefinition, properties};
pub use log::{CreateOutcome, DeltaLog, TableSnapshot};
pub use schema::{PartitionValues, TableSchema, split_by_partition};
pub use table::TableRoot;
pub use tidegate_change::{Error, Result};
