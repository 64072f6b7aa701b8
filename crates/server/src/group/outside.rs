//! A node without the metadata log: callers of the public services are sent to one that has it.

use std::sync::Arc;
use std::time::Duration;

use tidegate_cluster::worker::grpc::Redirect;
use tidegate_rpc::status::not_leader;
use tonic::Status;
use tonic::codegen::http;
use tonic::service::{AxumBody, AxumRouter, Routes};

use super::channels::Channels;
use super::pause::within;
use super::service::identify;

/// How long a peer may take to answer before the next is asked.
const ASK: Duration = Duration::from_millis(500);

/// Knows which nodes may have the log.
#[derive(Clone, Debug)]
pub(crate) struct Outside {
    peers: Vec<String>,
    channels: Channels,
}

impl Outside {
    pub(crate) fn new(peers: Vec<String>, channels: Channels) -> Self {
        Self { peers, channels }
    }

    /// Routes that answer every call with where to make it.
    pub(crate) fn routes(&self) -> Routes {
        let outside = self.clone();
        let answer = move || {
            let outside = outside.clone();
            async move { outside.redirect().await }
        };
        Routes::from(AxumRouter::new().fallback(answer))
    }

    /// The same for services that this node has a part of.
    pub(crate) fn redirector(&self) -> Redirect {
        let outside = self.clone();
        Arc::new(move || {
            let outside = outside.clone();
            Box::pin(async move { outside.status().await })
        })
    }

    async fn redirect(&self) -> http::Response<AxumBody> {
        self.status().await.into_http()
    }

    async fn status(&self) -> Status {
        let endpoint = self.member().await;
        not_leader(endpoint.as_deref())
    }

    /// A node that is in a cluster, the leader if it is known.
    async fn member(&self) -> Option<String> {
        for peer in &self.peers {
            let Ok(channel) = self.channels.to(peer) else {
                continue;
            };
            if let Some(Ok((answer, leader))) = within(ASK, identify(channel)).await
                && answer.cluster.is_some()
            {
                return Some(leader.unwrap_or_else(|| peer.clone()));
            }
        }
        None
    }
}
