//! Snapshots over gaps, checkpoints, time.

use std::sync::Arc;

use serde_json::json;
use tidegate_change::spec::ResolvedSpec;

use super::*;
use crate::TableDefinition;
use crate::actions::{
    Action, AddFile, DeletionVectorDescriptor, DomainMetadata, RemoveFile, Txn, to_bytes,
};

struct Fixture {
    directory: tempfile::TempDir,
    log: DeltaLog,
}

fn info(time: i64) -> Action {
    Action::CommitInfo(CommitInfo {
        in_commit_timestamp: Some(time),
        ..CommitInfo::default()
    })
}

fn add(path: &str) -> AddFile {
    AddFile {
        path: path.into(),
        size: 10,
        data_change: true,
        partition_values: [
            ("p".to_owned(), None),
            ("q".to_owned(), Some("ü".to_owned())),
        ]
        .into(),
        stats: Some(
            r#"{"numRecords":5,"maxValues":{"id":123456789012345678901234567890.5}}"#.into(),
        ),
        tags: Some([("tidegate.sparse".to_owned(), Some("false".to_owned()))].into()),
        clustering_provider: Some("tidegate".into()),
        ..AddFile::default()
    }
}

fn vector(offset: i32) -> DeletionVectorDescriptor {
    DeletionVectorDescriptor {
        storage_type: "u".into(),
        path_or_inline_dv: "vBn[lx{q8@P<9BNH/isA".into(),
        offset: Some(offset),
        size_in_bytes: 36,
        cardinality: 2,
    }
}

impl Fixture {
    /// Version 0 defines, version n adds file n; every version is a second later.
    async fn new(versions: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = DeltaLog::new(TableRoot::local(directory.path()));
        let spec = json!({"name": "t", "keys": ["id"], "sequence_by": "id",
            "schema": [{"name": "id", "type": "long"}]});
        let spec = ResolvedSpec::declared(serde_json::from_value(spec).unwrap());
        let mut first = vec![info(1000)];
        first.extend(TableDefinition::create(&spec, "t-1", 1).unwrap().actions());
        let fixture = Self { directory, log };
        fixture.commit(0, &first).await;
        for version in 1..versions {
            let time = i64::try_from(version).unwrap() * 1000 + 1000;
            fixture
                .commit(
                    version,
                    &[info(time), Action::Add(add(&format!("f{version}")))],
                )
                .await;
        }
        fixture
    }

    async fn commit(&self, version: u64, actions: &[Action]) {
        let bytes = to_bytes(actions).unwrap();
        let outcome = self.log.create_commit(TableVersion(version), bytes).await;
        assert!(matches!(outcome, CreateOutcome::Created), "{outcome:?}");
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.directory.path().join("_delta_log").join(name)).unwrap();
    }

    async fn code(&self, version: Option<u64>) -> Code {
        self.log
            .snapshot(version.map(TableVersion))
            .await
            .unwrap_err()
            .code()
    }
}

#[tokio::test]
async fn a_slot_is_written_once() {
    let fixture = Fixture::new(1).await;
    let outcome = fixture
        .log
        .create_commit(TableVersion(0), Bytes::from_static(b"{}"))
        .await;
    assert!(matches!(outcome, CreateOutcome::Exists));
    let commit = fixture.log.read_commit(TableVersion(0)).await.unwrap();
    assert_eq!(
        Some(commit.bytes.clone()),
        fixture.log.read_slot(TableVersion(0)).await.unwrap()
    );
    assert!(
        fixture
            .log
            .read_slot(TableVersion(1))
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(
        fixture
            .log
            .read_commit(TableVersion(1))
            .await
            .unwrap_err()
            .code(),
        Code::Expired
    );
}

#[tokio::test]
async fn a_directory_without_log_is_no_table() {
    let directory = tempfile::tempdir().unwrap();
    let log = DeltaLog::new(TableRoot::local(directory.path().join("none")));
    assert_eq!(log.latest_version().await.unwrap(), None);
    assert_eq!(
        log.snapshot(None).await.unwrap_err().code(),
        Code::TableNotFound
    );
    assert_eq!(
        log.version_at(0).await.unwrap_err().code(),
        Code::TableNotFound
    );
}

#[tokio::test]
async fn gaps_are_errors_and_never_shorter_answers() {
    let fixture = Fixture::new(5).await;
    assert_eq!(fixture.code(Some(5)).await, Code::InvalidVersion);
    let three = fixture.log.snapshot(Some(TableVersion(3))).await.unwrap();
    fixture.log.write_checkpoint(&three, 0).await.unwrap();
    fixture.remove("00000000000000000001.json");
    assert_eq!(fixture.code(Some(1)).await, Code::Corrupt);
    assert_eq!(fixture.log.snapshot(None).await.unwrap().files.len(), 4);
    fixture.remove("00000000000000000000.json");
    assert_eq!(fixture.code(Some(1)).await, Code::Expired);
    assert_eq!(fixture.code(Some(2)).await, Code::Expired);
    assert_eq!(
        fixture.log.version_at(1500).await.unwrap_err().code(),
        Code::Expired
    );
    fixture.remove("00000000000000000003.checkpoint.parquet");
    assert_eq!(fixture.code(None).await, Code::Expired);
}

#[tokio::test]
async fn a_damaged_hint_is_only_a_hint() {
    let fixture = Fixture::new(4).await;
    for hint in ["", "{", r#"{"version":99,"size":1}"#] {
        std::fs::write(
            fixture.directory.path().join("_delta_log/_last_checkpoint"),
            hint,
        )
        .unwrap();
        assert_eq!(
            fixture.log.snapshot(None).await.unwrap().version,
            TableVersion(3),
            "{hint}"
        );
        assert_eq!(
            fixture.log.latest_version().await.unwrap(),
            Some(TableVersion(3)),
            "{hint}"
        );
    }
}

#[tokio::test]
async fn a_checkpoint_holds_all_state() {
    let fixture = Fixture::new(4).await;
    let with_vector = AddFile {
        deletion_vector: Some(vector(1)),
        ..add("f1")
    };
    let next = AddFile {
        deletion_vector: Some(vector(50)),
        ..add("f1")
    };
    let changes = [
        info(5000),
        Action::Txn(Txn {
            app_id: "t-1/s/0".into(),
            version: 7,
            last_updated: None,
        }),
        Action::Domain(DomainMetadata::set("tidegate.progress", "{\"w\":1}")),
        Action::Remove(add("f1").to_remove(5000, true)),
        Action::Add(with_vector.clone()),
        Action::Remove(add("f2").to_remove(4000, true)),
    ];
    fixture.commit(4, &changes).await;
    let more = [
        info(6000),
        Action::Remove(with_vector.to_remove(6000, true)),
        Action::Add(next.clone()),
        Action::Domain(DomainMetadata::unset("delta.clustering")),
    ];
    fixture.commit(5, &more).await;
    let before = fixture.log.snapshot(None).await.unwrap();
    assert_eq!(before.tombstones.len(), 3);
    let week = 7 * 86_400_000;
    fixture
        .log
        .write_checkpoint(&before, week + 4500)
        .await
        .unwrap();
    for version in 0..=5 {
        if version != 5 {
            fixture.remove(&format!("{version:020}.json"));
        }
    }
    let after = fixture.log.snapshot(None).await.unwrap();
    let paths = |snapshot: &TableSnapshot| -> Vec<AddFile> {
        let files = snapshot.files.iter().map(|add| AddFile {
            data_change: true,
            ..add.as_ref().clone()
        });
        files.collect()
    };
    assert_eq!(paths(&after), paths(&before));
    assert_eq!(after.metadata, before.metadata);
    assert_eq!(after.protocol, before.protocol);
    assert_eq!(after.domains, before.domains);
    assert_eq!(after.transactions, before.transactions);
    assert_eq!(after.in_commit_timestamp_ms, Some(6000));
    // The file that left before the retention's end is forgotten.
    let left: Vec<&str> = after
        .tombstones
        .keys()
        .map(|(path, _)| path.as_ref())
        .collect();
    assert_eq!(left, ["f1", "f1"]);
    let removed: Vec<&Arc<RemoveFile>> = after.tombstones.values().collect();
    assert_eq!(removed[1].deletion_vector, Some(vector(1)));
    assert_eq!(
        removed[1].partition_values,
        Some(add("f1").partition_values)
    );
}

#[tokio::test]
async fn snapshots_advance_in_memory_as_the_log_does() {
    let fixture = Fixture::new(3).await;
    let two = fixture.log.snapshot(None).await.unwrap();
    let changes = [
        info(9000),
        Action::Remove(add("f1").to_remove(1, true)),
        Action::Add(add("f9")),
    ];
    fixture.commit(3, &changes).await;
    let advanced = two.advance(TableVersion(3), &changes).unwrap();
    let read = fixture.log.snapshot(None).await.unwrap();
    let list = |snapshot: &TableSnapshot| snapshot.files.iter().cloned().collect::<Vec<_>>();
    assert_eq!(list(&advanced), list(&read));
    assert_eq!(advanced.tombstones, read.tombstones);
    assert_eq!(advanced.in_commit_timestamp_ms, Some(9000));
    assert_eq!(two.files.len(), 2);
    assert!(two.advance(TableVersion(4), &changes).is_err());
}

#[tokio::test]
async fn features_that_readers_need_are_refused_when_unknown() {
    let fixture = Fixture::new(1).await;
    let mut protocol = fixture.log.snapshot(None).await.unwrap().protocol;
    protocol
        .reader_features
        .as_mut()
        .unwrap()
        .push("catalogManaged".into());
    fixture
        .commit(1, &[info(2000), Action::Protocol(protocol)])
        .await;
    assert_eq!(fixture.code(None).await, Code::Unsupported);
}

#[tokio::test]
async fn times_find_versions() {
    let fixture = Fixture::new(4).await;
    let log = &fixture.log;
    for (time, version) in [(1000, 0), (1999, 0), (2000, 1), (4000, 3), (i64::MAX, 3)] {
        assert_eq!(
            log.version_at(time).await.unwrap(),
            TableVersion(version),
            "{time}"
        );
    }
    assert_eq!(
        log.version_at(999).await.unwrap_err().code(),
        Code::InvalidVersion
    );
    for (time, version) in [
        (0, Some(0)),
        (1000, Some(0)),
        (1001, Some(1)),
        (4000, Some(3)),
        (4001, None),
    ] {
        let found = log.first_version_from(time).await.unwrap();
        assert_eq!(found, version.map(TableVersion), "{time}");
    }
    let history = log.history(Some(2)).await.unwrap();
    let entries: Vec<_> = history
        .iter()
        .map(|e| (e.version.0, e.timestamp_ms))
        .collect();
    assert_eq!(entries, [(3, 4000), (2, 3000)]);
    assert_eq!(log.history(None).await.unwrap().len(), 4);
}

/// Not a test of time, but of scale: a listing of many files passes through a checkpoint unharmed.
#[tokio::test]
async fn many_files_pass_through_a_checkpoint() {
    let fixture = Fixture::new(1).await;
    let actions: Vec<Action> = (0..20_000)
        .map(|n| Action::Add(add(&format!("f{n}"))))
        .collect();
    let mut all = vec![info(2000)];
    all.extend(actions);
    fixture.commit(1, &all).await;
    let before = fixture.log.snapshot(None).await.unwrap();
    fixture.log.write_checkpoint(&before, 0).await.unwrap();
    fixture.remove("00000000000000000000.json");
    let after = fixture.log.snapshot(None).await.unwrap();
    assert_eq!(after.files.len(), 20_000);
    let written = std::fs::read(
        fixture
            .directory
            .path()
            .join("_delta_log/00000000000000000001.checkpoint.parquet"),
    );
    assert!(
        written.unwrap().len() < 2 << 20,
        "checkpoints are compressed"
    );
}
