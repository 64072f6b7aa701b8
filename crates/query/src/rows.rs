//! A stream of rows with its schema.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::stream::{BoxStream, Stream, StreamExt, TryStreamExt};
use tidegate_change::{Error, Result};

use crate::columns;

/// Rows that are read as they are asked for. Dropping them stops the reading.
pub struct Rows {
    schema: SchemaRef,
    stream: BoxStream<'static, Result<RecordBatch>>,
}

impl Rows {
    /// Rows of a stream whose batches have that schema.
    pub fn new(
        schema: SchemaRef,
        stream: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
    ) -> Self {
        Self {
            schema,
            stream: stream.boxed(),
        }
    }

    /// No rows.
    #[must_use]
    pub fn empty(schema: SchemaRef) -> Self {
        Self::new(schema, futures::stream::empty())
    }

    /// The schema of all batches.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next batch with rows; None at the end.
    ///
    /// # Errors
    /// What reading says.
    pub async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(batch) = self.stream.try_next().await? {
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// The rows one after the other, as a stream.
    #[must_use]
    pub fn into_stream(self) -> BoxStream<'static, Result<RecordBatch>> {
        self.stream
    }

    /// These rows and then others of the same schema.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        let schema = Arc::clone(&self.schema);
        Self::new(schema, self.stream.chain(next.stream))
    }

    /// These columns of the rows, in that order.
    ///
    /// # Errors
    /// `UNKNOWN_COLUMN` for a name that is not there.
    pub fn select(self, names: &[String]) -> Result<Self> {
        let positions = columns::positions(&self.schema, names)?;
        let internal = |e| Error::internal("rows lost a column").with_source(e);
        let schema = Arc::new(self.schema.project(&positions).map_err(internal)?);
        let stream = self
            .stream
            .and_then(move |batch| std::future::ready(batch.project(&positions).map_err(internal)));
        Ok(Self::new(schema, stream))
    }

    /// The first rows, as many; reading stops there.
    #[must_use]
    pub fn limited(self, limit: Option<u64>) -> Self {
        let Some(limit) = limit else { return self };
        let state = (self.stream, limit);
        let stream = futures::stream::try_unfold(state, |(mut stream, left)| async move {
            if left == 0 {
                return Ok(None);
            }
            let Some(batch) = stream.try_next().await? else {
                return Ok(None);
            };
            // A limit beyond the address space is none for one batch.
            let rows = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(batch.num_rows());
            let left = left.saturating_sub(u64::try_from(rows).unwrap_or(u64::MAX));
            Ok(Some((batch.slice(0, rows), (stream, left))))
        });
        Self::new(self.schema, stream)
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}
