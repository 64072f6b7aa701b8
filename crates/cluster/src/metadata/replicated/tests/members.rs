//! Members come and go; an id never comes back.

use tidegate_change::Code;

use super::support::{Group, PATIENCE, grant, granted, insist};
use crate::metadata::NodeId;
use crate::metadata::replicated::transport::{Address, Request};
use crate::metadata::replicated::{Member, NewDirectory, Peer};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_follows_and_gets_a_vote() {
    let mut group = Group::found(|_| {}).await;
    insist(group.member(0), grant(1)).await;
    let new = group.join().await;
    let node = group.member(new).node();
    assert_eq!(group.member(new).cluster(), None);
    group
        .member(0)
        .add_learner(node, Peer::default())
        .await
        .unwrap();
    group.agree().await;
    assert_eq!(group.member(new).cluster(), group.member(0).cluster());
    let learner = |group: &Group| {
        let status = group.member(0).status();
        let learner = status.members.iter().find(|m| m.node == node).unwrap();
        learner.is_voter
    };
    assert!(!learner(&group));
    group.member(0).promote(node, PATIENCE).await.unwrap();
    assert!(learner(&group));
    // A learner that restarts is still of this group.
    group.end(new);
    group.start(new).await;
    assert_eq!(group.member(new).cluster(), group.member(0).cluster());
    group.agree().await;
    let error = group.member(0).promote(NodeId(7), PATIENCE).await;
    assert_eq!(error.unwrap_err().code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_node_never_comes_back() {
    let mut group = Group::of(3, |_| {}).await;
    let leader = group.leader().await;
    let gone = (leader + 1) % 3;
    let id = group.member(gone).node();
    group.member(leader).remove(id).await.unwrap();
    assert!(group.member(leader).state().removed.contains(&id));
    let again = group.member(leader).add_learner(id, Peer::default()).await;
    assert_eq!(again.unwrap_err().code(), Code::Fenced);
    let twice = group.member(leader).remove(id).await;
    assert_eq!(twice.unwrap_err().code(), Code::NotFound);
    let address = Address {
        cluster: group.member(leader).cluster().unwrap(),
        from: id,
        to: group.member(leader).node(),
    };
    let entry = bytes::Bytes::from(serde_json::to_vec(&grant(9)).unwrap());
    for request in [Request::Propose(entry), Request::ReadIndex] {
        let refused = group.member(leader).inbox().answer(address, request).await;
        assert_eq!(refused.unwrap_err().error.code(), Code::Fenced);
    }
    assert_eq!(granted(group.member(leader), 9), None);
    group.end(gone);
    // Its place is taken by a new id, and the group goes on with two of three while that one comes.
    let new = group.join().await;
    let fresh = group.member(new).node();
    assert_ne!(fresh, id);
    group
        .member(leader)
        .add_learner(fresh, Peer::default())
        .await
        .unwrap();
    group.member(leader).promote(fresh, PATIENCE).await.unwrap();
    insist(group.member(leader), grant(2)).await;
    group.agree().await;
    assert!(group.member(new).state().removed.contains(&id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_removed_hands_over() {
    let mut group = Group::of(3, |_| {}).await;
    let leader = group.leader().await;
    let id = group.member(leader).node();
    group.member(leader).remove(id).await.unwrap();
    let heir = group.leader_but(Some(leader)).await;
    insist(group.member(heir), grant(1)).await;
    assert!(group.member(heir).state().removed.contains(&id));
    group.end(leader);
    group.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_voter_cannot_be_removed() {
    let group = Group::found(|_| {}).await;
    let member = group.member(0);
    let removed = member.remove(member.node()).await;
    assert_eq!(removed.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_directory_is_a_new_node() {
    let mut group = Group::of(3, |_| {}).await;
    let leader = group.leader().await;
    let emptied = (leader + 1) % 3;
    let id = group.member(emptied).node();
    group.end(emptied);
    std::fs::remove_dir_all(group.path(emptied)).unwrap();
    group.start(emptied).await;
    assert_ne!(
        group.member(emptied).node(),
        id,
        "the old id is gone with the directory"
    );
    assert_eq!(group.member(emptied).cluster(), None);
    // Nobody calls it, so it takes no part; the others go on.
    insist(group.member(leader), grant(1)).await;
    assert_eq!(group.member(emptied).state().last_applied, 0);
}

#[tokio::test]
async fn a_node_that_is_told_its_group_joins_no_other() {
    let mut group = Group::found(|_| {}).await;
    let other = Group::found(|_| {}).await;
    let cluster = other.member(0).cluster();
    group.options.new_directory = NewDirectory::Join { cluster };
    let dir = super::support::directory();
    let member = Member::open(dir.path(), &group.options).await.unwrap();
    let address = Address {
        cluster: group.member(0).cluster().unwrap(),
        from: group.member(0).node(),
        to: member.node(),
    };
    let refused = member.inbox().answer(address, Request::ReadIndex).await;
    assert_eq!(refused.unwrap_err().error.code(), Code::InvalidArgument);
    assert_eq!(member.cluster(), cluster);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_moves_to_another_address() {
    let group = Group::of(2, |_| {}).await;
    let (leader, moved) = (group.member(0), group.member(1).node());
    let peer = Peer {
        endpoint: "http://elsewhere:1".into(),
    };
    leader.move_member(moved, peer.clone()).await.unwrap();
    insist(leader, grant(1)).await;
    group.agree().await;
    for (_, member) in group.members() {
        let status = member.status();
        let found = status.members.iter().find(|m| m.node == moved).unwrap();
        assert_eq!((&found.peer, found.is_voter), (&peer, true));
    }
    let nobody = leader.move_member(NodeId(7), peer).await;
    assert_eq!(nobody.unwrap_err().code(), Code::NotFound);
}
