//! The changes of a range of versions, and a table as inserts.
//!
//! - [`FeedBounds::resolve`]: which versions a reader's bounds ask for, or why none (R-F1 to R-F4, R-F7).
//! - [`changes`]: the rows of those versions. Before the first row, every version of the range is known
//!   to be there and to have a feed (R-F5, R-F6). Change files win; else rows are inferred from added
//!   and removed files and from deletion vectors (R-C8); tables of mode `inferred` have their
//!   pre- and post-images paired here (R-C9).
//! - [`inserts`]: the table at a version, for streams that start with it (R-F9).

mod epoch;
mod pair;
mod plan;
mod range;
mod rows;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::Stream;
use tidegate_change::{Error, Result, TableVersion, types};

pub use range::{FeedBounds, VersionRange};

use crate::cdc::CHANGE_TYPE;
use crate::log::{DeltaLog, TableSnapshot};
use crate::schema::TableSchema;
use crate::table::TableRoot;

use epoch::Epochs;
use rows::VersionChanges;

/// Column of the commit's version.
pub const COMMIT_VERSION: &str = "_commit_version";
/// Column of the commit's time.
pub const COMMIT_TIMESTAMP: &str = "_commit_timestamp";

/// Deleted rows that pairing holds where the caller does not say.
const PAIRED_ROWS_MAX: u64 = 256 << 10;

/// The columns of a feed: the table's, and those that say what happened when.
#[must_use]
pub fn feed_schema(table: &TableSchema) -> SchemaRef {
    let mut fields: Vec<Arc<Field>> = table.arrow().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(CHANGE_TYPE, DataType::Utf8, false)));
    fields.push(Arc::new(Field::new(COMMIT_VERSION, DataType::Int64, false)));
    fields.push(Arc::new(Field::new(
        COMMIT_TIMESTAMP,
        types::timestamp_utc(),
        false,
    )));
    Arc::new(Schema::new(fields))
}

/// What every version of a feed is read with.
#[derive(Clone, Debug)]
pub(crate) struct FeedReader {
    root: TableRoot,
    schema: TableSchema,
    output: SchemaRef,
    paired_rows_max: u64,
}

/// The rows of a feed, version by version, batch by batch.
#[derive(Debug)]
pub struct FeedStream {
    reader: FeedReader,
    log: DeltaLog,
    epochs: Epochs,
    next: TableVersion,
    last: TableVersion,
    current: Option<VersionChanges>,
}

/// The changes of versions `from..=to`, in the schema of the latest version (R-F11).
///
/// # Errors
/// `EXPIRED` when a version is gone, `NOT_RECORDED` naming the first version without feed,
/// `UNSUPPORTED` when a column changed in a way that the latest schema cannot hold.
pub async fn changes(
    log: &DeltaLog,
    latest: &TableSnapshot,
    range: VersionRange,
) -> Result<FeedStream> {
    let epochs = Epochs::of_range(log, latest, range).await?;
    Ok(FeedStream {
        reader: FeedReader::new(log, latest),
        log: log.clone(),
        epochs,
        next: range.first,
        last: range.last,
        current: None,
    })
}

/// The table at a version as inserts of that version.
///
/// # Errors
/// `CORRUPT` when the snapshot's commit has no time.
pub fn inserts(log: &DeltaLog, snapshot: &TableSnapshot) -> Result<FeedStream> {
    let version = snapshot.version;
    let time = snapshot.in_commit_timestamp_ms;
    let time = time.ok_or_else(|| Error::corrupt(format!("version {version}: no commit time")))?;
    let units = snapshot
        .files
        .iter()
        .map(|add| plan::Unit::inserts(add.as_ref().clone()))
        .collect();
    Ok(FeedStream {
        reader: FeedReader::new(log, snapshot),
        log: log.clone(),
        epochs: Epochs::default(),
        next: version.next(),
        last: version,
        current: Some(VersionChanges::plain(version, time, units)),
    })
}

impl FeedReader {
    fn new(log: &DeltaLog, latest: &TableSnapshot) -> Self {
        let schema = latest.schema().clone();
        Self {
            root: log.root().clone(),
            output: feed_schema(&schema),
            schema,
            paired_rows_max: PAIRED_ROWS_MAX,
        }
    }
}

impl FeedStream {
    /// The columns of the rows.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.reader.output
    }

    /// The same feed with at most so many deleted rows in memory while images are paired; a commit of more
    /// is read several times.
    #[must_use]
    pub fn with_paired_rows_max(mut self, rows: u64) -> Self {
        self.reader.paired_rows_max = rows;
        self
    }

    /// The next rows; None behind the last version. Batches are never empty and never cross versions.
    ///
    /// # Errors
    /// `EXPIRED` when a file is gone, `CORRUPT` when one is damaged.
    pub async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(batch) = current.next_batch(&self.reader).await? {
                    return Ok(Some(batch));
                }
                self.current = None;
            }
            if self.next > self.last {
                return Ok(None);
            }
            let commit = self.log.read_commit(self.next).await?;
            let epoch = self.epochs.at(self.next);
            self.current = Some(VersionChanges::of_commit(&self.reader, &commit, epoch).await?);
            self.next = self.next.next();
        }
    }

    /// The rows as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Result<RecordBatch>> + Send {
        futures::stream::try_unfold(self, |mut stream| async move {
            Ok(stream.next_batch().await?.map(|batch| (batch, stream)))
        })
    }
}
