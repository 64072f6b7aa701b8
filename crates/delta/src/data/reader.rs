//! Rows of a data file as rows of the table.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, SchemaRef};
use futures::Stream;
use tidegate_change::{Error, Result};

use super::scan::{OpenFile, Scan};
use crate::actions::AddFile;
use crate::dv::{self, DeletionVector};
use crate::error;
use crate::schema::{TableSchema, conform, parse_value, relabel, same_type};
use crate::table::TableRoot;

/// Rows of a batch where the caller does not say.
const BATCH_ROWS: usize = 8192;

/// Which rows of a file are read.
#[derive(Clone, Debug, Default)]
pub enum RowSelection {
    /// All.
    #[default]
    All,
    /// Those at these positions, ascending. Few of them read their pages alone.
    Positions(Vec<u32>),
}

/// What is read of a file.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The columns: the table's by the user's names, and hidden ones. What the file lacks reads NULL,
    /// what it holds in a narrower type is widened.
    pub projection: SchemaRef,
    /// The rows.
    pub rows: RowSelection,
    /// Whether rows that the deletion vector deletes are left out.
    pub apply_deletion_vector: bool,
    /// Rows of a batch at most.
    pub batch_rows: usize,
}

impl ReadOptions {
    /// All live rows of these columns.
    #[must_use]
    pub fn live(projection: SchemaRef) -> Self {
        Self {
            projection,
            rows: RowSelection::All,
            apply_deletion_vector: true,
            batch_rows: BATCH_ROWS,
        }
    }

    /// The rows at these positions, dead or not.
    #[must_use]
    pub fn at(projection: SchemaRef, positions: Vec<u32>) -> Self {
        Self {
            projection,
            rows: RowSelection::Positions(positions),
            apply_deletion_vector: false,
            batch_rows: BATCH_ROWS,
        }
    }
}

/// Rows of a file, with the position of each.
#[derive(Clone, Debug)]
pub struct FileBatch {
    /// The rows, in the order of the file.
    pub rows: RecordBatch,
    /// Their positions.
    pub positions: Vec<u32>,
}

/// Where a projected column comes from.
#[derive(Debug)]
enum Origin {
    /// The place among the columns that are read.
    File(usize),
    /// One value for all rows: the partition's, or NULL.
    Constant(ArrayRef),
}

/// The rows of a file, batch by batch.
#[derive(Debug)]
pub struct FileStream {
    scan: Scan,
    name: String,
    projection: SchemaRef,
    origins: Vec<(Origin, DataType)>,
    dead: DeletionVector,
}

/// Opens a data file and yields its rows as the options say.
///
/// # Errors
/// `NOT_FOUND` when the file or its vector is gone, `CORRUPT` when either is damaged.
pub async fn read_file(
    root: &TableRoot,
    schema: &TableSchema,
    add: &AddFile,
    options: &ReadOptions,
) -> Result<FileStream> {
    let dead = match options.apply_deletion_vector {
        true => dv::of_file(root, add).await?,
        false => DeletionVector::default(),
    };
    let positions = match &options.rows {
        RowSelection::All => None,
        RowSelection::Positions(positions) => {
            let live = positions
                .iter()
                .copied()
                .filter(|position| !dead.contains(u64::from(*position)));
            Some(live.collect::<Vec<u32>>())
        }
    };
    FileStream::open(root, schema, add, options, positions, dead).await
}

impl FileStream {
    /// Opens a file with the rows to read and the dead rows given.
    pub(crate) async fn open(
        root: &TableRoot,
        schema: &TableSchema,
        add: &AddFile,
        options: &ReadOptions,
        positions: Option<Vec<u32>>,
        dead: DeletionVector,
    ) -> Result<Self> {
        let relative = add.relative_path()?;
        let size = u64::try_from(add.size).ok();
        let file = OpenFile::open(root, &relative, size, positions.as_ref().map(Vec::len)).await?;
        let mut columns = Vec::new();
        let mut origins = Vec::with_capacity(options.projection.fields().len());
        for field in options.projection.fields() {
            let origin = origin(
                schema,
                add,
                file.schema(),
                field.name(),
                field.data_type(),
                &mut columns,
            )
            .map_err(|e| e.context(format!("file {relative} column {}", field.name())))?;
            origins.push(origin);
        }
        // The scan yields columns in the file's order, whatever the order of the projection.
        let mut order = columns.clone();
        order.sort_unstable();
        for (origin, _) in &mut origins {
            if let Origin::File(place) = origin {
                let column = columns.get(*place);
                let found = column.and_then(|column| order.binary_search(column).ok());
                *place = found.ok_or_else(|| {
                    Error::internal(format!("file {relative}: a column is not scanned"))
                })?;
            }
        }
        let scan = file.scan(columns, positions, options.batch_rows)?;
        let projection = Arc::clone(&options.projection);
        Ok(Self {
            scan,
            name: format!("file {relative}"),
            projection,
            origins,
            dead,
        })
    }

    /// The next rows; None behind the last. Batches are never empty.
    ///
    /// # Errors
    /// `CORRUPT` when the file is damaged, else what the store says.
    pub async fn next_batch(&mut self) -> Result<Option<FileBatch>> {
        while let Some((batch, positions)) = self.scan.next().await? {
            let (batch, positions) = self.without_dead(batch, positions)?;
            if positions.is_empty() {
                continue;
            }
            let rows = self.assemble(&batch).map_err(|e| e.context(&self.name))?;
            return Ok(Some(FileBatch { rows, positions }));
        }
        Ok(None)
    }

    /// The rows as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Result<FileBatch>> + Send {
        futures::stream::try_unfold(self, |mut stream| async move {
            Ok(stream.next_batch().await?.map(|batch| (batch, stream)))
        })
    }

    /// The rows of all batches as one.
    ///
    /// # Errors
    /// As [`Self::next_batch`].
    pub async fn collect(mut self) -> Result<FileBatch> {
        let (mut batches, mut positions) = (Vec::new(), Vec::new());
        while let Some(batch) = self.next_batch().await? {
            batches.push(batch.rows);
            positions.extend(batch.positions);
        }
        let rows = arrow::compute::concat_batches(&self.projection, &batches)
            .map_err(|e| error::arrow_internal("batches of one file differ", e))?;
        Ok(FileBatch { rows, positions })
    }

    fn without_dead(
        &self,
        batch: RecordBatch,
        positions: Vec<u32>,
    ) -> Result<(RecordBatch, Vec<u32>)> {
        let (Some(first), Some(last)) = (positions.first(), positions.last()) else {
            return Ok((batch, positions));
        };
        if self
            .dead
            .count_between(u64::from(*first), u64::from(*last) + 1)
            == 0
        {
            return Ok((batch, positions));
        }
        let live = positions
            .iter()
            .map(|position| !self.dead.contains(u64::from(*position)));
        let live: arrow::array::BooleanArray = live.map(Some).collect();
        let kept = arrow::compute::filter_record_batch(&batch, &live)
            .map_err(|e| error::arrow_internal("dead rows cannot be left out", e))?;
        let positions = positions
            .into_iter()
            .filter(|position| !self.dead.contains(u64::from(*position)))
            .collect();
        Ok((kept, positions))
    }

    fn assemble(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let columns = self
            .origins
            .iter()
            .zip(self.projection.fields())
            .map(|((origin, physical), field)| match origin {
                Origin::File(place) => {
                    let column = batch
                        .columns()
                        .get(*place)
                        .ok_or_else(|| Error::internal("a column was not read"))?;
                    relabel(&conform(column, physical)?, field.data_type())
                }
                Origin::Constant(value) => repeat(value, rows),
            })
            .collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.projection), columns, &options)
            .map_err(|e| error::arrow_read("rows", e))
    }
}

fn origin(
    schema: &TableSchema,
    add: &AddFile,
    file: &SchemaRef,
    name: &str,
    wanted: &DataType,
    columns: &mut Vec<usize>,
) -> Result<(Origin, DataType)> {
    let physical_type = match schema.field(name) {
        None => wanted.clone(),
        Some((physical, logical)) if same_type(logical.data_type(), wanted) => {
            physical.data_type().clone()
        }
        Some((_, logical)) => {
            let message = format!(
                "asked for as {wanted} where the table has {}",
                logical.data_type()
            );
            return Err(Error::internal(message));
        }
    };
    let physical_name = schema.physical_name(name);
    if schema.is_partition_column(name) {
        let text = add
            .partition_values
            .get(physical_name)
            .and_then(Option::as_deref);
        return Ok((Origin::Constant(parse_value(wanted, text)?), physical_type));
    }
    Ok(match file.index_of(physical_name) {
        Ok(place) => {
            columns.push(place);
            (Origin::File(columns.len() - 1), physical_type)
        }
        Err(_) => (
            Origin::Constant(arrow::array::new_null_array(wanted, 1)),
            physical_type,
        ),
    })
}

fn repeat(value: &ArrayRef, rows: usize) -> Result<ArrayRef> {
    if value.is_null(0) {
        return Ok(arrow::array::new_null_array(value.data_type(), rows));
    }
    let indices = UInt32Array::from(vec![0; rows]);
    take(value, &indices, None).map_err(|e| error::arrow_internal("a value cannot be repeated", e))
}
