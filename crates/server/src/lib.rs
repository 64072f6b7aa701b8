//! Tidegate in one process on a local directory: the same coordinator and log as a cluster's, with one member.
//!
//! - [`Embedded`]: the writer; holds the directory while it lives.
//! - [`Reader`]: finds tables by the catalog file, takes no lock.
//! - [`SourceArgument`], [`ApplyOptions`]: what a batch is made of.
//!
//! Layout of a directory: `lake/` the tables, `raft/` log, lock and catalog, `spool/` input that came by
//! stream, `spill/` what the memory of batches does not hold; both are empty between batches.

mod apply;
mod checkpoint;
mod description;
mod embedded;
mod glob;
mod lake;
mod memory;
mod reader;
mod source;

#[cfg(test)]
mod tests;

pub use apply::ApplyOptions;
pub use description::{HistoryLine, TableDescription, TableListing};
pub use embedded::{Embedded, OpenOptions};
pub use lake::Lake;
pub use reader::Reader;
pub use source::SourceArgument;
pub use tidegate_apply::{BatchObserver, BatchPhase, BatchProgress};
pub use tidegate_change::{Error, Result};
pub use tidegate_decode::FileFormat;
