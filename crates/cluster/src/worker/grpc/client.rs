//! The calling side: one connection a worker.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_flight::Ticket;
use arrow_flight::flight_service_client::FlightServiceClient;
use async_trait::async_trait;
use tidegate_apply::phases::{PartialManifest, ReadSummary};
use tidegate_change::{Code, Error};
use tidegate_rpc::internal;
use tidegate_rpc::internal::merge_buckets_response::Answer as Merged;
use tidegate_rpc::internal::read_sources_response::Answer as Read;
use tidegate_rpc::internal::work_service_client::WorkServiceClient;
use tonic::Status;
use tonic::transport::Channel;

use super::lost_or_decided;
use super::messages::{finish_to, from_json, merge_to, progress_from, read_to, token_to};
use crate::metadata::replicated::transport::grpc::GrpcOptions;
use crate::placement::Seat;
use crate::shuffle::{self, MESSAGE_BYTES_MAX};
use crate::worker::{
    CallError, Called, Fetch, FinishOrder, MergeOrder, MergeOutcome, ReadOrder, Rows, Watcher,
    WorkToken, WorkerLink, WorkerLinks,
};

/// Reaches workers over gRPC and Flight.
#[derive(Debug)]
pub struct GrpcLinks {
    options: GrpcOptions,
    channels: Mutex<BTreeMap<String, Channel>>,
}

impl GrpcLinks {
    /// No connections yet.
    #[must_use]
    pub fn new(options: GrpcOptions) -> Self {
        Self {
            options,
            channels: Mutex::default(),
        }
    }

    /// A channel that connects when it is first used, and again whenever it must.
    pub(super) fn channel(&self, endpoint: &str) -> Called<Channel> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.get(endpoint) {
            return Ok(channel.clone());
        }
        let channel = self.options.connect(endpoint).map_err(|e| {
            let message = format!("worker {endpoint}: {e}");
            CallError::Lost(Error::new(Code::Unavailable, message))
        })?;
        channels.insert(endpoint.to_owned(), channel.clone());
        Ok(channel)
    }
}

impl WorkerLinks for GrpcLinks {
    fn link(&self, seat: &Seat) -> Called<Arc<dyn WorkerLink>> {
        Ok(Arc::new(GrpcLink {
            channel: self.channel(&seat.endpoint)?,
            seat: seat.clone(),
        }))
    }
}

#[derive(Debug)]
struct GrpcLink {
    channel: Channel,
    seat: Seat,
}

impl GrpcLink {
    fn client(&self) -> WorkServiceClient<Channel> {
        WorkServiceClient::new(self.channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }
}

fn told(status: Status) -> CallError {
    lost_or_decided(&status)
}

fn cut_short() -> CallError {
    CallError::Lost(Error::new(
        Code::Unavailable,
        "a worker ended a call without an answer",
    ))
}

fn watch(watcher: &Watcher, progress: internal::WorkProgress) {
    if let Some(watcher) = watcher {
        watcher.observe(progress_from(progress));
    }
}

#[async_trait]
impl WorkerLink for GrpcLink {
    async fn read(&self, order: ReadOrder, watcher: Watcher) -> Called<Vec<ReadSummary>> {
        let request = read_to(&order, &self.seat)?;
        let answers = self.client().read_sources(request).await;
        let mut answers = answers.map_err(told)?.into_inner();
        while let Some(answer) = answers.message().await.map_err(told)? {
            match answer.answer {
                Some(Read::Progress(progress)) => watch(&watcher, progress),
                Some(Read::Summaries(json)) => return Ok(from_json("summaries", &json)?),
                None => {}
            }
        }
        Err(cut_short())
    }

    async fn merge(&self, order: MergeOrder, watcher: Watcher) -> Called<MergeOutcome> {
        let request = merge_to(&order, &self.seat)?;
        let answers = self.client().merge_buckets(request).await;
        let mut answers = answers.map_err(told)?.into_inner();
        while let Some(answer) = answers.message().await.map_err(told)? {
            match answer.answer {
                Some(Merged::Progress(progress)) => watch(&watcher, progress),
                Some(Merged::Outcome(json)) => return Ok(from_json("an outcome", &json)?),
                None => {}
            }
        }
        Err(cut_short())
    }

    async fn fetch(&self, fetch: Fetch) -> Called<Rows> {
        let ticket = Ticket::new(shuffle::ticket_of(&fetch)?);
        let mut client = FlightServiceClient::new(self.channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        let messages = client.do_get(ticket).await.map_err(told)?.into_inner();
        Ok(shuffle::decode(messages))
    }

    async fn finish(&self, order: FinishOrder) -> Called<PartialManifest> {
        let answer = self.client().finish_merge(finish_to(&order)?).await;
        let manifest = answer.map_err(told)?.into_inner().manifest;
        Ok(from_json("what was written", &manifest)?)
    }

    async fn abandon(&self, token: WorkToken) -> Called<()> {
        let request = internal::AbandonAttemptRequest {
            token: Some(token_to(token)),
        };
        let answer = self.client().abandon_attempt(request).await;
        answer.map(|_| ()).map_err(told)
    }
}
