//! Calls that another node answers better: it runs the batch, or it leads.

use tidegate_change::Result;
use tidegate_cluster::metadata::NodeId;
use tonic::Request;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;

use super::admission::Admission;
use super::channels::Channels;

/// Header of a call that a node passes on: whoever gets it answers itself, so that no call goes in circles.
const FORWARDED: &str = "tidegate-forwarded";

/// Whether another node passed the call on.
pub(crate) fn is_forwarded(metadata: &MetadataMap) -> bool {
    metadata.contains_key(FORWARDED)
}

/// The way to other nodes.
#[derive(Clone, Debug)]
pub(crate) struct Elsewhere {
    pub(crate) admission: Admission,
    pub(crate) channels: Channels,
}

impl Elsewhere {
    /// The connection to a node, where it is known and another than this.
    pub(crate) fn node(&self, node: NodeId) -> Result<Option<Channel>> {
        let status = self.admission.member().status();
        match status.member(node) {
            Some(known) if node != status.node && !known.peer.endpoint.is_empty() => {
                self.channels.to(&known.peer.endpoint).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The connection to the leader, where it is known and another than this node.
    pub(crate) fn leader(&self) -> Result<Option<Channel>> {
        match self.admission.member().status().leader {
            Some(leader) => self.node(leader),
            None => Ok(None),
        }
    }

    /// A call as it is passed on, with what the caller still waits.
    pub(crate) fn passed_on<T>(metadata: &MetadataMap, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(limit) = crate::services::deadline::remaining(metadata) {
            request.set_timeout(limit);
        }
        let mark = tonic::metadata::MetadataValue::from_static("1");
        request.metadata_mut().insert(FORWARDED, mark);
        request
    }
}
