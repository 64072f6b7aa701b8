//! What truncates do to rows that no event of the batch names (R-X2).

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use tidegate_change::hidden;

use crate::resolve::state::no_tombstones;
use crate::sequences::{Pool, handle, position};
use crate::{Error, Grouped, MergeRules, Merged, Result, Stored, StoredRef, resolve};

/// Applies the rules' truncates to stored rows, which are taken as the groups: group `i` is row `i`.
///
/// Rows of keys that the batch names must not be among them: [`crate::resolve`] truncates those.
///
/// # Errors
/// `INTERNAL` when the rows disagree with the layout.
pub fn truncate(rules: &MergeRules, rows: &RecordBatch) -> Result<Merged> {
    let affected = affected(rules, rows)?;
    let own = take_record_batch(rows, &UInt32Array::from(affected.clone()))
        .map_err(|e| Error::internal("stored rows cannot be gathered").with_source(e))?;
    let keys: Vec<ArrayRef> = rules
        .layout
        .key_columns()
        .map(|key| own.column_by_name(&key.name).cloned())
        .collect::<Option<_>>()
        .ok_or_else(|| Error::internal("stored rows lack a key column"))?;
    let grouped = Grouped::without_events(rules, keys, own.num_rows())?;
    let refs: Vec<StoredRef> = (0..own.num_rows())
        .map(|row| StoredRef::Row(handle(row)))
        .collect();
    let stored = Stored {
        refs: &refs,
        rows: &own,
        tombstones: &no_tombstones(),
    };
    let mut merged = resolve(rules, &grouped, &stored)?;
    merged.counters.unchanged = 0;
    for groups in [
        &mut merged.row_groups,
        &mut merged.replaced,
        &mut merged.tombstone_groups,
    ] {
        for group in groups {
            *group = affected.get(position(*group)).copied().unwrap_or(*group);
        }
    }
    Ok(merged)
}

/// Rows that a truncate may reach: those below one, and those with leaves below themselves.
fn affected(rules: &MergeRules, rows: &RecordBatch) -> Result<Vec<u32>> {
    let Some(greatest) = rules.truncates().max() else {
        return Ok(Vec::new());
    };
    let column = |name: &str| {
        rows.column_by_name(name)
            .ok_or_else(|| Error::internal(format!("stored rows lack {name}")))
    };
    let leaves = column(hidden::LEAVES)?;
    let pool = Pool::new(
        &rules.encoder,
        std::slice::from_ref(column(hidden::SEQUENCE)?),
    )?;
    let all = 0..handle(rows.num_rows());
    let reached =
        |row: &u32| leaves.is_valid(position(*row)) || pool.compare_bytes(*row, greatest).is_lt();
    Ok(all.filter(reached).collect())
}
