//! The types that openraft is instantiated with; nothing outside this module tree names it.

use openraft::vote::RaftLeaderId;
use serde::{Deserialize, Serialize};

use super::store::{AppliedState, StateMachine};
use crate::metadata::{Entry, NodeId, Outcome};

openraft::declare_raft_types!(
    /// The replicated log of entries.
    pub(crate) Types:
        D = Entry,
        R = Outcome,
        NodeId = NodeId,
        Node = Peer,
);

/// How a metadata node is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Peer {
    /// `http://host:port`, or what the transport calls an address; empty for a node that is alone.
    pub endpoint: String,
}

pub(crate) type LeaderId = openraft::impls::leader_id_adv::LeaderId<u64, NodeId>;
pub(crate) type CommittedLeaderId = <LeaderId as RaftLeaderId>::Committed;
pub(crate) type LogId = openraft::LogId<CommittedLeaderId>;
pub(crate) type Vote = openraft::Vote<LeaderId>;
pub(crate) type Payload = openraft::EntryPayload<Entry, NodeId, Peer>;
pub(crate) type RaftEntry = openraft::Entry<CommittedLeaderId, Payload>;
pub(crate) type StoredMembership = openraft::StoredMembership<CommittedLeaderId, NodeId, Peer>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<CommittedLeaderId, NodeId, Peer>;
pub(crate) type Snapshot = openraft::Snapshot<CommittedLeaderId, NodeId, Peer, AppliedState>;
pub(crate) type Raft = openraft::Raft<Types, StateMachine>;
pub(crate) type RaftMetrics = openraft::RaftMetrics<Types>;
