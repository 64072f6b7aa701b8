//! Rows that others wrote: each gets the hidden state of the row that it took the place of, or the lowest.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use tidegate_change::key::CanonicalKeys;
use tidegate_change::sequence::normalize_floats;
use tidegate_change::spec::LatePolicy;
use tidegate_change::{Error, Result};
use tidegate_delta::actions::AddFile;
use tidegate_delta::data::{ReadOptions, read_file};
use tidegate_delta::dv::DeletionVector;
use tidegate_index::{IndexHash, Location};
use tidegate_merge::foreign::{ForeignRows, adopt};

use super::diff::FileDiff;
use super::{Pass, duplicate, rewritten, unreadable};
use crate::output::Output;

/// Rows that wait to be handled together.
struct Held {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    bytes: usize,
}

impl Held {
    fn take(&mut self) -> Result<RecordBatch> {
        self.bytes = 0;
        concat_batches(&self.schema, &std::mem::take(&mut self.batches))
            .map_err(|e| Error::internal("foreign rows cannot be joined").with_source(e))
    }
}

/// Stored rows that foreign rows took the place of.
struct Predecessors {
    rows: RecordBatch,
    /// By foreign row: its place in `rows`.
    places: Vec<Option<u32>>,
}

impl Pass<'_> {
    /// Reads all rows that others wrote and writes them as our own.
    pub(super) async fn take_arrivals(&mut self, diff: &FileDiff) -> Result<()> {
        let schema = self.table.layout.table_schema();
        let mut held = Held {
            schema: Arc::clone(&schema),
            batches: Vec::new(),
            bytes: 0,
        };
        for file in &diff.added {
            let options = ReadOptions::live(Arc::clone(&schema));
            self.take_file(file, options, &mut held).await?;
        }
        for revised in &diff.revised {
            let risen = self.deaths.get(&revised.before.path);
            let risen: Vec<u32> = risen.map_or_else(Vec::new, |death| positions(&death.risen));
            if !risen.is_empty() {
                let options = ReadOptions::at(Arc::clone(&schema), risen);
                self.take_file(&revised.after, options, &mut held).await?;
            }
        }
        self.take_rows(held.take()?).await
    }

    async fn take_file(
        &mut self,
        file: &AddFile,
        options: ReadOptions,
        held: &mut Held,
    ) -> Result<()> {
        let table = self.table;
        let refused = |e| unreadable("a file that others wrote cannot be read", e);
        let opened = read_file(&table.root, &table.schema, file, &options).await;
        let mut stream = opened.map_err(refused)?;
        while let Some(batch) = stream.next_batch().await.map_err(refused)? {
            held.bytes += batch.rows.get_array_memory_size();
            held.batches.push(batch.rows);
            if held.bytes >= self.chunk_bytes {
                self.take_rows(held.take()?).await?;
            }
        }
        Ok(())
    }

    async fn take_rows(&mut self, rows: RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let hashes = self.hashes(&rows)?;
        let stored = self.predecessors(&hashes).await?;
        let foreign = ForeignRows {
            rows: &rows,
            stored: &stored.rows,
            predecessors: &stored.places,
        };
        let adopted = adopt(&self.table.layout, foreign)?;
        self.counts.inserted += adopted.inserted;
        self.counts.updated += adopted.updated;
        let all = u64::try_from(rows.num_rows()).unwrap_or(u64::MAX);
        self.counts.rewritten += all - adopted.inserted - adopted.updated;
        let mut output = Output::default();
        let table = self.table;
        output.write_rows(table, &adopted.rows, &hashes).await?;
        self.keep(output).await
    }

    /// Index hashes of the rows' keys.
    pub(super) fn hashes(&self, rows: &RecordBatch) -> Result<Vec<IndexHash>> {
        let mut keys: Vec<ArrayRef> = Vec::new();
        for key in self.table.layout.key_columns() {
            let column = rows.column_by_name(&key.name);
            let column = column.ok_or_else(|| Error::internal("rows lack a key column"))?;
            if column.null_count() > 0 {
                return Err(duplicate(format!(
                    "a row that others wrote has no key: column {} is NULL",
                    key.name
                )));
            }
            keys.push(normalize_floats(column));
        }
        Ok(CanonicalKeys::encode(&keys)?.index_hashes(self.table.index.seed()))
    }

    /// Finds what the table knew of the keys; only rows that are gone may be taken the place of.
    async fn predecessors(&mut self, hashes: &[IndexHash]) -> Result<Predecessors> {
        let table = self.table;
        let located = table.index.locate(hashes, &table.presence_of()).await?;
        let mut wanted: BTreeMap<Arc<str>, Vec<(u32, usize)>> = BTreeMap::new();
        for (key, location) in located.locations.iter().enumerate() {
            match location {
                Location::Absent => self.check_new_key()?,
                Location::Tombstone { .. } => {
                    return Err(duplicate(
                        "a row that others wrote has a key that events deleted: with the lowest sequence it would vanish",
                    ));
                }
                Location::Live { file, row } => {
                    let file = located.files.get(*file as usize);
                    let file = file.ok_or_else(|| Error::internal("a location names no file"))?;
                    let death = self.deaths.get(&file.path);
                    if !death.is_some_and(|death| death.dead.contains(u64::from(*row))) {
                        return Err(duplicate(
                            "a row that others wrote has a key that is in the table already",
                        ));
                    }
                    let rows = wanted.entry(Arc::clone(&file.path)).or_default();
                    rows.push((*row, key));
                }
            }
        }
        self.read(wanted, hashes.len()).await
    }

    /// A key that the table never saw, or forgot.
    fn check_new_key(&self) -> Result<()> {
        if !self.takes_deletes() {
            return Ok(());
        }
        let progress = &self.table.progress;
        if !progress.truncates.is_empty() {
            return Err(rewritten(
                "rows of new keys came into a table that was truncated: with the lowest sequence they would vanish",
            ));
        }
        let rejects = self.table.resolved.spec.late_after_retention == LatePolicy::Quarantine;
        if rejects && !progress.horizon.is_null() {
            return Err(rewritten(
                "rows of new keys came into a table that forgot deletes, so that they may be rows that were deleted",
            ));
        }
        Ok(())
    }

    async fn read(
        &mut self,
        wanted: BTreeMap<Arc<str>, Vec<(u32, usize)>>,
        keys: usize,
    ) -> Result<Predecessors> {
        let table = self.table;
        let mut places = vec![None; keys];
        let mut parts = Vec::with_capacity(wanted.len());
        let mut next = 0u32;
        for (path, mut rows) in wanted {
            rows.sort_unstable();
            let at: Vec<u32> = rows.iter().map(|(row, _)| *row).collect();
            let named = DeletionVector::from_positions(at.iter().copied());
            let matched = self.matched.entry(Arc::clone(&path)).or_default();
            if usize::try_from(matched.merge(&named)).ok() != Some(at.len()) {
                return Err(duplicate("two rows that others wrote have one key"));
            }
            let file = table.file(&path)?;
            let options = ReadOptions::at(Arc::clone(&table.file_schema), at);
            parts.push(read_old(table, file, &options).await?);
            for (_, key) in rows {
                if let Some(place) = places.get_mut(key) {
                    *place = Some(next);
                }
                next += 1;
            }
        }
        let rows = concat_batches(&table.file_schema, &parts)
            .map_err(|e| Error::internal("stored rows cannot be joined").with_source(e))?;
        Ok(Predecessors { rows, places })
    }
}

/// Rows of a file that others removed, as long as it is there.
pub(super) async fn read_old(
    table: &crate::table::TableView,
    file: &AddFile,
    options: &ReadOptions,
) -> Result<RecordBatch> {
    let gone = |e| {
        unreadable(
            "the sequences of rows that others removed cannot be read",
            e,
        )
    };
    let stream = read_file(&table.root, &table.schema, file, options).await;
    Ok(stream.map_err(gone)?.collect().await.map_err(gone)?.rows)
}

/// The positions of a vector.
pub(super) fn positions(vector: &DeletionVector) -> Vec<u32> {
    vector
        .iter()
        .filter_map(|at| u32::try_from(at).ok())
        .collect()
}
