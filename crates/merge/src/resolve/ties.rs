//! Events that meet a stored register at its own sequence: their values decide (R-T2, R-T3, R-U1).

use std::cmp::Ordering;
use std::collections::HashMap;

use arrow::array::UInt32Array;

use crate::group::instants::is_upsert;
use crate::resolve::state::State;
use crate::sequences::position;
use crate::values::Comparable;
use crate::{Error, Grouped, MergeRules, Result, Stored, StoredRef};

/// Values of stored rows and of the upserts that tie with them.
#[derive(Debug, Default)]
pub(crate) struct StoredTies {
    /// Place of an event among the compared ones.
    places: HashMap<u32, usize>,
    /// By leaf: the events' values (None where no event carries it) and those of the stored rows.
    values: Vec<(Option<Comparable>, Comparable)>,
}

impl StoredTies {
    pub(crate) fn find(
        rules: &MergeRules,
        grouped: &Grouped,
        stored: &Stored<'_>,
        state: &State,
    ) -> Result<Self> {
        let mut places = HashMap::new();
        let mut events = Vec::new();
        let mut rows = Vec::new();
        for (group, own) in stored.refs.iter().enumerate() {
            let StoredRef::Row(row) = *own else { continue };
            for event in grouped.rows(group) {
                let ties = is_upsert(rules, &grouped.events, *event)
                    && !grouped.instants.is_copy(*event)
                    && meets(rules, state, *event, row);
                if ties {
                    places.insert(*event, events.len());
                    events.push(*event);
                    rows.push(row);
                }
            }
        }
        let mut values = Vec::new();
        if !events.is_empty() {
            let rows = UInt32Array::from(rows);
            for (leaf, column) in state.rows.values.iter().enumerate() {
                let own = grouped.leaves.authored_values(leaf, &events)?;
                let stored = arrow::compute::take(column, &rows, None).map_err(|e| {
                    Error::internal("stored values cannot be gathered").with_source(e)
                })?;
                let own = own.as_ref().map(Comparable::new).transpose()?;
                values.push((own, Comparable::new(&stored)?));
            }
        }
        Ok(Self { places, values })
    }

    /// Compares one leaf of an event that meets a stored row with that row's.
    pub(super) fn compare_leaf(&self, event: u32, leaf: usize) -> Ordering {
        match (self.places.get(&event), self.values.get(leaf)) {
            (Some(place), Some((Some(own), stored))) => own.compare(*place, stored, *place),
            (Some(_) | None, Some(_) | None) => Ordering::Equal,
        }
    }

    /// Compares whole payloads (R-T2).
    pub(super) fn compare_payload(&self, event: u32) -> Ordering {
        (0..self.values.len())
            .map(|leaf| self.compare_leaf(event, leaf))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    /// Whether the event says nothing but what the row at its sequence holds (R-U1).
    pub(super) fn is_stored(&self, grouped: &Grouped, state: &State, event: u32, row: u32) -> bool {
        (0..self.values.len()).all(|leaf| {
            !grouped.leaves.authors(leaf, event)
                || (state
                    .pool
                    .is_equal(state.rows.leaf_sequence(row, leaf), event)
                    && self.compare_leaf(event, leaf).is_eq())
        })
    }
}

fn meets(rules: &MergeRules, state: &State, event: u32, row: u32) -> bool {
    let same = |sequence| state.pool.is_equal(event, sequence);
    same(state.rows.sequence(row))
        || (!state.rows.is_full(row)
            && (0..rules.leaves.len()).any(|leaf| same(state.rows.leaf_sequence(row, leaf))))
}

/// The place of a stored row's values among those of events: behind all events.
pub(super) fn stored_value(grouped: &Grouped, row: u32) -> u32 {
    crate::sequences::handle(grouped.events.len().saturating_add(position(row)))
}
