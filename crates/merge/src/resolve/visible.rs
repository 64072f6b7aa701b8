//! Which stored rows change visibly (R-C2, R-D7).

use arrow::array::{Array, UInt32Array};
use arrow::compute::take;

use crate::resolve::decide::{Fate, Plan};
use crate::resolve::state::State;
use crate::sequences::{NONE, position};
use crate::values::equal;
use crate::{Error, Grouped, MergeRules, Result, Stored, StoredRef};

/// By group: whether a stored row stays visible with other values.
pub(super) fn visible_changes(
    rules: &MergeRules,
    grouped: &Grouped,
    stored: &Stored<'_>,
    state: &State,
    plan: &Plan,
) -> Result<Vec<bool>> {
    let failed = |e| Error::internal("values cannot be gathered").with_source(e);
    let mut changed = vec![false; plan.outcomes.len()];
    let mut met = Vec::new();
    for (group, (outcome, own)) in plan.outcomes.iter().zip(stored.refs).enumerate() {
        if let (Fate::Live, StoredRef::Row(row)) = (outcome.fate, *own) {
            met.push((group, outcome, row));
            if rules.layout.soft_delete {
                let before = state.rows.deleted_at(row);
                set(
                    &mut changed,
                    group,
                    !state.pool.is_equal(before, outcome.deleted_at),
                );
            }
        }
    }
    let events = grouped.events.len();
    for (leaf, stored_values) in state.rows.values.iter().enumerate() {
        let (mut groups, mut new, mut old) = (Vec::new(), Vec::new(), Vec::new());
        for (group, outcome, row) in &met {
            let source = plan.leaf_source(outcome, leaf);
            if source == NONE {
                set(&mut changed, *group, stored_values.is_valid(position(*row)));
            } else if position(source) < events && !changed.get(*group).is_some_and(|own| *own) {
                groups.push(*group);
                new.push(source);
                old.push(*row);
            }
        }
        let Some(Some(values)) = grouped.leaves.values.get(leaf) else {
            continue;
        };
        if groups.is_empty() {
            continue;
        }
        let new = take(values, &UInt32Array::from(new), None).map_err(failed)?;
        let old = take(stored_values, &UInt32Array::from(old), None).map_err(failed)?;
        for (group, same) in groups.into_iter().zip(equal(&new, &old)?.iter()) {
            set(&mut changed, group, !same);
        }
    }
    Ok(changed)
}

/// Marks a group; a mark stays.
fn set(changed: &mut [bool], group: usize, value: bool) {
    if let Some(own) = changed.get_mut(group) {
        *own |= value;
    }
}
