//! How batches become table versions, exactly once.
//!
//! - [`metadata`]: the commit state machine, pure, and its single-member log.
//! - [`consensus`]: the log as the rest sees it.
//! - [`coordinator`]: drives batches and schema changes through the protocol.
//! - [`workers`]: the seams to execution and storage.
//! - [`catalog`]: where readers find tables without the log.

pub mod catalog;
pub mod consensus;
pub mod coordinator;
pub mod heads;
pub mod metadata;
pub mod workers;

pub use consensus::{Applied, Consensus};
pub use coordinator::{BatchRequest, Coordinator, CoordinatorOptions, CoordinatorParts};
pub use workers::{LocalWorkers, Stores, Workers};
