//! Values that a key change takes along (R-K6).
//!
//! A key change leaves unavailable values unauthored. They are those of the old key's state just below the
//! change's sequence: of its stored row, if that is older, and of older events of the batch. The delete that
//! is the change's other half has the change's sequence, so it hides nothing. Changes go in sequence order,
//! and a carried value counts as authored, so that chains carry on.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StructArray};
use arrow::buffer::BooleanBuffer;
use arrow::compute::interleave;
use tidegate_change::sequence::normalize_floats;

use crate::group::authored::EventLeaves;
use crate::group::order::key_rows;
use crate::resolve::state::State;
use crate::sequences::{NONE, handle, position};
use crate::values::Comparable;
use crate::{
    Error, EventKind, Events, MergeMode, MergeRules, PayloadColumn, Result, Stored, StoredRef,
};

/// Events with the carried values filled in.
#[derive(Clone, Debug)]
pub struct Carried {
    /// The events.
    pub events: Events,
    /// Values that were filled in.
    pub carried: u64,
    /// Unavailable values whose origin is not known.
    pub unresolved: u64,
}

/// Fills in what key changes left unauthored, from the old key's state just below the change.
///
/// `old_keys` has one entry per event, NULL where the event changes no key. `stored.refs` has one entry per
/// event too: the stored state of its old key.
///
/// # Errors
/// `INTERNAL` when the parts disagree with the layout.
pub fn carry(
    rules: &MergeRules,
    events: Events,
    old_keys: &StructArray,
    stored: &Stored<'_>,
) -> Result<Carried> {
    events.check(rules)?;
    if old_keys.len() != events.len() {
        return Err(Error::internal("old keys are not aligned with the events"));
    }
    let mut changes: Vec<u32> = (0..handle(events.len()))
        .filter(|row| lacks_values(&events, old_keys, *row))
        .collect();
    if changes.is_empty() {
        return Ok(Carried {
            events,
            carried: 0,
            unresolved: 0,
        });
    }
    let state = State::new(rules, &events, events.len(), stored)?;
    changes.sort_by(|a, b| state.pool.compare(*a, *b).then(a.cmp(b)));
    let mut carrier = Carrier {
        rules,
        leaves: EventLeaves::new(rules, &events)?,
        origins: origins(&events, old_keys, &changes)?,
        events: &events,
        stored,
        state,
        filled: HashMap::new(),
        carried: 0,
        unresolved: 0,
    };
    for change in &changes {
        carrier.fill(*change)?;
    }
    let payload = carrier.payload()?;
    let (carried, unresolved) = (carrier.carried, carrier.unresolved);
    Ok(Carried {
        events: Events { payload, ..events },
        carried,
        unresolved,
    })
}

/// Whether the event changes its key and leaves some column unauthored.
fn lacks_values(events: &Events, old_keys: &StructArray, row: u32) -> bool {
    let at = position(row);
    old_keys.is_valid(at)
        && events.kinds.get(at) == Some(&EventKind::Upsert)
        && events.payload.iter().any(|column| lacks(column, row))
}

fn lacks(column: &PayloadColumn, row: u32) -> bool {
    column.values.is_none()
        || column
            .authored
            .as_ref()
            .is_some_and(|bits| !bits.value(position(row)))
}

/// By change: the events of its old key.
fn origins(
    events: &Events,
    old_keys: &StructArray,
    changes: &[u32],
) -> Result<HashMap<u32, Arc<Vec<u32>>>> {
    let old: Vec<ArrayRef> = old_keys.columns().iter().map(normalize_floats).collect();
    let same_types = old.len() == events.keys.len()
        && old
            .iter()
            .zip(&events.keys)
            .all(|(a, b)| a.data_type() == b.data_type());
    if !same_types {
        return Err(Error::internal("old keys have other columns than the keys"));
    }
    let (old, new) = (key_rows(&old)?, key_rows(&events.keys)?);
    let mut by_key: HashMap<&[u8], Vec<u32>> = HashMap::new();
    for change in changes {
        by_key.entry(old.row(position(*change)).data()).or_default();
    }
    for row in 0..handle(events.len()) {
        if let Some(own) = by_key.get_mut(new.row(position(row)).data()) {
            own.push(row);
        }
    }
    let by_key: HashMap<&[u8], Arc<Vec<u32>>> = by_key
        .into_iter()
        .map(|(key, own)| (key, Arc::new(own)))
        .collect();
    let origin = |change: &u32| {
        let own = by_key.get(old.row(position(*change)).data());
        (*change, own.map(Arc::clone).unwrap_or_default())
    };
    Ok(changes.iter().map(origin).collect())
}

struct Carrier<'a> {
    rules: &'a MergeRules,
    events: &'a Events,
    leaves: EventLeaves,
    stored: &'a Stored<'a>,
    state: State,
    origins: HashMap<u32, Arc<Vec<u32>>>,
    /// (event, leaf) to the supplier of a carried value: an event, or behind them a stored row.
    filled: HashMap<(u32, usize), u32>,
    carried: u64,
    unresolved: u64,
}

/// What is known of the old key just below a change.
struct Below {
    /// Its events below the change.
    upserts: Vec<u32>,
    row: Option<u32>,
    /// Leaves below this delete or truncate are cleared.
    cut: u32,
}

impl Carrier<'_> {
    fn fill(&mut self, change: u32) -> Result<()> {
        let below = self.below(change);
        let columns = self.events.payload.iter().enumerate();
        let lacking: Vec<(usize, bool)> = columns
            .filter(|(_, column)| lacks(column, change))
            .map(|(at, column)| (at, column.values.is_some()))
            .collect();
        for (column, is_carried) in lacking {
            let mut found = false;
            if let Some(below) = &below {
                for leaf in self.leaves_of(column) {
                    if let Some(source) = self.author(below, leaf)? {
                        self.filled.insert((change, leaf), source);
                        found = true;
                    }
                }
            }
            self.carried += u64::from(found);
            // A column that the whole batch lacks is no unavailable value (R-N5).
            self.unresolved += u64::from(!found && is_carried);
        }
        Ok(())
    }

    fn leaves_of(&self, column: usize) -> Vec<usize> {
        let all = self.rules.leaves.iter().enumerate();
        all.filter(|(_, leaf)| leaf.column == column)
            .map(|(at, _)| at)
            .collect()
    }

    /// The old key's state just below the change; None where it is not known or holds no row.
    fn below(&self, change: u32) -> Option<Below> {
        let pool = &self.state.pool;
        let rows = &self.state.rows;
        let (row, mut deletes) = match self.stored.refs.get(position(change)).copied() {
            None | Some(StoredRef::Absent) => (None, vec![]),
            Some(StoredRef::Unread) => return None,
            // At or above the change the row tells nothing of what was below it.
            Some(StoredRef::Row(row)) if !pool.is_below(rows.sequence(row), change) => return None,
            Some(StoredRef::Row(row)) => (Some(row), vec![rows.floor(row)]),
            Some(StoredRef::Tombstone(row)) => {
                let sequence = self.state.tombstones.sequence(row);
                if !pool.is_below(sequence, change) {
                    return None;
                }
                (None, vec![sequence])
            }
        };
        let mut upserts = Vec::new();
        for event in self.origins.get(&change)?.iter() {
            if pool.is_below(*event, change) {
                match self.events.kinds.get(position(*event)) {
                    Some(EventKind::Upsert) => upserts.push(*event),
                    Some(EventKind::Delete) | None => deletes.push(*event),
                }
            }
        }
        deletes.extend(
            self.state
                .truncates
                .iter()
                .filter(|own| pool.is_below(**own, change)),
        );
        let newest = upserts
            .iter()
            .fold(row.map_or(NONE, |row| rows.sequence(row)), |best, own| {
                pool.greater(best, *own)
            });
        match self.rules.mode {
            MergeMode::First | MergeMode::Once => deletes.clear(),
            // A flagged row keeps its values (R-L0).
            MergeMode::Flagged => deletes.retain(|own| !pool.is_below(newest, *own)),
            MergeMode::Last => {}
        }
        let cut = deletes
            .into_iter()
            .fold(NONE, |best, own| pool.greater(best, own));
        (newest != NONE && !pool.is_below(newest, cut)).then_some(Below { upserts, row, cut })
    }

    /// The supplier of a leaf in the state below the change.
    fn author(&self, below: &Below, leaf: usize) -> Result<Option<u32>> {
        let pool = &self.state.pool;
        let mut best = (NONE, NONE);
        if let Some(row) = below.row {
            let sequence = self.state.rows.leaf_sequence(row, leaf);
            if sequence != NONE {
                best = (
                    sequence,
                    handle(self.events.len().saturating_add(position(row))),
                );
            }
        }
        for event in &below.upserts {
            let filled = self.filled.get(&(*event, leaf)).copied();
            let own = filled.or_else(|| self.leaves.authors(leaf, *event).then_some(*event));
            let Some(source) = own else { continue };
            let mut order = pool.compare(*event, best.0);
            if order.is_eq() {
                order = self
                    .value(leaf, source)?
                    .compare(0, &self.value(leaf, best.1)?, 0);
            }
            if order.is_gt() {
                best = (*event, source);
            }
        }
        Ok((best.0 != NONE && !pool.is_below(best.0, below.cut)).then_some(best.1))
    }

    /// One value, to be compared.
    fn value(&self, leaf: usize, source: u32) -> Result<Comparable> {
        let missing = || Error::internal("a carried value is missing");
        let (array, at) = match position(source).checked_sub(self.events.len()) {
            None => (
                self.leaves.values.get(leaf).and_then(Option::as_ref),
                position(source),
            ),
            Some(row) => (self.state.rows.values.get(leaf), row),
        };
        let array = array.filter(|array| at < array.len()).ok_or_else(missing)?;
        Comparable::new(&array.slice(at, 1))
    }

    /// The payload with the filled values.
    fn payload(&self) -> Result<Vec<PayloadColumn>> {
        let columns = self.events.payload.iter().enumerate();
        columns
            .map(|(at, column)| self.column(at, column))
            .collect()
    }

    fn column(&self, at: usize, column: &PayloadColumn) -> Result<PayloadColumn> {
        let own = self.leaves_of(at);
        let is_filled = |row: u32| {
            own.iter()
                .any(|leaf| self.filled.contains_key(&(row, *leaf)))
        };
        let filled: Vec<bool> = (0..handle(self.events.len())).map(is_filled).collect();
        if !filled.contains(&true) {
            return Ok(column.clone());
        }
        let mut parts: Vec<ArrayRef> = Vec::with_capacity(self.rules.leaves.len());
        for (leaf, description) in self.rules.leaves.iter().enumerate() {
            parts.push(match own.contains(&leaf) {
                true => self.leaf_values(leaf)?,
                false => description.nulls(0),
            });
        }
        let expected = self.rules.payload.get(at).map(|column| &column.data_type);
        let data_type = expected.ok_or_else(|| Error::internal("a payload column is missing"))?;
        let values = self.rules.leaves.assemble(at, data_type, &parts)?;
        let authored = BooleanBuffer::collect_bool(filled.len(), |row| {
            let before = !lacks(column, handle(row));
            before || filled.get(row).is_some_and(|own| *own)
        });
        Ok(PayloadColumn {
            values: Some(values),
            authored: Some(authored),
        })
    }

    fn leaf_values(&self, leaf: usize) -> Result<ArrayRef> {
        let missing = || Error::internal("a leaf is missing");
        let description = self.rules.leaves.iter().nth(leaf).ok_or_else(missing)?;
        let own = self.leaves.values.get(leaf).and_then(Option::as_ref);
        let null = description.nulls(1);
        let events = own.unwrap_or(&null);
        let stored = self.state.rows.values.get(leaf).ok_or_else(missing)?;
        let len = self.events.len();
        let place = |row: u32| match self.filled.get(&(row, leaf)).map(|own| position(*own)) {
            None if own.is_none() => (2, 0),
            None => (0, position(row)),
            Some(source) if source < len => (0, source),
            Some(source) => (1, source - len),
        };
        let places: Vec<(usize, usize)> = (0..handle(len)).map(place).collect();
        interleave(&[events.as_ref(), stored.as_ref(), null.as_ref()], &places)
            .map_err(|e| Error::internal("carried values cannot be gathered").with_source(e))
    }
}
