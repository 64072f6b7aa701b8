//! Key changes take unavailable values along (R-K6): the old keys are looked up before anything is merged.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, StructArray, UInt32Array};
use arrow::compute::take;
use tidegate_change::key::CanonicalKeys;
use tidegate_change::sequence::normalize_floats;
use tidegate_change::{Error, Result};
use tidegate_merge::{MergeRules, Stored, StoredRef, carry};

use crate::classify::Classified;
use crate::lookup::{self, Need};
use crate::partition::Slice;
use crate::table::TableView;

/// Whether some key change of the batch leaves a column open. Such a batch is merged in one slice, since
/// the two halves of a key change lie in different buckets.
#[must_use]
pub(crate) fn is_needed(parts: &[Classified]) -> bool {
    parts.iter().any(|part| {
        part.old_keys.as_ref().is_some_and(|old| {
            (0..old.len()).any(|event| {
                old.is_valid(event)
                    && part
                        .payload
                        .iter()
                        .any(|column| match (&column.values, &column.authored) {
                            (None, _) => true,
                            (Some(_), Some(authored)) => !authored.value(event),
                            (Some(_), None) => false,
                        })
            })
        })
    })
}

/// Fills in what the key changes of a slice carry; returns how many values stay unresolved.
///
/// # Errors
/// Failures of storage.
pub(crate) async fn fill(table: &TableView, rules: &MergeRules, slice: &mut Slice) -> Result<u64> {
    let Some(old_keys) = slice.old_keys.take() else {
        return Ok(0);
    };
    let events = slice.take_events()?;
    let known = Distinct::of(&old_keys)?;
    let found = lookup::find(table, &known.keys, Need::All).await?;
    let refs: Vec<StoredRef> = known
        .by_event
        .iter()
        .map(|key| {
            key.and_then(|key| found.refs.get(key).copied())
                .unwrap_or_default()
        })
        .collect();
    let stored = Stored {
        refs: &refs,
        rows: &found.rows,
        tombstones: &found.tombstones,
    };
    let carried = carry(rules, events, &old_keys, &stored)?;
    slice.events = Some(carried.events);
    Ok(carried.unresolved)
}

/// The distinct old keys and which one each event has.
struct Distinct {
    keys: Vec<ArrayRef>,
    by_event: Vec<Option<usize>>,
}

impl Distinct {
    fn of(old_keys: &StructArray) -> Result<Self> {
        let whole = |event: &u32| {
            let event = *event as usize;
            old_keys.is_valid(event)
                && old_keys
                    .columns()
                    .iter()
                    .all(|column| column.is_valid(event))
        };
        let count = u32::try_from(old_keys.len())
            .map_err(|_| Error::internal("a slice has more than 2^32 events"))?;
        let events: Vec<u32> = (0..count).filter(whole).collect();
        let columns = gathered(old_keys.columns(), &events)?;
        let canonical = CanonicalKeys::encode(&columns)?;
        let mut seen: HashMap<&[u8], usize> = HashMap::new();
        let mut first = Vec::new();
        let mut by_event = vec![None; old_keys.len()];
        for (row, event) in events.iter().enumerate() {
            let next = seen.len();
            let key = *seen.entry(canonical.get(row)).or_insert(next);
            if key == next {
                first.push(*event);
            }
            if let Some(entry) = by_event.get_mut(*event as usize) {
                *entry = Some(key);
            }
        }
        Ok(Self {
            keys: gathered(old_keys.columns(), &first)?,
            by_event,
        })
    }
}

fn gathered(columns: &[ArrayRef], rows: &[u32]) -> Result<Vec<ArrayRef>> {
    let rows = UInt32Array::from(rows.to_vec());
    columns
        .iter()
        .map(|column| {
            take(column, &rows, None)
                .map(|column| normalize_floats(&column))
                .map_err(|e| Error::internal("old keys cannot be gathered").with_source(e))
        })
        .collect()
}
