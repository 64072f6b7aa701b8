//! Workers over the network: `tidegate.internal.v1.WorkService`, and Flight for rows.

mod beats;
mod client;
mod flight;
mod messages;
mod service;

use tidegate_change::{Code, Error};
use tidegate_rpc::status::{error_of, is_decided};
use tonic::Status;

use super::CallError;

pub use beats::{BeatClient, PlacementEndpoint, placement_service};
pub use client::GrpcLinks;
pub use flight::{Redirect, WorkFlight, work_flight};
pub use service::{WorkEndpoint, fetched, work_service};

/// What a status of a worker means: what it decided, or that it is lost.
#[must_use]
pub fn lost_or_decided(status: &Status) -> CallError {
    if !is_decided(status) {
        let message = format!("a worker does not answer: {}", status.message());
        return CallError::Lost(Error::new(Code::Unavailable, message));
    }
    let error = error_of(status);
    match error.code() {
        Code::Fenced => CallError::Stale(error),
        // Whoever decided no longer holds what it was asked for.
        Code::Unavailable => CallError::Lost(error),
        _ => CallError::Failed(error),
    }
}
