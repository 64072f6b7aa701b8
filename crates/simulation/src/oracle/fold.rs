//! The state of one key: its events in instants, folded in sequence order, and what of it shows.

use std::collections::{BTreeMap, BTreeSet};

use super::columns::{Columns, Leaf};
use super::events::{Event, Kind};
use crate::value::Value;

/// What one instant (equal sequence) of a key holds.
#[derive(Default)]
struct Instant<'a> {
    deleted: bool,
    upserts: Vec<&'a Event>,
}

/// A row before it is shown.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) leaves: Vec<Option<Value>>,
    pub(crate) deleted_at: Option<Value>,
}

/// How states come about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Folding {
    /// Whether ties compare whole payloads (R-T2).
    pub(crate) row_mode: bool,
    pub(crate) soft_delete: bool,
    /// SCD 0: the first upsert stays.
    pub(crate) first: bool,
}

/// The last state of a key (of SCD 0: the first).
pub(crate) fn fold(events: &[Event], truncates: &BTreeSet<Value>, how: Folding) -> Option<State> {
    let mut instants: BTreeMap<&Value, Instant<'_>> = BTreeMap::new();
    if !how.first {
        for sequence in truncates {
            instants.entry(sequence).or_default().deleted = true;
        }
    }
    for event in events {
        let instant = instants.entry(&event.sequence).or_default();
        match event.kind {
            Kind::Upsert => instant.upserts.push(event),
            Kind::Delete | Kind::Truncate => instant.deleted |= !how.first,
        }
    }
    let mut state: Option<State> = None;
    for (sequence, instant) in instants {
        if instant.deleted {
            if how.soft_delete {
                if let Some(row) = &mut state {
                    row.deleted_at = Some(sequence.clone());
                }
            } else {
                state = None;
            }
        }
        if instant.upserts.is_empty() {
            continue;
        }
        let new = settle(&instant.upserts, how.row_mode);
        let leaves = match state.take() {
            Some(row) if row.deleted_at.is_none() => overlay(row.leaves, new),
            _ => new,
        };
        state = Some(State {
            leaves,
            deleted_at: None,
        });
        if how.first {
            break;
        }
    }
    state
}

/// What the upserts of one instant author together (R-T2, R-T3, R-T3b).
fn settle(upserts: &[&Event], row_mode: bool) -> Vec<Option<Value>> {
    let authored = |event: &Event| event.leaves.iter().map(Option::is_some).collect::<Vec<_>>();
    let alike = upserts
        .windows(2)
        .all(|pair| authored(pair[0]) == authored(pair[1]));
    let whole = upserts.iter().map(|event| &event.leaves).max();
    if let (true, true, Some(whole)) = (row_mode, alike, whole) {
        return whole.clone();
    }
    let leaf_count = upserts.first().map_or(0, |event| event.leaves.len());
    (0..leaf_count)
        .map(|leaf| {
            upserts
                .iter()
                .filter_map(|event| event.leaves[leaf].clone())
                .max()
        })
        .collect()
}

fn overlay(below: Vec<Option<Value>>, above: Vec<Option<Value>>) -> Vec<Option<Value>> {
    above
        .into_iter()
        .zip(below)
        .map(|(above, below)| above.or(below))
        .collect()
}

/// The visible row of a state, in table order.
pub(crate) fn show(
    columns: &Columns,
    key: &[Value],
    state: &State,
    soft_delete: bool,
) -> Vec<Value> {
    let mut row: Vec<Value> = columns
        .stored
        .iter()
        .map(
            |source| match columns.keys.iter().position(|key| key == source) {
                Some(member) => key[member].clone(),
                None => shown_column(columns, *source, &state.leaves),
            },
        )
        .collect();
    if soft_delete {
        row.push(Value::Boolean(state.deleted_at.is_some()));
        row.push(state.deleted_at.clone().unwrap_or(Value::Null));
    }
    row
}

fn shown_column(columns: &Columns, source: usize, leaves: &[Option<Value>]) -> Value {
    let own: Vec<(&Leaf, Value)> = columns
        .leaves
        .iter()
        .zip(leaves)
        .filter(|(leaf, _)| leaf.source == source)
        .map(|(leaf, value)| (leaf, value.clone().unwrap_or(Value::Null)))
        .collect();
    assemble(&own, 0)
}

/// Puts leaves together again; a struct with only NULL leaves reads NULL (R-N2).
fn assemble(leaves: &[(&Leaf, Value)], depth: usize) -> Value {
    if let [(leaf, value)] = leaves
        && leaf.path.len() == depth
    {
        return value.clone();
    }
    let mut members: BTreeMap<usize, Vec<(&Leaf, Value)>> = BTreeMap::new();
    for (leaf, value) in leaves {
        members
            .entry(leaf.path[depth])
            .or_default()
            .push((leaf, value.clone()));
    }
    let members: Vec<Value> = members
        .values()
        .map(|part| assemble(part, depth + 1))
        .collect();
    if members.iter().all(Value::is_null) {
        Value::Null
    } else {
        Value::Struct(members)
    }
}
