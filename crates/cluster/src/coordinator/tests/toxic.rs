//! Stores whose answers are lost, late or wrong.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::support::{Lake, check};
use crate::coordinator::CoordinatorOptions;

/// What happens to creates of commits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Toxin {
    /// Done, but the answer is lost.
    AnswerLost,
    /// Done, but answered as a conflict: a retry inside the client met its own success.
    OwnConflict,
    /// Not done, answered as a conflict.
    FalseConflict,
    /// Not done, failed.
    Failed,
}

#[derive(Debug)]
struct ToxicStore {
    inner: InMemory,
    toxin: Toxin,
    /// Doses left.
    doses: AtomicU64,
    hits: AtomicU64,
}

impl fmt::Display for ToxicStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToxicStore")
    }
}

fn lost() -> Error {
    Error::Generic {
        store: "toxic",
        source: "the answer is lost".into(),
    }
}

fn exists(location: &Path) -> Error {
    Error::AlreadyExists {
        path: location.to_string(),
        source: "exists".into(),
    }
}

#[async_trait]
impl ObjectStore for ToxicStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let commit = opts.mode == PutMode::Create && location.as_ref().contains("_delta_log");
        let take = |doses: u64| doses.checked_sub(1);
        if !commit
            || self
                .doses
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_err()
        {
            return self.inner.put_opts(location, payload, opts).await;
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        match self.toxin {
            Toxin::AnswerLost => {
                self.inner.put_opts(location, payload, opts).await?;
                Err(lost())
            }
            Toxin::OwnConflict => {
                self.inner.put_opts(location, payload, opts).await?;
                Err(exists(location))
            }
            Toxin::FalseConflict => Err(exists(location)),
            Toxin::Failed => Err(lost()),
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

async fn poisoned(toxin: Toxin, doses: u64) -> (Lake, Arc<ToxicStore>) {
    let toxic = Arc::new(ToxicStore {
        inner: InMemory::new(),
        toxin,
        doses: AtomicU64::new(0),
        hits: AtomicU64::new(0),
    });
    let lake = Lake::new(Arc::clone(&toxic) as _, CoordinatorOptions::default()).await;
    toxic.doses.store(doses, Ordering::Relaxed);
    (lake, toxic)
}

#[tokio::test]
async fn ambiguous_answers_are_settled_by_the_slot() {
    for toxin in [
        Toxin::AnswerLost,
        Toxin::OwnConflict,
        Toxin::FalseConflict,
        Toxin::Failed,
    ] {
        let (lake, toxic) = poisoned(toxin, 2).await;
        let mut versions = Vec::new();
        for id in ["b1", "b2", "b3"] {
            versions.push(lake.submit(id, id).await.unwrap().version.0);
        }
        assert_eq!(versions, [1, 2, 3], "{toxin:?}");
        assert_eq!(check(&lake.store).await.len(), 3);
        assert_eq!(toxic.hits.load(Ordering::Relaxed), 2);
    }
}

#[tokio::test]
async fn a_store_that_is_down_leaves_the_batch_prepared() {
    let (lake, toxic) = poisoned(Toxin::Failed, 6).await;
    lake.submit("b1", "b1").await.unwrap_err();
    let state = lake.member.state();
    let table = state.tables.values().next().unwrap();
    assert!(
        table.pending.is_some(),
        "a prepared batch is never given up for an error"
    );
    toxic.doses.store(0, Ordering::Relaxed);
    assert_eq!(lake.submit("b1", "b1").await.unwrap().version.0, 1);
    assert_eq!(check(&lake.store).await.len(), 1);
}
