//! What a member knows of its group.

use openraft::async_runtime::WatchReceiver;

use super::member::Member;
use super::types::Peer;
use crate::metadata::{ClusterId, NodeId};

/// The group as one member sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// The group, once the member belongs to one.
    pub cluster: Option<ClusterId>,
    /// The member that answers.
    pub node: NodeId,
    /// Who leads, as far as it knows.
    pub leader: Option<NodeId>,
    /// Its term.
    pub term: u64,
    /// Index of the newest entry that it has applied.
    pub applied_index: u64,
    /// All members, in order of their ids.
    pub members: Vec<MemberStatus>,
}

/// One member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its id.
    pub node: NodeId,
    /// How it is reached.
    pub peer: Peer,
    /// Whether it has a vote; a learner has none.
    pub is_voter: bool,
    /// Index of the newest entry that it is known to hold; only the leader knows.
    pub matched_index: Option<u64>,
}

impl Member {
    /// The group as this member sees it now.
    #[must_use]
    pub fn status(&self) -> GroupStatus {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let voters: Vec<_> = metrics.membership_config.voter_ids().collect();
        let replication = metrics.replication.as_ref();
        let members = metrics.membership_config.nodes().map(|(node, peer)| {
            let matched = replication.and_then(|replication| replication.get(node).copied());
            MemberStatus {
                node: *node,
                peer: peer.clone(),
                is_voter: voters.contains(node),
                matched_index: matched.flatten().map(|matched| matched.index),
            }
        });
        GroupStatus {
            cluster: self.cluster(),
            node: self.node(),
            leader: metrics.current_leader,
            term: metrics.current_term,
            applied_index: metrics.last_applied.map_or(0, |applied| applied.index),
            members: members.collect(),
        }
    }
}
