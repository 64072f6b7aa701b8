//! The messages of joining: `tidegate.internal.v1.GroupService`.

use tidegate_change::{Code, Error, Result};
use tidegate_cluster::metadata::{ClusterId, NodeId};
use tidegate_rpc::internal::group_service_client::GroupServiceClient;
use tidegate_rpc::internal::group_service_server::{GroupService, GroupServiceServer};
use tidegate_rpc::internal::{IdentifyRequest, IdentifyResponse, JoinRequest, JoinResponse};
use tidegate_rpc::status::{error_of, leader_of, not_leader, status_of};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::admission::{Admission, Candidate};
use super::step::Answer;

/// Answers for this node.
#[derive(Debug)]
pub(crate) struct GroupEndpoint {
    admission: Admission,
}

/// The service of a node, for a server to add.
pub(crate) fn group_service(admission: Admission) -> GroupServiceServer<GroupEndpoint> {
    GroupServiceServer::new(GroupEndpoint { admission })
}

#[tonic::async_trait]
impl GroupService for GroupEndpoint {
    async fn identify(
        &self,
        _request: Request<IdentifyRequest>,
    ) -> Result<Response<IdentifyResponse>, Status> {
        let member = self.admission.member();
        let status = member.status();
        let cluster = member.cluster().map(|cluster| cluster.to_string());
        Ok(Response::new(IdentifyResponse {
            node_id: member.node().0,
            cluster_id: cluster.unwrap_or_default(),
            leader_endpoint: status.leader_endpoint().unwrap_or_default().to_owned(),
        }))
    }

    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<JoinResponse>, Status> {
        let candidate = candidate_of(request.into_inner()).map_err(|e| status_of(&e))?;
        match self.admission.admit(candidate).await {
            Ok(cluster) => Ok(Response::new(JoinResponse {
                cluster_id: cluster.to_string(),
            })),
            Err(error) if error.code() == Code::NotLeader => {
                let status = self.admission.member().status();
                Err(not_leader(status.leader_endpoint()))
            }
            Err(error) => Err(status_of(&error)),
        }
    }
}

fn candidate_of(request: JoinRequest) -> Result<Candidate> {
    let cluster = match request.cluster_id.as_str() {
        "" => None,
        text => Some(text.parse()?),
    };
    if request.node_id == 0 || request.endpoint.is_empty() {
        let message = "a node that joins says its id and its address";
        return Err(Error::new(Code::InvalidArgument, message));
    }
    Ok(Candidate {
        node: NodeId(request.node_id),
        cluster,
        endpoint: request.endpoint,
    })
}

/// Asks a node who it is, and where the leader is.
pub(super) async fn identify(channel: Channel) -> Result<(Answer, Option<String>)> {
    let mut client = GroupServiceClient::new(channel);
    let answer = client.identify(IdentifyRequest {}).await;
    let answer = answer.map_err(|status| error_of(&status))?.into_inner();
    let cluster = match answer.cluster_id.as_str() {
        "" => None,
        text => Some(text.parse::<ClusterId>()?),
    };
    let node = NodeId(answer.node_id);
    let leader = Some(answer.leader_endpoint).filter(|endpoint| !endpoint.is_empty());
    Ok((Answer { node, cluster }, leader))
}

/// What became of asking to join.
pub(super) enum Joined {
    /// The node is a voter.
    Yes,
    /// Another node decides.
    Leader(String),
    /// Not now, or never.
    No(Error),
}

/// Asks a node to be taken in.
pub(super) async fn join(channel: Channel, candidate: &Candidate) -> Joined {
    let mut client = GroupServiceClient::new(channel);
    let cluster = candidate.cluster.map(|cluster| cluster.to_string());
    let request = JoinRequest {
        node_id: candidate.node.0,
        cluster_id: cluster.unwrap_or_default(),
        endpoint: candidate.endpoint.clone(),
    };
    match client.join(request).await {
        Ok(_) => Joined::Yes,
        Err(status) => match leader_of(&status) {
            Some(leader) => Joined::Leader(leader),
            None => Joined::No(error_of(&status)),
        },
    }
}
