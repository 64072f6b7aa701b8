//! Bytes of a source to typed events: pure, without I/O of its own, never panicking on any input.
//!
//! - [`open`] cuts an input into [`Chunk`]s: it tells kind and compression, reads, and cuts at records.
//! - [`DecodePlan`] knows the table's columns and policies; [`DecodePlan::decode`] turns a chunk into
//!   [`SourceBatch`](tidegate_change::SourceBatch)es, independently of other chunks.
//! - [`Findings`] say what the plan did not know (new fields, wider types, the type of positions);
//!   [`evolve`] makes the next spec of them (R-E1, R-E2).
//! - `flat` reads JSON lines and CSV, `parquet_file` Parquet, `debezium` the envelope of Debezium.
//!
//! Formats: event-formats document. Rules: R-K8, R-K9, R-N5, R-T6, R-X6.
#![deny(clippy::indexing_slicing)]

mod chunk;
mod column;
mod debezium;
mod evolve;
mod findings;
mod flat;
mod input;
mod metadata;
mod parquet_file;
mod plan;
mod records;
mod rows;
mod scan;
mod seen;
mod type_text;

pub use chunk::{Chunk, Chunks, open};
pub use evolve::evolve;
pub use findings::{Findings, FoundAt, SeenField};
pub use input::{FileFormat, Input};
pub use metadata::metadata_columns;
pub use plan::{DecodePlan, Decoded};
pub use tidegate_change::{Error, Result};
