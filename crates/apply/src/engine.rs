//! One batch on one table in one process: decode, classify, merge by bucket, write, say what to commit.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use tidegate_change::mutants::{Mutant, is_on};
use tidegate_change::sequence::{SequenceBytes, SequenceEncoder};
use tidegate_change::source::InvalidEvent;
use tidegate_change::spec::layout::SequenceSource;
use tidegate_change::spec::{ResolvedSpec, TableLayout};
use tidegate_change::{Code, Error, Result, TableSpec};
use tidegate_decode::DecodePlan;
use tidegate_delta::actions::{Action, DomainMetadata};
use tidegate_delta::{TableDefinition, names};
use tidegate_index::{FileRef, Presence, RunNames, RunWriter};
use tidegate_merge::{MergeContext, MergeMode, MergeRules};
use tokio::task::JoinSet;

use crate::classify::Classified;
use crate::output::Output;
use crate::partition::{Cut, Slice, slice_by_bucket};
use crate::progress::{
    self, Progress, RejectsFile, RejectsManifest, StateManifest, domain_action, sequence_from_json,
    sequence_to_json,
};
use crate::slice::SliceOutput;
use crate::sources::{self, Events};
use crate::table::{Attempt, TableView};
use crate::work::{Manifest, Work};
use crate::{carrying, files, reject, retention, slice, truncation};

/// Events below which a batch is merged in one slice and written to one file.
const SLICE_EVENTS_MIN: usize = 50_000;

/// Applies one batch and returns what its commit must say. Nothing is visible before that commit.
///
/// Cancel safe: files of a dropped call carry the attempt's name and are collected with it.
///
/// # Errors
/// What the batch breaks (`NULL_KEY`, `INVALID_VALUE`, …), failures of storage.
pub async fn execute(work: &Work) -> Result<Manifest> {
    let first = is_first(work);
    let events = sources::read(&work.sources, &work.resolved, first)?;
    let definition = TableDefinition::evolve(&events.resolved, &work.snapshot)?;
    let mut actions = definition.changes_from(&work.snapshot);
    let table = TableView::open(
        &work.root,
        &work.snapshot,
        definition.schema()?,
        (events.resolved.clone(), events.layout.clone()),
        Attempt {
            id: work.attempt,
            now_ms: work.now_ms,
        },
    )?;
    let batch = Batch {
        table: Arc::new(table),
        events,
    };
    let (manifest, mut rest) = batch.run().await?;
    actions.append(&mut rest);
    Ok(Manifest {
        actions,
        ..manifest
    })
}

/// Refuses, before a table is made or altered, a spec that no batch could be applied to.
///
/// # Errors
/// `UNSUPPORTED` for a mode or a source format that this build does not have.
pub fn check_supported(spec: &TableSpec) -> Result<()> {
    tidegate_merge::check_supported(spec)?;
    match DecodePlan::new(&ResolvedSpec::declared(spec.clone())) {
        Err(e) if e.code() == Code::Unsupported => Err(e),
        // What else a plan may lack comes with the columns of the first batch.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whether no batch has fixed the table's columns yet.
fn is_first(work: &Work) -> bool {
    // A declared sequence has its type from the start; only an inferred one is stored by itself.
    let known = |layout: TableLayout| layout.sequence_type.is_some();
    !work.resolved.layout().is_ok_and(known)
        || !work.snapshot.domains.contains_key(progress::PROGRESS)
}

struct Batch {
    table: Arc<TableView>,
    events: Events,
}

/// Numbers of the batch that hold for all slices.
struct Numbers {
    horizon: Option<SequenceBytes>,
    truncates: Vec<SequenceBytes>,
    new_truncates: Vec<SequenceBytes>,
    max_truncate: Option<SequenceBytes>,
}

/// What all slices did together.
struct Merged {
    output: Output,
    rejects: Vec<InvalidEvent>,
    max_sequence: Option<SequenceBytes>,
    tie_example: Option<Value>,
    unresolved: u64,
}

impl Batch {
    async fn run(mut self) -> Result<(Manifest, Vec<Action>)> {
        let table = Arc::clone(&self.table);
        let parts = std::mem::take(&mut self.events.parts);
        let numbers = numbers(&table, &parts).await?;
        let rules = Arc::new(MergeRules::new(
            &table.layout,
            &table.resolved.spec,
            MergeContext {
                truncates: numbers.truncates.clone(),
                new_truncates: numbers.new_truncates.clone(),
                horizon: numbers.horizon.clone(),
                now_ms: table.now_ms,
            },
        )?);
        let mut merged = merge(&table, &rules, parts).await?;
        // With hard deletes a truncate below an earlier one has nothing left to do.
        let rises = rules.mode() == MergeMode::Flagged
            || numbers.new_truncates.last() > numbers.truncates.iter().max();
        let sweeps = rises && !is_on(Mutant::TruncateOfNamedKeys);
        if let Some(greatest) = numbers.new_truncates.last().filter(|_| sweeps) {
            truncation::sweep(&table, &rules, greatest, &mut merged.output).await?;
        }
        self.commit(merged, &rules, &numbers).await
    }

    async fn commit(
        self,
        mut merged: Merged,
        rules: &MergeRules,
        numbers: &Numbers,
    ) -> Result<(Manifest, Vec<Action>)> {
        let table = &self.table;
        let output = &mut merged.output;
        let data_change = write_feed(table, rules, output).await?;
        let mut actions = output.file_actions(table, data_change).await?;
        let run = output.index_run()?;
        if !run.is_empty() {
            actions.push(commit_index(table, output, run).await?);
        }
        let mut states = retention::surviving(table);
        states.append(&mut output.states);
        let states = StateManifest { files: states };
        if states != table.states {
            actions.push(domain_action(progress::STATE, &states)?);
        }
        let mut rejects = self.events.rejects;
        rejects.append(&mut merged.rejects);
        actions.extend(write_rejects(table, output, rejects).await?);
        // Tables without a sequence have none to remember (R-W1).
        let has_sequence = table.layout.sequence_by != SequenceSource::None;
        let max_sequence = merged.max_sequence.filter(|_| has_sequence);
        let progress = next_progress(table, numbers, rules.mode(), max_sequence)?;
        if progress != table.progress {
            actions.push(domain_action(progress::PROGRESS, &progress)?);
        }
        let counters = &mut output.counters;
        counters.events = self.events.events;
        counters.ignored = self.events.ignored;
        counters.absent = self.events.absent;
        counters.unrepresentable = self.events.unrepresentable;
        counters.unresolved = merged.unresolved;
        let manifest = Manifest {
            actions: Vec::new(),
            counters: *counters,
            watermark: progress.watermark,
            offsets: self.events.offsets,
            other: self
                .events
                .other
                .0
                .iter()
                .map(|(k, v)| ((*k).to_owned(), *v))
                .collect(),
            written: std::mem::take(&mut output.written),
            resolved: evolved(self.events.evolved, &table.resolved),
            tie_example: merged.tie_example,
        };
        Ok((manifest, actions))
    }
}

fn evolved(evolved: bool, resolved: &ResolvedSpec) -> Option<ResolvedSpec> {
    evolved.then(|| resolved.clone())
}

async fn numbers(table: &TableView, parts: &[Classified]) -> Result<Numbers> {
    let stored = &table.progress.truncates;
    let truncates = stored
        .iter()
        .filter_map(|value| sequence_from_json(&table.encoder, value).transpose())
        .collect::<Result<Vec<_>>>()?;
    let mut new_truncates = Vec::new();
    for part in parts.iter().filter(|part| !part.truncates.is_empty()) {
        let rows = table.encoder.encode(&part.truncates)?;
        new_truncates.extend(rows.iter().map(SequenceBytes::from_row));
    }
    let max_truncate = new_truncates.iter().max().cloned();
    new_truncates.sort();
    new_truncates.dedup();
    new_truncates.retain(|sequence| !truncates.contains(sequence));
    let horizon = retention::horizon(table).await?;
    Ok(Numbers {
        horizon,
        truncates,
        new_truncates,
        max_truncate,
    })
}

async fn merge(
    table: &Arc<TableView>,
    rules: &Arc<MergeRules>,
    parts: Vec<Classified>,
) -> Result<Merged> {
    let count: usize = parts.iter().map(|part| part.kinds.len()).sum();
    let carries = carrying::is_needed(&parts);
    let buckets = table.resolved.spec.buckets.count();
    let threads = rayon::current_num_threads().max(1);
    let slices = if carries || count < SLICE_EVENTS_MIN {
        1
    } else {
        threads.min(buckets as usize)
    };
    let mut merged = Merged {
        output: Output::default(),
        rejects: Vec::new(),
        max_sequence: None,
        tie_example: None,
        unresolved: 0,
    };
    if count == 0 {
        return Ok(merged);
    }
    let mut slices = slice_by_bucket(parts, &table.layout, Cut { buckets, slices })?;
    if carries {
        for slice in &mut slices {
            merged.unresolved += carrying::fill(table, rules, slice).await?;
        }
    }
    for part in run_slices(table, rules, slices).await? {
        merged.output.append(part.output);
        merged.rejects.extend(part.rejects);
        merged.max_sequence = merged.max_sequence.max(part.max_sequence);
        merged.tie_example = merged.tie_example.or(part.tie_example);
    }
    Ok(merged)
}

/// Runs the slices, in parallel where the runtime has threads; results come in the order of the slices.
async fn run_slices(
    table: &Arc<TableView>,
    rules: &Arc<MergeRules>,
    slices: Vec<Slice>,
) -> Result<Vec<SliceOutput>> {
    if slices.len() == 1 {
        let mut done = Vec::with_capacity(1);
        for slice in slices {
            done.push(slice::run(Arc::clone(table), Arc::clone(rules), slice).await?);
        }
        return Ok(done);
    }
    let mut tasks = JoinSet::new();
    for (number, slice) in slices.into_iter().enumerate() {
        let (table, rules) = (Arc::clone(table), Arc::clone(rules));
        tasks.spawn(async move { (number, slice::run(table, rules, slice).await) });
    }
    let mut done = Vec::with_capacity(tasks.len());
    while let Some(joined) = tasks.join_next().await {
        let (number, result) =
            joined.map_err(|e| Error::internal("a slice of the batch died").with_source(e))?;
        done.push((number, result?));
    }
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, output)| output).collect())
}

/// Writes the change files that mode `true` needs; false when no change of the commit is visible (R-C8, R-C9).
async fn write_feed(table: &TableView, rules: &MergeRules, output: &mut Output) -> Result<bool> {
    if !rules.feed() {
        return Ok(true);
    }
    let dies = !output.dead.is_empty() || !output.dropped.is_empty();
    if dies && output.feed.is_empty() {
        return Ok(false);
    }
    // Inserts alone and deletes alone are inferred right by every reader.
    if dies && !output.adds.is_empty() {
        output.write_feed(table).await?;
    }
    Ok(true)
}

async fn write_rejects(
    table: &TableView,
    output: &mut Output,
    rejects: Vec<InvalidEvent>,
) -> Result<Option<Action>> {
    if rejects.is_empty() {
        return Ok(None);
    }
    output.counters.quarantined = rejects.len() as u64;
    let rows = rejects.len() as u64;
    let path = names::rejects_file(table.attempt, 0);
    let batch = reject::reject_rows(rejects)?;
    output.counters.bytes_written += files::write_file(&table.root, &path, &batch).await?;
    output.counters.files_written += 1;
    output.written.push(path.clone());
    let mut manifest: RejectsManifest = progress::read_domain(&table.snapshot, progress::REJECTS)?;
    let version = table.snapshot.version.next().0;
    manifest.files.push(RejectsFile {
        path,
        rows,
        version,
    });
    domain_action(progress::REJECTS, &manifest).map(Some)
}

/// Writes the index run; what it says of files is true of the version that the batch makes.
async fn commit_index(table: &TableView, output: &mut Output, run: RunWriter) -> Result<Action> {
    let new: HashSet<String> = output.new_files();
    let dropped: HashSet<Arc<str>> = output.dropped.iter().cloned().collect();
    let presence = |file: &FileRef| {
        if new.contains(&*file.path) {
            Presence::Present
        } else if dropped.contains(&file.path) {
            Presence::Dropped
        } else {
            table.presence(file)
        }
    };
    let before: HashSet<&str> = table
        .index
        .manifest()
        .runs
        .iter()
        .map(|r| r.path.as_str())
        .collect();
    let manifest = table
        .index
        .commit(run, &mut RunNames::new(table.attempt), &presence)
        .await?;
    for run in manifest
        .runs
        .iter()
        .filter(|run| !before.contains(run.path.as_str()))
    {
        output.written.push(run.path.clone());
        output.counters.bytes_written += run.bytes;
    }
    Ok(Action::Domain(DomainMetadata::set(
        progress::INDEX,
        manifest.to_json()?,
    )))
}

fn next_progress(
    table: &TableView,
    numbers: &Numbers,
    mode: MergeMode,
    max_sequence: Option<SequenceBytes>,
) -> Result<Progress> {
    let encoder = &table.encoder;
    let before = sequence_from_json(encoder, &table.progress.watermark)?
        .filter(|_| !is_on(Mutant::WatermarkFalls));
    let watermark = before.max(max_sequence).max(numbers.max_truncate.clone());
    Ok(Progress {
        watermark: sequence_to_json(encoder, watermark.as_ref())?,
        truncates: next_truncates(mode, numbers, encoder)?,
        horizon: sequence_to_json(encoder, numbers.horizon.as_ref())?,
        purged_before_ms: table.purged_before_ms,
    })
}

/// The greatest truncate is enough with hard deletes; soft deletes need all of them (R-X3).
fn next_truncates(
    mode: MergeMode,
    numbers: &Numbers,
    encoder: &SequenceEncoder,
) -> Result<Vec<Value>> {
    let mut all: Vec<&SequenceBytes> = numbers
        .truncates
        .iter()
        .chain(&numbers.new_truncates)
        .collect();
    all.sort();
    match mode {
        MergeMode::First | MergeMode::Once => all.clear(),
        MergeMode::Last => all = all.last().copied().into_iter().collect(),
        MergeMode::Flagged => {}
    }
    all.into_iter()
        .map(|sequence| sequence_to_json(encoder, Some(sequence)))
        .collect()
}
