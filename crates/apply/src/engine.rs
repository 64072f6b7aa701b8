//! One batch on one table in one process: decode, classify, merge by bucket, write, say what to commit.

use std::sync::Arc;

use serde_json::Value;
use tidegate_change::mutants::{Mutant, is_on};
use tidegate_change::sequence::{SequenceBytes, SequenceEncoder};
use tidegate_change::spec::layout::SequenceSource;
use tidegate_change::spec::{ResolvedSpec, TableLayout};
use tidegate_change::{Code, Result, TableSpec};
use tidegate_decode::DecodePlan;
use tidegate_delta::TableDefinition;
use tidegate_delta::actions::Action;
use tidegate_delta::names;
use tidegate_merge::{MergeContext, MergeMode, MergeRules};

use crate::attempt_output::AttemptOutput;
use crate::kept_batches::KeptBatches;
use crate::merging::{self, Merged};
use crate::observer::Progressing;
use crate::progress::{
    self, Progress, RejectsFile, RejectsManifest, StateManifest, domain_action, sequence_from_json,
    sequence_to_json,
};
use crate::sources::{self, Events};
use crate::spill::SpillDirectory;
use crate::summary::{Noted, Summary};
use crate::table::{Attempt, TableView};
use crate::work::{Manifest, SourceInput, Work};
use crate::{files, index_rebuild, reject, retention, truncation};

/// Applies one batch and returns what its commit must say. Nothing is visible before that commit.
///
/// Cancel safe: files of a dropped call carry the attempt's name and are collected with it.
///
/// # Errors
/// What the batch breaks (`NULL_KEY`, `INVALID_VALUE`, …), failures of storage; `STORAGE_FULL` or
/// `RESOURCE_EXHAUSTED` when it exceeds its limits.
pub async fn execute(work: &Work) -> Result<Manifest> {
    let first = is_first(work);
    let directory = SpillDirectory::new(&work.limits, work.attempt);
    let progressing = Progressing::new(work.observer.clone(), source_bytes(work));
    let events = sources::read(work, first, &directory, &progressing)?;
    let definition = TableDefinition::evolve(&events.resolved, &work.snapshot)?;
    let mut actions = definition.changes_from(&work.snapshot);
    let mut table = TableView::open(
        &work.root,
        &work.snapshot,
        definition.schema()?,
        (events.resolved.clone(), events.layout.clone()),
        Attempt {
            id: work.attempt,
            now_ms: work.now_ms,
            sources: work
                .sources
                .iter()
                .map(|s| s.name.as_str().into())
                .collect(),
        },
    )?;
    if work.rebuild_index {
        index_rebuild::rebuild(&mut table, &work.limits, &directory).await?;
    }
    let batch = Batch {
        work,
        table: Arc::new(table),
        directory,
        progressing,
    };
    let (manifest, mut rest) = batch.run(events).await?;
    actions.append(&mut rest);
    Ok(Manifest {
        actions,
        ..manifest
    })
}

/// Bytes of all sources; None where one does not tell.
fn source_bytes(work: &Work) -> Option<u64> {
    let sizes = work.sources.iter().map(|source| match &source.input {
        SourceInput::Bytes(bytes) => Some(bytes.len() as u64),
        SourceInput::Path(path) => {
            let metadata = std::fs::metadata(path).ok()?;
            metadata.is_file().then_some(metadata.len())
        }
    });
    sizes.sum()
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

struct Batch<'a> {
    work: &'a Work,
    table: Arc<TableView>,
    directory: Arc<SpillDirectory>,
    progressing: Arc<Progressing>,
}

/// Numbers of the batch that hold for all slices.
struct Numbers {
    horizon: Option<SequenceBytes>,
    truncates: Vec<SequenceBytes>,
    new_truncates: Vec<SequenceBytes>,
    max_truncate: Option<SequenceBytes>,
}

impl Batch<'_> {
    async fn run(self, events: Events) -> Result<(Manifest, Vec<Action>)> {
        let table = &self.table;
        let numbers = numbers(table, &events.summary).await?;
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
        let limits = &self.work.limits;
        let mut merged = Merged {
            output: AttemptOutput::new(limits, &self.directory)?,
            rejects: events.summary.rejects,
            max_sequence: None,
            tie_example: None,
            unresolved: 0,
        };
        let merging = merging::Merging {
            table,
            rules: &rules,
            limits,
            progressing: &self.progressing,
        };
        merging.run(events.backlog, &mut merged).await?;
        // With hard deletes a truncate below an earlier one has nothing left to do.
        let rises = rules.mode() == MergeMode::Flagged
            || numbers.new_truncates.last() > numbers.truncates.iter().max();
        let sweeps = rises && !is_on(Mutant::TruncateOfNamedKeys);
        if let Some(greatest) = numbers.new_truncates.last().filter(|_| sweeps) {
            truncation::sweep(table, &rules, greatest, &mut merged.output).await?;
        }
        let read = Read {
            events: events.summary.events,
            ignored: events.summary.ignored,
            noted: events.summary.noted,
            evolved: events.evolved,
        };
        self.commit(merged, read, &rules, &numbers).await
    }

    async fn commit(
        self,
        mut merged: Merged,
        read: Read,
        rules: &MergeRules,
        numbers: &Numbers,
    ) -> Result<(Manifest, Vec<Action>)> {
        let table = &self.table;
        let output = &mut merged.output;
        let data_change = write_feed(table, rules, output).await?;
        let mut actions = output.file_actions(table, data_change).await?;
        actions.extend(output.write_index(table).await?);
        let mut states = retention::surviving(table);
        states.append(&mut output.states);
        let states = StateManifest { files: states };
        if states != table.states {
            actions.push(domain_action(progress::STATE, &states)?);
        }
        actions.extend(write_rejects(table, output, &mut merged.rejects).await?);
        // Tables without a sequence have none to remember (R-W1).
        let has_sequence = table.layout.sequence_by != SequenceSource::None;
        let max_sequence = merged.max_sequence.filter(|_| has_sequence);
        let progress = next_progress(table, numbers, rules.mode(), max_sequence)?;
        if progress != table.progress {
            actions.push(domain_action(progress::PROGRESS, &progress)?);
        }
        let counters = &mut output.counters;
        counters.events = read.events;
        counters.ignored = read.ignored;
        counters.absent = read.noted.absent;
        counters.unrepresentable = read.noted.unrepresentable;
        counters.unresolved = merged.unresolved;
        let other = read.noted.other.0.iter();
        let manifest = Manifest {
            actions: Vec::new(),
            counters: *counters,
            watermark: progress.watermark,
            offsets: read.noted.offsets,
            other: other.map(|(k, v)| ((*k).to_owned(), *v)).collect(),
            written: std::mem::take(&mut output.written),
            resolved: evolved(read.evolved, &table.resolved),
            tie_example: merged.tie_example,
        };
        Ok((manifest, actions))
    }
}

/// What reading the sources counted.
struct Read {
    events: u64,
    ignored: u64,
    noted: Noted,
    evolved: bool,
}

fn evolved(evolved: bool, resolved: &ResolvedSpec) -> Option<ResolvedSpec> {
    evolved.then(|| resolved.clone())
}

async fn numbers(table: &TableView, summary: &Summary) -> Result<Numbers> {
    let stored = &table.progress.truncates;
    let truncates = stored
        .iter()
        .filter_map(|value| sequence_from_json(&table.encoder, value).transpose())
        .collect::<Result<Vec<_>>>()?;
    let new = summary.truncates.iter();
    Ok(Numbers {
        horizon: retention::horizon(table).await?,
        max_truncate: summary.truncates.last().cloned(),
        new_truncates: new
            .filter(|sequence| !truncates.contains(sequence))
            .cloned()
            .collect(),
        truncates,
    })
}

/// Writes the change files that mode `true` needs; false when no change of the commit is visible (R-C8, R-C9).
async fn write_feed(
    table: &TableView,
    rules: &MergeRules,
    output: &mut AttemptOutput,
) -> Result<bool> {
    if !rules.feed() {
        return Ok(true);
    }
    let dies = output.has_dead();
    if dies && !output.has_feed() {
        return Ok(false);
    }
    // Inserts alone and deletes alone are inferred right by every reader.
    if dies && output.has_adds() {
        output.write_feed(table).await?;
    }
    Ok(true)
}

/// Writes the rejects, a file for as many as fit into memory.
async fn write_rejects(
    table: &TableView,
    output: &mut AttemptOutput,
    rejects: &mut KeptBatches,
) -> Result<Option<Action>> {
    if rejects.rows() == 0 {
        return Ok(None);
    }
    output.counters.quarantined = rejects.rows();
    let mut manifest: RejectsManifest = progress::read_domain(&table.snapshot, progress::REJECTS)?;
    let version = table.snapshot.version.next().0;
    for (number, group) in (0u32..).zip(rejects.take_groups()) {
        let path = names::rejects_file(table.attempt, number);
        let batch = reject::sorted_rejects(&group.load()?)?;
        output.counters.bytes_written += files::write_file(&table.root, &path, &batch).await?;
        output.counters.files_written += 1;
        output.written.push(path.clone());
        manifest.files.push(RejectsFile {
            path,
            rows: batch.num_rows() as u64,
            version,
        });
    }
    domain_action(progress::REJECTS, &manifest).map(Some)
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
