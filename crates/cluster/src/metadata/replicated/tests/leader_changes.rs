//! Proposals and reads while leadership moves: each proposal is decided once, or said to be unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use openraft::type_config::TypeConfigExt;

use super::support::{Fate, Group, fate, grant, granted, insist, until};
use crate::consensus::Consensus;
use crate::metadata::replicated::types::Types;

/// Proposals that go through between two changes.
const DECIDED_BETWEEN: u64 = 20;

/// Proposes until it is told to stop; returns what is known of each proposal.
async fn propose_until(group: &Group, number: usize, progress: &Progress) -> Vec<(u64, Fate)> {
    let mut fates = Vec::new();
    while !progress.stop.load(Ordering::Relaxed) {
        let node = 1 + progress.proposed.fetch_add(1, Ordering::Relaxed);
        let fate = fate(&group.member(number).propose(grant(node)).await);
        match fate {
            Fate::In(_) => drop(progress.decided.fetch_add(1, Ordering::Relaxed)),
            // A member that is cut off answers at once; as long as it is, the others must not starve.
            Fate::Out | Fate::Unknown => Types::sleep(Duration::from_millis(20)).await,
        }
        fates.push((node, fate));
    }
    fates
}

/// How far the proposals are.
#[derive(Debug, Default)]
struct Progress {
    proposed: AtomicU64,
    decided: AtomicU64,
    stop: AtomicBool,
}

/// Moves leadership by cutting the leader off, and by handing it over.
async fn unsettle(group: &Group, progress: &Progress) -> u64 {
    let mut changes = 0;
    for round in 0..6 {
        let leader = group.leader().await;
        if round % 2 == 0 {
            group.network.isolate(group.member(leader).node());
            group.leader_but(Some(leader)).await;
            group.network.heal();
        } else {
            let heir = group.member((leader + 1) % 3).node();
            // It may fail when leadership has moved by itself.
            let _ = group.member(leader).transfer_leadership(heir).await;
        }
        changes += 1;
        let decided = progress.decided.load(Ordering::Relaxed);
        until("proposals go through again", || {
            let now = progress.decided.load(Ordering::Relaxed);
            (now >= decided + DECIDED_BETWEEN).then_some(())
        })
        .await;
    }
    progress.stop.store(true, Ordering::Relaxed);
    changes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proposals_during_changes_are_decided_once_or_unknown() {
    let group = Group::of(3, |options| options.timeout = Duration::from_secs(2)).await;
    let progress = Progress::default();
    let (changes, a, b, c) = tokio::join!(
        unsettle(&group, &progress),
        propose_until(&group, 0, &progress),
        propose_until(&group, 1, &progress),
        propose_until(&group, 2, &progress),
    );
    let last = 1 + progress.proposed.fetch_add(1, Ordering::Relaxed);
    insist(group.member(0), grant(last)).await;
    group.agree().await;
    let fates: Vec<_> = [a, b, c].concat();
    let (mut known, mut unknown) = (0, 0);
    for (node, fate) in &fates {
        let found = granted(group.member(0), *node);
        match fate {
            Fate::In(index) => {
                assert_eq!(
                    found,
                    Some(*index),
                    "grant {node} was decided elsewhere, or twice"
                );
                known += 1;
            }
            Fate::Out => assert_eq!(found, None, "grant {node} was said to be out"),
            Fate::Unknown => unknown += 1,
        }
    }
    println!(
        "{changes} changes, {known} decided, {unknown} unknown of {}",
        fates.len()
    );
    assert!(known >= changes * DECIDED_BETWEEN);
    assert!(unknown < known, "{unknown} unknown, {known} decided");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_after_a_change_see_what_was_acknowledged_before() {
    let group = Group::of(3, |_| {}).await;
    let seen = Arc::new(AtomicU64::new(0));
    for node in 1..=6_u64 {
        let leader = group.leader().await;
        let applied = insist(group.member(leader), grant(node)).await;
        seen.store(applied.index, Ordering::Relaxed);
        let heir = (leader + 1) % 3;
        let to = group.member(heir).node();
        let _ = group.member(leader).transfer_leadership(to).await;
        for (_, member) in group.members() {
            let state = member.read().await.unwrap();
            assert!(state.last_applied >= seen.load(Ordering::Relaxed));
            assert_eq!(granted(member, node), Some(applied.index));
        }
    }
    group.agree().await;
}
