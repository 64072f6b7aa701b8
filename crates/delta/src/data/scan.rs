//! Rows of one Parquet file with their positions, read in order.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, RowSelection as PageSelection};
use parquet::arrow::async_reader::{ParquetRecordBatchStream, ParquetRecordBatchStreamBuilder};
use parquet::file::metadata::PageIndexPolicy;
use tidegate_change::{Error, Result};

use super::object::ObjectReader;
use crate::error;
use crate::table::TableRoot;

/// A selection of fewer rows than one of so many reads their pages alone, a larger one the whole file.
const DENSE_ONE_OF: usize = 32;

/// An open Parquet file.
pub(crate) struct OpenFile {
    builder: ParquetRecordBatchStreamBuilder<ObjectReader>,
    name: String,
    is_indexed: bool,
}

/// Rows with their positions.
pub(crate) struct Scan {
    stream: ParquetRecordBatchStream<ObjectReader>,
    name: String,
    wanted: Wanted,
}

/// Which of the rows that the stream yields are wanted, and where in the file they are.
enum Wanted {
    /// All: the next one's position.
    All(u32),
    /// The stream yields just these; the rest of them.
    Selected(std::vec::IntoIter<u32>),
    /// The stream yields all; the next one's position and the wanted rest.
    Filtered(u32, std::iter::Peekable<std::vec::IntoIter<u32>>),
}

impl OpenFile {
    /// Opens a file and reads its metadata; with `positions`, the page index as well.
    pub(crate) async fn open(
        root: &TableRoot,
        relative: &str,
        size: Option<u64>,
        positions: Option<usize>,
    ) -> Result<Self> {
        let location = root.location(relative)?;
        let reader = ObjectReader::new(Arc::clone(root.store()), location, size);
        let policy = if positions.is_some() {
            PageIndexPolicy::Optional
        } else {
            PageIndexPolicy::Skip
        };
        // Types follow from the file's own schema: other engines' hints name types of no use here.
        let options = ArrowReaderOptions::new()
            .with_skip_arrow_metadata(true)
            .with_column_index_policy(PageIndexPolicy::Skip)
            .with_offset_index_policy(policy);
        let builder = ParquetRecordBatchStreamBuilder::new_with_options(reader, options)
            .await
            .map_err(|e| error::parquet(format!("file {relative}"), e))?;
        let name = format!("file {relative}");
        Ok(Self {
            builder,
            name,
            is_indexed: positions.is_some(),
        })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        self.builder.schema()
    }

    pub(crate) fn rows(&self) -> usize {
        usize::try_from(self.builder.metadata().file_metadata().num_rows()).unwrap_or_default()
    }

    /// Reads the root columns at these places, all rows or those at ascending positions.
    pub(crate) fn scan(
        self,
        columns: Vec<usize>,
        positions: Option<Vec<u32>>,
        batch_rows: usize,
    ) -> Result<Scan> {
        let total = self.rows();
        let name = self.name;
        let mask = ProjectionMask::roots(self.builder.parquet_schema(), columns);
        let mut builder = self
            .builder
            .with_projection(mask)
            .with_batch_size(batch_rows);
        let wanted = match positions {
            None => Wanted::All(0),
            Some(positions) => {
                check_positions(&name, &positions, total)?;
                if positions.len().saturating_mul(DENSE_ONE_OF) < total && self.is_indexed {
                    let at = |p: u32| usize::try_from(p).unwrap_or(usize::MAX);
                    let ranges = positions.iter().map(|p| at(*p)..at(*p) + 1);
                    let selection = PageSelection::from_consecutive_ranges(ranges, total);
                    builder = builder.with_row_selection(selection);
                    Wanted::Selected(positions.into_iter())
                } else {
                    Wanted::Filtered(0, positions.into_iter().peekable())
                }
            }
        };
        let stream = builder.build().map_err(|e| error::parquet(&name, e))?;
        Ok(Scan {
            stream,
            name,
            wanted,
        })
    }
}

fn check_positions(name: &str, positions: &[u32], total: usize) -> Result<()> {
    let is_ascending = positions
        .windows(2)
        .all(|pair| matches!(pair, [a, b] if a < b));
    let is_inside = positions
        .last()
        .is_none_or(|last| usize::try_from(*last).is_ok_and(|p| p < total));
    if is_ascending && is_inside {
        return Ok(());
    }
    Err(Error::internal(format!(
        "{name}: row positions are not ascending or behind its {total} rows"
    )))
}

impl Scan {
    /// The next rows with their positions; None behind the last.
    pub(crate) async fn next(&mut self) -> Result<Option<(RecordBatch, Vec<u32>)>> {
        loop {
            if let Wanted::Filtered(_, rest) = &mut self.wanted
                && rest.peek().is_none()
            {
                return Ok(None);
            }
            let next = self
                .stream
                .try_next()
                .await
                .map_err(|e| error::parquet(&self.name, e))?;
            let Some(batch) = next else { return Ok(None) };
            let count = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
            match &mut self.wanted {
                Wanted::All(next) => {
                    let first = *next;
                    *next = first.saturating_add(count);
                    return Ok(Some((batch, (first..*next).collect())));
                }
                Wanted::Selected(rest) => {
                    let positions = rest.take(batch.num_rows()).collect();
                    return Ok(Some((batch, positions)));
                }
                Wanted::Filtered(next, rest) => {
                    let first = *next;
                    *next = first.saturating_add(count);
                    let mut positions = Vec::new();
                    while let Some(position) = rest.next_if(|position| *position < *next) {
                        positions.push(position);
                    }
                    if positions.is_empty() {
                        continue;
                    }
                    let indices = positions.iter().map(|position| position - first);
                    let indices = arrow::array::UInt32Array::from_iter_values(indices);
                    let rows = arrow::compute::take_record_batch(&batch, &indices)
                        .map_err(|e| error::arrow_internal("rows cannot be gathered", e))?;
                    return Ok(Some((rows, positions)));
                }
            }
        }
    }
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
