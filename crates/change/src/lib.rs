//! The vocabulary of Tidegate: what every other crate speaks.
//!
//! - [`spec`]: the table spec that a user writes, its checks and its stored form.
//! - [`types`]: Delta type names and the Arrow types that stand for them in memory.
//! - [`key`]: canonical keys, [`KeyHash`] and [`KeyBucket`].
//! - [`sequence`]: sequences as order-preserving bytes and as values.
//! - [`source`]: what decoding yields, [`SourceBatch`].
//! - [`position`]: what tells the rows of tables without keys apart.
//! - [`outcome`]: ids, versions, counters and the result of a batch.
//! - [`clock`]: time and randomness, which always come from outside.
//! - [`yaml`]: reading what users write.
//!
//! Nothing here does I/O. Sources: the rules R-… are those of the project's semantics, quoted by id.

pub mod clock;
mod error;
pub mod hidden;
pub mod json;
pub mod key;
pub mod mutants;
pub mod outcome;
pub mod position;
pub mod sequence;
pub mod source;
pub mod spec;
pub mod text;
pub mod types;
pub mod yaml;

pub use clock::{Clock, Random};
pub use error::{Code, Error, Kind, Result};
pub use key::{CanonicalKeys, IndexHash, KeyBucket, KeyHash};
pub use outcome::{AttemptId, BatchId, BatchResult, Counters, Digest, TableVersion, WriterId};
pub use source::SourceBatch;
pub use spec::TableSpec;

/// Prefix of every hidden physical column and of every reserved name (R-CL2).
pub const HIDDEN_PREFIX: &str = "__tidegate_";
