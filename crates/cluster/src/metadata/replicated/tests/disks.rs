//! Members whose disks fail: they stop, the others go on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_change::Code;
use tidegate_delta::store::{Step, StepHook, StepKind};

use super::support::{Group, PATIENCE, grant, granted, insist};
use crate::consensus::Consensus;
use crate::metadata::replicated::{Member, Peer};

/// A disk whose syncs fail from some time on.
#[derive(Debug, Default)]
struct BadDisk {
    fails: AtomicBool,
}

impl StepHook for BadDisk {
    fn before(&self, step: &Step<'_>) -> io::Result<()> {
        match step.kind {
            StepKind::Sync if self.fails.load(Ordering::Relaxed) => {
                Err(io::Error::other("the disk is broken"))
            }
            _ => Ok(()),
        }
    }

    fn after(&self, _: &Step<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// A group whose last member has the disk.
async fn group_with(disk: &Arc<BadDisk>) -> Group {
    let mut group = Group::of(2, |_| {}).await;
    group.options.step_hook = Some(Arc::<BadDisk>::clone(disk));
    let bad = group.join().await;
    group.options.step_hook = None;
    let node = group.member(bad).node();
    let leader = group.member(0);
    leader.add_learner(node, Peer::default()).await.unwrap();
    leader.promote(node, PATIENCE).await.unwrap();
    group.agree().await;
    group
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_cannot_sync_stops_and_the_others_go_on() {
    let disk = Arc::new(BadDisk::default());
    let mut group = group_with(&disk).await;
    disk.fails.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for node in 1..=20_u64 {
        let applied = insist(group.member(0), grant(node)).await;
        acknowledged.push((node, applied.index));
    }
    let why = group.member(2).stopped().await;
    assert_eq!(why.code(), Code::Io, "{why:?}");
    let proposed = group.member(2).propose(grant(99)).await.unwrap_err();
    assert_eq!(proposed.code(), Code::Io, "{proposed:?}");
    group.end(2);
    // A new process on a disk that works reads what is there, and catches up.
    group.start(2).await;
    group.agree().await;
    for (node, index) in acknowledged {
        assert_eq!(granted(group.member(2), node), Some(index));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_cannot_sync_stops_and_another_leads() {
    let disk = Arc::new(BadDisk::default());
    let group = group_with(&disk).await;
    let leader = group.leader().await;
    if leader != 2 {
        let to = group.member(2).node();
        group.member(leader).transfer_leadership(to).await.unwrap();
    }
    let before = insist(group.member(2), grant(1)).await;
    disk.fails.store(true, Ordering::Relaxed);
    let lost = group.member(2).propose(grant(2)).await;
    assert!(lost.is_err(), "{lost:?}");
    let why = group.member(2).stopped().await;
    assert_eq!(why.code(), Code::Io, "{why:?}");
    let heir = group.leader_but(Some(2)).await;
    insist(group.member(heir), grant(3)).await;
    assert_eq!(granted(group.member(heir), 1), Some(before.index));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_member_is_refused_and_replaced() {
    let mut group = Group::of(3, |_| {}).await;
    for node in 1..=30_u64 {
        insist(group.member(0), grant(node)).await;
    }
    group.agree().await;
    let leader = group.leader().await;
    let damaged = (leader + 1) % 3;
    let old = group.member(damaged).node();
    group.end(damaged);
    let path = group.path(damaged).join("raft.redb");
    let clean = std::fs::read(&path).unwrap();
    let needle = b"\"grant\"";
    let at = clean.windows(needle.len()).position(|w| w == needle);
    let mut bytes = clean;
    bytes[at.unwrap() + 1] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let opened = Member::open(group.path(damaged), &group.options).await;
    assert_eq!(opened.unwrap_err().code(), Code::Corrupt);
    // Nothing of it is believed: the node is replaced by a new one.
    let new = group.join().await;
    let node = group.member(new).node();
    let chief = group.member(leader);
    chief.remove(old).await.unwrap();
    chief.add_learner(node, Peer::default()).await.unwrap();
    chief.promote(node, PATIENCE).await.unwrap();
    group.agree().await;
    assert!(granted(group.member(new), 30).is_some());
}
