//! A node in this process: its health, its reflection, its limits and its stop.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tidegate_apply::{Manifest, Work};
use tidegate_change::{Code, Error, Result};
use tidegate_cluster::Workers;
use tidegate_rpc::status::error_of;
use tidegate_rpc::v1;
use tidegate_rpc::v1::batch_service_client::BatchServiceClient;
use tidegate_rpc::v1::cluster_service_client::ClusterServiceClient;
use tidegate_rpc::v1::table_service_client::TableServiceClient;
use tokio::sync::Semaphore;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};

use crate::config::{Config, Span};
use crate::embedded::OpenOptions;
use crate::node::Node;
use crate::tests::one_file;

/// Workers that write one file a batch, and wait for a permit before they do.
#[derive(Debug)]
pub(crate) struct GatedWorkers {
    pub(crate) gate: Semaphore,
}

impl GatedWorkers {
    /// Workers that go through `permits_count` batches.
    pub(crate) fn new(permits_count: usize) -> Arc<Self> {
        Arc::new(Self {
            gate: Semaphore::new(permits_count),
        })
    }
}

#[async_trait]
impl Workers for GatedWorkers {
    async fn execute(&self, work: Work) -> Result<Manifest> {
        let permit = self.gate.acquire().await;
        permit
            .map_err(|e| Error::internal("the gate").with_source(e))?
            .forget();
        if work
            .sources
            .iter()
            .any(|source| source.name == "refused.jsonl")
        {
            return Err(Error::new(
                Code::NullKey,
                "file refused.jsonl line 1: a key is NULL",
            ));
        }
        one_file(&work, 1).await
    }
}

/// A node on a directory, listening on a free port of this machine.
pub(crate) async fn start(directory: &Path, workers: Arc<dyn Workers>) -> Node {
    start_with(directory, workers, |_| {}).await
}

/// The same with another configuration.
pub(crate) async fn start_with(
    directory: &Path,
    workers: Arc<dyn Workers>,
    change: impl FnOnce(&mut Config),
) -> Node {
    let mut config = Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        data: directory.join("data"),
        ..Config::default()
    };
    config.sources.directories = vec![directory.to_owned()];
    change(&mut config);
    let options = OpenOptions {
        // The services of a node that was dropped let go of the directory a little later.
        wait_lock: true,
        ..OpenOptions::new(workers)
    };
    Node::start(config, options).await.unwrap()
}

pub(crate) async fn channel(node: &Node) -> Channel {
    let endpoint = Endpoint::from_shared(node.endpoint().to_owned()).unwrap();
    endpoint.connect().await.unwrap()
}

pub(crate) fn spec(table: &str) -> String {
    format!(
        "name: {table}\nkeys: [id]\nsequence_by: seq\nschema:\n  - {{name: id, type: long}}\n  - {{name: seq, type: long}}\n"
    )
}

/// Creates a table.
pub(crate) async fn create(channel: &Channel, table: &str) {
    let mut tables = TableServiceClient::new(channel.clone());
    let spec = spec(table);
    tables
        .create_table(v1::CreateTableRequest { spec })
        .await
        .unwrap();
}

/// A batch of one file of that content.
pub(crate) fn submission(
    directory: &Path,
    id: &str,
    name: &str,
    text: &str,
) -> v1::SubmitBatchRequest {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    v1::SubmitBatchRequest {
        table: "t".into(),
        batch_id: id.into(),
        sources: vec![v1::Source {
            url: format!("file://{}", path.display()),
            format: String::new(),
        }],
        ..v1::SubmitBatchRequest::default()
    }
}

#[tokio::test]
async fn every_service_is_healthy_and_reflected_and_internal_ones_do_not_show() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path(), GatedWorkers::new(0)).await;
    let channel = channel(&node).await;
    let mut health = HealthClient::new(channel.clone());
    for service in ["", "tidegate.v1.BatchService", "tidegate.v1.TableService"] {
        let request = HealthCheckRequest {
            service: service.into(),
        };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }
    let names = reflected(channel).await;
    for service in ["BatchService", "TableService", "ClusterService"] {
        let name = format!("tidegate.v1.{service}");
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    assert!(
        !names.iter().any(|name| name.contains("internal")),
        "{names:?}"
    );
}

async fn reflected(channel: Channel) -> Vec<String> {
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    let request = tonic_reflection::pb::v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(channel);
    let answers = client.server_reflection_info(futures::stream::iter([request]));
    let answer = answers
        .await
        .unwrap()
        .into_inner()
        .message()
        .await
        .unwrap()
        .unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("no list of services");
    };
    list.service
        .into_iter()
        .map(|service| service.name)
        .collect()
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused_and_the_node_lives() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path(), GatedWorkers::new(0)).await;
    let channel = channel(&node).await;
    let mut tables = TableServiceClient::new(channel.clone());
    let spec = "x".repeat(5 << 20);
    let refused = tables.create_table(v1::CreateTableRequest { spec }).await;
    assert_eq!(refused.unwrap_err().code(), tonic::Code::OutOfRange);
    create(&channel, "t").await;
}

#[tokio::test]
async fn headers_that_are_too_large_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path(), GatedWorkers::new(0)).await;
    let channel = channel(&node).await;
    let mut cluster = ClusterServiceClient::new(channel);
    let mut request = tonic::Request::new(v1::GetClusterStatusRequest {});
    let large = "x".repeat(64 << 10);
    request
        .metadata_mut()
        .insert("x-large", large.parse().unwrap());
    assert!(cluster.get_cluster_status(request).await.is_err());
    let status = cluster
        .get_cluster_status(v1::GetClusterStatusRequest {})
        .await
        .unwrap();
    assert_eq!(status.into_inner().nodes.len(), 1);
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_until_one_closes() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_with(dir.path(), GatedWorkers::new(0), |config| {
        config.limits.connections = 1;
    })
    .await;
    let first = channel(&node).await;
    let mut cluster = ClusterServiceClient::new(first);
    cluster
        .get_cluster_status(v1::GetClusterStatusRequest {})
        .await
        .unwrap();
    let second = Endpoint::from_shared(node.endpoint().to_owned()).unwrap();
    let mut waiting = ClusterServiceClient::new(second.connect_lazy());
    let mut request = tonic::Request::new(v1::GetClusterStatusRequest {});
    request.set_timeout(Duration::from_millis(300));
    assert!(waiting.get_cluster_status(request).await.is_err());
    drop(cluster);
    waiting
        .get_cluster_status(v1::GetClusterStatusRequest {})
        .await
        .unwrap();
}

#[tokio::test]
async fn a_stop_lets_running_batches_end() {
    let dir = tempfile::tempdir().unwrap();
    let workers = GatedWorkers::new(0);
    let node = start(dir.path(), Arc::clone(&workers) as _).await;
    let channel = channel(&node).await;
    create(&channel, "t").await;
    let mut batches = BatchServiceClient::new(channel);
    let request = submission(dir.path(), "b", "a.jsonl", "{}");
    batches.submit_batch(request.clone()).await.unwrap();
    until_executed(&mut batches).await;
    let stopping = tokio::spawn(node.stop());
    // The stop goes on only when the batch does.
    workers.gate.add_permits(1);
    stopping.await.unwrap().unwrap();
    let node = start(dir.path(), GatedWorkers::new(0)).await;
    let again = submit_waiting(&node, request).await;
    assert_eq!(again.state(), v1::BatchState::Succeeded);
    assert_eq!(again.result.unwrap().version, 1);
}

#[tokio::test]
async fn a_stop_cancels_what_takes_longer_than_the_drain() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_with(dir.path(), GatedWorkers::new(0), |config| {
        config.drain = Span::from_ms(50);
    })
    .await;
    let channel = channel(&node).await;
    create(&channel, "t").await;
    let mut batches = BatchServiceClient::new(channel);
    let request = submission(dir.path(), "b", "a.jsonl", "{}");
    batches.submit_batch(request.clone()).await.unwrap();
    let watched = v1::WatchBatchRequest {
        table: "t".into(),
        batch_id: "b".into(),
    };
    let mut watch = batches.watch_batch(watched).await.unwrap().into_inner();
    assert!(watch.message().await.unwrap().is_some());
    node.stop().await.unwrap();
    let ended = loop {
        match watch.message().await {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    assert_eq!(error_of(&ended.unwrap_err()).code(), Code::Unavailable);
    // Nothing of it is in the table; the same batch runs again.
    let node = start(dir.path(), GatedWorkers::new(1)).await;
    let again = submit_waiting(&node, request).await;
    assert_eq!(again.state(), v1::BatchState::Succeeded);
    assert_eq!(again.result.unwrap().version, 1);
}

/// Waits until the batch is no more in the queue, from which a stop would drop it.
async fn until_executed(batches: &mut BatchServiceClient<Channel>) {
    let asked = v1::WatchBatchRequest {
        table: "t".into(),
        batch_id: "b".into(),
    };
    let mut watch = batches.watch_batch(asked).await.unwrap().into_inner();
    while let Some(message) = watch.message().await.unwrap() {
        let progress = message.batch.unwrap().progress.unwrap();
        if progress.phase != "queue" {
            return;
        }
    }
}

async fn submit_waiting(node: &Node, request: v1::SubmitBatchRequest) -> v1::Batch {
    let mut batches = BatchServiceClient::new(channel(node).await);
    let request = v1::SubmitBatchRequest {
        wait: true,
        ..request
    };
    let answer = batches.submit_batch(request).await.unwrap();
    answer.into_inner().batch.unwrap()
}

#[tokio::test]
async fn a_directory_that_is_held_is_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let _node = start(dir.path(), GatedWorkers::new(0)).await;
    let config = Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        data: dir.path().join("data"),
        ..Config::default()
    };
    let error = Node::start(config, OpenOptions::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::DirectoryHeld);
}

fn certificate(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/node/test_certificates")
        .join(name)
}

#[tokio::test]
async fn an_encrypted_node_lets_in_who_shows_a_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_with(dir.path(), GatedWorkers::new(0), |config| {
        config.tls.certificate = Some(certificate("node.pem"));
        config.tls.key = Some(certificate("node-key.pem"));
        config.tls.client_authority = Some(certificate("authority.pem"));
    })
    .await;
    let address = node.endpoint().to_owned();
    assert!(address.starts_with("https://"), "{address}");
    let read = |name: &str| std::fs::read(certificate(name)).unwrap();
    let anonymous = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read("authority.pem")))
        .domain_name("localhost");
    let identity = Identity::from_pem(read("client.pem"), read("client-key.pem"));
    let known = anonymous.clone().identity(identity);
    let status = |tls: Option<ClientTlsConfig>, address: String| async move {
        let endpoint = Endpoint::from_shared(address).unwrap();
        let endpoint = match tls {
            Some(tls) => endpoint.tls_config(tls).unwrap(),
            None => endpoint,
        };
        let mut cluster = ClusterServiceClient::new(endpoint.connect_lazy());
        cluster
            .get_cluster_status(v1::GetClusterStatusRequest {})
            .await
    };
    status(Some(known), address.clone()).await.unwrap();
    assert!(status(Some(anonymous), address.clone()).await.is_err());
    let plain = address.replace("https://", "http://");
    assert!(status(None, plain).await.is_err());
}
