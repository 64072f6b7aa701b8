//! A typed client of a cluster.
//!
//! - [`Client`]: the connection, and what happens when it fails: calls that may be repeated are, with pauses
//!   that grow; a node that does not lead says who does, and the call goes there.
//! - `tables`, `batches`, `cluster`: calls by service; `put`: local files sent up; `rows`: rows and changes as
//!   Arrow batches.
//!
//! A batch may always be submitted again: its id makes it the same batch.

mod batches;
mod client;
mod cluster;
mod connection;
mod options;
mod pause;
mod put;
mod repeat;
mod rows;
mod tables;
#[cfg(test)]
mod tests;

pub use batches::{BatchPage, SubmitOptions};
pub use client::Client;
pub use options::{ClientOptions, TlsOptions};
pub use put::{SentFile, SentInput};
pub use rows::RowStream;
pub use tables::{TablePage, VersionPage};
pub use tidegate_rpc::batch::{json_from, result_from, version_from};
pub use tidegate_rpc::flight;
pub use tidegate_rpc::time::timestamp_ms;
pub use tidegate_rpc::v1;
