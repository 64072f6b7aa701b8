//! The calling side.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use tidegate_change::Result;
use tidegate_rpc::internal::raft_service_client::RaftServiceClient;
use tidegate_rpc::internal::{
    AppendEntriesRequest, GetReadIndexRequest, InstallMetadataSnapshotRequest, ProposeRequest,
    TransferLeaderRequest, VoteRequest,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};

use super::refusal::from_status;
use super::to_proto;
use crate::metadata::replicated::transport::{
    Address, CallError, MESSAGE_BYTES_MAX, Request, Response, Transport,
};
use crate::metadata::replicated::types::Peer;

/// Bytes of an answer that another node may send ahead.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// Bytes of all answers of a connection that another node may send ahead.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

/// How to call other members.
#[derive(Clone, Debug)]
pub struct GrpcOptions {
    /// TLS, with the identity of this node; plain text without it.
    pub tls: Option<ClientTlsConfig>,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How often an open connection is probed. Without probes a connection that a partition has cut is
    /// never found out, and never replaced.
    pub keep_alive: Duration,
    /// How long a probe may go unanswered.
    pub keep_alive_timeout: Duration,
}

impl Default for GrpcOptions {
    fn default() -> Self {
        Self {
            tls: None,
            connect_timeout: Duration::from_millis(500),
            keep_alive: Duration::from_secs(2),
            keep_alive_timeout: Duration::from_secs(1),
        }
    }
}

/// Feeds the messages of a snapshot to a call, until it takes no more. A chunk that cannot be made ends the
/// stream early, which the receiver refuses.
async fn feed(
    first: InstallMetadataSnapshotRequest,
    mut chunks: BoxStream<'static, Result<Bytes>>,
    messages: mpsc::Sender<InstallMetadataSnapshotRequest>,
) {
    let mut next = Some(first);
    while let Some(message) = next {
        if messages.send(message).await.is_err() {
            return;
        }
        next = match chunks.next().await {
            Some(Ok(chunk)) => Some(InstallMetadataSnapshotRequest {
                chunk: chunk.into(),
                ..InstallMetadataSnapshotRequest::default()
            }),
            Some(Err(error)) => {
                tracing::error!(%error, "a snapshot cannot be sent");
                None
            }
            None => None,
        };
    }
}

/// Calls members over gRPC, with one connection a peer.
#[derive(Debug)]
pub struct GrpcTransport {
    options: GrpcOptions,
    channels: Mutex<BTreeMap<String, Channel>>,
}

impl GrpcTransport {
    /// A transport without connections.
    #[must_use]
    pub fn new(options: GrpcOptions) -> Self {
        Self {
            options,
            channels: Mutex::default(),
        }
    }

    fn client(&self, peer: &Peer) -> Result<RaftServiceClient<Channel>, CallError> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let channel = match channels.get(&peer.endpoint) {
            Some(channel) => channel.clone(),
            None => {
                let wrong = |e| CallError::NotSent(format!("{}: {e}", peer.endpoint));
                let channel = self.options.connect(&peer.endpoint).map_err(wrong)?;
                channels.insert(peer.endpoint.clone(), channel.clone());
                channel
            }
        };
        Ok(RaftServiceClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX))
    }
}

impl GrpcOptions {
    /// A channel that connects when it is first used, and again whenever it must.
    pub(crate) fn connect(&self, endpoint: &str) -> Result<Channel, tonic::transport::Error> {
        let mut endpoint = Endpoint::from_shared(endpoint.to_owned())?
            .connect_timeout(self.connect_timeout)
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_keep_alive_interval(self.keep_alive)
            .keep_alive_timeout(self.keep_alive_timeout)
            .keep_alive_while_idle(true);
        if let Some(tls) = &self.tls {
            endpoint = endpoint.tls_config(tls.clone())?;
        }
        Ok(endpoint.connect_lazy())
    }
}

#[async_trait]
impl Transport for GrpcTransport {
    async fn call(
        &self,
        address: Address,
        peer: &Peer,
        request: Request,
    ) -> Result<Response, CallError> {
        let mut client = self.client(peer)?;
        let address = Some(to_proto(address));
        let failed = |status: tonic::Status| from_status(&status);
        let vote = |payload: Bytes, is_pre_vote| VoteRequest {
            address: address.clone(),
            payload: payload.into(),
            is_pre_vote,
        };
        let payload = match request {
            Request::AppendEntries(payload) => {
                let payload = payload.into();
                let request = AppendEntriesRequest { address, payload };
                let answer = client.append_entries(request).await.map_err(failed)?;
                answer.into_inner().payload
            }
            Request::Vote(payload) => {
                let answer = client.vote(vote(payload, false)).await.map_err(failed)?;
                answer.into_inner().payload
            }
            Request::PreVote(payload) => {
                let answer = client.vote(vote(payload, true)).await.map_err(failed)?;
                answer.into_inner().payload
            }
            Request::TransferLeader(payload) => {
                let payload = payload.into();
                let request = TransferLeaderRequest { address, payload };
                let answer = client.transfer_leader(request).await.map_err(failed)?;
                answer.into_inner().payload
            }
            Request::Propose(entry) => {
                let entry = entry.into();
                let request = ProposeRequest { address, entry };
                let applied = client.propose(request).await.map_err(failed)?.into_inner();
                return Ok(Response::Applied {
                    index: applied.index,
                    outcome: applied.outcome.into(),
                });
            }
            Request::ReadIndex => {
                let request = GetReadIndexRequest { address };
                let answer = client.get_read_index(request).await.map_err(failed)?;
                return Ok(Response::ReadIndex(answer.into_inner().index));
            }
        };
        Ok(Response::Payload(payload.into()))
    }

    async fn install_snapshot(
        &self,
        address: Address,
        peer: &Peer,
        header: Bytes,
        chunks: BoxStream<'static, Result<Bytes>>,
    ) -> Result<Bytes, CallError> {
        let mut client = self.client(peer)?;
        let first = InstallMetadataSnapshotRequest {
            address: Some(to_proto(address)),
            header: header.into(),
            chunk: Vec::new(),
        };
        let (sender, messages) = mpsc::channel(2);
        let call = client.install_metadata_snapshot(ReceiverStream::new(messages));
        let (answer, ()) = futures::join!(call, feed(first, chunks, sender));
        let answer = answer.map_err(|status| from_status(&status))?;
        Ok(answer.into_inner().payload.into())
    }
}
