use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use tidegate_change::{Code, TableVersion};

use super::*;
use crate::fixture::Table;

async fn ids(table: &Table, version: Option<u64>, options: &ReadOptions) -> Vec<i64> {
    let snapshot = table.log.snapshot(version.map(TableVersion)).await.unwrap();
    let mut rows = read(table.log.root(), &snapshot, options).unwrap();
    let mut ids = Vec::new();
    while let Some(batch) = rows.next_batch().await.unwrap() {
        assert_eq!(batch.schema(), *rows.schema());
        let column = batch
            .column_by_name("id")
            .unwrap()
            .as_primitive::<Int64Type>();
        ids.extend_from_slice(column.values());
    }
    ids
}

fn options() -> ReadOptions {
    ReadOptions::default()
}

fn ordered() -> ReadOptions {
    ReadOptions {
        order_by: Some(vec!["id".into()]),
        ..options()
    }
}

#[tokio::test]
async fn versions_are_read_as_they_were() {
    let table = Table::new().await;
    assert_eq!(ids(&table, Some(0), &ordered()).await, [0_i64; 0]);
    assert_eq!(ids(&table, Some(1), &ordered()).await, [1, 2, 3]);
    assert_eq!(ids(&table, None, &ordered()).await, [1, 2, 3, 7, 8, 9]);
}

#[tokio::test]
async fn hidden_columns_never_show() {
    let table = Table::new().await;
    let snapshot = table.log.snapshot(None).await.unwrap();
    let rows = read(table.log.root(), &snapshot, &options()).unwrap();
    let names: Vec<&str> = rows
        .schema()
        .fields()
        .iter()
        .map(|f| f.name().as_str())
        .collect();
    assert_eq!(names, ["id", "v"]);
}

#[tokio::test]
async fn limits_conditions_and_order_go_together() {
    let table = Table::new().await;
    assert_eq!(
        ids(
            &table,
            None,
            &ReadOptions {
                limit: Some(2),
                ..options()
            }
        )
        .await
        .len(),
        2
    );
    assert_eq!(
        ids(
            &table,
            None,
            &ReadOptions {
                limit: Some(0),
                ..options()
            }
        )
        .await
        .len(),
        0
    );
    assert_eq!(
        ids(
            &table,
            None,
            &ReadOptions {
                limit: Some(2),
                ..ordered()
            }
        )
        .await,
        [1, 2]
    );
    let filter = Some("v > 'v2' OR v IS NULL".to_owned());
    let filtered = ReadOptions {
        filter,
        ..ordered()
    };
    assert_eq!(ids(&table, None, &filtered).await, [3, 7, 8, 9]);
    let few = ReadOptions {
        limit: Some(1),
        ..filtered
    };
    assert_eq!(ids(&table, None, &few).await, [3]);
}

#[tokio::test]
async fn columns_are_chosen_in_order_and_need_not_hold_the_condition() {
    let table = Table::new().await;
    let snapshot = table.log.snapshot(None).await.unwrap();
    let chosen = ReadOptions {
        columns: Some(vec!["V".into()]),
        filter: Some("id = 8".into()),
        ..ordered()
    };
    let mut rows = read(table.log.root(), &snapshot, &chosen).unwrap();
    let batch = rows.next_batch().await.unwrap().unwrap();
    assert_eq!((batch.num_columns(), batch.num_rows()), (1, 1));
    assert_eq!(batch.column(0).as_string::<i32>().value(0), "v8");

    let unknown = ReadOptions {
        columns: Some(vec!["idd".into()]),
        ..options()
    };
    let error = read(table.log.root(), &snapshot, &unknown).unwrap_err();
    assert_eq!(
        (error.code(), error.hint()),
        (Code::UnknownColumn, Some("did you mean \"id\"?"))
    );
    let hidden = ReadOptions {
        filter: Some("__tidegate_seq = 1".into()),
        ..options()
    };
    let error = read(table.log.root(), &snapshot, &hidden).unwrap_err();
    assert_eq!(error.code(), Code::UnknownColumn);
}
