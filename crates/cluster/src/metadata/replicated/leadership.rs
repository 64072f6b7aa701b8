//! What only the leader can do, asked of this member: propose, and confirm that it still leads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use openraft::ReadPolicy;
use openraft::errors::{ClientWriteError, ForwardToLeader, LinearizableReadError, RaftError};
use openraft::type_config::TypeConfigExt;
use tidegate_change::{Code, Error, Result};

use super::store::{AppliedState, FailureCell, Published};
use super::transport::Refused;
use super::types::{Raft, Types};
use crate::consensus::Applied;
use crate::metadata::{Entry, State};

/// This member as a leader, if it is one.
#[derive(Clone)]
pub(crate) struct Leadership {
    raft: Raft,
    published: Arc<Published>,
    failure: Arc<FailureCell>,
    /// How long a proposal may take before its outcome counts as unknown.
    timeout: Duration,
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("node", self.raft.node_id())
            .finish_non_exhaustive()
    }
}

impl Leadership {
    pub(crate) fn new(
        raft: Raft,
        published: Arc<Published>,
        failure: Arc<FailureCell>,
        timeout: Duration,
    ) -> Self {
        Self {
            raft,
            published,
            failure,
            timeout,
        }
    }

    /// The state with everything that this member has applied.
    pub(crate) fn state(&self) -> Arc<State> {
        self.published.state()
    }

    /// The same with its position and membership.
    pub(crate) fn applied(&self) -> AppliedState {
        self.published.applied()
    }

    /// Makes an entry durable on a quorum and applies it.
    ///
    /// # Errors
    /// `NOT_LEADER` when nothing was done, with the leader where it is known; `OUTCOME_UNKNOWN` when nobody
    /// can tell; what the disk said when this member has failed.
    pub(crate) async fn propose(&self, entry: Entry) -> Result<Applied, Refused> {
        let write = self.raft.client_write(entry);
        let Ok(written) = Types::timeout(self.timeout, write).await else {
            return Err(unknown("no quorum answered in time").into());
        };
        match written {
            Ok(response) => Ok(Applied {
                index: response.log_id.index,
                outcome: response.data,
            }),
            Err(RaftError::APIError(error)) => Err(refusal_of(error)),
            Err(RaftError::Fatal(fatal)) => Err(self.stopped(&fatal).into()),
        }
    }

    /// The index that a read must have applied to see everything that was acknowledged before this call.
    ///
    /// # Errors
    /// `NOT_LEADER`, also when no quorum confirms that this member leads.
    pub(crate) async fn read_index(&self) -> Result<u64, Refused> {
        match self.raft.get_read_linearizer(ReadPolicy::ReadIndex).await {
            Ok(linearizer) => Ok(linearizer.read_log_id().index()),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => {
                Err(not_leader(forward))
            }
            Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(lost))) => {
                let message = "no quorum confirms that this node leads its metadata group";
                Err(Error::new(Code::NotLeader, message)
                    .with_source(lost)
                    .into())
            }
            Err(RaftError::Fatal(fatal)) => Err(self.stopped(&fatal).into()),
        }
    }

    /// Waits until this member has applied an index.
    ///
    /// # Errors
    /// `TIMED_OUT`, or why this member stopped.
    pub(crate) async fn wait_applied(&self, index: u64, limit: Duration) -> Result<Arc<State>> {
        let applied = self
            .raft
            .wait(Some(limit))
            .applied_index_at_least(Some(index), "a read waits for what it must see")
            .await;
        match applied {
            Ok(_) => Ok(self.state()),
            Err(openraft::metrics::WaitError::Timeout(..)) => Err(Error::new(
                Code::TimedOut,
                format!("entry {index} of the metadata log did not come in time"),
            )),
            Err(openraft::metrics::WaitError::ShuttingDown) => Err(self.stopped(&"it was closed")),
        }
    }

    /// Why this member has stopped: what its disk said, where that is the reason.
    pub(crate) fn stopped(&self, why: &impl fmt::Display) -> Error {
        let closed = || Error::new(Code::Io, format!("the metadata member has stopped: {why}"));
        self.failure.error().unwrap_or_else(closed)
    }
}

fn unknown(why: &str) -> Error {
    Error::new(
        Code::OutcomeUnknown,
        format!("it is not known whether the change was decided: {why}"),
    )
}

/// An error for a proposal that may have gone through.
pub(crate) fn no_answer(why: &str) -> Error {
    unknown(why)
}

/// Why an entry did not go in, or that nobody can tell.
pub(crate) fn refusal_of(error: ClientWriteError<Types>) -> Refused {
    match error {
        ClientWriteError::ForwardToLeader(forward) => not_leader(forward),
        ClientWriteError::LogEntryDiscarded(_) => {
            unknown("the leader changed before a quorum had the entry").into()
        }
        other => Error::internal("an entry was refused by the log")
            .with_source(other)
            .into(),
    }
}

fn not_leader(forward: ForwardToLeader<Types>) -> Refused {
    let leader = forward.leader_id.zip(forward.leader_node);
    let message = match &leader {
        Some((id, peer)) => format!("node {id} at {:?} leads the metadata group", peer.endpoint),
        None => "nobody leads the metadata group at the moment".into(),
    };
    Refused {
        error: Error::new(Code::NotLeader, message),
        leader,
    }
}
