//! A file written as its bytes come: small ones by one put, large ones in parts.

use std::task::{Context, Waker};

use bytes::Bytes;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, PutMode, PutPayload};
use tidegate_change::Result;

use crate::error::storage;
use crate::table::TableRoot;

/// Bytes of a part; object stores take at least 5 MiB and at most 10,000 parts.
const PART_BYTES: usize = 8 << 20;

/// A file on its way to the store. Memory holds one part. Dropped unfinished, it leaves no file, and the store
/// is told to forget its parts; what a process that was killed leaves there, a rule of the bucket takes.
#[derive(Debug)]
pub(crate) struct Upload {
    root: TableRoot,
    location: Path,
    buffer: Vec<u8>,
    multipart: Option<Box<dyn MultipartUpload>>,
    bytes: u64,
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(mut multipart) = self.multipart.take() else {
            return;
        };
        // Without a runtime there is nobody to tell; a local file goes with the value.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let mut aborting = Box::pin(async move { multipart.abort().await });
        let mut context = Context::from_waker(Waker::noop());
        if aborting.as_mut().poll(&mut context).is_pending() {
            runtime.spawn(aborting);
        }
    }
}

impl Upload {
    pub(crate) fn new(root: &TableRoot, relative: &str) -> Result<Self> {
        let location = root.location(relative)?;
        Ok(Self {
            root: root.clone(),
            location,
            buffer: Vec::new(),
            multipart: None,
            bytes: 0,
        })
    }

    /// Takes the bytes out of an encoder's buffer and sends them once they fill a part.
    pub(crate) async fn take(&mut self, buffer: &mut Vec<u8>) -> Result<()> {
        self.bytes += u64::try_from(buffer.len()).unwrap_or_default();
        if self.buffer.is_empty() {
            self.buffer = std::mem::take(buffer);
        } else {
            self.buffer.append(buffer);
        }
        if self.buffer.len() >= PART_BYTES {
            self.send().await
        } else {
            Ok(())
        }
    }

    /// Ends the file; returns its bytes.
    pub(crate) async fn finish(mut self) -> Result<u64> {
        if self.multipart.is_none() {
            let payload = PutPayload::from(Bytes::from(std::mem::take(&mut self.buffer)));
            let store = self.root.store();
            let put = store
                .put_opts(&self.location, payload, PutMode::Overwrite.into())
                .await;
            put.map_err(|e| storage(&self.location, e))?;
            return Ok(self.bytes);
        }
        if !self.buffer.is_empty() {
            self.send().await?;
        }
        if let Some(multipart) = &mut self.multipart {
            let completed = multipart.complete().await;
            completed.map_err(|e| storage(&self.location, e))?;
            self.multipart = None;
        }
        Ok(self.bytes)
    }

    async fn send(&mut self) -> Result<()> {
        let failed = |e| storage(&self.location, e);
        let part = PutPayload::from(Bytes::from(std::mem::take(&mut self.buffer)));
        let multipart = match &mut self.multipart {
            Some(multipart) => multipart,
            slot => {
                let store = self.root.store();
                let made = store
                    .put_multipart_opts(&self.location, Default::default())
                    .await;
                slot.insert(made.map_err(failed)?)
            }
        };
        multipart.put_part(part).await.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use async_trait::async_trait;
    use futures::stream::BoxStream;
    use object_store::memory::InMemory;
    use object_store::{
        CopyOptions, GetOptions, GetResult, ListResult, ObjectMeta, PutMultipartOptions,
        PutOptions, PutResult, Result as StoreResult, UploadPart,
    };

    use super::*;

    /// Takes one part of each upload and refuses the next.
    #[derive(Debug, Default)]
    struct RefusingStore {
        inner: InMemory,
        aborted: Arc<AtomicU64>,
    }

    #[derive(Debug)]
    struct RefusingUpload {
        parts: u64,
        aborted: Arc<AtomicU64>,
    }

    impl std::fmt::Display for RefusingStore {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("RefusingStore")
        }
    }

    fn refused() -> object_store::Error {
        object_store::Error::Generic {
            store: "refusing",
            source: "no more".into(),
        }
    }

    #[async_trait]
    impl MultipartUpload for RefusingUpload {
        fn put_part(&mut self, _: PutPayload) -> UploadPart {
            self.parts += 1;
            let is_taken = self.parts == 1;
            Box::pin(async move { if is_taken { Ok(()) } else { Err(refused()) } })
        }

        async fn complete(&mut self) -> StoreResult<PutResult> {
            Err(refused())
        }

        async fn abort(&mut self) -> StoreResult<()> {
            // An answer takes a while.
            tokio::task::yield_now().await;
            self.aborted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    #[async_trait]
    impl ObjectStore for RefusingStore {
        async fn put_opts(
            &self,
            location: &Path,
            payload: PutPayload,
            options: PutOptions,
        ) -> StoreResult<PutResult> {
            self.inner.put_opts(location, payload, options).await
        }

        async fn put_multipart_opts(
            &self,
            _: &Path,
            _: PutMultipartOptions,
        ) -> StoreResult<Box<dyn MultipartUpload>> {
            Ok(Box::new(RefusingUpload {
                parts: 0,
                aborted: Arc::clone(&self.aborted),
            }))
        }

        async fn get_opts(&self, location: &Path, options: GetOptions) -> StoreResult<GetResult> {
            self.inner.get_opts(location, options).await
        }

        fn delete_stream(
            &self,
            locations: BoxStream<'static, StoreResult<Path>>,
        ) -> BoxStream<'static, StoreResult<Path>> {
            self.inner.delete_stream(locations)
        }

        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
            self.inner.list(prefix)
        }

        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
            self.inner.list_with_delimiter(prefix).await
        }

        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
            self.inner.copy_opts(from, to, options).await
        }
    }

    /// Fault 50, as far as the process lives.
    #[tokio::test]
    async fn an_upload_that_fails_is_taken_back() {
        let store = Arc::new(RefusingStore::default());
        let aborted = Arc::clone(&store.aborted);
        let root = TableRoot::new(store, Path::from("t"));
        // Given up after a part, refused a part, refused its end.
        for (parts, ends) in [(1, false), (2, false), (1, true)] {
            let before = aborted.load(Ordering::Relaxed);
            let mut upload = Upload::new(&root, "a.parquet").unwrap();
            for part in 1..=parts {
                let taken = upload.take(&mut vec![7; PART_BYTES]).await;
                assert_eq!(taken.is_ok(), part == 1);
            }
            match ends {
                true => assert!(upload.finish().await.is_err()),
                false => drop(upload),
            }
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            assert_eq!(aborted.load(Ordering::Relaxed), before + 1);
        }
    }
}
