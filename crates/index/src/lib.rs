//! The key index: from the hash of a key to the file and row that hold its state.
//!
//! An index is a list of immutable **runs**, oldest first, named by the [`IndexManifest`] that each commit
//! carries in its `tidegate.state.1` domain: index and table are of one version by construction. A run maps
//! hashes to [`Entry`]s (live row, tombstone, gone); the newest run that knows a hash decides.
//!
//! - [`RunWriter`] collects the changes of a commit, [`Index::commit`] writes them and merges runs in tiers;
//!   `spilled` holds what memory does not. [`Changes`] are those of a writer whose commit another node makes.
//! - [`Index::locate`] finds many keys; it reads the blocks it needs, or whole segments where the keys are dense.
//! - [`rebuild`] makes an index from the table's rows, [`verify`] compares the two (invariant 4).
//! - `format` holds the bytes of a run, `merge` the streams of entries behind merging, rebuild and verify.
//!
//! Memory is bounded by what a [`Spill`] allows (without one by the batch) and by a few segments of about a
//! megabyte, never by the size of a run.
//! The index is derived: when a run is lost or corrupt ([`is_damage`]), [`rebuild`] makes a new one from the
//! table.
//!
//! Hashes are stored as the top 96 bits of the 128: with a seed per table, ten billion keys collide with a
//! probability below 1e-9 (design: key index, "Index").

#![deny(clippy::as_conversions)]

mod changes;
mod entry;
mod error;
mod format;
mod locate;
mod manifest;
mod merge;
mod rebuild;
mod run;
mod spilled;
mod verify;
mod writer;

pub use changes::{Change, Changes};
pub use entry::{Entry, FileKind, FileOrdinal, FileRef, Located, Location, Presence};
pub use error::{is_damage, is_said_twice};
pub use locate::Index;
pub use manifest::{IndexManifest, RUNS_MAX, RunDescriptor, RunNames};
pub use rebuild::{KeyRows, Spill, rebuild};
pub use tidegate_change::key::IndexHash;
pub use tidegate_change::{Error, Result};
pub use verify::{Difference, Position, VerifyReport, verify};
pub use writer::RunWriter;
