//! Reading tables and their feeds, as streams of batches with visible columns only.
//!
//! - [`read`]: a version of a table, with chosen columns, a condition, key order and a limit.
//! - [`changes`], [`stream_changes`]: the feed over a range of versions, and as a stream reader sees it
//!   (R-F1 to R-F11).
//! - [`rejects`]: quarantined events.
//! - [`batches`]: the results of batches.
//! - [`output`]: rows as aligned text, JSON, CSV or Parquet.
//!
//! Nothing here holds a table in memory: batches are handed on as they are read, and sorting spills to
//! temporary files beyond its budget.

mod batches;
mod changes;
mod columns;
#[cfg(test)]
mod fixture;
mod order;
pub mod output;
mod read;
mod rejects;
mod rows;

pub use batches::batches;
pub use changes::{ChangesStart, StreamedChanges, changes, stream_changes};
pub use read::{ReadOptions, read};
pub use rejects::rejects;
pub use rows::Rows;
pub use tidegate_delta::feed::FeedBounds;
