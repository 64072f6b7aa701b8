//! A small writer of tables over the crate's public API, with a model of what each version shows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use serde_json::{Map, Value, json};
use tidegate_change::spec::{FeedMode, ResolvedSpec};
use tidegate_change::{AttemptId, TableVersion, WriterId, hidden};
use tidegate_delta::actions::{Action, CommitInfo, to_bytes};
use tidegate_delta::data::{ReadOptions, WriterOptions, encode_file, read_file};
use tidegate_delta::dv::{self, Remains};
use tidegate_delta::{
    CreateOutcome, DeltaLog, TableDefinition, TableRoot, TableSchema, TableSnapshot, cdc, names,
    split_by_partition,
};

/// Rows by key, as JSON.
pub(crate) type Rows = BTreeMap<i64, Value>;

/// The first commit's time: readers' clocks are later.
pub(crate) const START_MS: i64 = 1_780_000_000_000;

/// A table under test.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) directory: PathBuf,
    pub(crate) log: DeltaLog,
    pub(crate) spec: ResolvedSpec,
    pub(crate) snapshot: TableSnapshot,
    /// What each version shows.
    pub(crate) model: Vec<Rows>,
    next_attempt: u64,
}

/// Columns of many types.
pub(crate) fn wide_columns() -> Value {
    json!([
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "price", "type": "decimal(12,2)"},
        {"name": "at", "type": "timestamp"},
        {"name": "day", "type": "date"},
        {"name": "ok", "type": "boolean"},
        {"name": "score", "type": "double"},
        {"name": "small", "type": "short"},
        {"name": "tags", "type": "array<string>"},
        {"name": "attrs", "type": "map<string,long>"},
        {"name": "place", "type": "struct<city:string,geo:struct<lat:double,lon:double>>"},
    ])
}

/// A row of [`wide_columns`] that depends on key and revision.
pub(crate) fn wide_row(id: i64, revision: i64) -> Value {
    if id % 7 == 3 {
        return json!({"id": id, "name": null, "price": null, "at": null, "day": null, "ok": null,
            "score": null, "small": null, "tags": null, "attrs": null, "place": null});
    }
    json!({
        "id": id,
        "name": format!("n{}é-{revision}", id % 10),
        "price": format!("{}.{:02}", id * 3 + revision, id % 100),
        "at": format!("2024-02-{:02}T03:04:05.{:06}Z", id % 28 + 1, revision),
        "day": format!("2024-03-{:02}", id % 28 + 1),
        "ok": id % 2 == 0,
        "score": id as f64 / 4.0,
        "small": id % 100,
        "tags": [format!("t{revision}"), null],
        "attrs": {"a": id, "b": revision},
        "place": {"city": "c", "geo": {"lat": 1.5, "lon": revision as f64}},
    })
}

impl Table {
    /// Version 0 of a table whose spec has these fields besides name and key `id`.
    pub(crate) async fn create(directory: &Path, fields: Value) -> Self {
        let mut spec = json!({"name": "t", "keys": ["id"], "sequence_by": "id"});
        spec.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let spec = ResolvedSpec::declared(serde_json::from_value(spec).unwrap());
        let root = TableRoot::local(directory);
        let log = DeltaLog::new(root);
        let id = "5f1c2b64-16c0-4a3b-9c6a-0123456789ab";
        let definition = TableDefinition::create(&spec, id, START_MS).unwrap();
        let mut actions = vec![info("CREATE TABLE", 0, 0)];
        actions.extend(definition.actions());
        let created = log
            .create_commit(TableVersion(0), to_bytes(&actions).unwrap())
            .await;
        assert!(matches!(created, CreateOutcome::Created), "{created:?}");
        let snapshot = log.snapshot(None).await.unwrap();
        let directory = directory.to_owned();
        Self {
            directory,
            log,
            spec,
            snapshot,
            model: vec![Rows::new()],
            next_attempt: 1,
        }
    }

    pub(crate) fn root(&self) -> &TableRoot {
        self.log.root()
    }

    pub(crate) fn rows(&self) -> Rows {
        self.model.last().unwrap().clone()
    }

    pub(crate) fn attempt(&mut self) -> AttemptId {
        self.next_attempt += 1;
        AttemptId {
            writer: WriterId(0xfeed),
            index: self.next_attempt,
        }
    }

    /// Commits actions behind a commitInfo and takes the snapshot along.
    pub(crate) async fn commit(&mut self, operation: &str, actions: Vec<Action>, rows: Rows) {
        let version = self.snapshot.version.next();
        let mut all = vec![info(operation, version.0, self.next_attempt)];
        all.extend(actions);
        let created = self
            .log
            .create_commit(version, to_bytes(&all).unwrap())
            .await;
        assert!(matches!(created, CreateOutcome::Created), "{created:?}");
        self.snapshot = self.snapshot.advance(version, &all).unwrap();
        self.model.push(rows);
    }

    /// One commit of upserts and deletes, as a batch would do it.
    pub(crate) async fn apply(&mut self, upserts: Vec<Value>, deletes: &[i64]) {
        let attempt = self.attempt();
        let mut rows = self.rows();
        let mut gone: Vec<i64> = deletes.to_vec();
        gone.extend(upserts.iter().map(key_of));
        let before = rows.clone();
        for id in deletes {
            rows.remove(id);
        }
        for row in &upserts {
            rows.insert(key_of(row), row.clone());
        }
        // R-C9: with change files, a commit that nobody sees changes no data.
        let data_change = self.spec.spec.change_data_feed != FeedMode::True || rows != before;
        let mut actions = self.kill(attempt, &gone, data_change).await;
        actions.extend(self.write(attempt, &upserts, data_change).await);
        if self.spec.spec.change_data_feed == FeedMode::True {
            actions.extend(self.write_changes(attempt, &before, &rows).await);
        }
        self.commit("MERGE", actions, rows).await;
    }

    /// Rewrites all files as one, without change of data.
    pub(crate) async fn compact(&mut self) {
        let attempt = self.attempt();
        let rows = self.rows();
        let time = self.time();
        let mut actions: Vec<Action> = self
            .snapshot
            .files
            .iter()
            .map(|add| Action::Remove(add.to_remove(time, false)))
            .collect();
        let all: Vec<Value> = rows.values().cloned().collect();
        actions.extend(self.write(attempt, &all, false).await);
        self.commit("OPTIMIZE", actions, rows).await;
    }

    /// Changes the spec's columns.
    pub(crate) async fn evolve(
        &mut self,
        columns: Value,
        reshape: impl Fn(&mut Map<String, Value>),
    ) {
        let spec = ResolvedSpec::declared(
            serde_json::from_value({
                let mut spec = serde_json::to_value(&self.spec.spec).unwrap();
                spec["schema"] = columns;
                spec
            })
            .unwrap(),
        );
        let mut rows = self.rows();
        rows.values_mut()
            .for_each(|row| reshape(row.as_object_mut().unwrap()));
        self.respec(spec).await;
        if let Some(last) = self.model.last_mut() {
            *last = rows;
        }
    }

    /// Commits another spec, with which the rows stay.
    pub(crate) async fn respec(&mut self, spec: ResolvedSpec) {
        let definition = TableDefinition::evolve(&spec, &self.snapshot).unwrap();
        self.spec = spec;
        let actions = definition.changes_from(&self.snapshot);
        assert!(!actions.is_empty());
        let rows = self.rows();
        self.commit("SET TBLPROPERTIES", actions, rows).await;
    }

    async fn kill(&mut self, attempt: AttemptId, ids: &[i64], data_change: bool) -> Vec<Action> {
        let time = self.time();
        let (mut old, mut vectors, mut actions) = (Vec::new(), Vec::new(), Vec::new());
        let projection = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true)]));
        let files: Vec<_> = self.snapshot.files.iter().cloned().collect();
        for add in files {
            let options = ReadOptions::live(Arc::clone(&projection));
            let found = read_file(self.root(), self.snapshot.schema(), &add, &options)
                .await
                .unwrap();
            let found = found.collect().await.unwrap();
            let keys = found.rows.column(0).as_primitive::<Int64Type>();
            let hits = keys
                .values()
                .iter()
                .zip(&found.positions)
                .filter(|(id, _)| ids.contains(id));
            let hits: Vec<u32> = hits.map(|(_, position)| *position).collect();
            let dead = dv::of_file(self.root(), &add).await.unwrap();
            match dead.delete(hits, add.num_records().unwrap()).unwrap() {
                Remains::Unchanged => {}
                Remains::Nothing => actions.push(Action::Remove(add.to_remove(time, data_change))),
                Remains::Some(next, _) => {
                    vectors.push(next);
                    old.push(add);
                }
            }
        }
        let descriptors = dv::write_packed(self.root(), attempt, 0, &vectors)
            .await
            .unwrap();
        for (add, descriptor) in old.iter().zip(descriptors) {
            actions.push(Action::Remove(add.to_remove(time, data_change)));
            actions.push(Action::Add(
                add.with_deletion_vector(descriptor, data_change),
            ));
        }
        actions
    }

    async fn write(
        &mut self,
        attempt: AttemptId,
        rows: &[Value],
        data_change: bool,
    ) -> Vec<Action> {
        let schema = self.schema();
        let batch = batch_of(&self.file_schema(), rows);
        let mut actions = Vec::new();
        for (number, (partition, rows)) in (0..).zip(split_by_partition(&schema, &batch).unwrap()) {
            let mut options = WriterOptions::new(vec!["id".into()], self.time());
            options.is_clustered = schema.partition_columns().is_empty();
            options.data_change = data_change;
            let name = names::data_file(names::FileLevel::Fresh, attempt, number);
            let file = encode_file(&schema, &partition, &name, &options, &[rows]).unwrap();
            if let Some(file) = file {
                file.put(self.root()).await.unwrap();
                actions.push(Action::Add(file.add));
            }
        }
        actions
    }

    async fn write_changes(
        &mut self,
        attempt: AttemptId,
        before: &Rows,
        after: &Rows,
    ) -> Vec<Action> {
        let mut changes = Vec::new();
        for (id, row) in before {
            match after.get(id) {
                None => changes.push((row.clone(), "delete")),
                Some(next) if next != row => {
                    changes.push((row.clone(), "update_preimage"));
                    changes.push((next.clone(), "update_postimage"));
                }
                Some(_) => {}
            }
        }
        let new = after.iter().filter(|(id, _)| !before.contains_key(*id));
        changes.extend(new.map(|(_, row)| (row.clone(), "insert")));
        let (rows, types): (Vec<Value>, Vec<&str>) = changes.into_iter().unzip();
        let schema = self.schema();
        let batch = batch_of(schema.arrow(), &rows);
        let mut fields = batch.schema().fields().to_vec();
        fields.push(Arc::new(Field::new(
            cdc::CHANGE_TYPE,
            DataType::Utf8,
            false,
        )));
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(StringArray::from(types)));
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        let files = cdc::write_changes(self.root(), &schema, attempt, 0, &[batch])
            .await
            .unwrap();
        files.into_iter().map(Action::Cdc).collect()
    }

    pub(crate) fn schema(&self) -> TableSchema {
        self.snapshot.schema().clone()
    }

    /// The table's columns and the hidden sequence.
    pub(crate) fn file_schema(&self) -> SchemaRef {
        let mut fields = self.snapshot.schema().arrow().fields().to_vec();
        fields.extend(
            hidden::fields(&DataType::Int64, false)
                .into_iter()
                .map(Arc::new),
        );
        Arc::new(Schema::new(fields))
    }

    fn time(&self) -> i64 {
        START_MS + 1000 * i64::try_from(self.snapshot.version.0 + 1).unwrap()
    }
}

fn info(operation: &str, version: u64, attempt: u64) -> Action {
    let time = START_MS + 1000 * i64::try_from(version).unwrap();
    Action::CommitInfo(CommitInfo {
        in_commit_timestamp: Some(time),
        timestamp: Some(time),
        operation: Some(operation.into()),
        engine_info: Some("Tidegate/test".into()),
        txn_id: Some(format!("0000feed-{attempt}")),
        ..CommitInfo::default()
    })
}

fn key_of(row: &Value) -> i64 {
    row["id"].as_i64().unwrap()
}

/// Rows as a batch; the hidden sequence is the key, sparse columns are NULL.
pub(crate) fn batch_of(schema: &SchemaRef, rows: &[Value]) -> RecordBatch {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            let mut row = row.clone();
            row[hidden::SEQUENCE] = row["id"].clone();
            row[hidden::SCHEMA] = json!(1);
            row
        })
        .collect();
    if rows.is_empty() {
        return RecordBatch::new_empty(Arc::clone(schema));
    }
    let builder = arrow::json::ReaderBuilder::new(Arc::clone(schema)).with_batch_size(rows.len());
    let mut decoder = builder.build_decoder().unwrap();
    for row in &rows {
        let mut text = row.to_string().into_bytes();
        text.push(b'\n');
        assert_eq!(decoder.decode(&text).unwrap(), text.len());
    }
    decoder.flush().unwrap().unwrap()
}

/// The rows of batches by key, as JSON with every column of the schema.
pub(crate) fn rows_of(batches: &[RecordBatch]) -> Rows {
    let mut rows = Rows::new();
    for row in values_of(batches) {
        let key = key_of(&row);
        assert!(rows.insert(key, row).is_none(), "key {key} is live twice");
    }
    rows
}

/// The rows of batches as JSON.
pub(crate) fn values_of(batches: &[RecordBatch]) -> Vec<Value> {
    let mut text = Vec::new();
    let mut writer = arrow::json::WriterBuilder::new()
        .with_explicit_nulls(true)
        .build::<_, arrow::json::writer::LineDelimited>(&mut text);
    for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    let lines = text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

/// Model rows in the form that [`rows_of`] gives: through Arrow and back.
pub(crate) fn normal(schema: &SchemaRef, rows: &Rows) -> Rows {
    let all: Vec<Value> = rows.values().cloned().collect();
    rows_of(&[batch_of(schema, &all)])
}
