//! The rows of one version's changes.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema};
use tidegate_change::{Code, Error, Result, TableVersion};

use super::FeedReader;
use super::epoch::Epoch;
use super::pair::Pairing;
use super::plan::{Plan, Unit, UnitKind};
use crate::actions::{AddFile, CdcFile};
use crate::cdc::{CHANGE_TYPE, change_type};
use crate::data::{FileStream, ReadOptions, RowSelection, read_file};
use crate::dv::DeletionVector;
use crate::error;
use crate::log::TableCommit;

/// The changes of one version, as far as they are not read yet.
#[derive(Debug)]
pub(super) struct VersionChanges {
    pub(super) stamp: Stamp,
    source: Source,
}

/// When a change was committed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    version: TableVersion,
    time_ms: i64,
}

#[derive(Debug)]
enum Source {
    /// Change files.
    Written(VecDeque<CdcFile>, Option<FileStream>),
    /// Rows of files, each with what it met.
    Plain(Units),
    /// Rows of files, paired by identity.
    Paired(Box<Pairing>),
}

/// The rows of units, one unit after the other.
#[derive(Debug, Default)]
pub(super) struct Units {
    rest: VecDeque<Unit>,
    open: Option<(FileStream, UnitKind)>,
}

impl VersionChanges {
    /// Rows that need no pairing.
    pub(super) fn plain(version: TableVersion, time_ms: i64, units: VecDeque<Unit>) -> Self {
        let source = Source::Plain(Units {
            rest: units,
            open: None,
        });
        Self {
            stamp: Stamp { version, time_ms },
            source,
        }
    }

    /// The changes of a commit.
    pub(super) async fn of_commit(
        reader: &FeedReader,
        commit: &TableCommit,
        epoch: Epoch,
    ) -> Result<Self> {
        let version = commit.version;
        let time = commit
            .info()
            .and_then(|info| info.in_commit_timestamp.or(info.timestamp));
        let lacks = || Error::corrupt(format!("version {version}: its commit has no time"));
        let stamp = Stamp {
            version,
            time_ms: time.ok_or_else(lacks)?,
        };
        let plan = Plan::of(&reader.root, commit)
            .await
            .map_err(|e| expired(version, e))?;
        let source = match plan {
            Plan::Written(files) => Source::Written(files.into(), None),
            Plan::Inferred(units) => {
                let has = |kind| units.iter().any(|unit: &Unit| unit.kind == kind);
                let is_mixed = has(UnitKind::Insert) && has(UnitKind::Delete);
                if is_mixed && !epoch.identity.is_empty() {
                    Source::Paired(Box::new(Pairing::new(
                        epoch.identity,
                        units,
                        reader.paired_rows_max,
                    )))
                } else {
                    Source::Plain(Units {
                        rest: units.into(),
                        open: None,
                    })
                }
            }
        };
        Ok(Self { stamp, source })
    }

    pub(super) async fn next_batch(&mut self, reader: &FeedReader) -> Result<Option<RecordBatch>> {
        let version = self.stamp.version;
        self.read(reader).await.map_err(|e| expired(version, e))
    }

    async fn read(&mut self, reader: &FeedReader) -> Result<Option<RecordBatch>> {
        match &mut self.source {
            Source::Written(files, open) => loop {
                if let Some(stream) = open {
                    if let Some(batch) = stream.next_batch().await? {
                        return self.stamp.written(reader, &batch.rows).map(Some);
                    }
                    *open = None;
                }
                let Some(file) = files.pop_front() else {
                    return Ok(None);
                };
                *open = Some(open_change_file(reader, &file).await?);
            },
            Source::Plain(units) => match units.next(reader).await? {
                None => Ok(None),
                Some((rows, kind)) => {
                    let types = vec![kind.change_type(); rows.num_rows()];
                    self.stamp.rows(reader, &rows, types).map(Some)
                }
            },
            Source::Paired(pairing) => pairing.next_batch(reader, self.stamp).await,
        }
    }
}

impl Units {
    pub(super) fn new(units: impl IntoIterator<Item = Unit>) -> Self {
        Self {
            rest: units.into_iter().collect(),
            open: None,
        }
    }

    /// The next rows of the table's columns, with what they met.
    pub(super) async fn next(
        &mut self,
        reader: &FeedReader,
    ) -> Result<Option<(RecordBatch, UnitKind)>> {
        loop {
            if let Some((stream, kind)) = &mut self.open {
                if let Some(batch) = stream.next_batch().await? {
                    return Ok(Some((batch.rows, *kind)));
                }
                self.open = None;
            }
            let Some(unit) = self.rest.pop_front() else {
                return Ok(None);
            };
            let kind = unit.kind;
            self.open = Some((open_unit(reader, unit).await?, kind));
        }
    }
}

impl UnitKind {
    pub(super) fn change_type(self) -> &'static str {
        match self {
            Self::Insert => change_type::INSERT,
            Self::Delete => change_type::DELETE,
        }
    }
}

impl Stamp {
    /// Rows of the table's columns with their change types.
    pub(super) fn rows(
        self,
        reader: &FeedReader,
        rows: &RecordBatch,
        types: Vec<&'static str>,
    ) -> Result<RecordBatch> {
        let mut columns = rows.columns().to_vec();
        columns.push(Arc::new(StringArray::from(types)));
        self.finish(reader, columns, rows.num_rows())
    }

    /// Rows of a change file: the table's columns and the change type.
    fn written(self, reader: &FeedReader, rows: &RecordBatch) -> Result<RecordBatch> {
        self.finish(reader, rows.columns().to_vec(), rows.num_rows())
    }

    fn finish(
        self,
        reader: &FeedReader,
        mut columns: Vec<ArrayRef>,
        rows: usize,
    ) -> Result<RecordBatch> {
        let version = i64::try_from(self.version.0).unwrap_or(i64::MAX);
        let micros = self.time_ms.saturating_mul(1000);
        columns.push(Arc::new(Int64Array::from(vec![version; rows])));
        let times = TimestampMicrosecondArray::from(vec![micros; rows]);
        columns.push(Arc::new(times.with_timezone("UTC")));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&reader.output), columns, &options)
            .map_err(|e| error::arrow_read(format!("version {}", self.version), e))
    }
}

async fn open_unit(reader: &FeedReader, unit: Unit) -> Result<FileStream> {
    let mut options = ReadOptions::live(Arc::clone(reader.schema.arrow()));
    match unit.positions {
        None => read_file(&reader.root, &reader.schema, &unit.file, &options).await,
        Some(positions) => {
            options.rows = RowSelection::Positions(positions);
            options.apply_deletion_vector = false;
            read_file(&reader.root, &reader.schema, &unit.file, &options).await
        }
    }
}

async fn open_change_file(reader: &FeedReader, file: &CdcFile) -> Result<FileStream> {
    let mut fields: Vec<Arc<Field>> = reader.schema.arrow().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(CHANGE_TYPE, DataType::Utf8, true)));
    let options = ReadOptions::live(Arc::new(Schema::new(fields)));
    let add = AddFile {
        path: file.path.clone(),
        partition_values: file.partition_values.clone(),
        size: file.size,
        ..AddFile::default()
    };
    let none = DeletionVector::default();
    FileStream::open(&reader.root, &reader.schema, &add, &options, None, none).await
}

/// A file that is gone was removed by retention: its version can no longer be told (R-F6).
fn expired(version: TableVersion, error: Error) -> Error {
    if error.code() != Code::NotFound {
        return error.context(format!("version {version}"));
    }
    let message = format!("version {version}: a file of its changes is gone");
    Error::new(Code::Expired, message).with_source(error)
}
