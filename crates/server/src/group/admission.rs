//! Who belongs to the cluster: the leader's side of joining, moving and leaving.

use std::sync::Arc;
use std::time::Duration;

use tidegate_change::{Code, Error, Result};
use tidegate_cluster::metadata::replicated::{Member, Peer};
use tidegate_cluster::metadata::{ClusterId, NodeId};

/// How long a new node may take to catch up with the log, before it is asked to come again.
const CATCH_UP: Duration = Duration::from_secs(15);

/// Changes of the members, one at a time. Clones are one and the same.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    member: Arc<Member>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// A node that asks to be taken in.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) node: NodeId,
    /// The cluster that it belongs to already.
    pub(super) cluster: Option<ClusterId>,
    pub(super) endpoint: String,
}

impl Admission {
    pub(crate) fn new(member: Arc<Member>) -> Self {
        Self {
            member,
            turn: Arc::default(),
        }
    }

    /// The member that this node is.
    pub(crate) fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// Takes in a node that asks, or notes where it is reached now.
    ///
    /// # Errors
    /// `NOT_LEADER`; `INVALID_ARGUMENT` for a node of another cluster; `FENCED` for one that was removed;
    /// `TIMED_OUT` when it does not catch up; what the log says.
    pub(super) async fn admit(&self, candidate: Candidate) -> Result<ClusterId> {
        let cluster = self.require_cluster()?;
        if let Some(other) = candidate.cluster.filter(|other| *other != cluster) {
            let message = format!(
                "node {} at {} belongs to cluster {other}, this is cluster {cluster}",
                candidate.node, candidate.endpoint
            );
            return Err(Error::new(Code::InvalidArgument, message)
                .with_hint("a node joins with a new, empty data directory"));
        }
        self.add(candidate.node, &candidate.endpoint).await?;
        Ok(cluster)
    }

    /// Makes a node a voter, or notes where it is reached.
    ///
    /// # Errors
    /// As [`Self::admit`].
    pub(crate) async fn add(&self, node: NodeId, endpoint: &str) -> Result<()> {
        let _turn = self.turn.lock().await;
        let peer = Peer {
            endpoint: endpoint.to_owned(),
        };
        let status = self.member.status();
        self.require_leader()?;
        match status.member(node) {
            Some(known) if known.peer != peer => {
                tracing::info!(%node, endpoint, "a node moves");
                self.member.move_member(node, peer).await?;
            }
            Some(_) => {}
            None => {
                tracing::info!(%node, endpoint, "a node joins");
                self.member.add_learner(node, peer).await?;
            }
        }
        let is_voter = |node| {
            let status = self.member.status();
            status.member(node).is_some_and(|known| known.is_voter)
        };
        if !is_voter(node) {
            self.member.promote(node, CATCH_UP).await?;
        }
        Ok(())
    }

    /// Removes a node for ever.
    ///
    /// # Errors
    /// `NOT_LEADER`, `NOT_FOUND`, `INVALID_ARGUMENT` for the last voter, what the log says.
    pub(crate) async fn remove(&self, node: NodeId) -> Result<()> {
        let _turn = self.turn.lock().await;
        self.require_leader()?;
        tracing::info!(%node, "a node is removed");
        self.member.remove(node).await
    }

    fn require_leader(&self) -> Result<()> {
        match self.member.status().leads() {
            true => Ok(()),
            false => Err(Error::new(
                Code::NotLeader,
                "this node does not lead the cluster",
            )),
        }
    }

    fn require_cluster(&self) -> Result<ClusterId> {
        self.member
            .cluster()
            .ok_or_else(|| Error::new(Code::Unavailable, "this node belongs to no cluster yet"))
    }
}
