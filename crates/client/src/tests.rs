//! The client against servers that fail on purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate_change::{Code, Error};
use tidegate_rpc::status::{not_leader, status_of};
use tidegate_rpc::v1;
use tidegate_rpc::v1::cluster_service_server::{ClusterService, ClusterServiceServer};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::{Client, ClientOptions};

/// Answers after some failures, or points to another node.
#[derive(Clone, Debug, Default)]
struct Scripted {
    calls_count: Arc<AtomicU32>,
    failures: u32,
    failure: Option<Code>,
    leader: Option<String>,
}

impl Scripted {
    fn next(&self) -> Result<(), Status> {
        let count = self.calls_count.fetch_add(1, Ordering::SeqCst);
        if let Some(leader) = &self.leader {
            return Err(not_leader(Some(leader)));
        }
        match self.failure {
            Some(code) if count < self.failures => Err(status_of(&Error::new(code, "scripted"))),
            _ => Ok(()),
        }
    }
}

#[tonic::async_trait]
impl ClusterService for Scripted {
    async fn get_cluster_status(
        &self,
        _request: Request<v1::GetClusterStatusRequest>,
    ) -> Result<Response<v1::GetClusterStatusResponse>, Status> {
        self.next()?;
        Ok(Response::new(v1::GetClusterStatusResponse::default()))
    }

    async fn add_node(
        &self,
        _request: Request<v1::AddNodeRequest>,
    ) -> Result<Response<v1::AddNodeResponse>, Status> {
        self.next()?;
        Ok(Response::new(v1::AddNodeResponse {}))
    }

    async fn remove_node(
        &self,
        _request: Request<v1::RemoveNodeRequest>,
    ) -> Result<Response<v1::RemoveNodeResponse>, Status> {
        std::future::pending().await
    }

    async fn drain_node(
        &self,
        _request: Request<v1::DrainNodeRequest>,
    ) -> Result<Response<v1::DrainNodeResponse>, Status> {
        Err(Status::unavailable("from something between"))
    }
}

async fn serve(script: Scripted) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Server::builder().add_service(ClusterServiceServer::new(script));
    tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
    format!("http://{address}")
}

fn client(endpoint: &str) -> Client {
    let options = ClientOptions {
        retry_for: Duration::from_millis(600),
        ..ClientOptions::new(endpoint)
    };
    Client::new(options).unwrap()
}

#[tokio::test]
async fn the_leader_is_found_and_stayed_with() {
    let leader = Scripted::default();
    let calls_count = Arc::clone(&leader.calls_count);
    let leader = serve(leader).await;
    let follower = Scripted {
        leader: Some(leader.clone()),
        ..Scripted::default()
    };
    let asked_count = Arc::clone(&follower.calls_count);
    let client = client(&serve(follower).await);
    for _ in 0..3 {
        client.add_node(7, "http://x:1").await.unwrap();
    }
    assert_eq!(client.address(), leader);
    assert_eq!(asked_count.load(Ordering::SeqCst), 1);
    assert_eq!(calls_count.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_call_that_changes_nothing_is_made_again_until_it_is_answered() {
    let script = Scripted {
        failures: 2,
        failure: Some(Code::CommitConflict),
        ..Scripted::default()
    };
    let calls_count = Arc::clone(&script.calls_count);
    let client = client(&serve(script).await);
    client.cluster_status().await.unwrap();
    assert_eq!(calls_count.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_call_that_may_have_been_done_is_not_made_again() {
    let script = Scripted {
        failures: 9,
        failure: Some(Code::Io),
        ..Scripted::default()
    };
    let calls_count = Arc::clone(&script.calls_count);
    let client = client(&serve(script).await);
    let error = client.add_node(7, "http://x:1").await.unwrap_err();
    assert_eq!(error.code(), Code::Io);
    assert_eq!(calls_count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_node_that_is_not_there_is_unavailable_after_a_while() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = client(&format!("http://{address}"));
    let error = client.cluster_status().await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    let error = client.add_node(7, "http://x:1").await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
}

#[tokio::test]
async fn a_node_that_comes_back_is_talked_to_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = client(&format!("http://{address}"));
    assert!(client.cluster_status().await.is_err());
    let listener = TcpListener::bind(address).await.unwrap();
    let service = ClusterServiceServer::new(Scripted::default());
    let router = Server::builder().add_service(service);
    tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
    client.cluster_status().await.unwrap();
}

#[tokio::test]
async fn a_deadline_is_kept_by_the_client_too() {
    let endpoint = serve(Scripted::default()).await;
    let options = ClientOptions {
        deadline: Some(Duration::from_millis(100)),
        ..ClientOptions::new(&endpoint)
    };
    let client = Client::new(options).unwrap();
    let error = client.remove_node(7).await.unwrap_err();
    assert_eq!(error.code(), Code::TimedOut);
}

#[tokio::test]
async fn what_stands_between_is_told_apart_from_the_node() {
    let client = client(&serve(Scripted::default()).await);
    let error = client.drain_node(7).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.hint().is_some());
}

#[test]
fn an_endpoint_that_is_none_is_refused_at_once() {
    for endpoint in ["localhost:7420", "ftp://x", "http://", ""] {
        let options = ClientOptions::new(endpoint);
        let error = Client::new(options).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{endpoint}");
    }
}

#[tokio::test]
async fn another_node_is_asked_when_one_does_not_answer() {
    let living = serve(Scripted::default()).await;
    let client = client(&format!("http://127.0.0.1:1, {living}"));
    client.cluster_status().await.unwrap();
    assert_eq!(client.address(), living);
    // It is stayed with.
    client.cluster_status().await.unwrap();
    assert_eq!(client.address(), living);
}
