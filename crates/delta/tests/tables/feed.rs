//! What a reader of the feed gets, and what it is refused (R-F1 to R-F9).

use arrow::array::RecordBatch;
use futures::TryStreamExt;
use serde_json::{Value, json};
use tidegate_change::{Code, Error, TableVersion};
use tidegate_delta::feed::{self, FeedBounds, VersionRange};

use crate::support::{START_MS, Table, rows_of, values_of, wide_columns, wide_row};

fn columns() -> Value {
    json!([{"name": "id", "type": "long"}, {"name": "v", "type": "long"}])
}

fn row(id: i64, v: i64) -> Value {
    json!({"id": id, "v": v})
}

/// Versions 0 to 3, a second apart.
async fn small(directory: &std::path::Path, fields: Value) -> Table {
    let mut all = json!({"schema": columns()});
    all.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    let mut table = Table::create(directory, all).await;
    table.apply(vec![row(1, 1), row(2, 1)], &[]).await;
    table.apply(vec![row(2, 2), row(3, 1)], &[1]).await;
    table.apply(vec![row(2, 2)], &[]).await;
    table
}

async fn read(table: &Table, bounds: FeedBounds) -> Result<Vec<Value>, Error> {
    let Some(range) = bounds.resolve(&table.log, &table.snapshot).await? else {
        return Ok(Vec::new());
    };
    let stream = feed::changes(&table.log, &table.snapshot, range)
        .await?
        .with_paired_rows_max(1);
    let batches: Vec<RecordBatch> = stream.into_stream().try_collect().await?;
    Ok(values_of(&batches))
}

fn versions(start: i64, end: i64) -> FeedBounds {
    FeedBounds {
        start_version: Some(start),
        end_version: Some(end),
        ..FeedBounds::default()
    }
}

fn times(start: i64, end: i64) -> FeedBounds {
    FeedBounds {
        start_timestamp_ms: Some(START_MS + start),
        end_timestamp_ms: Some(START_MS + end),
        ..FeedBounds::default()
    }
}

#[tokio::test]
async fn net_changes_are_the_same_in_both_modes() {
    let mut answers = Vec::new();
    for mode in [json!("inferred"), json!(true)] {
        let directory = tempfile::tempdir().unwrap();
        let table = small(directory.path(), json!({"change_data_feed": mode})).await;
        let mut rows = read(&table, versions(0, 3)).await.unwrap();
        rows.iter_mut().for_each(|row| {
            row.as_object_mut().unwrap().remove("_commit_timestamp");
        });
        rows.sort_by_key(Value::to_string);
        answers.push(rows);
        assert!(
            read(&table, versions(3, 3)).await.unwrap().is_empty(),
            "equal images are no change"
        );
    }
    assert_eq!(answers[0], answers[1]);
    let kinds: Vec<&str> = answers[0]
        .iter()
        .filter_map(|row| row["_change_type"].as_str())
        .collect();
    assert_eq!(
        kinds,
        [
            "delete",
            "insert",
            "insert",
            "insert",
            "update_postimage",
            "update_preimage"
        ]
    );
}

#[tokio::test]
async fn bounds_are_checked_by_the_rules() {
    let directory = tempfile::tempdir().unwrap();
    let table = small(directory.path(), json!({})).await;
    let code = async |bounds: FeedBounds| {
        read(&table, bounds)
            .await
            .map(|rows| rows.len())
            .map_err(|e| e.code())
    };
    let allowed = |bounds: FeedBounds| FeedBounds {
        allow_out_of_range: true,
        ..bounds
    };
    let only_start = |start| FeedBounds {
        start_version: Some(start),
        ..FeedBounds::default()
    };
    assert_eq!(code(FeedBounds::default()).await, Err(Code::NoStart));
    assert_eq!(code(versions(2, 1)).await, Err(Code::InvalidRange));
    assert_eq!(code(versions(-1, 1)).await, Err(Code::InvalidVersion));
    let twice = FeedBounds {
        start_timestamp_ms: Some(0),
        ..versions(0, 1)
    };
    assert_eq!(code(twice).await, Err(Code::InvalidVersion));
    assert_eq!(code(only_start(4)).await, Err(Code::StartAfterLatest));
    assert_eq!(code(allowed(only_start(4))).await, Ok(0));
    assert_eq!(code(versions(1, 4)).await, Err(Code::EndAfterLatest));
    assert_eq!(code(allowed(versions(1, 4))).await, Ok(6));
    assert_eq!(code(only_start(2)).await, Ok(4));
    assert_eq!(code(times(1000, 1999)).await, Ok(2));
    assert_eq!(
        code(times(1001, 1999)).await,
        Ok(0),
        "both between two commits"
    );
    assert_eq!(code(times(1999, 1001)).await, Err(Code::InvalidRange));
    assert_eq!(code(times(3001, 3002)).await, Err(Code::StartAfterLatest));
    assert_eq!(code(times(0, 3001)).await, Err(Code::EndAfterLatest));
    assert_eq!(
        code(times(-9, -1)).await,
        Ok(0),
        "both before the first commit"
    );
}

#[tokio::test]
async fn versions_without_feed_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = small(directory.path(), json!({})).await;
    let mut spec = table.spec.clone();
    for (mode, value) in [("off", json!(false)), ("on", json!("inferred"))] {
        spec.spec.change_data_feed = serde_json::from_value(value).unwrap();
        table.respec(spec.clone()).await;
        table.apply(vec![row(9, 1)], &[]).await;
        assert_eq!(table.snapshot.version.0 % 2, 1, "{mode}");
    }
    let error = read(&table, versions(0, 7)).await.unwrap_err();
    assert_eq!(error.code(), Code::NotRecorded);
    assert!(error.to_string().contains("version 4"), "{error}");
    let error = read(&table, versions(5, 5)).await.unwrap_err();
    assert_eq!(error.code(), Code::NotRecorded);
    assert!(read(&table, versions(0, 3)).await.is_ok());
    assert!(read(&table, versions(6, 7)).await.is_ok());
}

#[tokio::test]
async fn what_retention_took_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let table = small(directory.path(), json!({})).await;
    let data = |version: u64| format!("l0-0000feed-{}-0.parquet", version + 1);
    std::fs::remove_file(directory.path().join(data(1))).unwrap();
    assert_eq!(
        read(&table, versions(1, 1)).await.unwrap_err().code(),
        Code::Expired
    );
    table
        .log
        .write_checkpoint(&table.snapshot, 0)
        .await
        .unwrap();
    std::fs::remove_file(
        directory
            .path()
            .join("_delta_log/00000000000000000000.json"),
    )
    .unwrap();
    assert_eq!(
        read(&table, versions(0, 3)).await.unwrap_err().code(),
        Code::Expired
    );
    assert_eq!(
        read(&table, times(500, 3000)).await.unwrap_err().code(),
        Code::Expired
    );
}

#[tokio::test]
async fn many_passes_give_what_one_gives() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = Table::create(directory.path(), json!({"schema": wide_columns()})).await;
    table
        .apply((0..300).map(|id| wide_row(id, 1)).collect(), &[])
        .await;
    let changed = |id: i64| wide_row(id, if id % 2 == 0 { 1 } else { 2 });
    table
        .apply(
            (100..400).map(changed).collect(),
            &(0..50).collect::<Vec<_>>(),
        )
        .await;
    let range = VersionRange {
        first: TableVersion(2),
        last: TableVersion(2),
    };
    let mut answers = Vec::new();
    for rows_max in [1, 40, 1000] {
        let stream = feed::changes(&table.log, &table.snapshot, range)
            .await
            .unwrap();
        let stream = stream.with_paired_rows_max(rows_max).into_stream();
        let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap();
        let mut rows = values_of(&batches);
        rows.sort_by_key(Value::to_string);
        answers.push(rows);
    }
    assert_eq!(answers[0], answers[2]);
    assert_eq!(answers[1], answers[2]);
    let count = |kind: &str| {
        answers[2]
            .iter()
            .filter(|row| row["_change_type"] == kind)
            .count()
    };
    assert_eq!((count("insert"), count("delete")), (100, 50));
    assert_eq!(count("update_preimage"), count("update_postimage"));
}

#[tokio::test]
async fn a_stream_begins_with_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let table = small(directory.path(), json!({})).await;
    let stream = feed::inserts(&table.log, &table.snapshot).unwrap();
    let batches: Vec<RecordBatch> = stream.into_stream().try_collect().await.unwrap();
    let rows = rows_of(&batches);
    assert_eq!(rows.keys().copied().collect::<Vec<_>>(), [2, 3]);
    assert!(
        rows.values()
            .all(|row| row["_change_type"] == "insert" && row["_commit_version"] == 3)
    );
}
