//! A truncate meets every row of the table, also those that no event of the batch names (R-X2, R-X4).

use std::sync::Arc;

use arrow::array::ArrayRef;
use tidegate_change::key::CanonicalKeys;
use tidegate_change::sequence::{SequenceBytes, normalize_floats};
use tidegate_change::{Error, Result};
use tidegate_delta::actions::AddFile;
use tidegate_delta::data::{FileBatch, ReadOptions, read_file};
use tidegate_delta::dv::DeletionVector;
use tidegate_index::{FileRef, Located, Location};
use tidegate_merge::{MergeMode, MergeRules, StoredRef, truncate};

use crate::attempt_output::AttemptOutput;
use crate::lookup::Found;
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
    output: &mut AttemptOutput,
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
            // The index learns it from the file's absence.
            output.drop_file(&file)?;
        } else {
            sweep_file(table, rules, &file, output).await?;
        }
    }
    Ok(())
}

async fn sweep_file(
    table: &TableView,
    rules: &MergeRules,
    file: &AddFile,
    output: &mut AttemptOutput,
) -> Result<()> {
    let path: Arc<str> = file.path.as_str().into();
    let touched = output.dead.of(&path)?.positions;
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
        output
            .take(slice::write(table, &found, merged).await?)
            .await?;
    }
    Ok(())
}

/// The rows that the batch's events have not replaced.
fn without(batch: FileBatch, touched: &DeletionVector) -> Result<FileBatch> {
    let keep: arrow::array::BooleanArray = batch
        .positions
        .iter()
        .map(|row| Some(!touched.contains(u64::from(*row))))
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
