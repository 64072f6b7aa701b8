//! The bytes of a Parquet file from the store, as the Parquet reader asks for them.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::Result;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

/// Bytes read at the end of a file in the hope that they hold all metadata.
const FOOTER_BYTES: usize = 64 << 10;

/// A Parquet file in a store.
#[derive(Clone, Debug)]
pub(crate) struct ObjectReader {
    store: Arc<dyn ObjectStore>,
    location: Path,
    size: Option<u64>,
}

impl ObjectReader {
    /// The file at a location; one of unknown size costs one more request.
    pub(crate) fn new(store: Arc<dyn ObjectStore>, location: Path, size: Option<u64>) -> Self {
        Self {
            store,
            location,
            size: size.filter(|size| *size > 0),
        }
    }
}

impl AsyncFileReader for ObjectReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        async move { Ok(self.store.get_range(&self.location, range).await?) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        async move { Ok(self.store.get_ranges(&self.location, &ranges).await?) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        async move {
            let size = match self.size {
                Some(size) => size,
                None => self.store.head(&self.location).await?.size,
            };
            let mut reader = ParquetMetaDataReader::new().with_prefetch_hint(Some(FOOTER_BYTES));
            if let Some(options) = options {
                reader = reader
                    .with_metadata_options(Some(options.metadata_options().clone()))
                    .with_column_index_policy(options.column_index_policy())
                    .with_offset_index_policy(options.offset_index_policy());
            }
            Ok(Arc::new(reader.load_and_finish(self, size).await?))
        }
        .boxed()
    }
}
