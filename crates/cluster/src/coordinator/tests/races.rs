//! Two coordinators, foreign writers, and retries.

use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tidegate_change::{Code, TableVersion};
use tidegate_delta::{DeltaLog, TableRoot, names};

use super::support::{Lake, TABLE, check, objects, request, spec};
use crate::coordinator::CoordinatorOptions;

pub(super) async fn lake() -> Lake {
    Lake::new(Arc::new(InMemory::new()), CoordinatorOptions::default()).await
}

pub(super) async fn put_commit(store: &Arc<dyn ObjectStore>, version: u64, text: &str) {
    let root = TableRoot::new(Arc::clone(store), Path::from(TABLE));
    root.write(&names::commit(TableVersion(version)), text.to_owned())
        .await
        .unwrap();
}

pub(super) const VACUUM: &str = r#"{"commitInfo":{"timestamp":5000,"inCommitTimestamp":5000,"operation":"VACUUM START","engineInfo":"Apache-Spark/4.2.0 Delta-Lake/4.4.0","txnId":"x"}}"#;
pub(super) const APPEND: &str = "{\"commitInfo\":{\"timestamp\":5000,\"inCommitTimestamp\":5000,\"operation\":\"WRITE\",\"engineInfo\":\"other\"}}\n{\"add\":{\"path\":\"p.parquet\",\"partitionValues\":{},\"size\":1,\"modificationTime\":1,\"dataChange\":true}}";

#[tokio::test]
async fn the_same_batch_gets_the_same_answer() {
    let lake = lake().await;
    let first = lake.submit("b1", "x").await.unwrap();
    assert_eq!(first.version, TableVersion(1));
    assert_eq!(first.counters.inserted, 1);
    assert_eq!(first.offsets["topic/0"], 10);
    assert_eq!(lake.submit("b1", "x").await.unwrap(), first);
    let error = lake.submit("b1", "y").await.unwrap_err();
    assert_eq!(error.code(), Code::BatchContentMismatch);
    assert_eq!(check(&lake.store).await.len(), 1);
    // Without its commit, id and version are all that is left.
    let log = lake.log();
    log.root()
        .delete(&names::commit(TableVersion(1)))
        .await
        .unwrap();
    assert_eq!(
        lake.submit("b1", "x").await.unwrap().version,
        TableVersion(1)
    );
}

#[tokio::test]
async fn two_coordinators_with_one_batch_write_it_once() {
    let lake = lake().await;
    let other = lake.another(1).await;
    *lake.workers.during.lock().unwrap() = Some(Box::new(move || {
        Box::pin(async move {
            other.submit(&request("b1", "x")).await.unwrap();
        })
    }));
    assert_eq!(
        lake.submit("b1", "x").await.unwrap().version,
        TableVersion(1)
    );
    assert_eq!(check(&lake.store).await.len(), 1);
    assert_eq!(
        objects(&lake.store).await.len(),
        1,
        "the loser's file is collected"
    );
}

#[tokio::test]
async fn a_batch_that_loses_executes_on_the_new_head() {
    let lake = lake().await;
    let other = lake.another(1).await;
    *lake.workers.during.lock().unwrap() = Some(Box::new(move || {
        Box::pin(async move {
            other.submit(&request("b2", "y")).await.unwrap();
        })
    }));
    let result = lake.submit("b1", "x").await.unwrap();
    assert_eq!(result.version, TableVersion(2));
    assert_eq!(
        result.watermark,
        serde_json::json!(2),
        "it saw the other batch"
    );
    assert_eq!(check(&lake.store).await.len(), 2);
}

#[tokio::test]
async fn an_aborted_attempt_cannot_commit() {
    let lake = lake().await;
    let member = Arc::clone(&lake.member);
    *lake.workers.during.lock().unwrap() = Some(Box::new(move || {
        Box::pin(async move {
            use crate::consensus::Consensus;
            use crate::metadata::{Abort, Entry};
            let state = member.state();
            let (id, table) = state.table_named(TABLE).unwrap();
            let attempt = *table.attempts.keys().next().unwrap();
            let entry = Abort {
                table: id.clone(),
                attempt,
                evidence: None,
            };
            member.propose(Entry::Abort(entry)).await.unwrap();
        })
    }));
    // The batch goes on under another attempt, and nothing is left of the aborted one.
    let result = lake.submit("b1", "x").await.unwrap();
    assert_eq!(result.version, TableVersion(1));
    assert_eq!(check(&lake.store).await.len(), 1);
    let left = objects(&lake.store).await;
    assert_eq!(left.len(), 1, "{left:?}");
}

#[tokio::test]
async fn harmless_foreign_commits_are_followed() {
    let lake = lake().await;
    put_commit(&lake.store, 1, VACUUM).await;
    assert_eq!(
        lake.submit("b1", "x").await.unwrap().version,
        TableVersion(2)
    );
    // One that comes between execution and publication moves the prepared batch.
    let store = Arc::clone(&lake.store);
    *lake.workers.during.lock().unwrap() = Some(Box::new(move || {
        Box::pin(async move { put_commit(&store, 3, &VACUUM.replace("5000", "9000")).await })
    }));
    let result = lake.submit("b2", "y").await.unwrap();
    assert_eq!(result.version, TableVersion(4));
    assert_eq!(check(&lake.store).await.len(), 2);
}

#[tokio::test]
async fn a_foreign_append_quarantines_the_table() {
    let lake = lake().await;
    put_commit(&lake.store, 1, APPEND).await;
    assert_eq!(
        lake.submit("b1", "x").await.unwrap_err().code(),
        Code::ForeignRewrite
    );
    assert_eq!(
        lake.submit("b1", "x").await.unwrap_err().code(),
        Code::Quarantined
    );
}

#[tokio::test]
async fn a_foreign_append_in_the_slot_ends_the_prepared_batch() {
    let lake = lake().await;
    let store = Arc::clone(&lake.store);
    *lake.workers.during.lock().unwrap() = Some(Box::new(move || {
        Box::pin(async move { put_commit(&store, 1, APPEND).await })
    }));
    assert_eq!(
        lake.submit("b1", "x").await.unwrap_err().code(),
        Code::ForeignRewrite
    );
    assert!(
        objects(&lake.store).await.is_empty(),
        "the attempt's file is collected"
    );
    let state = lake.member.state();
    assert!(state.tables.values().next().unwrap().pending.is_none());
}

#[tokio::test]
async fn a_log_that_was_rolled_back_is_noticed() {
    let lake = lake().await;
    lake.submit("b1", "x").await.unwrap();
    lake.submit("b2", "x").await.unwrap();
    let commit = Path::from(TABLE)
        .join("_delta_log")
        .join("00000000000000000002.json");
    lake.store.delete(&commit).await.unwrap();
    assert_eq!(
        lake.submit("b3", "x").await.unwrap_err().code(),
        Code::LogBehindRaft
    );
    assert_eq!(
        lake.submit("b3", "x").await.unwrap_err().code(),
        Code::Quarantined
    );
}

#[tokio::test]
async fn a_newest_commit_that_was_changed_is_noticed() {
    for changed in [
        "",
        "{\"commitInfo\":{\"inCommitTimestamp\":9000,\"operation\":\"FENCE\"}}",
    ] {
        let lake = lake().await;
        lake.submit("b1", "x").await.unwrap();
        put_commit(&lake.store, 1, changed).await;
        // A process that has not read the commit.
        let other = lake.another(1).await;
        let error = other.submit(&request("b2", "x")).await.unwrap_err();
        assert_eq!(error.code(), Code::Corrupt, "{changed:?}: {error:?}");
        let error = lake.submit("b2", "x").await.unwrap_err();
        assert_eq!(error.code(), Code::Quarantined, "{changed:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_dry_run_leaves_nothing() {
    let lake = lake().await;
    let dry = crate::coordinator::BatchRequest {
        dry_run: true,
        ..request("b1", "x")
    };
    let counted = lake.coordinator.submit(&dry).await.unwrap();
    assert_eq!(counted.counters.inserted, 1);
    assert!(objects(&lake.store).await.is_empty());
    assert_eq!(
        lake.log().latest_version().await.unwrap(),
        Some(TableVersion(0))
    );
    assert_eq!(
        lake.submit("b1", "x").await.unwrap().version,
        TableVersion(1)
    );
}

#[tokio::test]
async fn an_adopted_table_remembers_its_batches() {
    let lake = lake().await;
    let mut results = Vec::new();
    for n in 0..20 {
        results.push(lake.submit(&format!("b{n}"), "x").await.unwrap());
    }
    let fresh = Lake::new(Arc::new(InMemory::new()), CoordinatorOptions::default()).await;
    let workers = Arc::new(super::support::FakeWorkers::default());
    let dir = tempfile::tempdir().unwrap();
    let member = super::support::member(dir.path()).await;
    let parts = super::support::parts(&member, &lake.store, &workers, 0);
    let adopter = crate::Coordinator::start(parts, CoordinatorOptions::default())
        .await
        .unwrap();
    assert_eq!(adopter.adopt(TABLE, None).await.unwrap(), TABLE);
    for (n, result) in results.iter().enumerate() {
        assert_eq!(
            adopter
                .submit(&request(&format!("b{n}"), "x"))
                .await
                .unwrap(),
            *result
        );
    }
    let before = lake.member.state();
    let after = member.state();
    let (before, after) = (
        before.table_named(TABLE).unwrap().1,
        after.table_named(TABLE).unwrap().1,
    );
    assert_eq!(
        (&before.marks, &before.offsets, before.head),
        (&after.marks, &after.offsets, after.head)
    );
    assert_eq!(before.watermark, after.watermark);
    assert_eq!(
        adopter.submit(&request("b20", "x")).await.unwrap().version,
        TableVersion(21)
    );
    // The directory that lost the table notices that another one writes it.
    assert_eq!(
        lake.submit("b21", "x").await.unwrap_err().code(),
        Code::ForeignRewrite
    );
    drop(fresh);
}

#[tokio::test]
async fn a_dropped_name_is_free_again() {
    let lake = lake().await;
    lake.submit("b1", "x").await.unwrap();
    lake.coordinator.drop_table(TABLE, false).await.unwrap();
    assert_eq!(
        lake.submit("b1", "x").await.unwrap_err().code(),
        Code::TableNotFound
    );
    lake.coordinator.create(spec(), TABLE).await.unwrap();
    assert_eq!(
        lake.submit("b1", "y").await.unwrap().version,
        TableVersion(1)
    );
}

#[tokio::test]
async fn a_spec_is_altered_once() {
    let lake = lake().await;
    let mut wider = spec();
    wider
        .schema
        .as_mut()
        .unwrap()
        .push(tidegate_change::spec::ColumnSpec {
            name: "note".into(),
            type_name: "string".into(),
            default: None,
            encoding: None,
            scale: None,
        });
    assert_eq!(
        lake.coordinator.alter(TABLE, wider.clone()).await.unwrap(),
        TableVersion(1)
    );
    assert_eq!(
        lake.coordinator.alter(TABLE, wider).await.unwrap(),
        TableVersion(1)
    );
    let error = lake.coordinator.alter(TABLE, spec()).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidAlter);
    let log = DeltaLog::new(lake.log().root().clone());
    assert!(
        log.snapshot(None)
            .await
            .unwrap()
            .metadata
            .schema_string
            .contains("note")
    );
}
