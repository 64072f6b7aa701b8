//! A file written as its bytes come: small ones by one put, large ones in parts.

use bytes::Bytes;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, PutMode, PutPayload};
use tidegate_change::Result;

use crate::error::storage;
use crate::table::TableRoot;

/// Bytes of a part; object stores take at least 5 MiB and at most 10,000 parts.
const PART_BYTES: usize = 8 << 20;

/// A file on its way to the store. Memory holds one part. Dropped unfinished, it leaves no file.
#[derive(Debug)]
pub(crate) struct Upload {
    root: TableRoot,
    location: Path,
    buffer: Vec<u8>,
    multipart: Option<Box<dyn MultipartUpload>>,
    bytes: u64,
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
        if let Some(mut multipart) = self.multipart.take() {
            multipart
                .complete()
                .await
                .map_err(|e| storage(&self.location, e))?;
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
