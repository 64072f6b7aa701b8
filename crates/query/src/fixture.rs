//! A small table for tests.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, new_null_array};
use tidegate_change::spec::ResolvedSpec;
use tidegate_change::{AttemptId, TableSpec, TableVersion, WriterId};
use tidegate_delta::actions::{Action, CommitInfo, to_bytes};
use tidegate_delta::data::{WriterOptions, encode_file};
use tidegate_delta::names::{self, FileLevel};
use tidegate_delta::{CreateOutcome, DeltaLog, PartitionValues, TableDefinition, TableRoot};

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

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) log: DeltaLog,
    resolved: ResolvedSpec,
    _directory: tempfile::TempDir,
}

impl Table {
    /// Version 0 without rows, version 1 with a file of the first ids, version 2 with one of the others.
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = DeltaLog::new(TableRoot::local(directory.path()));
        let resolved = ResolvedSpec::declared(TableSpec::from_yaml(SPEC).unwrap());
        let definition = TableDefinition::create(&resolved, "0-0-0", 0).unwrap();
        let table = Self {
            log,
            resolved,
            _directory: directory,
        };
        table.commit(0, definition.actions()).await;
        table.add(1, &[3, 1, 2]).await;
        table.add(2, &[9, 7, 8]).await;
        table
    }

    pub(crate) async fn add(&self, version: u32, ids: &[i64]) {
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
        let attempt = AttemptId {
            writer: WriterId(1),
            index: u64::from(version),
        };
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
        let info = CommitInfo {
            in_commit_timestamp: Some(time),
            ..CommitInfo::default()
        };
        let mut all = vec![Action::CommitInfo(info)];
        all.extend(actions);
        let bytes = to_bytes(&all).unwrap();
        let outcome = self
            .log
            .create_commit(TableVersion(version.into()), bytes)
            .await;
        assert!(matches!(outcome, CreateOutcome::Created));
    }
}
