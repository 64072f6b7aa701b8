//! How batches become table versions, exactly once.
//!
//! - [`metadata`]: the commit state machine, pure, and the log that replicates it.
//! - [`consensus`]: the log as the rest sees it.
//! - [`coordinator`]: drives batches and schema changes through the protocol.
//! - [`workers`]: the seams to execution and storage.
//! - [`placement`]: which worker owns which buckets.
//! - [`worker`]: the parts of batches that a node does for others; [`remote`]: a batch over several workers;
//!   [`shuffle`]: rows on their way between them.
//! - [`cancellation`]: how a submitter stops a batch.
//! - [`catalog`]: where readers find tables without the log.

pub mod cancellation;
pub mod catalog;
pub mod consensus;
pub mod coordinator;
pub mod heads;
pub mod metadata;
pub mod placement;
pub mod remote;
pub mod shuffle;
pub mod worker;
pub mod workers;

pub use cancellation::Cancellation;
pub use consensus::{Applied, Consensus};
pub use coordinator::{
    BatchRequest, ConflictCounts, Coordinator, CoordinatorOptions, CoordinatorParts,
};
pub use remote::RemoteWorkers;
pub use workers::{LocalWorkers, Stores, Workers};
