//! Three members: agreement, loss of members, catching up.

use std::time::Duration;

use tidegate_change::Code;

use super::support::{Fate, Group, fate, grant, granted, insist, until};
use crate::consensus::Consensus;
use crate::metadata::replicated::transport::memory::LinkFault;
use crate::metadata::replicated::transport::{Address, Request};
use crate::metadata::{ClusterId, NodeId};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_member_proposes_and_reads_what_was_acknowledged() {
    let group = Group::of(3, |_| {}).await;
    let writer = group.member(0).writer();
    for round in 0..10_u64 {
        for (number, member) in group.members() {
            let node = 1 + round * 3 + number as u64;
            let applied = insist(member, grant(node)).await;
            for (_, reader) in group.members() {
                let state = reader.read().await.unwrap();
                assert!(state.last_applied >= applied.index);
                assert_eq!(granted(reader, node), Some(applied.index));
                assert_eq!(reader.writer(), writer, "one writer id for the group");
            }
        }
    }
    group.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_of_the_leader_loses_nothing() {
    let mut group = Group::of(3, |_| {}).await;
    let mut acknowledged = Vec::new();
    let mut next = 1_u64;
    for _ in 0..3 {
        let leader = group.leader().await;
        for _ in 0..5 {
            let applied = insist(group.member(leader), grant(next)).await;
            acknowledged.push((next, applied.index));
            next += 1;
        }
        group.end(leader);
        let heir = group.leader_but(Some(leader)).await;
        let applied = insist(group.member(heir), grant(next)).await;
        acknowledged.push((next, applied.index));
        next += 1;
        group.start(leader).await;
        group.agree().await;
        for (_, member) in group.members() {
            for (node, index) in &acknowledged {
                assert_eq!(granted(member, *node), Some(*index));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_everything_keeps_everything() {
    let mut group = Group::of(3, |_| {}).await;
    let mut acknowledged = Vec::new();
    for node in 1..=20_u64 {
        let applied = insist(group.member(0), grant(node)).await;
        acknowledged.push((node, applied.index));
    }
    let digest = group.member(0).read().await.unwrap().digest().unwrap();
    for number in 0..3 {
        group.end(number);
    }
    for number in 0..3 {
        group.start(number).await;
    }
    for (_, member) in group.members() {
        member.ready(super::support::PATIENCE).await.unwrap();
        for (node, index) in &acknowledged {
            assert_eq!(granted(member, *node), Some(*index));
        }
    }
    group.agree().await;
    // Elections add entries, so that only the contents can be compared.
    let mut state = group.member(0).state().as_ref().clone();
    let before = group.member(1).state();
    assert_eq!(state.digest().unwrap(), before.digest().unwrap());
    state.last_applied = 0;
    assert_ne!(
        state.digest().unwrap(),
        digest,
        "the digest covers the index"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_missed_much_gets_a_snapshot() {
    let mut group = Group::of(3, |options| {
        options.snapshot_entries = 20;
        options.kept_entries = 0;
    })
    .await;
    let leader = group.leader().await;
    let behind = (leader + 1) % 3;
    group.end(behind);
    for node in 1..=120_u64 {
        insist(group.member(leader), grant(node)).await;
    }
    let purged = until("the leader drops entries", || {
        let metrics = group.member(leader).raft.metrics();
        let purged = openraft::async_runtime::WatchReceiver::borrow_watched(&metrics).purged;
        purged.filter(|purged| purged.index > 60)
    })
    .await;
    group.start(behind).await;
    let lagging = group.member(behind).state().last_applied;
    assert!(lagging < purged.index, "{lagging} is not behind {purged}");
    group.agree().await;
    assert_eq!(
        granted(group.member(behind), 120),
        granted(group.member(leader), 120)
    );
    // The snapshot is durable: the member starts from it.
    group.end(behind);
    group.start(behind).await;
    assert!(group.member(behind).state().last_applied >= purged.index);
    group.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_quorum_reads_and_decides_nothing() {
    let group = Group::of(3, |options| options.timeout = Duration::from_secs(3)).await;
    let old = group.leader().await;
    group.network.isolate(group.member(old).node());
    let heir = group.leader_but(Some(old)).await;
    insist(group.member(heir), grant(1)).await;
    let error = group.member(old).read().await.unwrap_err();
    assert_eq!(error.code(), Code::NotLeader, "{error:?}");
    let proposed = group.member(old).propose(grant(2)).await;
    assert!(!matches!(fate(&proposed), Fate::In(_)), "{proposed:?}");
    assert!(group.network.hits() > 0);
    group.network.heal();
    group.agree().await;
    assert!(granted(group.member(old), 1).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_an_unknown_outcome() {
    let group = Group::of(3, |options| options.timeout = Duration::from_secs(2)).await;
    let leader = group.leader().await;
    let follower = (leader + 1) % 3;
    let (from, to) = (group.member(follower).node(), group.member(leader).node());
    group
        .network
        .set_fault(from, to, Some(LinkFault::LoseAnswers));
    let proposed = group.member(follower).propose(grant(1)).await;
    assert_eq!(fate(&proposed), Fate::Unknown);
    group.network.heal();
    group.agree().await;
    assert!(
        granted(group.member(follower), 1).is_some(),
        "it was decided"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_for_somebody_else_are_refused() {
    let group = Group::of(2, |_| {}).await;
    let member = group.member(0);
    let right = Address {
        cluster: member.cluster().unwrap(),
        from: group.member(1).node(),
        to: member.node(),
    };
    let wrong = [
        Address {
            cluster: ClusterId(right.cluster.0 ^ 1),
            ..right
        },
        Address {
            to: NodeId(right.to.0 ^ 1),
            ..right
        },
    ];
    for address in wrong {
        let refused = member.inbox().answer(address, Request::ReadIndex).await;
        let error = refused.unwrap_err().error;
        assert_eq!(error.code(), Code::InvalidArgument, "{error:?}");
    }
    let payload = bytes::Bytes::from_static(b"{no message");
    let refused = member.inbox().answer(right, Request::Vote(payload)).await;
    assert_eq!(refused.unwrap_err().error.code(), Code::InvalidArgument);
}
