//! `ClusterService`.

use tidegate_change::{Code, Error, Result};
use tidegate_cluster::metadata::Role;
use tidegate_rpc::status::status_of;
use tidegate_rpc::v1;
use tidegate_rpc::v1::cluster_service_server::ClusterService;
use tonic::{Request, Response, Status};

use super::deadline;
use crate::config::NodeRole;
use crate::node::Serving;

/// The cluster over gRPC.
#[derive(Clone, Debug)]
pub(crate) struct ClusterApi {
    serving: Serving,
}

impl ClusterApi {
    pub(crate) fn new(serving: Serving) -> Self {
        Self { serving }
    }

    async fn status(&self) -> Result<v1::GetClusterStatusResponse> {
        let state = self.serving.embedded.coordinator.state().await?;
        let own = self.serving.embedded.node();
        let roles = self.serving.config.roles.iter().map(|role| match role {
            NodeRole::Meta => "voter".to_owned(),
            NodeRole::Coordinator => "coordinator".to_owned(),
            NodeRole::Worker => "worker".to_owned(),
        });
        let epochs = state.epochs.get(&own);
        let epoch = epochs.and_then(|epochs| epochs.get(&Role::Coordinator));
        let node = v1::Node {
            node_id: own.0,
            endpoint: self.serving.endpoint.clone(),
            roles: roles.collect(),
            state: "live".to_owned(),
            epoch: epoch.copied().unwrap_or_default(),
        };
        Ok(v1::GetClusterStatusResponse {
            cluster_id: state.writer.to_string(),
            leader_node_id: Some(own.0),
            term: 0,
            applied_index: state.last_applied,
            nodes: vec![node],
            placement_epoch: 0,
            node_id: own.0,
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }
}

/// What a cluster of one member answers to changes of its members.
fn single(what: &str) -> Status {
    let message = format!("{what}: this node is a cluster of one member, others cannot join it");
    status_of(&Error::new(Code::Unsupported, message))
}

#[tonic::async_trait]
impl ClusterService for ClusterApi {
    async fn get_cluster_status(
        &self,
        request: Request<v1::GetClusterStatusRequest>,
    ) -> Result<Response<v1::GetClusterStatusResponse>, Status> {
        let status = deadline::bounded(request.metadata(), self.status()).await;
        status.map(Response::new).map_err(|e| status_of(&e))
    }

    async fn add_node(
        &self,
        request: Request<v1::AddNodeRequest>,
    ) -> Result<Response<v1::AddNodeResponse>, Status> {
        Err(single(&format!("add {}", request.get_ref().node_id)))
    }

    async fn remove_node(
        &self,
        request: Request<v1::RemoveNodeRequest>,
    ) -> Result<Response<v1::RemoveNodeResponse>, Status> {
        Err(single(&format!("remove {}", request.get_ref().node_id)))
    }

    async fn drain_node(
        &self,
        request: Request<v1::DrainNodeRequest>,
    ) -> Result<Response<v1::DrainNodeResponse>, Status> {
        Err(single(&format!("drain {}", request.get_ref().node_id)))
    }
}
