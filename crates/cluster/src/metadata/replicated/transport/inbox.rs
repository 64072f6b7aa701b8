//! Messages that came for this member, whoever carried them.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use openraft::errors::RaftError;
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest};
use serde::Serialize;
use tidegate_change::{Code, Error, Random, Result};

use super::snapshot_stream::{SnapshotHeader, SnapshotReceiver};
use super::{Address, Refused, Request, Response, from_bytes, to_bytes};
use crate::metadata::replicated::leadership::Leadership;
use crate::metadata::replicated::store::{Identity, Store};
use crate::metadata::replicated::types::{Raft, Snapshot};
use crate::metadata::{ClusterId, Entry, State};

/// Takes messages for a member.
#[derive(Debug)]
pub struct Inbox {
    raft: Raft,
    leadership: Leadership,
    store: Arc<Store>,
    cluster: Arc<OnceLock<ClusterId>>,
    /// Held while a new node learns to which group it belongs.
    joining: tokio::sync::Mutex<()>,
}

impl Inbox {
    pub(crate) fn new(
        raft: Raft,
        leadership: Leadership,
        store: Arc<Store>,
        cluster: Arc<OnceLock<ClusterId>>,
    ) -> Self {
        Self {
            raft,
            leadership,
            store,
            cluster,
            joining: tokio::sync::Mutex::default(),
        }
    }

    /// The member that this inbox belongs to.
    #[must_use]
    pub fn node(&self) -> crate::metadata::NodeId {
        self.store.identity().node
    }

    /// Answers a message.
    ///
    /// # Errors
    /// Why it was refused.
    pub async fn answer(&self, address: Address, request: Request) -> Result<Response, Refused> {
        self.admit(address).await?;
        match request {
            Request::AppendEntries(payload) => {
                let rpc: AppendEntriesRequest<_> = from_bytes("log entries", &payload)?;
                reply(self.raft.append_entries(rpc).await)
            }
            Request::Vote(payload) => {
                self.refuse_removed(address)?;
                let rpc: VoteRequest<_> = from_bytes("a vote", &payload)?;
                reply(self.raft.vote(rpc).await)
            }
            Request::PreVote(payload) => {
                self.refuse_removed(address)?;
                let rpc: VoteRequest<_> = from_bytes("a pre-vote", &payload)?;
                reply(self.raft.pre_vote(rpc).await)
            }
            Request::TransferLeader(payload) => {
                let rpc: TransferLeaderRequest<_> = from_bytes("a transfer", &payload)?;
                let answer = self.raft.handle_transfer_leader(rpc).await;
                reply(answer.map_err(RaftError::<_>::Fatal))
            }
            Request::Propose(payload) => {
                self.refuse_removed(address)?;
                let entry: Entry = from_bytes("an entry", &payload)?;
                let applied = self.leadership.propose(entry).await?;
                let outcome = to_bytes("an outcome", &applied.outcome)?;
                Ok(Response::Applied {
                    index: applied.index,
                    outcome,
                })
            }
            Request::ReadIndex => {
                self.refuse_removed(address)?;
                Ok(Response::ReadIndex(self.leadership.read_index().await?))
            }
        }
    }

    /// Takes a snapshot in; nothing of it counts before all of it has come.
    ///
    /// # Errors
    /// Why it was refused.
    pub async fn install_snapshot(
        &self,
        address: Address,
        header: Bytes,
        mut chunks: BoxStream<'_, Result<Bytes>>,
    ) -> Result<Bytes, Refused> {
        self.admit(address).await?;
        let header: SnapshotHeader = from_bytes("a snapshot header", &header)?;
        let mut receiver = SnapshotReceiver::default();
        while let Some(chunk) = chunks.next().await {
            receiver.push(&chunk?)?;
        }
        let snapshot = Snapshot {
            meta: header.meta,
            snapshot: receiver.finish()?,
        };
        let answer = self
            .raft
            .install_full_snapshot(header.vote, snapshot)
            .await
            .map_err(|e| stopped(&e))?;
        Ok(to_bytes("the answer to a snapshot", &answer)?)
    }

    /// Refuses what is not for this member of this group.
    async fn admit(&self, address: Address) -> Result<()> {
        let me = self.node();
        if address.to != me {
            let message = format!("this is node {me}, not node {}", address.to);
            return Err(Error::new(Code::InvalidArgument, message));
        }
        if self.cluster.get().is_none() {
            self.join(address.cluster).await?;
        }
        if self.cluster.get() == Some(&address.cluster) {
            return Ok(());
        }
        let message = format!(
            "node {me} does not belong to the metadata group {}",
            address.cluster
        );
        Err(Error::new(Code::InvalidArgument, message))
    }

    /// A new node belongs to the group that first calls it by its id, for ever.
    async fn join(&self, cluster: ClusterId) -> Result<()> {
        let _joining = self.joining.lock().await;
        if self.cluster.get().is_none() {
            let identity = Identity {
                cluster: Some(cluster),
                ..self.store.identity()
            };
            self.store.set_identity(identity).await?;
            // Nobody else sets it while the lock is held.
            let _ = self.cluster.set(cluster);
        }
        Ok(())
    }

    /// Makes this member the founder of a new group, unless it belongs to one that it does not found.
    pub(crate) async fn become_founder(&self, random: &dyn Random) -> Result<()> {
        let _joining = self.joining.lock().await;
        let identity = self.store.identity();
        match (self.cluster.get(), identity.is_founder) {
            (Some(_), true) => return Ok(()),
            (Some(cluster), false) => {
                let message = format!(
                    "node {} belongs to the metadata group {cluster}",
                    identity.node
                );
                return Err(Error::new(Code::CommitConflict, message));
            }
            (None, _) => {}
        }
        let cluster = ClusterId(random.next_u64().max(1));
        let identity = Identity {
            cluster: Some(cluster),
            is_founder: true,
            ..identity
        };
        self.store.set_identity(identity).await?;
        // Nobody else sets it while the lock is held.
        let _ = self.cluster.set(cluster);
        Ok(())
    }

    /// A removed node may not take part again; it may still hear what happened.
    fn refuse_removed(&self, address: Address) -> Result<()> {
        let is_removed = |state: &State| state.removed.contains(&address.from);
        if self.leadership.with_state(is_removed) {
            let message = format!("node {} was removed from the metadata group", address.from);
            return Err(Error::new(Code::Fenced, message)
                .with_hint("join with a new, empty data directory, which gets a new id"));
        }
        Ok(())
    }
}

fn reply<T: Serialize, E: std::fmt::Display>(answer: Result<T, E>) -> Result<Response, Refused> {
    let answer = answer.map_err(|e| stopped(&e))?;
    Ok(Response::Payload(to_bytes("an answer", &answer)?))
}

fn stopped(error: &impl std::fmt::Display) -> Error {
    Error::new(
        Code::Io,
        format!("the metadata member has stopped: {error}"),
    )
}
