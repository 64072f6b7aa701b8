//! The processes of Tidegate: a directory held by one process, and a node that serves it to others.
//!
//! - [`Embedded`]: the writer; holds the directory while it lives.
//! - [`Reader`]: finds tables by the catalog file, takes no lock.
//! - [`SourceArgument`], [`ApplyOptions`]: what a batch is made of.
//! - [`Node`]: the same behind gRPC and Arrow Flight; [`config`] sets it up.
//!
//! Embedded mode and a node are the same coordinator and log. Inside a node, `services` and `flight` take
//! calls, `batches` runs what they bring, `reads` opens what they ask for; `group` makes several nodes one
//! cluster, `work` does parts of its batches.
//!
//! Layout of a directory: `lake/` the tables, `raft/` log, lock and catalog, `spool/` input that came by
//! stream, `spill/` and `work-spill/` what the memory of batches does not hold; they are empty between
//! batches.

mod addresses;
mod apply;
mod batches;
mod checkpoint;
pub mod config;
mod description;
mod embedded;
mod flight;
mod glob;
mod group;
mod lake;
mod memory;
mod node;
mod reader;
mod reads;
mod services;
mod source;
mod spool;
pub mod stores;
mod threads;
mod work;

#[cfg(test)]
mod tests;

pub use apply::ApplyOptions;
pub use config::Config;
pub use description::{HistoryLine, TableDescription, TableListing};
pub use embedded::{Embedded, OpenOptions};
pub use lake::Lake;
pub use node::{Node, NodeEnd};
pub use reader::Reader;
pub use source::{LocalFile, SourceArgument, local_files};
pub use stores::RemoteStores;
pub use tidegate_apply::{BatchObserver, BatchPhase, BatchProgress};
pub use tidegate_change::{Error, Result};
pub use tidegate_cluster::ConflictCounts;
pub use tidegate_decode::FileFormat;
