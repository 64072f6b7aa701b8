//! The leader takes over from coordinators that are gone, and from those that are wrongly taken for it.

use std::sync::Arc;

use tidegate_change::TableVersion;

use super::races::lake;
use super::support::{TABLE, check, objects, request, spec};
use crate::consensus::Consensus;
use crate::coordinator::Watch;
use crate::metadata::{CreateTable, DropStage, DropTable, Entry, Grant, NodeId, Outcome, Role};

const GONE: NodeId = NodeId(7);

/// The epoch of a coordinator that will do nothing more.
async fn granted(consensus: &dyn Consensus) -> crate::metadata::Epoch {
    let grant = Grant {
        node: GONE,
        role: Role::Coordinator,
    };
    match consensus
        .propose(Entry::Grant(grant))
        .await
        .unwrap()
        .outcome
    {
        Outcome::Granted(epoch) => epoch,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_coordinator_that_is_taken_for_gone_goes_on_under_a_new_epoch() {
    let lake = lake().await;
    let other = lake.another(1).await;
    *lake.workers.during.lock().unwrap() = Some(Box::new(move || {
        Box::pin(async move {
            let gone = |node: NodeId| node == NodeId(0);
            other.take_over(&mut Watch::default(), &gone).await.unwrap();
        })
    }));
    let result = lake.submit("b1", "x").await.unwrap();
    assert_eq!(result.version, TableVersion(1));
    assert_eq!(check(&lake.store).await.len(), 1);
    assert_eq!(
        objects(&lake.store).await.len(),
        1,
        "the files of the first try are collected"
    );
    let state = lake.member.state();
    let table = state.tables.values().next().unwrap();
    assert!(table.attempts.is_empty() && table.uncollected.is_empty());
}

#[tokio::test]
async fn a_live_coordinator_is_left_alone() {
    let lake = lake().await;
    let other = lake.another(1).await;
    let member = Arc::clone(&lake.member);
    *lake.workers.during.lock().unwrap() = Some(Box::new(move || {
        Box::pin(async move {
            let before = member.state().last_applied;
            for _ in 0..10 {
                other
                    .take_over(&mut Watch::default(), &|_| false)
                    .await
                    .unwrap();
            }
            assert_eq!(member.state().last_applied, before, "nothing was proposed");
        })
    }));
    lake.submit("b1", "x").await.unwrap();
    assert_eq!(check(&lake.store).await.len(), 1);
}

#[tokio::test]
async fn tables_that_were_being_made_or_dropped_are_finished_when_their_owner_is_gone() {
    let lake = lake().await;
    let epoch = granted(lake.member.as_ref()).await;
    let id = crate::metadata::TableId("unborn".into());
    let create = CreateTable {
        table: id.clone(),
        name: "orders".into(),
        location: "orders".into(),
        epoch: Some(epoch),
    };
    let drop = DropTable {
        table: lake.member.state().names[TABLE].clone(),
        stage: DropStage::Begin { keep_files: false },
        epoch: Some(epoch),
    };
    for entry in [Entry::CreateTable(create), Entry::DropTable(drop)] {
        let applied = lake.member.propose(entry).await.unwrap();
        assert_eq!(applied.outcome, Outcome::Done);
    }
    let mut watch = Watch::default();
    let coordinator = &lake.coordinator;
    coordinator.take_over(&mut watch, &|_| false).await.unwrap();
    assert_eq!(lake.member.state().tables.len(), 2, "their owner lives");
    coordinator
        .take_over(&mut watch, &|node| node == GONE)
        .await
        .unwrap();
    assert!(lake.member.state().tables.is_empty());
    assert!(objects(&lake.store).await.is_empty());
    coordinator.create(spec(), TABLE).await.unwrap();
    coordinator.submit(&request("b1", "x")).await.unwrap();
    assert_eq!(check(&lake.store).await.len(), 1);
}
