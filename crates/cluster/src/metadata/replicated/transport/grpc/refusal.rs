//! Refusals as gRPC statuses, and back.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::io;

use tidegate_change::{Code, Error, Kind};
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};

use super::super::{CallError, Refused};
use crate::metadata::NodeId;
use crate::metadata::replicated::types::Peer;

const DOMAIN: &str = "tidegate";
const LEADER_NODE_ID: &str = "leader_node_id";
const LEADER_ENDPOINT: &str = "leader_endpoint";

/// The status of a refusal.
pub(super) fn to_status(refused: &Refused) -> Status {
    let code = match refused.error.kind() {
        Kind::Conflict => tonic::Code::Aborted,
        Kind::Unavailable => tonic::Code::Unavailable,
        Kind::Fenced => tonic::Code::FailedPrecondition,
        Kind::Invalid => tonic::Code::InvalidArgument,
        Kind::Corrupt => tonic::Code::DataLoss,
        Kind::Unsupported => tonic::Code::Unimplemented,
        Kind::Internal => tonic::Code::Internal,
    };
    let mut metadata = HashMap::new();
    if let Some((node, peer)) = &refused.leader {
        metadata.insert(LEADER_NODE_ID.to_owned(), node.0.to_string());
        metadata.insert(LEADER_ENDPOINT.to_owned(), peer.endpoint.clone());
    }
    let reason = refused.error.code().as_str();
    let details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
    Status::with_error_details(code, refused.error.to_string(), details)
}

/// What a status says: a refusal where the other member wrote it, else that there is no answer.
pub(super) fn from_status(status: &Status) -> CallError {
    let info = status.get_details_error_info();
    if let Some(info) = info.filter(|info| info.domain == DOMAIN)
        && let Some(code) = Code::from_name(&info.reason)
    {
        let node = info.metadata.get(LEADER_NODE_ID);
        let node = node.and_then(|id| id.parse().ok()).map(NodeId);
        let endpoint = info.metadata.get(LEADER_ENDPOINT).cloned();
        let peer = endpoint.map(|endpoint| Peer { endpoint });
        return CallError::Refused(Refused {
            error: Error::new(code, status.message()),
            leader: node.zip(peer),
        });
    }
    let text = format!("{}: {}", status.code(), status.message());
    if was_refused_connection(status) {
        CallError::NotSent(text)
    } else {
        CallError::NoAnswer(text)
    }
}

/// Whether nobody listened: only then is it certain that the message did not arrive.
fn was_refused_connection(status: &Status) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = status.source();
    while let Some(error) = cause {
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|io| io.kind() == io::ErrorKind::ConnectionRefused) {
            return true;
        }
        cause = error.source();
    }
    false
}
