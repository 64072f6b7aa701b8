//! A store whose answers have the length that was asked for.
//!
//! A body that ends early, or a range that comes back shorter, is a failure here and never fewer rows.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    Result,
};

const STORE: &str = "CheckedStore";

/// Passes everything on, and counts the bytes that come back.
#[derive(Clone, Debug)]
pub struct CheckedStore {
    inner: Arc<dyn ObjectStore>,
}

impl CheckedStore {
    /// The same store with its answers checked.
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner }
    }
}

impl fmt::Display for CheckedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for CheckedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (asked, is_head) = (options.range.clone(), options.head);
        let result = self.inner.get_opts(location, options).await?;
        let size = result.meta.size;
        let expected = match &asked {
            None => 0..size,
            Some(range) => range.as_range(size).map_err(|source| Error::Generic {
                store: STORE,
                source: Box::new(source),
            })?,
        };
        if is_head {
            return Ok(result);
        }
        if result.range != expected {
            return Err(short(location, expected.end - expected.start));
        }
        let bytes = expected.end - expected.start;
        let GetResult {
            payload,
            meta,
            range,
            attributes,
        } = result;
        let payload = match payload {
            GetResultPayload::Stream(body) => {
                GetResultPayload::Stream(counted(body, location.clone(), bytes))
            }
            // A file tells its end itself.
            file => file,
        };
        Ok(GetResult {
            payload,
            meta,
            range,
            attributes,
        })
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

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}

/// The same body, which fails at its end unless it had that many bytes.
fn counted(
    body: BoxStream<'static, Result<Bytes>>,
    location: Path,
    bytes: u64,
) -> BoxStream<'static, Result<Bytes>> {
    let start = (body, bytes, location);
    stream::try_unfold(start, |(mut body, left, location)| async move {
        match body.next().await {
            None if left == 0 => Ok(None),
            None => Err(short(&location, left)),
            Some(chunk) => {
                let chunk = chunk?;
                let length = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
                let left = left.checked_sub(length);
                let left = left.ok_or_else(|| short(&location, 0))?;
                Ok(Some((chunk, (body, left, location))))
            }
        }
    })
    .boxed()
}

fn short(location: &Path, missing: u64) -> Error {
    Error::Generic {
        store: STORE,
        source: format!(
            "{location}: the answer has another length than asked for ({missing} bytes are missing)"
        )
        .into(),
    }
}
