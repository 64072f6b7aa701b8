//! From source files to classified changes: decode, fix or evolve the columns, classify.
//!
//! Files are read in chunks and decoded in parallel, in order. What the plan does not know (new columns,
//! wider types, the position's type) is found on the way; the batch is then decoded again with the evolved
//! spec, so that all its events are read by one schema (R-E1).

use std::collections::BTreeMap;
use std::fs::File;

use arrow::datatypes::DataType;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use tidegate_change::source::{InvalidEvent, OtherRecords};
use tidegate_change::spec::{OnInvalid, ResolvedSpec, TableLayout, TableMode};
use tidegate_change::{Code, Error, Result, TableSpec};
use tidegate_decode::{Chunk, Chunks, DecodePlan, Decoded, Findings, Input, evolve, open};

use crate::classify::{Classified, Classifier};
use crate::reject::refusal;
use crate::work::{SourceFile, SourceInput};

/// Rounds of decoding after which the columns must be known.
const ROUNDS_MAX: usize = 4;

/// The events of a batch, classified.
#[derive(Debug)]
pub(crate) struct Events {
    /// Parts in order of arrival.
    pub parts: Vec<Classified>,
    /// The spec that they were read by.
    pub resolved: ResolvedSpec,
    /// Its layout.
    pub layout: TableLayout,
    /// Whether the batch changed the spec's columns.
    pub evolved: bool,
    /// Quarantined events.
    pub rejects: Vec<InvalidEvent>,
    /// Records of other classes.
    pub other: OtherRecords,
    /// Greatest offset + 1 found in records.
    pub offsets: BTreeMap<String, i64>,
    /// Events read, quarantined ones included.
    pub events: u64,
    /// Truncates that the policy ignores.
    pub ignored: u64,
    /// Fields that JSON events lacked (R-N5).
    pub absent: u64,
    /// Values that Delta cannot hold (R-K9).
    pub unrepresentable: u64,
}

/// What one chunk gave, before it is put in order.
struct Part {
    classified: Vec<Classified>,
    other: OtherRecords,
    offsets: BTreeMap<String, i64>,
    absent: u64,
    unrepresentable: u64,
    findings: Findings,
}

/// Reads all sources of a batch.
///
/// # Errors
/// The first invalid event under `on_invalid: fail`; files that cannot be read.
pub(crate) fn read(sources: &[SourceFile], resolved: &ResolvedSpec, first: bool) -> Result<Events> {
    let mut current = resolved.clone();
    for _ in 0..ROUNDS_MAX {
        let plan = DecodePlan::new(&current)?;
        // The layout does not resolve while columns that it names are still to be inferred.
        let layout = current.layout();
        let known = layout
            .as_ref()
            .ok()
            .filter(|layout| layout.sequence_type.is_some());
        let classifier = known.map(|layout| Classifier::new(&current.spec, layout));
        let usable = classifier
            .as_ref()
            .and_then(|classifier| classifier.as_ref().ok());
        let parts = decode_all(sources, &plan, usable)?;
        let mut findings = Findings::default();
        let mut done = Vec::with_capacity(parts.len());
        for mut part in parts {
            findings.merge(std::mem::take(&mut part.findings))?;
            done.push(part);
        }
        if let Some(next) = evolve(&current, &findings, first)? {
            current = next;
            continue;
        }
        classifier.transpose()?;
        let layout = known_or_empty(&current, layout)?;
        return gather(done, current.clone(), layout, current != *resolved);
    }
    Err(Error::internal(format!(
        "table {}: the columns of the batch do not settle",
        resolved.spec.name
    )))
}

/// A batch without any row event leaves columns and the type of positions unknown; that is no fault.
fn known_or_empty(resolved: &ResolvedSpec, layout: Result<TableLayout>) -> Result<TableLayout> {
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

fn decode_all(
    sources: &[SourceFile],
    plan: &DecodePlan,
    classifier: Option<&Classifier>,
) -> Result<Vec<Part>> {
    let wave = rayon::current_num_threads().max(1) * 2;
    let mut parts = Vec::new();
    let mut pending: Vec<Chunk> = Vec::with_capacity(wave);
    for source in sources {
        for chunk in chunks_of(source, plan)? {
            pending.push(chunk.map_err(|e| e.context(&source.name))?);
            if pending.len() >= wave {
                parts.extend(decode_wave(std::mem::take(&mut pending), plan, classifier)?);
            }
        }
    }
    parts.extend(decode_wave(pending, plan, classifier)?);
    Ok(parts)
}

fn decode_wave(
    chunks: Vec<Chunk>,
    plan: &DecodePlan,
    classifier: Option<&Classifier>,
) -> Result<Vec<Part>> {
    let one = |chunk: Chunk| classify_chunk(plan.decode(&chunk)?, classifier);
    match chunks.len() {
        0 | 1 => chunks.into_iter().map(one).collect(),
        _ => chunks.into_par_iter().map(one).collect(),
    }
}

fn classify_chunk(decoded: Decoded, classifier: Option<&Classifier>) -> Result<Part> {
    let mut part = Part {
        classified: Vec::with_capacity(decoded.batches.len()),
        other: OtherRecords::default(),
        offsets: BTreeMap::new(),
        absent: 0,
        unrepresentable: 0,
        findings: decoded.findings,
    };
    for batch in decoded.batches {
        part.other.add(&batch.other);
        part.absent += batch.absent;
        part.unrepresentable += batch.unrepresentable;
        for (partition, next) in &batch.offsets {
            let entry = part.offsets.entry(partition.clone()).or_insert(*next);
            *entry = (*entry).max(*next);
        }
        if let Some(classifier) = classifier {
            part.classified.push(classifier.classify(&batch)?);
        }
    }
    Ok(part)
}

fn chunks_of(source: &SourceFile, plan: &DecodePlan) -> Result<Chunks> {
    let input = match &source.input {
        SourceInput::Bytes(bytes) => Input::Bytes(bytes.clone()),
        SourceInput::Path(path) => {
            Input::File(File::open(path).map_err(|e| Error::io(&source.name, e))?)
        }
    };
    open(plan, source.format, &source.name, input, None).map_err(|e| e.context(&source.name))
}

fn gather(
    parts: Vec<Part>,
    resolved: ResolvedSpec,
    layout: TableLayout,
    evolved: bool,
) -> Result<Events> {
    let mut events = Events {
        parts: Vec::new(),
        resolved,
        layout,
        evolved,
        rejects: Vec::new(),
        other: OtherRecords::default(),
        offsets: BTreeMap::new(),
        events: 0,
        ignored: 0,
        absent: 0,
        unrepresentable: 0,
    };
    for part in parts {
        events.other.add(&part.other);
        events.absent += part.absent;
        events.unrepresentable += part.unrepresentable;
        for (partition, next) in part.offsets {
            let entry = events.offsets.entry(partition).or_insert(next);
            *entry = (*entry).max(next);
        }
        for mut classified in part.classified {
            events.events += classified.events;
            events.ignored += classified.ignored;
            events.rejects.append(&mut classified.rejects);
            if !classified.kinds.is_empty() || !classified.truncates.is_empty() {
                events.parts.push(classified);
            }
        }
    }
    check_rejects(&events.resolved.spec, &events.rejects)?;
    Ok(events)
}

/// The first event that must not be set apart refuses the batch (R-S2).
fn check_rejects(spec: &TableSpec, rejects: &[InvalidEvent]) -> Result<()> {
    let fails = |event: &&InvalidEvent| {
        let policy = event.policy.unwrap_or(spec.on_invalid);
        policy == OnInvalid::Fail && event.code != Code::LateBeyondRetention
    };
    match rejects
        .iter()
        .filter(fails)
        .min_by_key(|event| (&event.file, event.row))
    {
        Some(event) => Err(refusal(&spec.name, event)),
        None => Ok(()),
    }
}
