//! The stored state of keys: found by the index, read only where the merge needs it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::Int64Type;
use tidegate_change::key::CanonicalKeys;
use tidegate_change::mutants::{Mutant, is_on};
use tidegate_change::{Error, Result, hidden};
use tidegate_delta::data::{ReadOptions, read_file};
use tidegate_index::{IndexHash, Located, Location};
use tidegate_merge::{FileBounds, Grouped, MergeRules, StoredRef};

use crate::files;
use crate::table::TableView;

/// Where the state of keys lies, and the rows of it that were read.
#[derive(Debug)]
pub(crate) struct Found {
    /// Index hashes of the keys.
    pub hashes: Vec<IndexHash>,
    /// Their places.
    pub located: Located,
    /// What the merge is told, one per key.
    pub refs: Vec<StoredRef>,
    /// Rows read, in file schema.
    pub rows: RecordBatch,
    /// Tombstones read.
    pub tombstones: RecordBatch,
}

impl Found {
    /// The data file and row position of a key's stored row.
    #[must_use]
    pub(crate) fn row_of(&self, key: usize) -> Option<(&Arc<str>, u32)> {
        match self.located.locations.get(key)? {
            Location::Live { file, row } => {
                Some((&self.located.files.get(*file as usize)?.path, *row))
            }
            Location::Absent | Location::Tombstone { .. } => None,
        }
    }
}

/// Says which stored rows must be read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need<'a> {
    /// All.
    All,
    /// Those that the merge of these groups asks for.
    Merge(&'a MergeRules, &'a Grouped),
}

impl Need<'_> {
    fn of(self, key: usize, bounds: &FileBounds) -> bool {
        match self {
            Self::All => true,
            Self::Merge(rules, grouped) => grouped.needs_stored(rules, key, bounds),
        }
    }
}

/// Finds keys and reads what is needed of the rows that they have.
///
/// # Errors
/// Failures of storage; `CORRUPT` when index and files contradict each other.
pub(crate) async fn find(table: &TableView, keys: &[ArrayRef], need: Need<'_>) -> Result<Found> {
    let hashes = CanonicalKeys::encode(keys)?.index_hashes(table.index.manifest().seed());
    let presence = table.presence_of();
    let located = table.index.locate(&hashes, &presence).await?;
    let mut bounds: HashMap<Arc<str>, FileBounds> = HashMap::new();
    let mut wanted: BTreeMap<Arc<str>, Vec<(u32, usize)>> = BTreeMap::new();
    let mut dead: BTreeMap<Arc<str>, Vec<(u32, usize)>> = BTreeMap::new();
    let mut refs = vec![StoredRef::Absent; hashes.len()];
    for (key, location) in located.locations.iter().enumerate() {
        match location {
            Location::Absent => {}
            Location::Live { file, row } => {
                let path = path_of(&located, *file)?;
                if need.of(key, table.bounds_of(&mut bounds, path)?) {
                    wanted
                        .entry(Arc::clone(path))
                        .or_default()
                        .push((*row, key));
                } else {
                    set(&mut refs, key, StoredRef::Unread);
                }
            }
            Location::Tombstone { file, row } => {
                let path = path_of(&located, *file)?;
                dead.entry(Arc::clone(path)).or_default().push((*row, key));
            }
        }
    }
    let rows = read_live(table, wanted, &mut refs).await?;
    let tombstones = read_tombstones(table, dead, &mut refs).await?;
    Ok(Found {
        hashes,
        located,
        refs,
        rows,
        tombstones,
    })
}

async fn read_live(
    table: &TableView,
    wanted: BTreeMap<Arc<str>, Vec<(u32, usize)>>,
    refs: &mut [StoredRef],
) -> Result<RecordBatch> {
    let mut parts = Vec::with_capacity(wanted.len());
    let mut next = 0u32;
    for (path, mut positions) in wanted {
        positions.sort_unstable();
        let file = table.file(&path)?;
        let rows: Vec<u32> = positions.iter().map(|(row, _)| *row).collect();
        let wanted = rows.len();
        let options = ReadOptions::at(Arc::clone(&table.file_schema), rows);
        let part = read_file(&table.root, &table.schema, file, &options)
            .await?
            .collect()
            .await?
            .rows;
        check_count(&path, part.num_rows(), wanted)?;
        for (_, key) in positions {
            set(refs, key, StoredRef::Row(next));
            next += 1;
        }
        parts.push(part);
    }
    concat_batches(&table.file_schema, &parts)
        .map_err(|e| Error::internal("stored rows cannot be joined").with_source(e))
}

/// Tombstones by position; those that arrived before the purge are not there (R-G2).
async fn read_tombstones(
    table: &TableView,
    wanted: BTreeMap<Arc<str>, Vec<(u32, usize)>>,
    refs: &mut [StoredRef],
) -> Result<RecordBatch> {
    let schema = files::state_schema(&table.layout);
    let mut parts = Vec::with_capacity(wanted.len());
    let mut next = 0u32;
    for (path, mut positions) in wanted {
        positions.sort_unstable();
        let rows: Vec<u32> = positions.iter().map(|(row, _)| *row).collect();
        let wanted = rows.len();
        let part = files::read_state(&table.root, &path, &schema, Some(rows)).await?;
        check_count(&path, part.num_rows(), wanted)?;
        let arrived = arrivals(&part)?;
        for (row, (_, key)) in positions.into_iter().enumerate() {
            if !is_purged(table, arrived.as_primitive::<Int64Type>().value(row)) {
                set(refs, key, StoredRef::Tombstone(next));
            }
            next += 1;
        }
        parts.push(part);
    }
    concat_batches(&schema, &parts)
        .map_err(|e| Error::internal("tombstones cannot be joined").with_source(e))
}

/// The arrivals of tombstones, ms.
///
/// # Errors
/// `CORRUPT` when the state file has none.
pub(crate) fn arrivals(tombstones: &RecordBatch) -> Result<ArrayRef> {
    let column = tombstones.column_by_name(hidden::ARRIVED).cloned();
    column
        .filter(|c| c.as_primitive_opt::<Int64Type>().is_some() && c.null_count() == 0)
        .ok_or_else(|| Error::corrupt("a state file lacks the arrival of its tombstones"))
}

/// Whether a tombstone that arrived then is purged for this batch.
#[must_use]
pub(crate) fn is_purged(table: &TableView, arrived_ms: i64) -> bool {
    table.purged_before_ms.is_some_and(|before| {
        arrived_ms < before || (arrived_ms == before && is_on(Mutant::PurgeTooEarly))
    })
}

fn path_of(located: &Located, file: u32) -> Result<&Arc<str>> {
    let file = located.files.get(file as usize);
    file.map(|file| &file.path)
        .ok_or_else(|| Error::internal("a location names no file"))
}

fn set(refs: &mut [StoredRef], key: usize, to: StoredRef) {
    if let Some(entry) = refs.get_mut(key) {
        *entry = to;
    }
}

fn check_count(path: &str, read: usize, wanted: usize) -> Result<()> {
    if read == wanted {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "file {path}: {wanted} rows named by the index, {read} read"
    )))
}
