//! The same over gRPC, on ports of this machine.

use std::sync::Arc;

use tidegate_change::Code;
use tidegate_change::clock::SystemRandom;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;

use super::support::{PATIENCE, directory, grant, granted, insist, until};
use crate::consensus::Consensus;
use crate::metadata::NodeId;
use crate::metadata::replicated::transport::grpc::{GrpcOptions, GrpcTransport, peer_service};
use crate::metadata::replicated::transport::{Address, CallError, Request, Response, Transport};
use crate::metadata::replicated::{Member, MemberOptions, NewDirectory, Peer};

struct Node {
    member: Member,
    peer: Peer,
    server: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
    _dir: tempfile::TempDir,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn node(is_founder: bool) -> Node {
    node_at("127.0.0.1:0", is_founder).await
}

async fn node_at(address: &str, is_founder: bool) -> Node {
    let listener = TcpListener::bind(address).await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let peer = Peer { endpoint };
    let new = match is_founder {
        true => NewDirectory::Found(peer.clone()),
        false => NewDirectory::Join { cluster: None },
    };
    let transport = Arc::new(GrpcTransport::new(GrpcOptions::default()));
    let options = MemberOptions {
        snapshot_entries: 20,
        kept_entries: 0,
        ..MemberOptions::new(Arc::new(SystemRandom), transport, new)
    };
    let dir = directory();
    let member = Member::open(dir.path(), &options).await.unwrap();
    let service = peer_service(member.inbox());
    let (stop, stops) = oneshot::channel();
    let server = tokio::spawn(async move {
        let stopped = async { drop(stops.await) };
        tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming_shutdown(TcpListenerStream::new(listener), stopped)
            .await
            .unwrap();
    });
    Node {
        member,
        peer,
        server,
        stop: Some(stop),
        _dir: dir,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_members_replicate_over_grpc() {
    let nodes = [node(true).await, node(false).await, node(false).await];
    let leader = &nodes[0].member;
    // So much that the log is gone when the others come: they get a snapshot.
    for n in 1..=100 {
        insist(leader, grant(n)).await;
    }
    for new in &nodes[1..] {
        let id = new.member.node();
        leader.add_learner(id, new.peer.clone()).await.unwrap();
        leader.promote(id, PATIENCE).await.unwrap();
    }
    for (n, node) in (101..).zip(&nodes) {
        let applied = insist(&node.member, grant(n)).await;
        let state = node.member.read().await.unwrap();
        assert!(state.last_applied >= applied.index);
    }
    until("all members have applied the same", || {
        let states: Vec<_> = nodes.iter().map(|node| node.member.state()).collect();
        let digest = states[0].digest().unwrap();
        let same = states.iter().all(|state| state.digest().unwrap() == digest);
        same.then_some(())
    })
    .await;
    assert_eq!(
        granted(&nodes[1].member, 50),
        granted(&nodes[0].member, 50),
        "what was before the snapshot is there too"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_at_an_old_address_takes_nothing_that_is_not_for_it() {
    let mut nodes = vec![node(true).await, node(false).await, node(false).await];
    for new in &nodes[1..] {
        let (id, peer) = (new.member.node(), new.peer.clone());
        nodes[0].member.add_learner(id, peer).await.unwrap();
        nodes[0].member.promote(id, PATIENCE).await.unwrap();
    }
    let mut gone = nodes.pop().unwrap();
    let (old, peer) = (gone.member.node(), gone.peer.clone());
    // Its connections go with it, as those of a process do, and its port is free.
    gone.stop.take().unwrap().send(()).unwrap();
    (&mut gone.server).await.unwrap();
    drop(gone);
    let address = peer.endpoint.trim_start_matches("http://");
    let fresh = node_at(address, false).await;
    let leader = &nodes[0].member;
    for n in 1..=30 {
        insist(leader, grant(n)).await;
    }
    assert_eq!(
        fresh.member.cluster(),
        None,
        "it took a message for its predecessor"
    );
    assert_eq!(fresh.member.state().last_applied, 0);
    leader.remove(old).await.unwrap();
    let id = fresh.member.node();
    leader.add_learner(id, peer).await.unwrap();
    leader.promote(id, PATIENCE).await.unwrap();
    let applied = insist(leader, grant(31)).await;
    until("the new node has caught up", || {
        (fresh.member.state().last_applied >= applied.index).then_some(())
    })
    .await;
    assert_eq!(granted(&fresh.member, 30), granted(leader, 30));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_and_silence_are_told_apart() {
    let nodes = [node(true).await, node(false).await];
    let (leader, follower) = (&nodes[0], &nodes[1]);
    let id = follower.member.node();
    let joined = leader.member.add_learner(id, follower.peer.clone()).await;
    joined.unwrap();
    until("the learner knows the leader", || {
        follower.member.status().leader
    })
    .await;
    let address = Address {
        cluster: leader.member.cluster().unwrap(),
        from: leader.member.node(),
        to: id,
    };
    let transport = GrpcTransport::new(GrpcOptions::default());
    let call = async |address, peer: &Peer| transport.call(address, peer, Request::ReadIndex).await;
    let Err(CallError::Refused(refused)) = call(address, &follower.peer).await else {
        panic!("a learner leads");
    };
    assert_eq!(refused.error.code(), Code::NotLeader);
    let (node, peer) = refused.leader.unwrap();
    assert_eq!((node, &peer), (leader.member.node(), &leader.peer));
    let back = Address {
        from: id,
        to: node,
        ..address
    };
    assert!(matches!(
        call(back, &peer).await,
        Ok(Response::ReadIndex(_))
    ));
    let wrong = Address {
        to: NodeId(1),
        ..address
    };
    let Err(CallError::Refused(refused)) = call(wrong, &follower.peer).await else {
        panic!("a message for another node was taken");
    };
    assert_eq!(refused.error.code(), Code::InvalidArgument);
    let nobody = Peer {
        endpoint: "http://127.0.0.1:1".into(),
    };
    let silence = call(address, &nobody).await;
    assert!(matches!(silence, Err(CallError::NotSent(_))), "{silence:?}");
}
