//! What an attempt has written so far, and the commit that names it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{max, min};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, UInt32Type};
use tidegate_change::{Counters, Error, Result, hidden};
use tidegate_delta::actions::{Action, AddFile, CdcFile};
use tidegate_delta::data::{DataFileWriter, WriterOptions};
use tidegate_delta::dv::{self, DeletionVector, Remains};
use tidegate_delta::names::{self, FileLevel};
use tidegate_delta::{PartitionValues, cdc, path, split_by_partition};
use tidegate_index::{Entry, FileRef, IndexHash, RunWriter};

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

/// What one part of an attempt wrote.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// New data files.
    pub adds: Vec<AddFile>,
    /// New change data files.
    pub changes: Vec<CdcFile>,
    /// New state files.
    pub states: Vec<StateFile>,
    /// Dead positions by data file.
    pub dead: BTreeMap<Arc<str>, Vec<u32>>,
    /// Data files that die whole without their rows being named.
    pub dropped: Vec<Arc<str>>,
    /// New places of keys.
    pub placed: Vec<(IndexHash, Placed)>,
    /// Change rows, until they are written.
    pub feed: Vec<RecordBatch>,
    /// Counts.
    pub counters: Counters,
    /// Paths of all files written.
    pub written: Vec<String>,
    /// Paths of new data and state files, as the index names them.
    pub(crate) new_files: HashSet<String>,
}

impl Output {
    /// Paths of new data and state files, as the index names them.
    pub(crate) fn new_files(&self) -> HashSet<String> {
        self.new_files.clone()
    }

    /// Takes another part in.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.adds.append(&mut other.adds);
        self.changes.append(&mut other.changes);
        self.states.append(&mut other.states);
        for (path, mut rows) in other.dead {
            self.dead.entry(path).or_default().append(&mut rows);
        }
        self.dropped.append(&mut other.dropped);
        self.placed.append(&mut other.placed);
        self.feed.append(&mut other.feed);
        self.counters.add(&other.counters);
        self.written.append(&mut other.written);
        self.new_files.extend(other.new_files);
    }

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
            self.new_files.insert(add.path.clone());
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
        self.new_files.insert(path.clone());
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

    /// Writes the collected change rows, one file a partition.
    ///
    /// # Errors
    /// Failures of storage.
    pub(crate) async fn write_feed(&mut self, table: &TableView) -> Result<()> {
        let feed = std::mem::take(&mut self.feed);
        for file in cdc::write_changes(&table.root, &table.schema, table.attempt, 0, &feed).await? {
            self.counters.files_written += 1;
            self.counters.bytes_written += u64::try_from(file.size).unwrap_or_default();
            self.written.push(path::decode(&file.path)?);
            self.changes.push(file);
        }
        Ok(())
    }

    /// The `remove`s and `add`s of touched and new files, in an order that does not depend on threads.
    ///
    /// # Errors
    /// Failures of storage; `CORRUPT` when a deletion vector contradicts its file.
    pub(crate) async fn file_actions(
        &mut self,
        table: &TableView,
        data_change: bool,
    ) -> Result<Vec<Action>> {
        let mut removes = Vec::new();
        let mut vectors: Vec<(Arc<AddFile>, DeletionVector)> = Vec::new();
        for path in &self.dropped {
            removes.push(table.file(path)?.to_remove(table.now_ms, data_change));
        }
        for (path, rows) in &self.dead {
            let file = table.file(path)?;
            let vector = dv::of_file(&table.root, file).await?;
            match vector.delete(rows.iter().copied(), file.num_records()?)? {
                Remains::Some(vector, died) if died == rows.len() as u64 => {
                    vectors.push((Arc::clone(file), vector));
                }
                Remains::Nothing => {}
                Remains::Some(..) | Remains::Unchanged => {
                    return Err(Error::corrupt(format!("file {path}: a row dies twice")));
                }
            }
            removes.push(file.to_remove(table.now_ms, data_change));
        }
        self.counters.files_touched += removes.len() as u64;
        let mut actions: Vec<Action> = removes.into_iter().map(Action::Remove).collect();
        if !vectors.is_empty() {
            let (files, vectors): (Vec<_>, Vec<_>) = vectors.into_iter().unzip();
            let n = table.next_file();
            let descriptors = dv::write_packed(&table.root, table.attempt, n, &vectors).await?;
            let bytes = descriptors.last().map_or(0, |last| {
                i64::from(last.offset.unwrap_or(0)) + i64::from(last.size_in_bytes) + 8
            });
            self.counters.files_written += 1;
            self.counters.bytes_written += u64::try_from(bytes).unwrap_or_default();
            self.written
                .push(dv::file_name(dv::file_uuid(table.attempt, n)?));
            for (file, descriptor) in files.iter().zip(descriptors) {
                actions.push(Action::Add(
                    file.with_deletion_vector(descriptor, data_change),
                ));
            }
        }
        self.adds.sort_by(|a, b| a.path.cmp(&b.path));
        for mut add in std::mem::take(&mut self.adds) {
            add.data_change = data_change;
            actions.push(Action::Add(add));
        }
        actions.extend(
            std::mem::take(&mut self.changes)
                .into_iter()
                .map(Action::Cdc),
        );
        Ok(actions)
    }

    /// The index changes of the attempt.
    ///
    /// # Errors
    /// `INTERNAL` when a key is placed twice.
    pub(crate) fn index_run(&mut self) -> Result<RunWriter> {
        let mut run = RunWriter::new();
        run.reserve(self.placed.len());
        for (hash, placed) in std::mem::take(&mut self.placed) {
            let entry = match placed {
                Placed::Row(path, row) => Entry::Live {
                    file: run.file(&FileRef::data(path)),
                    row,
                },
                Placed::Tombstone(path, row) => Entry::Tombstone {
                    file: run.file(&FileRef::state(path)),
                    row,
                },
                Placed::Gone => Entry::Gone,
            };
            run.push(hash, entry)?;
        }
        Ok(run)
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
