//! A directory from the outside, with workers that write one small file a batch.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_apply::{Manifest, Work};
use tidegate_change::spec::TableSpec;
use tidegate_change::{Code, Counters, Result, TableVersion};
use tidegate_cluster::Workers;
use tidegate_delta::actions::{Action, AddFile};
use tidegate_delta::names::{self, FileLevel};

use crate::{ApplyOptions, Embedded, OpenOptions, Reader, SourceArgument};

#[derive(Debug)]
struct OneFile;

#[async_trait]
impl Workers for OneFile {
    async fn execute(&self, work: Work) -> Result<Manifest> {
        let path = names::data_file(FileLevel::Fresh, work.attempt, 0);
        work.root.write(&path, b"rows".to_vec()).await?;
        let add = AddFile {
            path,
            size: 4,
            data_change: true,
            stats: Some("{\"numRecords\":3}".into()),
            ..AddFile::default()
        };
        Ok(Manifest {
            actions: vec![Action::Add(add)],
            counters: Counters {
                events: 3,
                inserted: 3,
                ..Counters::default()
            },
            watermark: serde_json::json!(7),
            offsets: BTreeMap::new(),
            ..Manifest::default()
        })
    }
}

fn spec(name: &str) -> TableSpec {
    let text = format!(
        "name: {name}\nkeys: [id]\nsequence_by: seq\ncheckpoint: {{commits: 3}}\nschema:\n  - {{name: id, type: long}}\n  - {{name: seq, type: long}}\n"
    );
    TableSpec::from_yaml(&text).unwrap()
}

async fn open(dir: &Path) -> Result<Embedded> {
    Embedded::open(dir, OpenOptions::new(Arc::new(OneFile))).await
}

fn source(dir: &Path, name: &str, text: &str) -> Vec<SourceArgument> {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    vec![SourceArgument::parse(&path.display().to_string())]
}

#[tokio::test]
async fn a_command_that_runs_twice_applies_once() {
    let dir = tempfile::tempdir().unwrap();
    let input = source(dir.path(), "day1.jsonl", "{}");
    let embedded = open(dir.path()).await.unwrap();
    embedded.create_table(spec("sales.orders")).await.unwrap();
    let options = ApplyOptions::default();
    let first = embedded
        .apply("sales.orders", &input, &options)
        .await
        .unwrap();
    drop(embedded);
    let embedded = open(dir.path()).await.unwrap();
    assert_eq!(
        embedded
            .apply("sales.orders", &input, &options)
            .await
            .unwrap(),
        first
    );
    let force = ApplyOptions {
        force: true,
        ..ApplyOptions::default()
    };
    let forced = embedded
        .apply("sales.orders", &input, &force)
        .await
        .unwrap();
    assert_eq!(forced.version, TableVersion(2));
    let named = ApplyOptions {
        batch_id: Some("run-1".into()),
        ..ApplyOptions::default()
    };
    embedded
        .apply("sales.orders", &input, &named)
        .await
        .unwrap();
    let other = source(dir.path(), "day2.jsonl", "{\"a\":1}");
    let error = embedded
        .apply("sales.orders", &other, &named)
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::BatchContentMismatch);

    // A reader works beside the writer.
    let reader = Reader::open(dir.path()).unwrap();
    let list = reader.list().await.unwrap();
    assert_eq!(
        (list[0].name.as_str(), list[0].version),
        ("sales.orders", TableVersion(3))
    );
    let described = reader.describe("sales.orders").await.unwrap();
    assert_eq!(
        (described.rows, described.files, described.bytes),
        (9, 3, 12)
    );
    let history = reader.history("sales.orders", None).await.unwrap();
    assert_eq!(history.len(), 4);
    assert_eq!(history[0].batch_id.as_ref().unwrap().0, "run-1");
    assert_eq!(
        (history[0].inserted, history[0].files_added),
        (Some(3), Some(1))
    );
    assert_eq!(history[3].operation, "CREATE TABLE");
    assert!(described.location.ends_with("lake/sales.orders"));
    let hint = dir
        .path()
        .join("lake/sales.orders/_delta_log/_last_checkpoint");
    assert!(hint.is_file(), "the third commit is checkpointed");
}

#[tokio::test]
async fn a_directory_has_one_writer() {
    let dir = tempfile::tempdir().unwrap();
    let held = open(dir.path()).await.unwrap();
    let error = open(dir.path()).await.unwrap_err();
    assert_eq!(error.code(), Code::DirectoryHeld);
    assert!(
        Reader::open(dir.path())
            .unwrap()
            .list()
            .await
            .unwrap()
            .is_empty()
    );
    drop(held);
    open(dir.path()).await.unwrap();
}

#[tokio::test]
async fn a_table_outlives_the_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let input = source(dir.path(), "day1.jsonl", "{}");
    let first = {
        let embedded = open(dir.path()).await.unwrap();
        embedded.create_table(spec("t")).await.unwrap();
        embedded
            .apply("t", &input, &ApplyOptions::default())
            .await
            .unwrap()
    };
    fs::remove_dir_all(dir.path().join("raft")).unwrap();
    let embedded = open(dir.path()).await.unwrap();
    assert_eq!(
        embedded.create_table(spec("t")).await.unwrap_err().code(),
        Code::TableExists
    );
    assert_eq!(embedded.adopt("t", None).await.unwrap(), "t");
    assert_eq!(
        embedded
            .apply("t", &input, &ApplyOptions::default())
            .await
            .unwrap(),
        first
    );
    embedded.drop_table("t", false).await.unwrap();
    let place = dir.path().join("lake/t");
    assert!(!place.try_exists().unwrap(), "no empty directory is left");
    assert_eq!(
        embedded.create_table(spec("t")).await.unwrap(),
        TableVersion(0)
    );
    let again = embedded
        .apply("t", &input, &ApplyOptions::default())
        .await
        .unwrap();
    assert_ne!(
        again.batch_id, first.batch_id,
        "a new table of the name is another table"
    );
}

#[tokio::test]
async fn places_are_confined_and_apart() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = open(dir.path()).await.unwrap();
    let at = |name: &str, location: &str| TableSpec {
        location: Some(location.into()),
        ..spec(name)
    };
    embedded.create_table(at("a", "x/y")).await.unwrap();
    for (name, location) in [("b", "x/y/z"), ("c", "x"), ("d", "../out"), ("e", "/etc/t")] {
        let error = embedded.create_table(at(name, location)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidLocation, "{location}");
    }
    embedded.create_table(at("f", "x/y2")).await.unwrap();
}

#[tokio::test]
async fn a_newest_commit_that_is_not_the_acknowledged_one_is_not_read() {
    type Damage = fn(String) -> Option<String>;
    let cases: [(&str, Damage, Code); 5] = [
        ("gone", |_| None, Code::LogBehindRaft),
        ("emptied", |_| Some(String::new()), Code::Corrupt),
        (
            "cut",
            |text| Some(text[..text.len() / 2].to_owned()),
            Code::Corrupt,
        ),
        (
            "without its batch",
            |text| {
                Some(
                    text.lines()
                        .skip(1)
                        .map(|line| format!("{line}\n"))
                        .collect(),
                )
            },
            Code::Corrupt,
        ),
        (
            "without its file",
            |text| {
                let lines = text.lines().filter(|line| !line.starts_with("{\"add\""));
                Some(lines.map(|line| format!("{line}\n")).collect())
            },
            Code::Corrupt,
        ),
    ];
    for (what, change, code) in cases {
        let dir = tempfile::tempdir().unwrap();
        let input = source(dir.path(), "day1.jsonl", "{}");
        let options = ApplyOptions::default();
        let embedded = open(dir.path()).await.unwrap();
        embedded.create_table(spec("t")).await.unwrap();
        embedded.apply("t", &input, &options).await.unwrap();
        drop(embedded);
        let reader = Reader::open(dir.path()).unwrap();
        reader.snapshot("t", None).await.unwrap();
        let commit = dir
            .path()
            .join("lake/t/_delta_log/00000000000000000001.json");
        let text = fs::read_to_string(&commit).unwrap();
        fs::remove_file(&commit).unwrap();
        if let Some(changed) = change(text) {
            fs::write(&commit, changed).unwrap();
        }
        for known in [true, false] {
            if !known {
                // What the commit alone tells, without what the directory remembers.
                fs::remove_file(dir.path().join("raft/heads.json")).unwrap();
            }
            let reader = Reader::open(dir.path()).unwrap();
            let read = reader.snapshot("t", None).await;
            let tells_itself = !["gone", "without its file"].contains(&what);
            match read {
                Err(error) => assert_eq!(error.code(), code, "{what}: {error:?}"),
                Ok(_) => assert!(!known && !tells_itself, "{what} is read"),
            }
        }
        let embedded = open(dir.path()).await.unwrap();
        let next = source(dir.path(), "day2.jsonl", "{\"a\":1}");
        let error = embedded.apply("t", &next, &options).await.unwrap_err();
        assert_eq!(error.code(), code, "{what}: {error:?}");
        let error = embedded.apply("t", &next, &options).await.unwrap_err();
        assert_eq!(error.code(), Code::Quarantined, "{what}: {error:?}");
    }
}
