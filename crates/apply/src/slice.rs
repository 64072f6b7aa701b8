//! One slice of a batch: group, find, resolve, write.

use std::sync::Arc;

use tidegate_change::mutants::{Mutant, is_on};
use tidegate_change::sequence::SequenceBytes;
use tidegate_change::source::{InvalidEvent, Place};
use tidegate_change::{Code, Error, Result, json};
use tidegate_index::IndexHash;
use tidegate_merge::{Grouped, MergeRules, Merged, Stored, group, resolve};

use crate::event_part::Places;
use crate::lookup::{self, Found, Need};
use crate::output::{Output, Placed};
use crate::partition::Slice;
use crate::reject::rule_reject;
use crate::table::TableView;

/// What a slice did.
#[derive(Debug)]
pub(crate) struct SliceOutput {
    /// What it wrote.
    pub output: Output,
    /// Events that the merge did not take.
    pub rejects: Vec<InvalidEvent>,
    /// Greatest sequence of the events that were taken (R-W1).
    pub max_sequence: Option<SequenceBytes>,
    /// A key with a tie, as JSON.
    pub tie_example: Option<serde_json::Value>,
}

/// Merges one slice.
///
/// # Errors
/// Failures of storage; faults of the rules.
pub(crate) async fn run(
    table: Arc<TableView>,
    rules: Arc<MergeRules>,
    mut slice: Slice,
) -> Result<SliceOutput> {
    let events = slice.take_events()?;
    let grouped = group(&rules, events)?;
    let found = lookup::find(&table, grouped.key_columns(), Need::Merge(&rules, &grouped)).await?;
    let stored = Stored {
        refs: &found.refs,
        rows: &found.rows,
        tombstones: &found.tombstones,
    };
    let merged = resolve(&rules, &grouped, &stored)?;
    let rejects = rejects_of(&table, &slice.places, &grouped, &merged.rejects)?;
    let max_sequence = accepted_max(&table, &rules, &grouped, &merged.rejects)?;
    // What tells rows apart without keys never shows.
    let tie_example = merged
        .tie_example
        .filter(|_| table.layout.position.is_none())
        .map(|key| key_json(&table, &grouped, key))
        .transpose()?;
    let output = write(&table, &found, merged).await?;
    Ok(SliceOutput {
        output,
        rejects,
        max_sequence,
        tie_example,
    })
}

/// Writes what a merge gave; `found` are the keys that its groups stand for.
///
/// # Errors
/// Failures of storage.
pub(crate) async fn write(table: &TableView, found: &Found, merged: Merged) -> Result<Output> {
    let mut output = Output {
        counters: merged.counters,
        ..Output::default()
    };
    let hashes_of = |groups: &[u32]| -> Result<Vec<IndexHash>> {
        let hash = |key: &u32| found.hashes.get(*key as usize).copied();
        groups
            .iter()
            .map(|key| hash(key).ok_or_else(|| Error::internal("a group has no key")))
            .collect()
    };
    output
        .write_rows(table, &merged.rows, &hashes_of(&merged.row_groups)?)
        .await?;
    output
        .write_tombstones(
            table,
            &merged.tombstones,
            &hashes_of(&merged.tombstone_groups)?,
        )
        .await?;
    for key in merged
        .replaced
        .iter()
        .filter(|_| !is_on(Mutant::DeadRowsStay))
    {
        let (path, row) = found
            .row_of(*key as usize)
            .ok_or_else(|| Error::internal("a replaced row has no place"))?;
        output.dead.entry(Arc::clone(path)).or_default().push(row);
    }
    // Both lists are ascending; a key that lost its state and got no new one is gone.
    let kept = |key: &u32| {
        merged.row_groups.binary_search(key).is_ok()
            || merged.tombstone_groups.binary_search(key).is_ok()
    };
    let gone: Vec<u32> = merged
        .replaced
        .iter()
        .chain(&merged.superseded_tombstones)
        .filter(|key| !kept(key))
        .copied()
        .collect();
    output.placed.extend(
        hashes_of(&gone)?
            .into_iter()
            .map(|hash| (hash, Placed::Gone)),
    );
    output.feed = merged.feed.filter(|feed| feed.num_rows() > 0);
    Ok(output)
}

/// Events that the merge did not take, as rejects.
///
/// # Errors
/// `INTERNAL` for an event that is not there.
pub(crate) fn rejects_of(
    table: &TableView,
    places: &Places,
    grouped: &Grouped,
    rejects: &[(u32, Code)],
) -> Result<Vec<InvalidEvent>> {
    let nowhere = || Error::internal("a reject has no place");
    rejects
        .iter()
        .map(|(event, code)| {
            let event = *event as usize;
            let (source, row) = places.get(event).ok_or_else(nowhere)?;
            let file = table.sources.get(source as usize).ok_or_else(nowhere)?;
            let raw = event_json(table, grouped, event)?;
            let place = Place {
                row,
                ..Place::default()
            };
            Ok(rule_reject(*code, file, place, raw))
        })
        .collect()
}

/// An event as JSON of the columns that the table stores.
fn event_json(table: &TableView, grouped: &Grouped, event: usize) -> Result<String> {
    let events = grouped.events();
    let mut object = serde_json::Map::new();
    for (column, values) in table.layout.key_columns().zip(&events.keys) {
        object.insert(column.name.clone(), json::value_at(values, event)?);
    }
    for (column, payload) in table.layout.payload_columns().zip(&events.payload) {
        if let Some(values) = &payload.values {
            object.insert(column.name.clone(), json::value_at(values, event)?);
        }
    }
    object.insert("_sequence".into(), json::value_at(&events.sequence, event)?);
    Ok(serde_json::Value::Object(object).to_string())
}

/// The greatest sequence of the events that were taken (R-W1); `rejects` are ascending.
///
/// # Errors
/// `INTERNAL` when a sequence cannot be encoded.
pub(crate) fn accepted_max(
    table: &TableView,
    rules: &MergeRules,
    grouped: &Grouped,
    rejects: &[(u32, Code)],
) -> Result<Option<SequenceBytes>> {
    if rejects.is_empty() {
        return grouped.max_sequence(rules);
    }
    let rows = table.encoder.encode(&grouped.events().sequence)?;
    let rejected = |event: usize| {
        u32::try_from(event)
            .is_ok_and(|e| rejects.binary_search_by_key(&e, |(own, _)| *own).is_ok())
    };
    let taken = rows
        .iter()
        .enumerate()
        .filter(|(event, _)| !rejected(*event));
    Ok(taken.map(|(_, row)| row).max().map(SequenceBytes::from_row))
}

/// A key as JSON.
///
/// # Errors
/// `INTERNAL` for a key that is not there.
pub(crate) fn key_json(
    table: &TableView,
    grouped: &Grouped,
    key: u32,
) -> Result<serde_json::Value> {
    let mut object = serde_json::Map::new();
    for (column, values) in table.layout.key_columns().zip(grouped.key_columns()) {
        object.insert(column.name.clone(), json::value_at(values, key as usize)?);
    }
    Ok(serde_json::Value::Object(object))
}
