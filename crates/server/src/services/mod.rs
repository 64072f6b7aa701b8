//! The gRPC services: each call is checked, done by the parts below, and answered or refused with details.
//!
//! - `batch`, `table`, `cluster`: one file a service.
//! - `page`: page tokens; `deadline`: what a caller still waits for; `rows`: rows as streams of JSON.

mod batch;
mod batch_list;
mod cluster;
pub(crate) mod deadline;
mod page;
mod rows;
mod table;
#[cfg(test)]
mod tests;

use futures::stream::BoxStream;
use tonic::Status;

pub(crate) use batch::{BatchApi, phase_word};
pub(crate) use cluster::ClusterApi;
pub(crate) use table::TableApi;

/// A stream of answers.
pub(crate) type Answers<T> = BoxStream<'static, Result<T, Status>>;
