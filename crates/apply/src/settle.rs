//! What reading all sources of a batch came to: columns, truncates and counts, or that they are read again.
//!
//! Pure: the node that coordinates decides it from the summaries alone.

use std::collections::BTreeSet;

use arrow::datatypes::DataType;
use serde::{Deserialize, Serialize};
use tidegate_change::spec::{ResolvedSpec, TableLayout, TableMode};
use tidegate_change::{Error, Result};
use tidegate_decode::{Findings, evolve};

use crate::classify::Classifier;
use crate::plan::{ReadCounts, ReadSpec};
use crate::reject::refusal;
use crate::summary::{ReadSummary, RefusedEvent};

/// Rounds of reading after which the columns must be known.
const ROUNDS_MAX: u32 = 4;

/// What the summaries of a round say.
#[derive(Clone, Debug, PartialEq)]
pub enum Settlement {
    /// All sources are read again; what was held of their events is dropped.
    ReadAgain(Box<ReadSpec>),
    /// The columns are known, the events can be merged.
    Settled(Box<Settled>),
}

/// What reading came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// The spec with the columns that this batch added.
    pub resolved: ResolvedSpec,
    /// Whether it added any.
    pub evolved: bool,
    /// Which payload columns some source carries, in table order (R-N5).
    pub carried: Vec<bool>,
    /// Whether key changes leave columns open that their old keys may fill (R-K6): the halves of such a
    /// change lie in different buckets, so that the batch has one owner for all of them.
    pub carries: bool,
    /// Sequences of truncates, as JSON text.
    pub truncates: BTreeSet<String>,
    /// Counts.
    pub counts: ReadCounts,
}

/// Settles a round of reading; the order of the summaries does not matter.
///
/// # Errors
/// The first invalid event under `on_invalid: fail`; `INVALID_RECORD` for sources that are not of one
/// table; conditions that do not compile against the columns.
pub fn settle(spec: &ReadSpec, mut summaries: Vec<ReadSummary>) -> Result<Settlement> {
    // Columns are added in the order of the sources that have them.
    summaries.sort_by_key(|summary| summary.source);
    let mut findings = Findings::default();
    let mut all = ReadSummary::new(0);
    for mut summary in summaries {
        findings.merge(std::mem::take(&mut summary.findings))?;
        all.merge(summary)?;
    }
    if let Some(resolved) = evolve(&spec.resolved, &findings, spec.first)? {
        return read_again(ReadSpec {
            resolved,
            evolved: true,
            ..spec.clone()
        });
    }
    if all.is_in_vain {
        // What was found later took back what was found before; the next round keeps its events.
        return read_again(ReadSpec {
            may_skip: false,
            ..spec.clone()
        });
    }
    let resolved = &spec.resolved;
    let layout = resolved.layout();
    if let Ok(layout) = &layout
        && layout.sequence_type.is_some()
    {
        Classifier::new(&resolved.spec, layout)?;
    }
    let layout = known_or_empty(resolved, layout)?;
    if let Some(event) = &all.refused {
        return Err(refused(&resolved.spec.name, event));
    }
    all.carried.resize(layout.payload_columns().count(), false);
    Ok(Settlement::Settled(Box::new(Settled {
        resolved: resolved.clone(),
        evolved: spec.evolved,
        carried: all.carried,
        carries: all.has_open_changes,
        truncates: all.truncates,
        counts: ReadCounts {
            events: all.events,
            ignored: all.ignored,
            absent: all.absent,
            unrepresentable: all.unrepresentable,
            other: all.other,
            offsets: all.offsets,
        },
    })))
}

fn refused(table: &str, event: &RefusedEvent) -> Error {
    refusal(table, event.code(), &event.file, &event.detail)
}

fn read_again(spec: ReadSpec) -> Result<Settlement> {
    let round = spec.round + 1;
    if round >= ROUNDS_MAX {
        return Err(Error::internal(format!(
            "table {}: the columns of the batch do not settle",
            spec.resolved.spec.name
        )));
    }
    Ok(Settlement::ReadAgain(Box::new(ReadSpec { round, ..spec })))
}

/// A batch without any row event leaves columns and the type of positions unknown; that is no fault.
pub(crate) fn known_or_empty(
    resolved: &ResolvedSpec,
    layout: Result<TableLayout>,
) -> Result<TableLayout> {
    match layout {
        Err(_) if resolved.columns.is_empty() => {
            let mut bare = resolved.clone();
            bare.spec.keys.clear();
            bare.spec.sequence_by = None;
            bare.spec.mode = TableMode::InsertOnly;
            bare.layout()
        }
        Ok(mut layout) if layout.sequence_type.is_none() => {
            // Any type serves where there is no event; the table's own stays open.
            layout.sequence_type = Some(DataType::Int64);
            Ok(layout)
        }
        other => other,
    }
}
