//! The cluster's members.

use std::time::Duration;

use tidegate_change::Result;
use tidegate_rpc::v1;
use tidegate_rpc::v1::cluster_service_client::ClusterServiceClient;

use crate::client::Client;
use crate::repeat::Repeat;

/// How long a node may take to say what it knows.
const STATUS_PATIENCE: Duration = Duration::from_secs(10);

impl Client {
    /// What the answering node knows of the cluster. A node that is paused takes calls and answers none, so
    /// that without a deadline of the caller's this has one of its own.
    ///
    /// # Errors
    /// `UNAVAILABLE`, `TIMED_OUT`.
    pub async fn cluster_status(&self) -> Result<v1::GetClusterStatusResponse> {
        let answer = self.call(Repeat::Always, |channel| async move {
            let mut service = ClusterServiceClient::new(channel);
            let mut request = self.request(v1::GetClusterStatusRequest {});
            if self.options.deadline.is_none() {
                request.set_timeout(STATUS_PATIENCE);
            }
            service.get_cluster_status(request).await
        });
        Ok(answer.await?.into_inner())
    }

    /// Adds a metadata node.
    ///
    /// # Errors
    /// Why it cannot join.
    pub async fn add_node(&self, node_id: u64, endpoint: &str) -> Result<()> {
        let answer = self.call(Repeat::WhenNotDone, |channel| async move {
            let mut service = ClusterServiceClient::new(channel);
            let message = v1::AddNodeRequest {
                node_id,
                endpoint: endpoint.to_owned(),
            };
            service.add_node(self.request(message)).await
        });
        answer.await.map(drop)
    }

    /// Removes a metadata node for ever.
    ///
    /// # Errors
    /// Why it cannot be removed.
    pub async fn remove_node(&self, node_id: u64) -> Result<()> {
        let answer = self.call(Repeat::WhenNotDone, |channel| async move {
            let mut service = ClusterServiceClient::new(channel);
            let request = self.request(v1::RemoveNodeRequest { node_id });
            service.remove_node(request).await
        });
        answer.await.map(drop)
    }

    /// Takes all work from a worker.
    ///
    /// # Errors
    /// Why it cannot be drained.
    pub async fn drain_node(&self, node_id: u64) -> Result<()> {
        let answer = self.call(Repeat::Always, |channel| async move {
            let mut service = ClusterServiceClient::new(channel);
            let request = self.request(v1::DrainNodeRequest { node_id });
            service.drain_node(request).await
        });
        answer.await.map(drop)
    }
}
