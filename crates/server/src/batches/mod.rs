//! The batches that a node runs: taken once, watched by many, stopped on request.
//!
//! - [`BatchRecord`]: one batch and how it stands.
//! - [`Records`]: the batches that run, and the newest that ended.
//! - [`Batches`]: takes batches, runs them in turn, answers for them.
//!
//! Nothing here is needed for exactly-once: a batch that is forgotten, by a restart say, is submitted again
//! and gets the answer that its table holds.

mod record;
mod records;
mod run;

pub(crate) use record::{BatchRecord, BatchStatus};
pub(crate) use run::Batches;
