//! A lake in memory or in a directory, and workers that write one small file a batch.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::TryStreamExt;
use futures::future::BoxFuture;
use object_store::ObjectStore;
use object_store::path::Path;
use tidegate_apply::work::{SourceFile, SourceInput};
use tidegate_apply::{Manifest, Work};
use tidegate_change::clock::{FixedClock, SystemRandom};
use tidegate_change::spec::TableSpec;
use tidegate_change::{BatchId, BatchResult, Counters, Digest, Result, TableVersion};
use tidegate_delta::actions::{Action, AddFile, DomainMetadata};
use tidegate_delta::names::{self, FileLevel};
use tidegate_delta::{DeltaLog, TableRoot};

use crate::cancellation::Cancellation;
use crate::consensus::Consensus;
use crate::coordinator::{BatchRequest, Coordinator, CoordinatorOptions, CoordinatorParts};
use crate::metadata::replicated::{Member, MemberOptions};
use crate::metadata::{BatchKey, NodeId};
use crate::workers::{Stores, Workers};

pub(super) const TABLE: &str = "customers";

#[derive(Debug)]
pub(super) struct OneStore(pub(super) Arc<dyn ObjectStore>);

impl Stores for OneStore {
    fn open(&self, location: &str) -> Result<TableRoot> {
        Ok(TableRoot::new(Arc::clone(&self.0), Path::from(location)))
    }
}

type Interruption = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>;

/// Writes one file a batch; lets a test act between execution and commit.
#[derive(Default)]
pub(super) struct FakeWorkers {
    pub(super) during: Mutex<Option<Interruption>>,
}

impl fmt::Debug for FakeWorkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeWorkers")
    }
}

#[async_trait]
impl Workers for FakeWorkers {
    async fn execute(&self, work: Work) -> Result<Manifest> {
        let path = names::data_file(FileLevel::Fresh, work.attempt, 0);
        work.root.write(&path, b"rows".to_vec()).await?;
        let interruption = self.during.lock().unwrap().take();
        if let Some(interruption) = interruption {
            interruption().await;
        }
        let add = AddFile {
            path: path.clone(),
            size: 4,
            modification_time: work.now_ms,
            data_change: true,
            stats: Some("{\"numRecords\":1}".into()),
            ..AddFile::default()
        };
        let seen = work.snapshot.files.len() as u64;
        let watermark = serde_json::json!(seen + 1);
        let progress = serde_json::json!({"watermark": watermark}).to_string();
        Ok(Manifest {
            actions: vec![
                Action::Domain(DomainMetadata::set("tidegate.progress", progress)),
                Action::Add(add),
            ],
            counters: Counters {
                events: 1,
                inserted: 1,
                files_written: 1,
                ..Counters::default()
            },
            watermark,
            offsets: BTreeMap::from([("topic/0".into(), i64::try_from(seen).unwrap() + 10)]),
            written: vec![path],
            ..Manifest::default()
        })
    }
}

pub(super) fn spec() -> TableSpec {
    TableSpec::from_yaml(
        "name: customers\nkeys: [id]\nsequence_by: seq\nschema:\n  - {name: id, type: long}\n  - {name: seq, type: long}\n",
    )
    .unwrap()
}

pub(super) fn request(id: &str, content: &str) -> BatchRequest {
    BatchRequest {
        table: TABLE.into(),
        key: BatchKey {
            id: BatchId(id.into()),
            input_digest: Digest::of(content.as_bytes()),
            sequence: None,
            logical_time_ms: None,
        },
        sources: vec![SourceFile {
            name: "a".into(),
            input: SourceInput::Bytes(content.to_owned().into()),
            format: None,
        }],
        offsets: BTreeMap::new(),
        dry_run: false,
        cancellation: Cancellation::default(),
        observer: None,
    }
}

pub(super) async fn member(dir: &std::path::Path) -> Arc<Member> {
    let options = MemberOptions::alone(Arc::new(SystemRandom));
    Arc::new(Member::open(dir, &options).await.unwrap())
}

pub(super) fn parts(
    member: &Arc<Member>,
    store: &Arc<dyn ObjectStore>,
    workers: &Arc<FakeWorkers>,
    node: u64,
) -> CoordinatorParts {
    CoordinatorParts {
        consensus: Arc::clone(member) as Arc<dyn Consensus>,
        workers: Arc::clone(workers) as Arc<dyn Workers>,
        stores: Arc::new(OneStore(Arc::clone(store))),
        clock: Arc::new(FixedClock { now_ms: 1_000 }),
        random: Arc::new(SystemRandom),
        node: NodeId(node),
    }
}

/// A directory, a store and a coordinator with an empty table.
pub(super) struct Lake {
    _dir: tempfile::TempDir,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) member: Arc<Member>,
    pub(super) workers: Arc<FakeWorkers>,
    pub(super) coordinator: Arc<Coordinator>,
}

impl Lake {
    pub(super) async fn new(store: Arc<dyn ObjectStore>, options: CoordinatorOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let member = member(dir.path()).await;
        let workers = Arc::new(FakeWorkers::default());
        let parts = parts(&member, &store, &workers, 0);
        let coordinator = Arc::new(Coordinator::start(parts, options).await.unwrap());
        coordinator.create(spec(), TABLE).await.unwrap();
        Self {
            _dir: dir,
            store,
            member,
            workers,
            coordinator,
        }
    }

    /// Another coordinator on the same log.
    pub(super) async fn another(&self, node: u64) -> Arc<Coordinator> {
        let workers = Arc::new(FakeWorkers::default());
        let parts = parts(&self.member, &self.store, &workers, node);
        Arc::new(
            Coordinator::start(parts, CoordinatorOptions::default())
                .await
                .unwrap(),
        )
    }

    pub(super) fn log(&self) -> DeltaLog {
        DeltaLog::new(TableRoot::new(Arc::clone(&self.store), Path::from(TABLE)))
    }

    pub(super) async fn submit(&self, id: &str, content: &str) -> Result<BatchResult> {
        self.coordinator.submit(&request(id, content)).await
    }
}

/// Checks a table from its log alone and returns the version of each batch.
pub(super) async fn check(store: &Arc<dyn ObjectStore>) -> BTreeMap<BatchId, TableVersion> {
    let root = TableRoot::new(Arc::clone(store), Path::from(TABLE));
    let log = DeltaLog::new(root.clone());
    let mut batches = BTreeMap::new();
    let mut last_time = 0;
    let Some(latest) = log.latest_version().await.unwrap() else {
        return batches;
    };
    for version in (0..=latest.0).map(TableVersion) {
        let commit = log.read_commit(version).await.unwrap();
        let info = commit.info().unwrap();
        let time = info.in_commit_timestamp.unwrap();
        assert!(time > last_time, "commit times rise");
        last_time = time;
        if let Some(result) = info.batch_result().unwrap() {
            assert_eq!(result.version, version);
            let twice = batches.insert(result.batch_id, version);
            assert_eq!(twice, None, "a batch is in two versions");
        }
    }
    let snapshot = log.snapshot(None).await.unwrap();
    for file in snapshot.files.iter() {
        let path = file.relative_path().unwrap();
        assert!(
            root.read_if_there(&path).await.unwrap().is_some(),
            "{path} is referenced and gone"
        );
    }
    assert_eq!(snapshot.files.len(), batches.len());
    let (count, marks) = crate::coordinator::marks::read_marks(&snapshot).unwrap();
    assert_eq!(count, batches.len() as u64);
    for mark in marks {
        assert_eq!(batches.get(&mark.id), Some(&mark.version));
    }
    batches
}

/// Names of all objects of the table outside its log.
pub(super) async fn objects(store: &Arc<dyn ObjectStore>) -> Vec<String> {
    let listed: Vec<_> = store
        .list(Some(&Path::from(TABLE)))
        .try_collect()
        .await
        .unwrap();
    let names = listed.into_iter().map(|object| object.location.to_string());
    names.filter(|name| !name.contains("_delta_log")).collect()
}
