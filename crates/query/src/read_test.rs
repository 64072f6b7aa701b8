use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, new_null_array};
use arrow::datatypes::Int64Type;
use tidegate_change::spec::ResolvedSpec;
use tidegate_change::{AttemptId, Code, TableSpec, TableVersion, WriterId};
use tidegate_delta::actions::{Action, CommitInfo, to_bytes};
use tidegate_delta::data::{WriterOptions, encode_file};
use tidegate_delta::names::{self, FileLevel};
use tidegate_delta::{CreateOutcome, DeltaLog, PartitionValues, TableDefinition, TableRoot};

use super::*;

const SPEC: &str = "
name: t
schema:
  - {name: id, type: long}
  - {name: v, type: string}
  - {name: seq, type: long}
keys: [id]
sequence_by: seq
except_column_list: [seq]
";

struct Table {
    log: DeltaLog,
    resolved: ResolvedSpec,
    _directory: tempfile::TempDir,
}

impl Table {
    /// Version 0 without rows, version 1 with a file of the first ids, version 2 with one of the others.
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = DeltaLog::new(TableRoot::local(directory.path()));
        let resolved = ResolvedSpec::declared(TableSpec::from_yaml(SPEC).unwrap());
        let definition = TableDefinition::create(&resolved, "0-0-0", 0).unwrap();
        let table = Self { log, resolved, _directory: directory };
        table.commit(0, definition.actions()).await;
        table.add(1, &[3, 1, 2]).await;
        table.add(2, &[9, 7, 8]).await;
        table
    }

    async fn add(&self, version: u32, ids: &[i64]) {
        let schema = self.resolved.layout().unwrap().file_schema();
        let texts = ids.iter().map(|id| (*id != 7).then(|| format!("v{id}")));
        let columns = schema.fields().iter().map(|field| -> ArrayRef {
            match field.name().as_str() {
                "id" => Arc::new(Int64Array::from(ids.to_vec())),
                "v" => Arc::new(texts.clone().collect::<StringArray>()),
                tidegate_change::hidden::SEQUENCE => Arc::new(Int64Array::from(vec![1; ids.len()])),
                _ => new_null_array(field.data_type(), ids.len()),
            }
        });
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns.collect()).unwrap();
        let snapshot = self.log.snapshot(None).await.unwrap();
        let attempt = AttemptId { writer: WriterId(1), index: u64::from(version) };
        let file = encode_file(
            snapshot.schema(),
            &PartitionValues::default(),
            &names::data_file(FileLevel::Fresh, attempt, 0),
            &WriterOptions::new(vec!["id".into()], 0),
            &[batch],
        );
        let file = file.unwrap().unwrap();
        file.put(self.log.root()).await.unwrap();
        self.commit(version, vec![Action::Add(file.add)]).await;
    }

    async fn commit(&self, version: u32, actions: Vec<Action>) {
        let time = i64::from(version) * 1000;
        let info = CommitInfo { in_commit_timestamp: Some(time), ..CommitInfo::default() };
        let mut all = vec![Action::CommitInfo(info)];
        all.extend(actions);
        let bytes = to_bytes(&all).unwrap();
        let outcome = self.log.create_commit(TableVersion(version.into()), bytes).await;
        assert!(matches!(outcome, CreateOutcome::Created));
    }

    async fn ids(&self, version: Option<u64>, options: &ReadOptions) -> Vec<i64> {
        let snapshot = self.log.snapshot(version.map(TableVersion)).await.unwrap();
        let mut rows = read(self.log.root(), &snapshot, options).unwrap();
        let mut ids = Vec::new();
        while let Some(batch) = rows.next_batch().await.unwrap() {
            assert_eq!(batch.schema(), *rows.schema());
            let column = batch.column_by_name("id").unwrap().as_primitive::<Int64Type>();
            ids.extend_from_slice(column.values());
        }
        ids
    }
}

fn options() -> ReadOptions {
    ReadOptions::default()
}

fn ordered() -> ReadOptions {
    ReadOptions { order_by: Some(vec!["id".into()]), ..options() }
}

#[tokio::test]
async fn versions_are_read_as_they_were() {
    let table = Table::new().await;
    assert_eq!(table.ids(Some(0), &ordered()).await, [0_i64; 0]);
    assert_eq!(table.ids(Some(1), &ordered()).await, [1, 2, 3]);
    assert_eq!(table.ids(None, &ordered()).await, [1, 2, 3, 7, 8, 9]);
}

#[tokio::test]
async fn hidden_columns_never_show() {
    let table = Table::new().await;
    let snapshot = table.log.snapshot(None).await.unwrap();
    let rows = read(table.log.root(), &snapshot, &options()).unwrap();
    let names: Vec<&str> = rows.schema().fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["id", "v"]);
}

#[tokio::test]
async fn limits_conditions_and_order_go_together() {
    let table = Table::new().await;
    assert_eq!(table.ids(None, &ReadOptions { limit: Some(2), ..options() }).await.len(), 2);
    assert_eq!(table.ids(None, &ReadOptions { limit: Some(0), ..options() }).await.len(), 0);
    assert_eq!(table.ids(None, &ReadOptions { limit: Some(2), ..ordered() }).await, [1, 2]);
    let filter = Some("v > 'v2' OR v IS NULL".to_owned());
    let filtered = ReadOptions { filter, ..ordered() };
    assert_eq!(table.ids(None, &filtered).await, [3, 7, 8, 9]);
    let few = ReadOptions { limit: Some(1), ..filtered };
    assert_eq!(table.ids(None, &few).await, [3]);
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

    let unknown = ReadOptions { columns: Some(vec!["idd".into()]), ..options() };
    let error = read(table.log.root(), &snapshot, &unknown).unwrap_err();
    assert_eq!((error.code(), error.hint()), (Code::UnknownColumn, Some("did you mean \"id\"?")));
    let hidden = ReadOptions { filter: Some("__tidegate_seq = 1".into()), ..options() };
    let error = read(table.log.root(), &snapshot, &hidden).unwrap_err();
    assert_eq!(error.code(), Code::UnknownColumn);
}
