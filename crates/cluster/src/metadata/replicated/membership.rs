//! Changes of a group's members: add as a learner, promote, remove.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::type_config::TypeConfigExt;
use openraft::{ChangeMembers, Precondition};
use tidegate_change::{Code, Error, Result};

use super::leadership::{no_answer, refusal_of};
use super::member::Member;
use super::store::AppliedState;
use super::types::{Peer, RaftMetrics, Types};
use crate::metadata::NodeId;
use crate::metadata::limits::REMOVED_MAX;

/// A learner that lacks no more entries than that has caught up.
const CAUGHT_UP_ENTRIES: u64 = 64;
/// How long to wait before asking again how far a learner is.
const PROGRESS_WAIT: Duration = Duration::from_millis(20);

impl Member {
    /// Adds a node as a learner, which gets the log and has no vote. Only the leader does it.
    ///
    /// # Errors
    /// `FENCED` for an id that was removed once, `NOT_LEADER`, `COMMIT_CONFLICT` when the members change at
    /// the same time, `OUTCOME_UNKNOWN`.
    pub async fn add_learner(&self, node: NodeId, peer: Peer) -> Result<()> {
        let basis = self.membership_basis().await?;
        if basis.state.removed.contains(&node) {
            return Err(Error::new(
                Code::Fenced,
                format!("node {node} was removed from the metadata group"),
            )
            .with_hint("join with a new, empty data directory, which gets a new id"));
        }
        let members = ChangeMembers::AddNodes(BTreeMap::from([(node, peer)]));
        self.change_members(members, true, basis).await
    }

    /// Gives a learner a vote once it has caught up. Only the leader does it.
    ///
    /// # Errors
    /// `TIMED_OUT` when it does not catch up within `limit`, `NOT_FOUND` when it is no learner, or as
    /// [`Self::add_learner`].
    pub async fn promote(&self, node: NodeId, limit: Duration) -> Result<()> {
        require_member(&self.membership_basis().await?, node)?;
        self.wait_caught_up(node, limit).await?;
        let basis = self.membership_basis().await?;
        let members = ChangeMembers::AddVoterIds(BTreeSet::from([node]));
        self.change_members(members, true, basis).await
    }

    /// Removes a node for ever: its id is never taken again. Only the leader does it, also to itself.
    ///
    /// # Errors
    /// `NOT_FOUND` when it is no member, `INVALID_ARGUMENT` for the last voter, or as
    /// [`Self::add_learner`].
    pub async fn remove(&self, node: NodeId) -> Result<()> {
        let basis = self.membership_basis().await?;
        require_member(&basis, node)?;
        if basis.state.removed.len() >= REMOVED_MAX {
            let message = format!("the metadata group has removed {REMOVED_MAX} nodes before");
            return Err(Error::new(Code::ResourceExhausted, message));
        }
        let voters: BTreeSet<_> = basis.membership.voter_ids().collect();
        let gone = BTreeSet::from([node]);
        let members = if voters == gone {
            let message = format!("node {node} is the only voter of its metadata group");
            return Err(Error::new(Code::InvalidArgument, message));
        } else if voters.contains(&node) {
            ChangeMembers::RemoveVoters(gone)
        } else {
            ChangeMembers::RemoveNodes(gone)
        };
        self.change_members(members, false, basis).await
    }

    /// Tells the group that a member is reached elsewhere. Only the leader does it.
    ///
    /// # Errors
    /// `NOT_FOUND` when it is no member, or as [`Self::add_learner`].
    pub async fn move_member(&self, node: NodeId, peer: Peer) -> Result<()> {
        let basis = self.membership_basis().await?;
        require_member(&basis, node)?;
        let members = ChangeMembers::SetNodes(BTreeMap::from([(node, peer)]));
        self.change_members(members, true, basis).await
    }

    /// Hands leadership over to another voter. Only the leader does it.
    ///
    /// # Errors
    /// `TIMED_OUT` when this member still leads afterwards, or why it stopped.
    pub async fn transfer_leadership(&self, to: NodeId) -> Result<()> {
        let asked = self.raft.trigger().transfer_leader(to).await;
        asked.map_err(|e| self.leadership.stopped(&e))?;
        let me = self.node();
        let moved = self
            .raft
            .wait(Some(self.timeout))
            .metrics(
                |metrics| metrics.current_leader.is_some_and(|leader| leader != me),
                "leadership moves",
            )
            .await;
        moved.map(drop).map_err(|e| {
            let message = format!("leadership did not move to node {to} in time");
            Error::new(Code::TimedOut, message).with_source(e)
        })
    }

    /// The newest decided membership with the state at that time, in which whoever was removed up to it
    /// stands. A change is based on it, and fails if another one came first.
    async fn membership_basis(&self) -> Result<AppliedState> {
        match self.leadership.read_index().await {
            Ok(index) => self.leadership.wait_applied(index, self.timeout).await?,
            Err(refused) => return Err(refused.error),
        };
        Ok(self.leadership.applied())
    }

    async fn change_members(
        &self,
        members: ChangeMembers<NodeId, Peer>,
        keeps_learners: bool,
        basis: AppliedState,
    ) -> Result<()> {
        let basis = Precondition::LastMembershipLogId {
            last_membership_log_id: *basis.membership.log_id(),
        };
        let change = self
            .raft
            .change_membership_if(members, keeps_learners, [basis]);
        let Ok(changed) = Types::timeout(self.timeout, change).await else {
            return Err(no_answer("the members did not change in time"));
        };
        match changed {
            Ok(_) => Ok(()),
            Err(RaftError::Fatal(fatal)) => Err(self.leadership.stopped(&fatal)),
            Err(RaftError::APIError(ClientWriteError::PreconditionFailed(_))) => {
                Err(members_change())
            }
            Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(error))) => {
                Err(refused_change(error))
            }
            Err(RaftError::APIError(error)) => Err(refusal_of(error).error),
        }
    }

    async fn wait_caught_up(&self, node: NodeId, limit: Duration) -> Result<()> {
        let deadline = Types::now() + limit;
        loop {
            let lag = {
                let metrics = self.raft.metrics();
                let metrics = metrics.borrow_watched();
                lag_of(&metrics, node)?
            };
            if lag.is_some_and(|lag| lag <= CAUGHT_UP_ENTRIES) {
                return Ok(());
            }
            if Types::now() >= deadline {
                let message = format!("node {node} has not caught up with the metadata log");
                return Err(Error::new(Code::TimedOut, message));
            }
            Types::sleep(PROGRESS_WAIT).await;
        }
    }
}

fn require_member(basis: &AppliedState, node: NodeId) -> Result<()> {
    if basis.state.members.contains(&node) {
        return Ok(());
    }
    let message = format!("node {node} is no member of the metadata group");
    Err(Error::new(Code::NotFound, message))
}

/// Entries that a node lacks; none while it has not answered yet.
fn lag_of(metrics: &RaftMetrics, node: NodeId) -> Result<Option<u64>> {
    let Some(replication) = &metrics.replication else {
        let message = "this node does not lead its metadata group";
        return Err(Error::new(Code::NotLeader, message));
    };
    let matched = replication.get(&node).copied().flatten();
    let last = metrics.last_log_index.unwrap_or_default();
    Ok(matched.map(|matched| last.saturating_sub(matched.index)))
}

fn members_change() -> Error {
    Error::new(
        Code::CommitConflict,
        "the members of the metadata group are being changed",
    )
    .with_hint("try again when that change is done")
}

fn refused_change<E, N>(error: ChangeMembershipError<E, N>) -> Error
where
    E: openraft::vote::RaftCommittedLeaderId,
    N: openraft::NodeId,
{
    match error {
        ChangeMembershipError::InProgress(_) | ChangeMembershipError::UncommittedLeaderLog(_) => {
            members_change()
        }
        ChangeMembershipError::LearnerNotFound(_) => Error::new(
            Code::NotFound,
            "the node is no learner of the metadata group",
        )
        .with_source(error),
        other => Error::new(
            Code::InvalidArgument,
            "the metadata group cannot have these members",
        )
        .with_source(other),
    }
}
