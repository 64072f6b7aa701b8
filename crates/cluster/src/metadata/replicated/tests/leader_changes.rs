//! Proposals and reads while leadership moves: each proposal is decided once, or said to be unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use openraft::type_config::TypeConfigExt;

use super::support::{Fate, Group, fate, grant, granted, insist};
use crate::consensus::Consensus;
use crate::metadata::replicated::types::Types;

/// Proposes until it is told to stop; returns what is known of each proposal.
async fn propose_until(
    group: &Group,
    number: usize,
    next: &AtomicU64,
    stop: &AtomicBool,
) -> Vec<(u64, Fate)> {
    let mut fates = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let node = next.fetch_add(1, Ordering::Relaxed);
        let proposed = group.member(number).propose(grant(node)).await;
        fates.push((node, fate(&proposed)));
    }
    fates
}

/// Moves leadership by cutting the leader off, and by handing it over.
async fn unsettle(group: &Group, stop: &AtomicBool) -> u64 {
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
        Types::sleep(Duration::from_millis(100)).await;
    }
    stop.store(true, Ordering::Relaxed);
    changes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proposals_during_changes_are_decided_once_or_unknown() {
    let group = Group::of(3, |options| options.timeout = Duration::from_secs(2)).await;
    let (next, stop) = (AtomicU64::new(1), AtomicBool::new(false));
    let (changes, a, b, c) = tokio::join!(
        unsettle(&group, &stop),
        propose_until(&group, 0, &next, &stop),
        propose_until(&group, 1, &next, &stop),
        propose_until(&group, 2, &next, &stop),
    );
    let last = next.fetch_add(1, Ordering::Relaxed);
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
    assert!(known > 20, "only {known} proposals went through");
    assert!(
        unknown * 5 < fates.len().max(50),
        "{unknown} unknown of {}",
        fates.len()
    );
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
