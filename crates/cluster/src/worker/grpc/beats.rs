//! Signs of life of workers, on their way to the node that leads.

use std::sync::Arc;

use tidegate_change::{Code, Error, Result};
use tidegate_rpc::internal::placement_service_client::PlacementServiceClient;
use tidegate_rpc::internal::placement_service_server::{PlacementService, PlacementServiceServer};
use tidegate_rpc::internal::{HeartbeatRequest, HeartbeatResponse};
use tidegate_rpc::status::{error_of, leader_of, not_leader, status_of};
use tonic::{Request, Response, Status};

use super::client::GrpcLinks;
use super::messages::{seat_from, seat_to};
use crate::metadata::ClusterId;
use crate::placement::{Beat, LeaderAt, PlacementKeeper, Seat};

/// Hears workers.
#[derive(Clone, Debug)]
pub struct PlacementEndpoint {
    keeper: Arc<PlacementKeeper>,
}

/// The service that hears workers, for a server to add. Workers of another group are refused.
#[must_use]
pub fn placement_service(
    keeper: Arc<PlacementKeeper>,
) -> PlacementServiceServer<PlacementEndpoint> {
    PlacementServiceServer::new(PlacementEndpoint { keeper })
}

/// Refuses a worker of another group.
fn require_cluster(own: Option<ClusterId>, named: &str) -> Result<()> {
    let Some(own) = own.filter(|_| !named.is_empty()) else {
        return Ok(());
    };
    let named: ClusterId = named.parse()?;
    match named == own {
        true => Ok(()),
        false => Err(Error::new(
            Code::InvalidArgument,
            format!("a worker of cluster {named} called one of cluster {own}"),
        )),
    }
}

#[tonic::async_trait]
impl PlacementService for PlacementEndpoint {
    async fn heartbeat(
        &self,
        request: Request<HeartbeatRequest>,
    ) -> Result<Response<HeartbeatResponse>, Status> {
        let request = request.into_inner();
        let cluster = self.keeper.cluster();
        require_cluster(cluster, &request.cluster_id).map_err(|e| status_of(&e))?;
        match self.keeper.leader() {
            LeaderAt::Here => {}
            LeaderAt::Endpoint(endpoint) => return Err(not_leader(Some(&endpoint))),
            LeaderAt::Nowhere => return Err(not_leader(None)),
        }
        let seat = seat_from(request.seat).map_err(|e| status_of(&e))?;
        let beat = Beat {
            node: seat.node,
            incarnation: seat.incarnation,
            endpoint: seat.endpoint,
            is_draining: request.is_draining,
        };
        let heard = self.keeper.hear(beat).await;
        let placement_epoch = heard.map_err(|e| status_of(&e))?;
        Ok(Response::new(HeartbeatResponse {
            placement_epoch,
            cluster_id: cluster.map(|id| id.to_string()).unwrap_or_default(),
        }))
    }
}

/// Tells the leader that a worker lives.
#[derive(Debug)]
pub struct BeatClient {
    links: Arc<GrpcLinks>,
    peers: Vec<String>,
    seat: Seat,
    /// The group that it works for, once one has answered.
    cluster: String,
    /// Who led when it was last heard.
    leader: Option<String>,
    next: usize,
}

impl BeatClient {
    /// A client that asks those peers for the leader.
    #[must_use]
    pub fn new(links: Arc<GrpcLinks>, peers: Vec<String>, seat: Seat) -> Self {
        Self {
            links,
            peers,
            seat,
            cluster: String::new(),
            leader: None,
            next: 0,
        }
    }

    /// Asks another peer next time: this one does not answer.
    pub fn give_up(&mut self) {
        self.leader = None;
        self.next += 1;
    }

    /// One sign of life; returns the epoch that the worker must know. Whoever does not answer is not asked
    /// next time.
    ///
    /// # Errors
    /// `UNAVAILABLE` or `NOT_LEADER` when another one should be asked.
    pub async fn beat(&mut self, is_draining: bool) -> Result<u64> {
        let peer = self.peers.get(self.next % self.peers.len().max(1));
        let Some(endpoint) = self.leader.clone().or_else(|| peer.cloned()) else {
            return Err(Error::new(
                Code::InvalidArgument,
                "cluster.peers names none",
            ));
        };
        let channel = self.links.channel(&endpoint);
        let channel = channel.map_err(super::CallError::into_error)?;
        let request = HeartbeatRequest {
            cluster_id: self.cluster.clone(),
            seat: Some(seat_to(&self.seat)),
            is_draining,
        };
        match PlacementServiceClient::new(channel)
            .heartbeat(request)
            .await
        {
            Ok(answer) => {
                let answer = answer.into_inner();
                self.leader = Some(endpoint);
                self.cluster = answer.cluster_id;
                Ok(answer.placement_epoch)
            }
            Err(status) => {
                self.give_up();
                self.leader = leader_of(&status);
                Err(error_of(&status))
            }
        }
    }
}
