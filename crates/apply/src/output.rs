//! What one slice of an attempt writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{max, min};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, UInt32Type};
use tidegate_change::{Counters, Error, Result, hidden};
use tidegate_delta::actions::AddFile;
use tidegate_delta::data::{DataFileWriter, WriterOptions};
use tidegate_delta::names::{self, FileLevel};
use tidegate_delta::{PartitionValues, split_by_partition};
use tidegate_index::IndexHash;

use crate::files::write_file;
use crate::lookup::arrivals;
use crate::progress::StateFile;
use crate::table::TableView;

/// Rows that are encoded at once.
const PIECE_ROWS: usize = 64 << 10;

/// The new state of a key, for the index.
#[derive(Clone, Debug)]
pub(crate) enum Placed {
    /// A row at a position of a data file.
    Row(Arc<str>, u32),
    /// A tombstone at a position of a state file.
    Tombstone(Arc<str>, u32),
    /// Nothing.
    Gone,
}

/// What one slice wrote, and what it found that others write.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// New data files.
    pub adds: Vec<AddFile>,
    /// New state files.
    pub states: Vec<StateFile>,
    /// Dead positions by data file.
    pub dead: BTreeMap<Arc<str>, Vec<u32>>,
    /// New places of keys.
    pub placed: Vec<(IndexHash, Placed)>,
    /// Change rows.
    pub feed: Option<RecordBatch>,
    /// Counts.
    pub counters: Counters,
    /// Paths of all files written.
    pub written: Vec<String>,
    /// Paths of new data and state files, as the index names them.
    pub new_files: Vec<String>,
}

impl Output {
    /// Writes rows in file schema, one file a partition; `hashes` are those of the rows' keys.
    ///
    /// # Errors
    /// Failures of storage.
    pub(crate) async fn write_rows(
        &mut self,
        table: &TableView,
        rows: &RecordBatch,
        hashes: &[IndexHash],
    ) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        for (partition, part) in split_by_partition(&table.schema, &numbered(rows)?)? {
            let (part, numbers) = without_numbers(&part)?;
            let Some(add) = write_data_file(table, &partition, &part).await? else {
                continue;
            };
            let path: Arc<str> = add.path.as_str().into();
            for (position, row) in (0u32..).zip(numbers.values()) {
                let hash = hashes.get(*row as usize).ok_or_else(no_hash)?;
                self.placed
                    .push((*hash, Placed::Row(Arc::clone(&path), position)));
            }
            self.counters.files_written += 1;
            self.counters.bytes_written += u64::try_from(add.size).unwrap_or_default();
            self.written.push(add.relative_path()?);
            self.new_files.push(add.path.clone());
            self.adds.push(add);
        }
        Ok(())
    }

    /// Writes tombstones; `hashes` are those of their keys.
    ///
    /// # Errors
    /// Failures of storage.
    pub(crate) async fn write_tombstones(
        &mut self,
        table: &TableView,
        tombstones: &RecordBatch,
        hashes: &[IndexHash],
    ) -> Result<()> {
        if tombstones.num_rows() == 0 {
            return Ok(());
        }
        let path = names::state_file(table.attempt, table.next_file());
        let bytes = write_file(&table.root, &path, tombstones).await?;
        let arrived = arrivals(tombstones)?;
        let arrived = arrived.as_primitive::<Int64Type>();
        self.counters.files_written += 1;
        self.counters.bytes_written += bytes;
        self.written.push(path.clone());
        self.new_files.push(path.clone());
        self.states.push(StateFile {
            path: path.clone(),
            rows: tombstones.num_rows() as u64,
            bytes,
            arrived_min_ms: min(arrived).unwrap_or_default(),
            arrived_max_ms: max(arrived).unwrap_or_default(),
        });
        let path: Arc<str> = path.into();
        for (position, hash) in hashes.iter().enumerate() {
            let position = u32::try_from(position).map_err(|_| too_many())?;
            self.placed
                .push((*hash, Placed::Tombstone(Arc::clone(&path), position)));
        }
        Ok(())
    }
}

async fn write_data_file(
    table: &TableView,
    partition: &PartitionValues,
    rows: &RecordBatch,
) -> Result<Option<AddFile>> {
    let name = names::data_file(FileLevel::Fresh, table.attempt, table.next_file());
    let keys = table.resolved.spec.keys.clone();
    let sparse = [hidden::FLOOR, hidden::LEAVES, hidden::DELETES];
    let options = WriterOptions {
        is_clustered: table.schema.partition_columns().is_empty() && !keys.is_empty(),
        is_sparse: sparse
            .iter()
            .filter_map(|name| rows.column_by_name(name))
            .any(|column| column.null_count() < column.len()),
        ..WriterOptions::new(keys, table.now_ms)
    };
    let mut writer = DataFileWriter::new(&table.root, &table.schema, partition, &name, options)?;
    // Encoding in pieces lets the writer send what fills a part.
    for start in (0..rows.num_rows()).step_by(PIECE_ROWS) {
        let piece = rows.slice(start, PIECE_ROWS.min(rows.num_rows() - start));
        writer.write(&piece).await?;
    }
    writer.finish().await
}

/// The rows with their numbers as a last column, so that they are known after a split.
fn numbered(rows: &RecordBatch) -> Result<RecordBatch> {
    let count = u32::try_from(rows.num_rows()).map_err(|_| too_many())?;
    let numbers: ArrayRef = Arc::new(UInt32Array::from_iter_values(0..count));
    let mut fields: Vec<Arc<Field>> = rows.schema_ref().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(
        "__tidegate_row",
        DataType::UInt32,
        false,
    )));
    let columns = rows.columns().iter().cloned().chain([numbers]).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
        .map_err(|e| Error::internal("rows cannot be numbered").with_source(e))
}

fn without_numbers(part: &RecordBatch) -> Result<(RecordBatch, UInt32Array)> {
    let last = part.num_columns().saturating_sub(1);
    let numbers = part
        .columns()
        .get(last)
        .and_then(|c| c.as_primitive_opt::<UInt32Type>())
        .cloned();
    let columns: Vec<usize> = (0..last).collect();
    let rows = part
        .project(&columns)
        .map_err(|e| Error::internal("rows cannot be projected").with_source(e))?;
    Ok((
        rows,
        numbers.ok_or_else(|| Error::internal("rows lost their numbers"))?,
    ))
}

fn no_hash() -> Error {
    Error::internal("a row to write has no key hash")
}

fn too_many() -> Error {
    Error::internal("a file has more than 2^32 rows")
}
