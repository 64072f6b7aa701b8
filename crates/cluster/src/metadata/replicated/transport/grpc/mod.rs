//! Messages between processes: `tidegate.internal.v1.RaftService`.

mod client;
mod refusal;
mod service;

use tidegate_change::{Code, Error, Result};
use tidegate_rpc::internal;

use super::Address;
use crate::metadata::NodeId;

pub use self::client::{GrpcOptions, GrpcTransport};
pub use self::service::{PeerService, peer_service};

fn to_proto(address: Address) -> internal::Address {
    internal::Address {
        cluster_id: address.cluster.to_string(),
        from_node_id: address.from.0,
        to_node_id: address.to.0,
    }
}

fn from_proto(address: Option<internal::Address>) -> Result<Address> {
    let Some(address) = address else {
        let message = "a message says neither from whom nor to whom it is";
        return Err(Error::new(Code::InvalidArgument, message));
    };
    Ok(Address {
        cluster: address.cluster_id.parse()?,
        from: NodeId(address.from_node_id),
        to: NodeId(address.to_node_id),
    })
}
