//! How batches become table versions, exactly once.
//!
//! - [`metadata`]: the commit state machine, pure, and the log that replicates it.
//! - [`consensus`]: the log as the rest sees it.
//! - [`coordinator`]: drives batches and schema changes through the protocol.
//! - [`workers`]: the seams to execution and storage.
//! - [`cancellation`]: how a submitter stops a batch.
//! - [`catalog`]: where readers find tables without the log.

pub mod cancellation;
pub mod catalog;
pub mod consensus;
pub mod coordinator;
pub mod heads;
pub mod metadata;
pub mod workers;

pub use cancellation::Cancellation;
pub use consensus::{Applied, Consensus};
pub use coordinator::{
    BatchRequest, ConflictCounts, Coordinator, CoordinatorOptions, CoordinatorParts,
};
pub use workers::{LocalWorkers, Stores, Workers};
