//! Tables that a directory takes from their logs alone, and places that are not for tables.

use std::sync::Arc;

use object_store::ObjectStoreExt;
use object_store::path::Path;
use tidegate_change::{Code, TableVersion};
use tidegate_delta::actions::{Action, AddFile, to_bytes};
use tidegate_delta::names;

use super::races::{APPEND, VACUUM, lake, put_commit};
use super::support::{FakeWorkers, Lake, TABLE, member, parts, request, spec};
use crate::coordinator::{Coordinator, CoordinatorOptions};

/// Another directory, which does not know the table.
async fn stranger(lake: &Lake, directory: &std::path::Path) -> Coordinator {
    let parts = parts(
        &member(directory).await,
        &lake.store,
        &Arc::new(FakeWorkers::default()),
        0,
    );
    let options = CoordinatorOptions::default();
    Coordinator::start(parts, options).await.unwrap()
}

#[tokio::test]
async fn what_another_engine_committed_last_is_judged_after_the_adoption() {
    let lake = lake().await;
    lake.submit("b1", "x").await.unwrap();
    put_commit(&lake.store, 2, VACUUM).await;
    let directory = tempfile::tempdir().unwrap();
    let adopted = stranger(&lake, directory.path()).await;
    adopted.adopt(TABLE, None).await.unwrap();

    put_commit(&lake.store, 3, APPEND).await;
    let directory = tempfile::tempdir().unwrap();
    let other = stranger(&lake, directory.path()).await;
    other.adopt(TABLE, None).await.unwrap();
    let error = other.submit(&request("b2", "y")).await.unwrap_err();
    assert_eq!(error.code(), Code::ForeignRewrite);
    let text = error.to_string();
    assert!(
        text.contains("version 3") && text.contains("p.parquet"),
        "{text}"
    );
    let error = other.submit(&request("b2", "y")).await.unwrap_err();
    assert_eq!(error.code(), Code::Quarantined);
}

#[tokio::test]
async fn a_foreign_file_is_found_without_the_commit_that_brought_it() {
    let lake = lake().await;
    lake.submit("b1", "x").await.unwrap();
    let mut snapshot = lake.log().snapshot(None).await.unwrap();
    let add = Action::Add(AddFile {
        path: "part-0.parquet".into(),
        ..AddFile::default()
    });
    snapshot = snapshot.advance(TableVersion(2), &[add]).unwrap();
    lake.log().write_checkpoint(&snapshot, 5_000).await.unwrap();
    put_commit(&lake.store, 2, VACUUM).await;
    for version in [0, 1] {
        let commit = lake
            .log()
            .root()
            .location(&names::commit(TableVersion(version)));
        lake.store.delete(&commit.unwrap()).await.unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let other = stranger(&lake, directory.path()).await;
    let error = other.adopt(TABLE, None).await.unwrap_err();
    assert_eq!(error.code(), Code::ForeignRewrite);
    assert!(error.to_string().contains("part-0.parquet"), "{error}");
}

#[tokio::test]
async fn a_table_is_not_made_where_files_lie() {
    let lake = lake().await;
    let file = Path::from("other/important.txt");
    lake.store.put(&file, "mine".into()).await.unwrap();
    let error = lake
        .coordinator
        .create(named("other"), "other")
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::InvalidLocation);
    assert!(error.to_string().contains("important.txt"), "{error}");
}

fn named(name: &str) -> tidegate_change::spec::TableSpec {
    tidegate_change::spec::TableSpec {
        name: name.into(),
        ..spec()
    }
}

#[tokio::test]
async fn a_dropped_table_takes_its_own_files_along_and_no_others() {
    let lake = lake().await;
    lake.submit("b1", "x").await.unwrap();
    let foreign = AddFile {
        path: "part%200.parquet".into(),
        ..AddFile::default()
    };
    let commit = to_bytes(&[Action::Add(foreign)]).unwrap();
    put_commit(&lake.store, 2, std::str::from_utf8(&commit).unwrap()).await;
    let root = lake.log().root().clone();
    let others = ["important.txt", "_delta_log/notes.txt", "a/part-1.parquet"];
    for name in others
        .into_iter()
        .chain(["part 0.parquet", "_tidegate/staged/x/2.json"])
    {
        root.write(name, b"bytes".to_vec()).await.unwrap();
    }
    // The table is quarantined by the foreign commit, and can still be dropped.
    lake.submit("b2", "y").await.unwrap_err();
    lake.coordinator.drop_table(TABLE, false).await.unwrap();
    let mut left = Vec::new();
    let mut listed = lake.store.list(Some(&Path::from(TABLE)));
    while let Some(object) = futures::TryStreamExt::try_next(&mut listed).await.unwrap() {
        left.push(object.location.to_string());
    }
    left.sort();
    let mut expected = others.map(|name| format!("{TABLE}/{name}"));
    expected.sort();
    assert_eq!(left, expected);
    let error = lake.coordinator.create(spec(), TABLE).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidLocation);
}
