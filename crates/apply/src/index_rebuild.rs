//! The index of a table whose runs are lost or damaged, made anew from its data and state files.
//!
//! The new run carries the attempt's name and becomes the table's with the batch's commit, so that a batch
//! that fails leaves nothing and the next one begins again.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{filter_record_batch, is_not_null};
use arrow::datatypes::{Field, Int64Type, Schema, SchemaRef};
use arrow::error::ArrowError;
use futures::stream;
use object_store::memory::InMemory;
use object_store::path::Path;
use tidegate_change::key::{CanonicalKeys, IndexHash};
use tidegate_change::sequence::normalize_floats;
use tidegate_change::{Error, Result, hidden};
use tidegate_delta::actions::AddFile;
use tidegate_delta::data::{FileBatch, FileStream, ReadOptions, read_file};
use tidegate_delta::{TableRoot, TableSchema};
use tidegate_index::{FileRef, KeyRows, Spill};

use crate::attempt_output::run_spill;
use crate::files;
use crate::limits::Limits;
use crate::lookup::arrivals;
use crate::progress::StateFile;
use crate::spill::SpillDirectory;
use crate::table::TableView;

/// Replaces the index of the view by one that is made from the version's files.
///
/// # Errors
/// `CORRUPT` when two live rows have one key or a file is damaged; failures of storage.
pub(crate) async fn rebuild(
    table: &mut TableView,
    limits: &Limits,
    directory: &Arc<SpillDirectory>,
) -> Result<()> {
    let spill = match run_spill(directory, limits.list_bytes())? {
        Some(spill) => spill,
        // A worker without temporary space sorts in memory.
        None => Spill {
            store: Arc::new(InMemory::new()),
            prefix: Path::default(),
            memory_bytes: usize::MAX,
        },
    };
    let rows = stream::try_unfold(Rows::new(table), |mut rows| async move {
        Ok(rows.next().await?.map(|part| (part, rows)))
    });
    let manifest = tidegate_index::rebuild(&table.index, rows, spill, &mut table.run_names).await?;
    table.index = table.index.with_manifest(manifest);
    table.is_rebuilt = true;
    Ok(())
}

/// The keys of all live rows, then those of all tombstones, file by file.
struct Rows {
    root: TableRoot,
    schema: TableSchema,
    keys: SchemaRef,
    state_schema: SchemaRef,
    seed: u64,
    /// Tombstones that arrived before are gone since an earlier batch. Those that this batch purges are
    /// still asked for, to find its horizon (R-G4).
    purged_before_ms: Option<i64>,
    files: std::vec::IntoIter<Arc<AddFile>>,
    open: Option<(FileRef, FileStream)>,
    states: std::vec::IntoIter<StateFile>,
}

impl Rows {
    fn new(table: &TableView) -> Self {
        let keys = table.layout.key_columns();
        let keys: Vec<Field> = keys
            .map(|key| Field::new(&key.name, key.data_type.clone(), true))
            .collect();
        let files: Vec<_> = table.snapshot.files.iter().cloned().collect();
        Self {
            root: table.root.clone(),
            schema: table.schema.clone(),
            keys: Arc::new(Schema::new(keys)),
            state_schema: files::state_schema(&table.layout),
            seed: table.index.seed(),
            purged_before_ms: table.progress.purged_before_ms,
            files: files.into_iter(),
            open: None,
            states: table.states.files.clone().into_iter(),
        }
    }

    async fn next(&mut self) -> Result<Option<KeyRows>> {
        loop {
            if let Some((file, stream)) = &mut self.open {
                if let Some(batch) = stream.next_batch().await? {
                    let file = file.clone();
                    return self.live(file, &batch).map(Some);
                }
                self.open = None;
            }
            let Some(file) = self.files.next() else { break };
            let options = ReadOptions::live(Arc::clone(&self.keys));
            let stream = read_file(&self.root, &self.schema, &file, &options).await?;
            self.open = Some((FileRef::data(file.path.as_str()), stream));
        }
        match self.states.next() {
            Some(state) => self.tombstones(&state).await.map(Some),
            None => Ok(None),
        }
    }

    fn live(&self, file: FileRef, batch: &FileBatch) -> Result<KeyRows> {
        // Rows that another engine appended to a table without key have no place in the source.
        let known = match batch.rows.column_by_name(hidden::POSITION) {
            Some(places) if places.null_count() > 0 => is_not_null(places).map_err(unfiltered)?,
            Some(_) | None => BooleanArray::from(vec![true; batch.positions.len()]),
        };
        let positions = batch.positions.iter().zip(known.values().iter());
        let rows = filter_record_batch(&batch.rows, &known).map_err(unfiltered)?;
        Ok(KeyRows {
            file,
            rows: positions
                .filter_map(|(at, known)| known.then_some(*at))
                .collect(),
            hashes: self.hashes(&rows)?,
        })
    }

    async fn tombstones(&mut self, state: &StateFile) -> Result<KeyRows> {
        let all = files::read_state(&self.root, &state.path, &self.state_schema, None).await?;
        let arrived = arrivals(&all)?;
        let arrived = arrived.as_primitive::<Int64Type>().values().iter();
        let remains = |ms: &i64| self.purged_before_ms.is_none_or(|before| *ms >= before);
        let kept: BooleanArray = arrived.map(|ms| Some(remains(ms))).collect();
        let rows = (0u32..)
            .zip(kept.values().iter())
            .filter_map(|(row, kept)| kept.then_some(row))
            .collect();
        let kept = filter_record_batch(&all, &kept).map_err(unfiltered)?;
        Ok(KeyRows {
            file: FileRef::state(state.path.as_str()),
            rows,
            hashes: self.hashes(&kept)?,
        })
    }

    fn hashes(&self, rows: &RecordBatch) -> Result<Vec<IndexHash>> {
        let keys = self.keys.fields().iter();
        let keys: Vec<ArrayRef> = keys
            .filter_map(|key| rows.column_by_name(key.name()).map(normalize_floats))
            .collect();
        Ok(CanonicalKeys::encode(&keys)?.index_hashes(self.seed))
    }
}

fn unfiltered(error: ArrowError) -> Error {
    Error::internal("rows cannot be filtered").with_source(error)
}
