//! `ClusterService`.

use std::time::Duration;

use tidegate_change::{Code, Error, Result};
use tidegate_cluster::metadata::replicated::{GroupStatus, MemberStatus};
use tidegate_cluster::metadata::{NodeId, Role, State};
use tidegate_cluster::placement::Placement;
use tidegate_rpc::status::{not_leader, status_of};
use tidegate_rpc::v1;
use tidegate_rpc::v1::cluster_service_client::ClusterServiceClient;
use tidegate_rpc::v1::cluster_service_server::ClusterService;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::deadline;
use crate::group::{Elsewhere, is_forwarded};
use crate::node::Serving;

/// How long the leader may take to say which nodes live.
const ASK_LEADER: Duration = Duration::from_secs(1);

/// The cluster over gRPC.
#[derive(Clone, Debug)]
pub(crate) struct ClusterApi {
    serving: Serving,
}

impl ClusterApi {
    pub(crate) fn new(serving: Serving) -> Self {
        Self { serving }
    }

    /// What this node knows, without asking anybody: it must answer when nobody leads.
    fn status(&self) -> v1::GetClusterStatusResponse {
        let member = self.serving.embedded.member();
        let (status, state) = (member.status(), member.state());
        let gone_after = self.serving.config.cluster.gone_after.duration();
        let nodes = status.members.iter().map(|known| {
            let mut node = node_of(known, &status, &state, gone_after);
            if known.node == status.node {
                node.endpoint.clone_from(&self.serving.endpoint);
                // Alone it needs no placement to work.
                if !self.serving.config.is_clustered() {
                    node.roles.push("worker".to_owned());
                }
            }
            node
        });
        v1::GetClusterStatusResponse {
            cluster_id: member
                .cluster()
                .map(|id| id.to_string())
                .unwrap_or_default(),
            leader_node_id: status.leader.map(|leader| leader.0),
            term: status.term,
            applied_index: status.applied_index,
            nodes: with_workers(nodes.collect(), &state.placement),
            placement_epoch: state.placement.epoch,
            node_id: status.node.0,
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// The nodes as the leader sees them, which is the only one to know who lives.
    async fn nodes_by_leader(&self, metadata: &MetadataMap) -> Option<Vec<v1::Node>> {
        let channel = self.serving.elsewhere.leader().ok().flatten()?;
        let request = Elsewhere::passed_on(metadata, v1::GetClusterStatusRequest {});
        let mut leader = ClusterServiceClient::new(channel);
        let asked = deadline::within(Some(ASK_LEADER), leader.get_cluster_status(request)).await?;
        asked.ok().map(|answer| answer.into_inner().nodes)
    }

    /// Refuses changes of members that only a cluster of several has.
    fn require_cluster(&self, what: &str) -> Result<(), Status> {
        if self.serving.config.is_clustered() {
            return Ok(());
        }
        let message = format!("{what}: this node is a cluster of its own, it has no cluster.peers");
        Err(status_of(&Error::new(Code::Unsupported, message)))
    }

    /// The answer to a change that only the leader makes.
    fn changed<T>(&self, changed: Result<()>, answer: T) -> Result<Response<T>, Status> {
        match changed {
            Ok(()) => Ok(Response::new(answer)),
            Err(error) if error.code() == Code::NotLeader => {
                let status = self.serving.embedded.member().status();
                Err(not_leader(status.leader_endpoint()))
            }
            Err(error) => Err(status_of(&error)),
        }
    }
}

fn node_of(
    known: &MemberStatus,
    status: &GroupStatus,
    state: &State,
    gone_after: Duration,
) -> v1::Node {
    let epochs = state.epochs.get(&known.node);
    let epoch = epochs.and_then(|epochs| epochs.get(&Role::Coordinator));
    let vote = match known.is_voter {
        true => "voter",
        false => "learner",
    };
    let mut roles = vec![vote.to_owned()];
    roles.extend(epoch.map(|_| "coordinator".to_owned()));
    v1::Node {
        node_id: known.node.0,
        endpoint: known.peer.endpoint.clone(),
        roles,
        state: life_of(known, status, gone_after).to_owned(),
        epoch: epoch.copied().unwrap_or_default(),
    }
}

/// The nodes, with those that work among them.
fn with_workers(mut nodes: Vec<v1::Node>, placement: &Placement) -> Vec<v1::Node> {
    for (node, placed) in &placement.workers {
        let known = nodes.iter().position(|known| known.node_id == node.0);
        let known = known.unwrap_or_else(|| {
            nodes.push(v1::Node {
                node_id: node.0,
                endpoint: placed.endpoint.clone(),
                state: "live".to_owned(),
                ..v1::Node::default()
            });
            nodes.len() - 1
        });
        if let Some(known) = nodes.get_mut(known) {
            known.roles.push("worker".to_owned());
            if placed.is_draining {
                known.state = "draining".to_owned();
            }
        }
    }
    nodes
}

/// Whether a node lives, as far as this one can tell.
fn life_of(known: &MemberStatus, status: &GroupStatus, gone_after: Duration) -> &'static str {
    if known.node == status.node {
        return "live";
    }
    match known.silence {
        Some(silence) if silence < gone_after => "live",
        _ if status.leads() => "gone",
        _ => "unknown",
    }
}

#[tonic::async_trait]
impl ClusterService for ClusterApi {
    async fn get_cluster_status(
        &self,
        request: Request<v1::GetClusterStatusRequest>,
    ) -> Result<Response<v1::GetClusterStatusResponse>, Status> {
        let mut answer = self.status();
        let leads = answer.leader_node_id == Some(answer.node_id);
        if !leads
            && !is_forwarded(request.metadata())
            && let Some(nodes) = self.nodes_by_leader(request.metadata()).await
        {
            answer.nodes = nodes;
        }
        Ok(Response::new(answer))
    }

    async fn add_node(
        &self,
        request: Request<v1::AddNodeRequest>,
    ) -> Result<Response<v1::AddNodeResponse>, Status> {
        let asked = request.get_ref();
        self.require_cluster(&format!("add {}", asked.node_id))?;
        let admission = &self.serving.elsewhere.admission;
        let work = admission.add(NodeId(asked.node_id), &asked.endpoint);
        let added = deadline::bounded(request.metadata(), work).await;
        self.changed(added, v1::AddNodeResponse {})
    }

    async fn remove_node(
        &self,
        request: Request<v1::RemoveNodeRequest>,
    ) -> Result<Response<v1::RemoveNodeResponse>, Status> {
        let node = request.get_ref().node_id;
        self.require_cluster(&format!("remove {node}"))?;
        let work = self.serving.elsewhere.admission.remove(NodeId(node));
        let removed = deadline::bounded(request.metadata(), work).await;
        self.changed(removed, v1::RemoveNodeResponse {})
    }

    async fn drain_node(
        &self,
        request: Request<v1::DrainNodeRequest>,
    ) -> Result<Response<v1::DrainNodeResponse>, Status> {
        let node = request.get_ref().node_id;
        self.require_cluster(&format!("drain {node}"))?;
        let Some(work) = &self.serving.work else {
            return Err(status_of(&Error::internal(
                "a node without work in a cluster",
            )));
        };
        let drained = deadline::bounded(request.metadata(), work.keeper.drain(NodeId(node))).await;
        self.changed(drained, v1::DrainNodeResponse {})
    }
}
