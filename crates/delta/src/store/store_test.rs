//! The local store: outcomes of names, steps in order, faults at each.

use std::io;
use std::sync::{Arc, Mutex};

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use tidegate_change::{Code, Random};

use super::*;
use crate::error::storage;

/// Notes the steps, and fails the one with a number.
#[derive(Debug, Default)]
struct Recorder {
    steps: Mutex<Vec<StepKind>>,
    fail_at: Option<usize>,
    after: bool,
}

impl Recorder {
    fn failing(at: usize, after: bool) -> Arc<Self> {
        Arc::new(Self {
            fail_at: Some(at),
            after,
            ..Self::default()
        })
    }

    fn outcome(&self, at: usize, after: bool) -> io::Result<()> {
        if self.fail_at == Some(at) && self.after == after {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl StepHook for Recorder {
    fn before(&self, step: &Step<'_>) -> io::Result<()> {
        let mut steps = self.steps.lock().unwrap();
        steps.push(step.kind);
        self.outcome(steps.len() - 1, false)
    }

    fn after(&self, _step: &Step<'_>) -> io::Result<()> {
        let at = self.steps.lock().unwrap().len() - 1;
        self.outcome(at, true)
    }
}

#[derive(Debug)]
struct Fixed;

impl Random for Fixed {
    fn next_u64(&self) -> u64 {
        7
    }
}

async fn create(store: &LocalStore, name: &str, text: &str) -> Result<(), Error> {
    let payload = PutPayload::from(text.to_owned());
    store
        .put_opts(&Path::from(name), payload, PutMode::Create.into())
        .await
        .map(|_| ())
}

async fn read(store: &LocalStore, name: &str) -> Option<String> {
    let bytes = store
        .get(&Path::from(name))
        .await
        .ok()?
        .bytes()
        .await
        .ok()?;
    String::from_utf8(bytes.to_vec()).ok()
}

async fn names(store: &LocalStore) -> Vec<String> {
    let objects: Vec<_> = store.list(None).try_collect().await.unwrap();
    objects
        .into_iter()
        .map(|object| object.location.to_string())
        .collect()
}

#[tokio::test]
async fn a_create_takes_a_name_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::new(directory.path());
    create(&store, "a/b/c", "one").await.unwrap();
    let again = create(&store, "a/b/c", "two").await;
    assert!(
        matches!(again, Err(Error::AlreadyExists { .. })),
        "{again:?}"
    );
    assert_eq!(read(&store, "a/b/c").await.as_deref(), Some("one"));
    store
        .put(&Path::from("a/b/c"), "three".into())
        .await
        .unwrap();
    assert_eq!(read(&store, "a/b/c").await.as_deref(), Some("three"));
    assert_eq!(names(&store).await, ["a/b/c"]);
    assert_eq!(store.remove_temporaries(&Path::default()).unwrap(), 0);
}

#[tokio::test]
async fn bytes_are_durable_before_the_name_is_there() {
    use StepKind::{Append, CreateDirectory, CreateTemporary, Delete, Link, Sync, SyncDirectory};
    let directory = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::default());
    let recorder_hook: Arc<dyn StepHook> = Arc::<Recorder>::clone(&recorder);
    let store = LocalStore::new(directory.path()).with_hook(Some(recorder_hook));
    create(&store, "log/0", "x").await.unwrap();
    let steps = recorder.steps.lock().unwrap().clone();
    // The first try finds no directory.
    let expected = [
        CreateTemporary,
        CreateDirectory,
        SyncDirectory,
        CreateTemporary,
        Append,
        Sync,
        Link,
        Delete,
        SyncDirectory,
    ];
    assert_eq!(steps, expected);
}

#[tokio::test]
async fn a_fault_at_any_step_leaves_all_or_nothing_and_says_why() {
    for after in [false, true] {
        // The first try makes nothing: there is no step to come after.
        for at in usize::from(after)..9 {
            let directory = tempfile::tempdir().unwrap();
            let recorder = Recorder::failing(at, after);
            let store = LocalStore::new(directory.path()).with_hook(Some(recorder));
            let error = create(&store, "log/0", "x").await.unwrap_err();
            assert_eq!(
                storage("log/0", error).code(),
                Code::StorageFull,
                "step {at}"
            );
            let plain = LocalStore::new(directory.path());
            assert!(
                read(&plain, "log/0").await.is_none_or(|text| text == "x"),
                "step {at}"
            );
            plain.remove_temporaries(&Path::default()).unwrap();
            let left = names(&plain).await;
            assert!(left.is_empty() || left == ["log/0"], "step {at}: {left:?}");
        }
    }
}

#[tokio::test]
async fn what_a_crash_leaves_is_hidden_and_removable() {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::new(directory.path());
    create(&store, "p/data", "x").await.unwrap();
    std::fs::write(directory.path().join("p/.tidegate-tmp-00-1"), "half").unwrap();
    std::fs::write(directory.path().join("p/.other"), "foreign").unwrap();
    assert_eq!(names(&store).await, ["p/.other", "p/data"]);
    assert_eq!(store.remove_temporaries(&Path::from("p")).unwrap(), 1);
    assert_eq!(
        std::fs::read_dir(directory.path().join("p"))
            .unwrap()
            .count(),
        2
    );
}

#[tokio::test]
async fn large_files_come_in_parts() {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::new(directory.path());
    let path = Path::from("d/large");
    let mut upload = store.put_multipart(&path).await.unwrap();
    let part = |byte: u8| PutPayload::from(vec![byte; 5 << 20]);
    let (one, two) = (upload.put_part(part(1)), upload.put_part(part(2)));
    two.await.unwrap();
    one.await.unwrap();
    assert!(store.head(&path).await.is_err());
    upload.complete().await.unwrap();
    assert_eq!(store.head(&path).await.unwrap().size, 10 << 20);
    let around = store
        .get_range(&path, (5 << 20) - 1..(5 << 20) + 1)
        .await
        .unwrap();
    assert_eq!(around.as_ref(), [1, 2]);
    let ranges = store
        .get_ranges(&path, &[0..1, (10 << 20) - 1..10 << 20])
        .await
        .unwrap();
    assert_eq!(ranges.concat(), [1, 2]);
    let mut dropped = store.put_multipart(&Path::from("d/dropped")).await.unwrap();
    dropped.put_part(part(3)).await.unwrap();
    drop(dropped);
    assert_eq!(
        std::fs::read_dir(directory.path().join("d"))
            .unwrap()
            .count(),
        1
    );
}

#[tokio::test]
async fn listing_starts_behind_an_offset_and_stops_at_directories() {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::new(directory.path());
    for name in ["l/1.json", "l/2.json", "l/sub/3", "m"] {
        create(&store, name, "x").await.unwrap();
    }
    let prefix = Path::from("l");
    let behind: Vec<_> = store
        .list_with_offset(Some(&prefix), &Path::from("l/1.json"))
        .map_ok(|object| object.location.to_string())
        .try_collect()
        .await
        .unwrap();
    assert_eq!(behind, ["l/2.json", "l/sub/3"]);
    let level = store.list_with_delimiter(Some(&prefix)).await.unwrap();
    assert_eq!(level.common_prefixes, [Path::from("l/sub")]);
    assert_eq!(level.objects.len(), 2);
    assert!(
        store
            .list(Some(&Path::from("none")))
            .try_collect::<Vec<_>>()
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn copies_and_renames_keep_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::new(directory.path());
    create(&store, "a", "x").await.unwrap();
    store
        .copy(&Path::from("a"), &Path::from("b/c"))
        .await
        .unwrap();
    assert!(
        store
            .copy_if_not_exists(&Path::from("a"), &Path::from("b/c"))
            .await
            .is_err()
    );
    store
        .rename(&Path::from("a"), &Path::from("d"))
        .await
        .unwrap();
    assert_eq!(names(&store).await, ["b/c", "d"]);
    store.delete(&Path::from("d")).await.unwrap();
    assert!(matches!(
        store.delete(&Path::from("d")).await,
        Err(Error::NotFound { .. })
    ));
}

#[tokio::test]
async fn concurrent_creates_have_one_winner() {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::new(directory.path());
    probe(&store, &Path::from("t"), &Fixed).await.unwrap();
    assert!(names(&store).await.is_empty());
    let threads: Vec<_> = (0..16)
        .map(|n: i32| {
            let store = store.clone();
            std::thread::spawn(move || {
                let text = n.to_string();
                futures::executor::block_on(create(&store, "race", &text)).is_ok()
            })
        })
        .collect();
    let winners = threads.into_iter().map(|t| t.join().unwrap());
    assert_eq!(winners.filter(|won| *won).count(), 1);
}

/// A store that ignores the mode of puts, as some do.
#[tokio::test]
async fn a_store_that_overwrites_on_create_is_refused() {
    let store = blind::BlindStore(object_store::memory::InMemory::new());
    let refused = probe(&store, &Path::from("t"), &Fixed).await.unwrap_err();
    assert_eq!(refused.code(), Code::UnsafeStore);
}

mod blind {
    use async_trait::async_trait;
    use futures::stream::BoxStream;
    use object_store::memory::InMemory;
    use object_store::path::Path;
    use object_store::{
        CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
        PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    };

    #[derive(Debug)]
    pub(super) struct BlindStore(pub(super) InMemory);

    impl std::fmt::Display for BlindStore {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("blind")
        }
    }

    #[async_trait]
    impl ObjectStore for BlindStore {
        async fn put_opts(
            &self,
            location: &Path,
            payload: PutPayload,
            _opts: PutOptions,
        ) -> Result<PutResult> {
            self.0
                .put_opts(location, payload, PutOptions::default())
                .await
        }

        async fn put_multipart_opts(
            &self,
            location: &Path,
            opts: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.0.put_multipart_opts(location, opts).await
        }

        async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
            self.0.get_opts(location, options).await
        }

        fn delete_stream(
            &self,
            locations: BoxStream<'static, Result<Path>>,
        ) -> BoxStream<'static, Result<Path>> {
            self.0.delete_stream(locations)
        }

        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
            self.0.list(prefix)
        }

        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
            self.0.list_with_delimiter(prefix).await
        }

        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
            self.0.copy_opts(from, to, options).await
        }
    }
}
