//! Every version of every kind of table has the model's rows for both readers, and its feed folds to them.

use std::sync::Arc;

use arrow::array::RecordBatch;
use delta_kernel::Snapshot;
use delta_kernel::engine::arrow_data::EngineDataArrowExt;
use delta_kernel_default_engine::DefaultEngineBuilder;
use futures::TryStreamExt;
use serde_json::{Value, json};
use tidegate_change::TableVersion;
use tidegate_delta::data::{ReadOptions, read_file};
use tidegate_delta::feed::{self, FeedBounds};
use tidegate_delta::{DeltaLog, TableRoot, TableSnapshot};

use crate::support::{Rows, Table, normal, rows_of, values_of, wide_columns, wide_row};

/// Where tables stay for other readers, if the environment asks for it.
fn directory(name: &str) -> (Option<tempfile::TempDir>, std::path::PathBuf) {
    match std::env::var("TIDEGATE_KEEP_TABLES") {
        Ok(keep) => {
            let path = std::path::PathBuf::from(keep).join(name);
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).unwrap();
            (None, path)
        }
        Err(_) => {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().to_owned();
            (Some(directory), path)
        }
    }
}

fn kernel_rows(directory: &std::path::Path, version: u64) -> Rows {
    let url = url::Url::from_directory_path(directory).unwrap();
    let store = Arc::new(object_store::local::LocalFileSystem::new());
    let engine = Arc::new(DefaultEngineBuilder::new(store).build());
    let snapshot = Snapshot::builder_for(url)
        .at_version(version)
        .build(engine.as_ref())
        .unwrap();
    let scan = snapshot.scan_builder().build().unwrap();
    let batches: Vec<RecordBatch> = scan
        .execute(engine)
        .unwrap()
        .map(|data| data.unwrap().try_into_record_batch().unwrap())
        .collect();
    rows_of(&batches)
}

async fn own_rows(log: &DeltaLog, snapshot: &TableSnapshot) -> Rows {
    let mut batches = Vec::new();
    for add in snapshot.files.iter() {
        let options = ReadOptions::live(Arc::clone(snapshot.schema().arrow()));
        let stream = read_file(log.root(), snapshot.schema(), add, &options)
            .await
            .unwrap();
        batches.push(stream.collect().await.unwrap().rows);
    }
    rows_of(&batches)
}

/// Checks all versions, from a fresh log, by all readers at hand.
async fn check(table: &Table) {
    let log = DeltaLog::new(TableRoot::local(&table.directory));
    let latest = log.snapshot(None).await.unwrap();
    assert_eq!(latest.version, table.snapshot.version);
    assert_eq!(latest.files.len(), table.snapshot.files.len());
    assert_eq!(latest.domains, table.snapshot.domains);
    for (version, rows) in (0u64..).zip(&table.model) {
        let snapshot = log.snapshot(Some(TableVersion(version))).await.unwrap();
        if snapshot.schema().arrow().fields().is_empty() {
            continue;
        }
        let expected = normal(snapshot.schema().arrow(), rows);
        assert_eq!(
            own_rows(&log, &snapshot).await,
            expected,
            "own reader, version {version}"
        );
        assert_eq!(
            kernel_rows(&table.directory, version),
            expected,
            "kernel, version {version}"
        );
    }
    keep_expectations(table);
    check_feed(&log, &latest, table).await;
}

/// Folds the feed and compares with the model at every version; images must match what was there.
async fn check_feed(log: &DeltaLog, latest: &TableSnapshot, table: &Table) {
    let bounds = FeedBounds {
        start_version: Some(0),
        ..FeedBounds::default()
    };
    let range = bounds.resolve(log, latest).await.unwrap().unwrap();
    let stream = feed::changes(log, latest, range).await.unwrap();
    let batches: Vec<RecordBatch> = stream.into_stream().try_collect().await.unwrap();
    let changes = values_of(&batches);
    let arrow = latest.schema().arrow();
    for (version, rows) in (0u64..).zip(&table.model).skip(1) {
        let before = normal(arrow, &table.model[usize::try_from(version).unwrap() - 1]);
        let after = normal(arrow, rows);
        let mut expected: Vec<(String, i64, Value)> = Vec::new();
        for (id, row) in &before {
            match after.get(id) {
                None => expected.push(("delete".into(), *id, row.clone())),
                Some(next) if next != row => {
                    expected.push(("update_preimage".into(), *id, row.clone()));
                    expected.push(("update_postimage".into(), *id, next.clone()));
                }
                Some(_) => {}
            }
        }
        let new = after.iter().filter(|(id, _)| !before.contains_key(*id));
        expected.extend(new.map(|(id, row)| ("insert".into(), *id, row.clone())));
        let mut found: Vec<(String, i64, Value)> = changes
            .iter()
            .filter(|row| row["_commit_version"] == json!(version))
            .map(|row| {
                let mut row = row.clone();
                let map = row.as_object_mut().unwrap();
                let kind = map
                    .remove("_change_type")
                    .unwrap()
                    .as_str()
                    .unwrap()
                    .to_owned();
                map.remove("_commit_version");
                assert!(
                    map.remove("_commit_timestamp")
                        .unwrap()
                        .as_str()
                        .unwrap()
                        .starts_with("2026-")
                );
                (kind, row["id"].as_i64().unwrap(), row)
            })
            .collect();
        let order = |row: &(String, i64, Value)| (row.1, row.0.clone());
        found.sort_by_key(order);
        expected.sort_by_key(order);
        assert_eq!(found, expected, "feed of version {version}");
    }
}

/// For readers outside this process: the rows of each version beside the table.
fn keep_expectations(table: &Table) {
    if std::env::var("TIDEGATE_KEEP_TABLES").is_ok() {
        let rows: Vec<Vec<&Value>> = table
            .model
            .iter()
            .map(|rows| rows.values().collect())
            .collect();
        let path = table.directory.with_extension("expected.json");
        std::fs::write(path, serde_json::to_vec(&rows).unwrap()).unwrap();
    }
}

/// Inserts, updates, deletes, vectors over vectors, files that die, compaction, checkpoints.
async fn live_a_life(table: &mut Table, row: &dyn Fn(i64, i64) -> Value) {
    table
        .apply((0..40).map(|id| row(id, 1)).collect(), &[])
        .await;
    table
        .apply((30..60).map(|id| row(id, 2)).collect(), &[1, 2, 3])
        .await;
    table
        .log
        .write_checkpoint(&table.snapshot, 1_780_000_009_000)
        .await
        .unwrap();
    table
        .apply(vec![row(100, 3)], &(30..60).collect::<Vec<_>>())
        .await;
    table
        .apply((0..10).map(|id| row(id, 4)).collect(), &[100])
        .await;
    table.compact().await;
    table.apply(vec![], &[0, 9]).await;
    table
        .log
        .write_checkpoint(&table.snapshot, 1_780_000_009_000)
        .await
        .unwrap();
    table
        .apply((5..15).map(|id| row(id, 5)).collect(), &[])
        .await;
    table
        .apply((5..15).map(|id| row(id, 5)).collect(), &[])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_all_types_in_inferred_mode() {
    let (_keep, path) = directory("wide_inferred");
    let mut table = Table::create(&path, json!({"schema": wide_columns()})).await;
    live_a_life(&mut table, &wide_row).await;
    check(&table).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_with_change_files() {
    let (_keep, path) = directory("wide_true");
    let fields = json!({"schema": wide_columns(), "change_data_feed": true});
    let mut table = Table::create(&path, fields).await;
    live_a_life(&mut table, &wide_row).await;
    check(&table).await;
}

fn partitioned_row(id: i64, revision: i64) -> Value {
    let regions = ["a b", "x/y:z%", "é=ü", "plain"];
    let region = usize::try_from(id % 5).ok().and_then(|at| regions.get(at));
    json!({"id": id, "region": region, "day": format!("2024-01-0{}", id % 3 + 1), "value": revision})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partitioned_table_with_odd_values() {
    for mode in [json!("inferred"), json!(true)] {
        let name = if mode == json!(true) {
            "partitioned_true"
        } else {
            "partitioned_inferred"
        };
        let (_keep, path) = directory(name);
        let columns = json!([
            {"name": "id", "type": "long"}, {"name": "region", "type": "string"},
            {"name": "day", "type": "date"}, {"name": "value", "type": "long"},
        ]);
        let fields =
            json!({"schema": columns, "partition_by": ["region", "day"], "change_data_feed": mode});
        let mut table = Table::create(&path, fields).await;
        live_a_life(&mut table, &partitioned_row).await;
        check(&table).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partition_columns_of_all_types() {
    let (_keep, path) = directory("partition_types");
    let types = [
        ("pb", "boolean"),
        ("pi", "integer"),
        ("pl", "long"),
        ("pd", "date"),
        ("pt", "timestamp"),
        ("pn", "timestamp_ntz"),
        ("pm", "decimal(10,2)"),
        ("px", "double"),
    ];
    let mut columns = vec![
        json!({"name": "id", "type": "long"}),
        json!({"name": "v", "type": "long"}),
    ];
    columns.extend(
        types
            .iter()
            .map(|(name, kind)| json!({"name": name, "type": kind})),
    );
    let names: Vec<&str> = types.iter().map(|(name, _)| *name).collect();
    let fields = json!({"schema": columns, "partition_by": names});
    let mut table = Table::create(&path, fields).await;
    let row = |id: i64, revision: i64| match id % 3 {
        0 => {
            json!({"id": id, "v": revision, "pb": true, "pi": -5, "pl": 1i64 << 40, "pd": "2024-01-02",
            "pt": "2024-01-02T03:04:05.000006Z", "pn": "2024-01-02T03:04:05.000006", "pm": "12.30", "px": 1.5})
        }
        1 => json!({"id": id, "v": revision, "pb": false, "pi": 5, "pl": -1, "pd": "1969-12-31",
            "pt": "1969-12-31T23:59:59.999999Z", "pn": "1969-12-31T23:59:59", "pm": "-0.01", "px": -0.25}),
        _ => json!({"id": id, "v": revision, "pb": null, "pi": null, "pl": null, "pd": null,
            "pt": null, "pn": null, "pm": null, "px": null}),
    };
    live_a_life(&mut table, &row).await;
    check(&table).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_join_and_widen() {
    let (_keep, path) = directory("evolved");
    let columns = json!([
        {"name": "id", "type": "long"}, {"name": "n", "type": "integer"},
        {"name": "f", "type": "float"}, {"name": "p", "type": "struct<a:integer>"},
    ]);
    let mut table = Table::create(&path, json!({"schema": columns})).await;
    let row = |id: i64, n: i64| json!({"id": id, "n": n, "f": 0.5, "p": {"a": n}});
    table
        .apply((0..20).map(|id| row(id, 1)).collect(), &[])
        .await;
    table
        .log
        .write_checkpoint(&table.snapshot, 0)
        .await
        .unwrap();
    let columns = json!([
        {"name": "id", "type": "long"}, {"name": "n", "type": "long"},
        {"name": "f", "type": "double"}, {"name": "p", "type": "struct<a:long,b:string>"},
        {"name": "late", "type": "timestamp_ntz"},
    ]);
    table.evolve(columns, |_| {}).await;
    let row = |id: i64, n: i64| json!({"id": id, "n": n << 40, "f": 0.1, "p": {"a": n << 40, "b": "x"}, "late": "2024-01-02T03:04:05.000006"});
    table
        .apply((10..30).map(|id| row(id, 2)).collect(), &[0, 1])
        .await;
    table
        .log
        .write_checkpoint(&table.snapshot, 0)
        .await
        .unwrap();
    table.apply(vec![row(1, 3)], &[2]).await;
    check(&table).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_without_columns_gets_them_later() {
    let (_keep, path) = directory("inferred_columns");
    let mut table = Table::create(&path, json!({})).await;
    table
        .evolve(
            json!([{"name": "id", "type": "long"}, {"name": "v", "type": "string"}]),
            |_| {},
        )
        .await;
    table.apply(vec![json!({"id": 1, "v": "a"})], &[]).await;
    check(&table).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn column_names_that_delta_forbids_are_mapped() {
    let (_keep, path) = directory("mapped");
    let columns = json!([
        {"name": "id", "type": "long"}, {"name": "unit price;=(€)", "type": "decimal(10,2)"},
        {"name": "part", "type": "string"}, {"name": "Größe", "type": "integer"},
        {"name": "s", "type": "struct<in side:long,plain:string>"},
    ]);
    let fields = json!({"schema": columns, "change_data_feed": true});
    let mut table = Table::create(&path, fields).await;
    let row = |id: i64, n: i64| {
        json!({"id": id, "unit price;=(€)": format!("{n}.50"), "part": format!("p{}", id % 2), "Größe": n,
            "s": {"in side": id, "plain": "x"}})
    };
    live_a_life(&mut table, &row).await;
    check(&table).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_with_a_space_is_mapped_late() {
    let (_keep, path) = directory("mapped_late");
    let mut table = Table::create(&path, json!({"schema": [{"name": "id", "type": "long"}]})).await;
    table
        .apply((0..20).map(|id| json!({"id": id})).collect(), &[])
        .await;
    let columns = json!([{"name": "id", "type": "long"}, {"name": "late one", "type": "string"}]);
    table.evolve(columns, |_| {}).await;
    table
        .apply(
            (10..30)
                .map(|id| json!({"id": id, "late one": "x"}))
                .collect(),
            &[1],
        )
        .await;
    table
        .log
        .write_checkpoint(&table.snapshot, 0)
        .await
        .unwrap();
    check(&table).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partition_columns_with_dots() {
    let (_keep, path) = directory("dotted_partition");
    let columns = json!([{"name": "id", "type": "long"}, {"name": "a.b", "type": "string"},
        {"name": "v", "type": "long"}]);
    let mut table = Table::create(&path, json!({"schema": columns, "partition_by": ["a.b"]})).await;
    let row = |id: i64, n: i64| json!({"id": id, "a.b": format!("x{}", id % 2), "v": n});
    live_a_life(&mut table, &row).await;
    check(&table).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn column_names_with_dots_need_no_mapping() {
    let (_keep, path) = directory("dotted");
    let columns = json!([{"name": "id", "type": "long"}, {"name": "a.b", "type": "string"},
        {"name": "größe`x", "type": "long"}]);
    let mut table = Table::create(&path, json!({"schema": columns})).await;
    let row = |id: i64, n: i64| json!({"id": id, "a.b": format!("x{n}"), "größe`x": n});
    live_a_life(&mut table, &row).await;
    assert!(
        table
            .snapshot
            .property("delta.columnMapping.mode")
            .is_none()
    );
    check(&table).await;
}
