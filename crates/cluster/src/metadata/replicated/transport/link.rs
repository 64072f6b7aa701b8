//! openraft's network on a [`Transport`].

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{Either, select};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::network::v2::RaftNetworkV2;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::TypeConfigExt;
use openraft::{OptionalSend, RaftNetworkFactory};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_change::Error;

use super::snapshot_stream::{SnapshotHeader, chunks_of};
use super::{Address, CallError, Request, Response, Transport, from_bytes, to_bytes};
use crate::metadata::replicated::store::AppliedState;
use crate::metadata::replicated::types::{Peer, Snapshot, Types, Vote};
use crate::metadata::{ClusterId, NodeId};

/// How long a message with entries may take, its sync on the other side included. Heartbeats are bounded
/// by openraft itself, below the election timeout.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes links to members.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    transport: Arc<dyn Transport>,
    me: NodeId,
    /// Set before the first message goes out: a member without a group has nobody to talk to.
    cluster: Arc<OnceLock<ClusterId>>,
}

impl Links {
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        me: NodeId,
        cluster: Arc<OnceLock<ClusterId>>,
    ) -> Self {
        Self {
            transport,
            me,
            cluster,
        }
    }

    /// Sends a message to a member.
    pub(crate) async fn call(
        &self,
        to: NodeId,
        peer: &Peer,
        request: Request,
    ) -> Result<Response, CallError> {
        self.transport.call(self.address(to)?, peer, request).await
    }

    fn address(&self, to: NodeId) -> Result<Address, CallError> {
        let Some(cluster) = self.cluster.get() else {
            return Err(CallError::NotSent("this node has no group yet".into()));
        };
        Ok(Address {
            cluster: *cluster,
            from: self.me,
            to,
        })
    }
}

impl RaftNetworkFactory<Types> for Links {
    type Network = Link;

    async fn new_client(&mut self, target: NodeId, node: &Peer) -> Link {
        Link {
            links: self.clone(),
            target,
            peer: node.clone(),
        }
    }
}

/// The way to one member.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    links: Links,
    target: NodeId,
    peer: Peer,
}

impl Link {
    async fn exchange<Q: Serialize, A: DeserializeOwned>(
        &self,
        what: &str,
        message: &Q,
        wrap: fn(Bytes) -> Request,
        limit: Duration,
    ) -> Result<A, RPCError<Types>> {
        let payload = to_bytes(what, message).map_err(|e| network(&e))?;
        let call = self.links.call(self.target, &self.peer, wrap(payload));
        let answer = match Types::timeout(limit, call).await {
            Ok(answer) => answer.map_err(rpc_error)?,
            Err(_) => {
                let message = format!("node {} did not answer in time", self.target);
                return Err(RPCError::Network(NetworkError::from_string(message)));
            }
        };
        match answer {
            Response::Payload(bytes) => from_bytes(what, &bytes).map_err(|e| network(&e)),
            other => {
                let message = format!("node {} answered {other:?}", self.target);
                Err(RPCError::Unreachable(Unreachable::from_string(message)))
            }
        }
    }

    async fn send_snapshot(
        &self,
        vote: Vote,
        snapshot: Snapshot,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let header = SnapshotHeader {
            vote,
            meta: snapshot.meta,
        };
        let failed = |e: Error| StreamingError::Network(NetworkError::from_string(chain(&e)));
        let header = to_bytes("a snapshot header", &header).map_err(failed)?;
        let chunks = chunks_of(snapshot.snapshot);
        let address = self.links.address(self.target).map_err(streaming_error)?;
        let answer = self
            .links
            .transport
            .install_snapshot(address, &self.peer, header, chunks)
            .await
            .map_err(streaming_error)?;
        from_bytes("the answer to a snapshot", &answer).map_err(failed)
    }
}

/// An error with its causes, in one line.
fn chain(error: &Error) -> String {
    use std::error::Error as _;
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

fn network(error: &Error) -> RPCError<Types> {
    RPCError::Network(NetworkError::from_string(chain(error)))
}

/// Whoever cannot be reached, or refuses, is left alone for a while.
fn rpc_error(error: CallError) -> RPCError<Types> {
    match error {
        CallError::NotSent(why) => RPCError::Unreachable(Unreachable::from_string(why)),
        CallError::Refused(refused) => {
            RPCError::Unreachable(Unreachable::from_string(chain(&refused.error)))
        }
        CallError::NoAnswer(why) => RPCError::Network(NetworkError::from_string(why)),
    }
}

fn streaming_error(error: CallError) -> StreamingError<Types> {
    match rpc_error(error) {
        RPCError::Unreachable(e) => StreamingError::Unreachable(e),
        RPCError::Network(e) => StreamingError::Network(e),
        other => StreamingError::Network(NetworkError::from_string(other)),
    }
}

impl RaftNetworkV2<Types> for Link {
    type SnapshotData = AppliedState;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        self.exchange("log entries", &rpc, Request::AppendEntries, CALL_TIMEOUT)
            .await
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let limit = option.soft_ttl();
        self.exchange("a vote", &rpc, Request::Vote, limit).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let limit = option.soft_ttl();
        self.exchange("a pre-vote", &rpc, Request::PreVote, limit)
            .await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let sent = Types::timeout(option.hard_ttl(), self.send_snapshot(vote, snapshot));
        match select(Box::pin(cancel), Box::pin(sent)).await {
            Either::Left((closed, _)) => Err(StreamingError::Closed(closed)),
            Either::Right((Ok(answer), _)) => answer,
            Either::Right((Err(_), _)) => {
                let message = format!("node {} took no snapshot in time", self.target);
                Err(StreamingError::Network(NetworkError::from_string(message)))
            }
        }
    }

    async fn transfer_leader(
        &mut self,
        rpc: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        let limit = option.soft_ttl();
        self.exchange("a transfer", &rpc, Request::TransferLeader, limit)
            .await
    }
}
