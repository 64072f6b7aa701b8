//! A truncate meets every row of the table, also those that no event of the batch names (R-X2, R-X4).

use std::sync::Arc;

use arrow::array::ArrayRef;
use tidegate_change::key::CanonicalKeys;
use tidegate_change::sequence::{SequenceBytes, normalize_floats};
use tidegate_change::{Error, Result};
use tidegate_delta::actions::AddFile;
use tidegate_delta::data::{FileBatch, ReadOptions, read_file};
use tidegate_index::{FileRef, Located, Location};
use tidegate_merge::{MergeMode, MergeRules, StoredRef, truncate};

use crate::lookup::Found;
use crate::output::Output;
use crate::slice;
use crate::table::TableView;

/// Rows that are merged at once.
const BATCH_ROWS: usize = 64 << 10;

/// Applies the batch's truncates to all rows that its events left alone, file by file.
///
/// # Errors
/// Failures of storage.
pub(crate) async fn sweep(
    table: &Arc<TableView>,
    rules: &MergeRules,
    greatest: &SequenceBytes,
    output: &mut Output,
) -> Result<()> {
    if matches!(rules.mode(), MergeMode::First | MergeMode::Once) {
        return Ok(());
    }
    let files: Vec<Arc<AddFile>> = table.snapshot.files.iter().cloned().collect();
    for file in files {
        let bounds = table.bounds(&file)?;
        let dies_whole = rules.mode() == MergeMode::Last
            && !rules.feed()
            && bounds
                .max_sequence
                .as_ref()
                .is_some_and(|max| max < greatest);
        if dies_whole {
            drop_file(&file, output)?;
        } else {
            sweep_file(table, rules, &file, output).await?;
        }
    }
    Ok(())
}

/// The whole file goes; the index learns it from the file's absence.
fn drop_file(file: &AddFile, output: &mut Output) -> Result<()> {
    let path: Arc<str> = file.path.as_str().into();
    let replaced = output
        .dead
        .remove(&path)
        .map_or(0, |rows| rows.len() as u64);
    let live = file.num_records()?.saturating_sub(file.deleted_count());
    output.counters.deleted += live.saturating_sub(replaced);
    output.dropped.push(path);
    Ok(())
}

async fn sweep_file(
    table: &TableView,
    rules: &MergeRules,
    file: &AddFile,
    output: &mut Output,
) -> Result<()> {
    let path: Arc<str> = file.path.as_str().into();
    let mut touched = output.dead.get(&path).cloned().unwrap_or_default();
    touched.sort_unstable();
    let mut options = ReadOptions::live(Arc::clone(&table.file_schema));
    options.batch_rows = BATCH_ROWS;
    let mut rows = read_file(&table.root, &table.schema, file, &options).await?;
    while let Some(batch) = rows.next_batch().await? {
        let FileBatch { rows, positions } = without(batch, &touched)?;
        let merged = truncate(rules, &rows)?;
        if merged.replaced.is_empty() {
            continue;
        }
        let keys: Vec<ArrayRef> = table
            .layout
            .key_columns()
            .filter_map(|key| rows.column_by_name(&key.name).map(normalize_floats))
            .collect();
        let found = Found {
            hashes: CanonicalKeys::encode(&keys)?.index_hashes(table.index.manifest().seed()),
            located: Located {
                files: vec![FileRef::data(Arc::clone(&path))],
                locations: positions
                    .iter()
                    .map(|row| Location::Live { file: 0, row: *row })
                    .collect(),
            },
            refs: vec![StoredRef::Absent; positions.len()],
            tombstones: rows.slice(0, 0),
            rows,
        };
        output.append(slice::write(table, &found, merged).await?);
    }
    Ok(())
}

/// The rows that the batch's events have not replaced; `touched` is ascending.
fn without(batch: FileBatch, touched: &[u32]) -> Result<FileBatch> {
    let keep: arrow::array::BooleanArray = batch
        .positions
        .iter()
        .map(|row| Some(touched.binary_search(row).is_err()))
        .collect();
    if keep.true_count() == batch.positions.len() {
        return Ok(batch);
    }
    let positions = batch
        .positions
        .iter()
        .zip(keep.values().iter())
        .filter_map(|(row, keep)| keep.then_some(*row))
        .collect();
    let rows = arrow::compute::filter_record_batch(&batch.rows, &keep)
        .map_err(|e| Error::internal("rows cannot be filtered").with_source(e))?;
    Ok(FileBatch { rows, positions })
}
