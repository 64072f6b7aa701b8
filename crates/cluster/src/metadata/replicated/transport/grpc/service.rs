//! The answering side.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use tidegate_change::{Code, Error};
use tidegate_rpc::internal::raft_service_server::{RaftService, RaftServiceServer};
use tidegate_rpc::internal::{
    AppendEntriesRequest, AppendEntriesResponse, GetReadIndexRequest, GetReadIndexResponse,
    InstallMetadataSnapshotRequest, InstallMetadataSnapshotResponse, ProposeRequest,
    ProposeResponse, TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use tonic::{Status, Streaming};

use super::from_proto;
use super::refusal::to_status;
use crate::metadata::replicated::transport::{
    Inbox, MESSAGE_BYTES_MAX, Refused, Request, Response,
};

/// Hands messages to a member.
#[derive(Debug)]
pub struct PeerService {
    inbox: Arc<Inbox>,
}

/// The service of a member, with its bounds, for a server to add.
#[must_use]
pub fn peer_service(inbox: Arc<Inbox>) -> RaftServiceServer<PeerService> {
    RaftServiceServer::new(PeerService { inbox })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

impl PeerService {
    async fn answer(
        &self,
        address: Option<tidegate_rpc::internal::Address>,
        request: Request,
    ) -> Result<Response, Status> {
        let address = from_proto(address).map_err(|e| to_status(&Refused::from(e)))?;
        let answer = self.inbox.answer(address, request).await;
        answer.map_err(|refused| to_status(&refused))
    }

    async fn payload(
        &self,
        address: Option<tidegate_rpc::internal::Address>,
        request: Request,
    ) -> Result<Vec<u8>, Status> {
        match self.answer(address, request).await? {
            Response::Payload(payload) => Ok(payload.into()),
            other => Err(mixed_up(&other)),
        }
    }
}

fn mixed_up(answer: &Response) -> Status {
    let message = format!("an answer of another kind: {answer:?}");
    to_status(&Refused::from(Error::internal(message)))
}

fn cut_short(status: &Status) -> Error {
    Error::new(
        Code::InvalidArgument,
        format!("a snapshot of the metadata is cut short: {status}"),
    )
}

#[tonic::async_trait]
impl RaftService for PeerService {
    async fn append_entries(
        &self,
        request: tonic::Request<AppendEntriesRequest>,
    ) -> Result<tonic::Response<AppendEntriesResponse>, Status> {
        let AppendEntriesRequest { address, payload } = request.into_inner();
        let request = Request::AppendEntries(payload.into());
        let payload = self.payload(address, request).await?;
        Ok(tonic::Response::new(AppendEntriesResponse { payload }))
    }

    async fn vote(
        &self,
        request: tonic::Request<VoteRequest>,
    ) -> Result<tonic::Response<VoteResponse>, Status> {
        let request = request.into_inner();
        let payload = Bytes::from(request.payload);
        let asked = match request.is_pre_vote {
            true => Request::PreVote(payload),
            false => Request::Vote(payload),
        };
        let payload = self.payload(request.address, asked).await?;
        Ok(tonic::Response::new(VoteResponse { payload }))
    }

    async fn install_metadata_snapshot(
        &self,
        request: tonic::Request<Streaming<InstallMetadataSnapshotRequest>>,
    ) -> Result<tonic::Response<InstallMetadataSnapshotResponse>, Status> {
        let mut messages = request.into_inner();
        let refuse = |e: Error| to_status(&Refused::from(e));
        let Some(first) = messages.message().await? else {
            let message = "a snapshot of the metadata is empty";
            return Err(refuse(Error::new(Code::InvalidArgument, message)));
        };
        let address = from_proto(first.address).map_err(refuse)?;
        let chunks = messages
            .map(|message| match message {
                Ok(message) => Ok(Bytes::from(message.chunk)),
                Err(status) => Err(cut_short(&status)),
            })
            .boxed();
        let payload = self
            .inbox
            .install_snapshot(address, first.header.into(), chunks)
            .await
            .map_err(|refused| to_status(&refused))?;
        Ok(tonic::Response::new(InstallMetadataSnapshotResponse {
            payload: payload.into(),
        }))
    }

    async fn transfer_leader(
        &self,
        request: tonic::Request<TransferLeaderRequest>,
    ) -> Result<tonic::Response<TransferLeaderResponse>, Status> {
        let TransferLeaderRequest { address, payload } = request.into_inner();
        let request = Request::TransferLeader(payload.into());
        let payload = self.payload(address, request).await?;
        Ok(tonic::Response::new(TransferLeaderResponse { payload }))
    }

    async fn propose(
        &self,
        request: tonic::Request<ProposeRequest>,
    ) -> Result<tonic::Response<ProposeResponse>, Status> {
        let ProposeRequest { address, entry } = request.into_inner();
        match self.answer(address, Request::Propose(entry.into())).await? {
            Response::Applied { index, outcome } => Ok(tonic::Response::new(ProposeResponse {
                index,
                outcome: outcome.into(),
            })),
            other => Err(mixed_up(&other)),
        }
    }

    async fn get_read_index(
        &self,
        request: tonic::Request<GetReadIndexRequest>,
    ) -> Result<tonic::Response<GetReadIndexResponse>, Status> {
        let address = request.into_inner().address;
        match self.answer(address, Request::ReadIndex).await? {
            Response::ReadIndex(index) => Ok(tonic::Response::new(GetReadIndexResponse { index })),
            other => Err(mixed_up(&other)),
        }
    }
}
