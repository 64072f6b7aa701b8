//! The commit of a batch out of what the owners of its buckets did.
//!
//! It alone touches what several owners share: deletion vectors of old files, the rows that only a truncate
//! reaches, the index run, rejects files, and the domains.

use std::sync::Arc;

use arrow::array::RecordBatch;
use tidegate_change::Result;
use tidegate_change::mutants::{Mutant, is_on};
use tidegate_change::sequence::SequenceBytes;
use tidegate_change::spec::layout::SequenceSource;
use tidegate_delta::actions::Action;
use tidegate_delta::names;
use tidegate_merge::{MergeMode, MergeRules};

use crate::merging::Merged;
use crate::part::{FeedDecision, FeedOutline, MergePart, PartBatch, PartKind, PartialManifest};
use crate::part_stage::PartStage;
use crate::plan::{BatchTable, MergePlan, Numbers, PhaseMeans};
use crate::progress::{
    self, Progress, RejectsFile, RejectsManifest, StateManifest, domain_action, sequence_from_json,
    sequence_to_json,
};
use crate::spill::SpillDirectory;
use crate::table::TableView;
use crate::work::Manifest;
use crate::{files, reject, retention, truncation};

/// Composes a commit.
#[derive(Debug)]
pub struct Composer {
    table: BatchTable,
    plan: MergePlan,
    numbers: Numbers,
    rules: Arc<MergeRules>,
    merged: Merged,
}

impl Composer {
    /// A commit of nothing yet; `table` is opened for owner 0.
    ///
    /// # Errors
    /// `CORRUPT` when the plan contradicts the table.
    pub fn new(table: &BatchTable, plan: &MergePlan, means: &PhaseMeans) -> Result<Self> {
        let numbers = Numbers::new(&table.view, plan)?;
        let directory = SpillDirectory::new(&means.limits, table.view.attempt);
        Ok(Self {
            rules: numbers.rules(&table.view)?,
            merged: Merged::new(&means.limits, &directory)?,
            table: table.clone(),
            plan: plan.clone(),
            numbers,
        })
    }

    /// Takes quarantined events of a reader.
    ///
    /// # Errors
    /// `STORAGE_FULL` or what else the disk says.
    pub fn take_rejects(&mut self, rejects: RecordBatch) -> Result<()> {
        self.merged.rejects.push(rejects)
    }

    /// Takes the rows of a node, all of which are staged.
    ///
    /// # Errors
    /// `CORRUPT` when they are no rows of a part; `STORAGE_FULL` or what else the disk says.
    pub async fn take_stage(&mut self, stage: &PartStage) -> Result<()> {
        for batch in stage.each() {
            self.merged.take_batch(batch?).await?;
        }
        Ok(())
    }

    /// Takes a part of this process as it is, its change rows included.
    ///
    /// # Errors
    /// Failures of storage.
    pub async fn take_part(&mut self, mut part: MergePart) -> Result<()> {
        if self.merged.output.is_empty() {
            // The one part of an embedded batch: nothing is copied.
            let mut own = part.merged;
            for rejects in own.rejects.take_each() {
                self.merged.rejects.push(rejects?)?;
            }
            std::mem::swap(&mut own.rejects, &mut self.merged.rejects);
            self.merged = own;
            return Ok(());
        }
        for kind in PartKind::ALL {
            while let Some(rows) = part.next_batch(kind).await? {
                self.merged.take_batch(PartBatch { kind, rows }).await?;
            }
        }
        for changes in part.merged.output.feed.take_each() {
            self.merged.output.feed.push(changes?)?;
        }
        self.take_manifest(part.manifest()?)
    }

    /// Takes what an owner on another node says beside rows, once its feed is finished.
    ///
    /// # Errors
    /// `CORRUPT` when it contradicts the table.
    pub fn take_manifest(&mut self, manifest: PartialManifest) -> Result<()> {
        self.merged.take_manifest(&self.table, manifest)
    }

    /// Meets the rows that only a truncate reaches, once the dead rows of all owners are here.
    ///
    /// # Errors
    /// Failures of storage.
    pub async fn sweep(&mut self) -> Result<()> {
        let numbers = &self.numbers;
        // With hard deletes a truncate below an earlier one has nothing left to do.
        let rises = self.rules.mode() == MergeMode::Flagged
            || numbers.new_truncates.last() > numbers.truncates.iter().max();
        let sweeps = rises && !is_on(Mutant::TruncateOfNamedKeys);
        if let Some(greatest) = numbers.new_truncates.last().filter(|_| sweeps) {
            let output = &mut self.merged.output;
            truncation::sweep(&self.table.view, &self.rules, greatest, output).await?;
        }
        Ok(())
    }

    /// What the decision on change files must know of the composer's own rows, and of parts that it took
    /// whole.
    #[must_use]
    pub fn outline(&self) -> FeedOutline {
        self.merged.outline(self.rules.feed())
    }

    /// Writes what is left and says what the commit must say.
    ///
    /// # Errors
    /// Failures of storage; `CORRUPT` when the parts contradict the table.
    pub async fn compose(mut self, decision: FeedDecision) -> Result<Manifest> {
        let table = Arc::clone(&self.table.view);
        let output = &mut self.merged.output;
        output.finish_feed(&table, decision).await?;
        let data_change = decision != FeedDecision::Invisible;
        let mut actions = std::mem::take(&mut self.table.definition);
        actions.append(&mut output.file_actions(&table, data_change).await?);
        actions.extend(output.write_index(&table).await?);
        let mut states = retention::surviving(&table);
        states.append(&mut output.states);
        let states = StateManifest { files: states };
        if states != table.states {
            actions.push(domain_action(progress::STATE, &states)?);
        }
        actions.extend(self.write_rejects().await?);
        let progress = self.next_progress()?;
        if progress != table.progress {
            actions.push(domain_action(progress::PROGRESS, &progress)?);
        }
        let settled = self.plan.settled;
        let output = &mut self.merged.output;
        let counters = &mut output.counters;
        counters.events = settled.counts.events;
        counters.ignored = settled.counts.ignored;
        counters.absent = settled.counts.absent;
        counters.unrepresentable = settled.counts.unrepresentable;
        counters.unresolved = self.merged.unresolved;
        Ok(Manifest {
            actions,
            counters: *counters,
            watermark: progress.watermark,
            offsets: settled.counts.offsets,
            other: settled.counts.other,
            written: std::mem::take(&mut output.written),
            resolved: settled.evolved.then_some(settled.resolved),
            tie_example: self.merged.tie_example,
        })
    }

    /// Writes the rejects, a file for as many as fit into memory.
    async fn write_rejects(&mut self) -> Result<Option<Action>> {
        let (table, merged) = (&self.table.view, &mut self.merged);
        if merged.rejects.rows() == 0 {
            return Ok(None);
        }
        let counters = &mut merged.output.counters;
        counters.quarantined = merged.rejects.rows();
        let mut manifest: RejectsManifest =
            progress::read_domain(&table.snapshot, progress::REJECTS)?;
        let version = table.snapshot.version.next().0;
        for (number, group) in (0u32..).zip(merged.rejects.take_groups()) {
            let path = names::rejects_file(table.attempt, number);
            let batch = reject::sorted_rejects(&group.load()?)?;
            counters.bytes_written += files::write_file(&table.root, &path, &batch).await?;
            counters.files_written += 1;
            merged.output.written.push(path.clone());
            manifest.files.push(RejectsFile {
                path,
                rows: batch.num_rows() as u64,
                version,
            });
        }
        domain_action(progress::REJECTS, &manifest).map(Some)
    }

    fn next_progress(&self) -> Result<Progress> {
        let (table, numbers): (&TableView, _) = (&self.table.view, &self.numbers);
        let encoder = &table.encoder;
        let before: Option<SequenceBytes> = sequence_from_json(encoder, &table.progress.watermark)?
            .filter(|_| !is_on(Mutant::WatermarkFalls));
        // Tables without a sequence have none to remember (R-W1).
        let has_sequence = table.layout.sequence_by != SequenceSource::None;
        let greatest = self.merged.max_sequence.clone().filter(|_| has_sequence);
        let watermark = before.max(greatest).max(numbers.max_truncate.clone());
        Ok(Progress {
            watermark: sequence_to_json(encoder, watermark.as_ref())?,
            truncates: numbers.remembered(table, self.rules.mode())?,
            horizon: sequence_to_json(encoder, numbers.horizon.as_ref())?,
            purged_before_ms: table.purged_before_ms,
        })
    }
}
