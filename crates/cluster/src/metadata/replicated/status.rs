//! What a member knows of its group.

use std::time::Duration;

use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver;
use openraft::type_config::TypeConfigExt;

use super::member::Member;
use super::types::{Peer, Types};
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
    /// How long ago it was last heard of; only the leader knows, and nobody of one that never answered.
    pub silence: Option<Duration>,
}

impl GroupStatus {
    /// Whether the member that answers leads, as far as it knows.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.leader == Some(self.node)
    }

    /// A member by its id.
    #[must_use]
    pub fn member(&self, node: NodeId) -> Option<&MemberStatus> {
        self.members.iter().find(|member| member.node == node)
    }

    /// Where the leader is reached, if it is known.
    #[must_use]
    pub fn leader_endpoint(&self) -> Option<&str> {
        let leader = self.member(self.leader?)?;
        Some(leader.peer.endpoint.as_str())
    }
}

impl Member {
    /// The group as this member sees it now.
    #[must_use]
    pub fn status(&self) -> GroupStatus {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let voters: Vec<_> = metrics.membership_config.voter_ids().collect();
        let replication = metrics.replication.as_ref();
        let heard = metrics.heartbeat.as_ref();
        let now = Types::now();
        let members = metrics.membership_config.nodes().map(|(node, peer)| {
            let matched = replication.and_then(|replication| replication.get(node).copied());
            let last = heard.and_then(|heard| heard.get(node).copied()).flatten();
            let silence = last.map(|last| now.saturating_duration_since(*last));
            MemberStatus {
                node: *node,
                peer: peer.clone(),
                is_voter: voters.contains(node),
                matched_index: matched.flatten().map(|matched| matched.index),
                silence,
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
