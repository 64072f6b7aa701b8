//! A group with one member, as embedded mode opens it.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::TableDefinition;
use tidegate_change::clock::{Clock, SystemClock, SystemRandom};
use tidegate_change::{Code, Error};
use tidegate_delta::store::{Step, StepHook};

use super::support::{directory, grant, granted};
use crate::consensus::Consensus;
use crate::metadata::Outcome;
use crate::metadata::replicated::{Member, MemberOptions};

fn options() -> MemberOptions {
    MemberOptions {
        snapshot_entries: 5,
        ..MemberOptions::alone(Arc::new(SystemRandom))
    }
}

#[tokio::test]
async fn entries_and_ids_survive_reopening_and_compaction() {
    let dir = directory();
    let mut ids = None;
    let mut granted_at = Vec::new();
    for round in 0..6_u64 {
        let member = Member::open(dir.path(), &options()).await.unwrap();
        let state = member.state();
        let found = (member.node(), member.cluster(), member.writer());
        assert_eq!(*ids.get_or_insert(found), found);
        assert_eq!(state.cluster, member.cluster());
        assert_eq!(state.members.iter().collect::<Vec<_>>(), [&member.node()]);
        for (node, index) in (1_u64..).zip(&granted_at) {
            assert_eq!(granted(&member, node), Some(*index));
        }
        for _ in 0..7 {
            let node = granted_at.len() as u64 + 1;
            let applied = member.propose(grant(node)).await.unwrap();
            assert!(matches!(applied.outcome, Outcome::Granted(_)));
            assert!(granted_at.last().is_none_or(|last| *last < applied.index));
            assert_eq!(
                granted(&member, node),
                Some(applied.index),
                "in round {round}"
            );
            granted_at.push(applied.index);
        }
    }
    let log = fs::metadata(dir.path().join("raft.redb")).unwrap().len();
    assert!(log < 4 << 20, "{log}");
}

#[tokio::test]
async fn reopening_needs_no_election() {
    let dir = directory();
    let terms = async || {
        let member = Member::open(dir.path(), &options()).await.unwrap();
        let status = member.status();
        assert_eq!(status.leader, Some(member.node()));
        (status.term, status.applied_index)
    };
    let first = terms().await;
    for _ in 0..3 {
        assert_eq!(terms().await, first, "opening alone writes nothing");
    }
}

#[tokio::test]
async fn a_held_directory_is_refused() {
    let dir = directory();
    let held = Member::open(dir.path(), &options()).await.unwrap();
    let error = Member::open(dir.path(), &options()).await.unwrap_err();
    assert_eq!(error.code(), Code::DirectoryHeld);
    drop(held);
    Member::open(dir.path(), &options()).await.unwrap();
}

#[tokio::test]
async fn proposals_at_once_are_each_decided_once() {
    let dir = directory();
    let member = Arc::new(Member::open(dir.path(), &options()).await.unwrap());
    let tasks: Vec<_> = (1..=200_u64)
        .map(|node| {
            let member = Arc::clone(&member);
            tokio::spawn(async move { member.propose(grant(node)).await.unwrap().index })
        })
        .collect();
    let mut indexes = Vec::new();
    for (node, task) in (1_u64..).zip(tasks) {
        let index = task.await.unwrap();
        assert_eq!(granted(&member, node), Some(index));
        indexes.push(index);
    }
    indexes.sort_unstable();
    indexes.dedup();
    assert_eq!(indexes.len(), 200);
}

#[tokio::test]
async fn a_log_of_another_form_is_refused_and_left_alone() {
    const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
    const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
    let dir = directory();
    let path = dir.path().join("raft.redb");
    {
        let database = redb::Database::create(&path).unwrap();
        let write = database.begin_write().unwrap();
        write
            .open_table(LOG)
            .unwrap()
            .insert(1, b"an entry".as_slice())
            .unwrap();
        write
            .open_table(META)
            .unwrap()
            .insert("state", b"a state".as_slice())
            .unwrap();
        write.commit().unwrap();
    }
    for _ in 0..2 {
        let error = Member::open(dir.path(), &options()).await.unwrap_err();
        assert_eq!(error.code(), Code::Unsupported, "{error:?}");
        assert!(error.hint().is_some());
    }
}

/// Fails every step from one on.
#[derive(Debug)]
struct FailsFrom {
    step: u64,
    next: AtomicU64,
}

impl StepHook for FailsFrom {
    fn before(&self, _: &Step<'_>) -> io::Result<()> {
        match self.next.fetch_add(1, Ordering::Relaxed) {
            n if n < self.step => Ok(()),
            _ => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    fn after(&self, _: &Step<'_>) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_full_disk_is_told_as_such_and_at_once() {
    let mut failures = 0;
    for step in 0.. {
        let dir = directory();
        let next = AtomicU64::new(0);
        let hook = Arc::new(FailsFrom { step, next });
        let options = MemberOptions {
            step_hook: Some(Arc::clone(&hook) as Arc<dyn StepHook>),
            ..options()
        };
        let live = async {
            let member = Member::open(dir.path(), &options).await?;
            for node in 1..=8 {
                member.propose(grant(node)).await?;
            }
            Ok::<_, Error>(())
        };
        let started = SystemClock.monotonic_ns();
        let lived = live.await;
        let took_ms = (SystemClock.monotonic_ns() - started) / 1_000_000;
        assert!(took_ms < 8_000, "step {step}: waited {took_ms} ms");
        match lived {
            Ok(()) => break,
            Err(error) => assert_eq!(error.code(), Code::StorageFull, "step {step}: {error:?}"),
        }
        failures += 1;
    }
    assert!(failures > 30, "only {failures} steps");
}
