//! Purge of tombstones (R-G2, R-G4): a logical step at the start of each batch.
//!
//! Nothing is rewritten: a tombstone that arrived before the purge counts as absent wherever it is met, and
//! a state file whose tombstones all did is dropped. What must be found exactly is the horizon, the greatest
//! sequence among the purged tombstones that still were the state of their key.

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Int64Type;
use tidegate_change::key::CanonicalKeys;
use tidegate_change::sequence::{SequenceBytes, normalize_floats};
use tidegate_change::{Error, Result, hidden};
use tidegate_index::Location;

use crate::files;
use crate::lookup::arrivals;
use crate::progress::{StateFile, sequence_from_json};
use crate::table::TableView;

/// The purge horizon of this batch.
///
/// # Errors
/// Failures of storage; `CORRUPT` when a state file contradicts the table.
pub(crate) async fn horizon(table: &TableView) -> Result<Option<SequenceBytes>> {
    let mut horizon = sequence_from_json(&table.encoder, &table.progress.horizon)?;
    let Some(before) = table.purged_before_ms else {
        return Ok(horizon);
    };
    let from = table.progress.purged_before_ms.unwrap_or(i64::MIN);
    let due = |file: &&StateFile| file.arrived_min_ms < before && file.arrived_max_ms >= from;
    for file in table.states.files.iter().filter(due) {
        let greatest = purged_in(table, file, from, before).await?;
        horizon = horizon.max(greatest);
    }
    Ok(horizon)
}

/// The state files that still hold tombstones which are not purged.
#[must_use]
pub(crate) fn surviving(table: &TableView) -> Vec<StateFile> {
    let survives = |file: &&StateFile| {
        table
            .purged_before_ms
            .is_none_or(|before| file.arrived_max_ms >= before)
    };
    table
        .states
        .files
        .iter()
        .filter(survives)
        .cloned()
        .collect()
}

async fn purged_in(
    table: &TableView,
    file: &StateFile,
    from: i64,
    before: i64,
) -> Result<Option<SequenceBytes>> {
    let schema = files::state_schema(&table.layout);
    let all = files::read_state(&table.root, &file.path, &schema, None).await?;
    let arrived = arrivals(&all)?;
    let arrived = arrived.as_primitive::<Int64Type>();
    let due: BooleanArray = arrived
        .values()
        .iter()
        .map(|ms| Some(*ms < before && *ms >= from))
        .collect();
    let positions: Vec<u32> = (0u32..)
        .zip(due.values().iter())
        .filter_map(|(position, due)| due.then_some(position))
        .collect();
    let rows = filter_record_batch(&all, &due)
        .map_err(|e| Error::internal("tombstones cannot be filtered").with_source(e))?;
    let live = still_state(table, &file.path, &rows, &positions).await?;
    let sequences = rows
        .column_by_name(hidden::SEQUENCE)
        .ok_or_else(|| Error::corrupt(format!("state file {}: lacks sequences", file.path)))?;
    let encoded = table.encoder.encode(sequences)?;
    let purged = encoded.iter().zip(live).filter(|(_, live)| *live);
    Ok(purged
        .map(|(row, _)| row)
        .max()
        .map(SequenceBytes::from_row))
}

/// Which tombstones the index still names as the state of their key.
async fn still_state(
    table: &TableView,
    path: &str,
    rows: &RecordBatch,
    positions: &[u32],
) -> Result<Vec<bool>> {
    let keys: Vec<ArrayRef> = table
        .layout
        .key_columns()
        .filter_map(|key| rows.column_by_name(&key.name).map(normalize_floats))
        .collect();
    let hashes = CanonicalKeys::encode(&keys)?.index_hashes(table.index.manifest().seed());
    let presence = table.presence_of();
    let located = table.index.locate(&hashes, &presence).await?;
    let here = |location: &Location, position: u32| match location {
        Location::Tombstone { file, row } => {
            *row == position
                && located
                    .files
                    .get(*file as usize)
                    .is_some_and(|file| *file.path == *path)
        }
        Location::Absent | Location::Live { .. } => false,
    };
    Ok(located
        .locations
        .iter()
        .zip(positions)
        .map(|(l, position)| here(l, *position))
        .collect())
}
