//! The events of a batch, merged slice by slice.

use std::sync::Arc;

use arrow::array::RecordBatch;
use serde_json::Value;
use tidegate_change::sequence::SequenceBytes;
use tidegate_change::{Error, Result};
use tidegate_merge::MergeRules;
use tokio::task::JoinSet;

use crate::attempt_output::AttemptOutput;
use crate::backlog::{Backlog, Cursor, SpilledEvents, Waiting};
use crate::bucket_set::BucketSet;
use crate::event_part::EventPart;
use crate::kept_batches::KeptBatches;
use crate::limits::Limits;
use crate::observer::Progressing;
use crate::part::MergePart;
use crate::partition::{Cut, Slice, one_slice, slice_by_bucket};
use crate::plan::{BatchTable, MergePlan, Numbers, PhaseMeans};
use crate::read::ReadPart;
use crate::slice::{self, SliceOutput};
use crate::spill::SpillDirectory;
use crate::spilled_slices::{Next, SliceQueue, WHOLE_SHARE};
use crate::table::TableView;
use crate::{carrying, hot_keys, reject};

/// Events below which a batch is merged in one slice and written to one file.
const SLICE_EVENTS_MIN: u64 = 50_000;

/// What all slices did together.
#[derive(Debug)]
pub(crate) struct Merged {
    /// What they wrote.
    pub output: AttemptOutput,
    /// Events that are set apart.
    pub rejects: KeptBatches,
    /// Greatest sequence of the events that were taken (R-W1).
    pub max_sequence: Option<SequenceBytes>,
    /// A key with a tie, as JSON (R-T5).
    pub tie_example: Option<Value>,
    /// Unavailable values that could not be carried (R-K6).
    pub unresolved: u64,
}

impl Merged {
    /// Nothing yet.
    ///
    /// # Errors
    /// `INTERNAL` when the place for temporary files is none.
    pub(crate) fn new(limits: &Limits, directory: &Arc<SpillDirectory>) -> Result<Self> {
        Ok(Self {
            output: AttemptOutput::new(limits, directory)?,
            rejects: KeptBatches::new(directory, limits.list_bytes()),
            max_sequence: None,
            tie_example: None,
            unresolved: 0,
        })
    }

    async fn take(&mut self, part: SliceOutput) -> Result<()> {
        self.output.take(part.output).await?;
        if !part.rejects.is_empty() {
            self.rejects.push(reject::reject_rows(&part.rejects)?)?;
        }
        self.max_sequence = self.max_sequence.take().max(part.max_sequence);
        self.tie_example = self.tie_example.take().or(part.tie_example);
        Ok(())
    }
}

/// The events of some buckets, on the node that merges them.
#[derive(Debug)]
pub struct MergeIntake {
    table: BatchTable,
    rules: Arc<MergeRules>,
    limits: Limits,
    directory: Arc<SpillDirectory>,
    progressing: Arc<Progressing>,
    backlog: Backlog,
    carries: bool,
    events: u64,
}

impl MergeIntake {
    /// No events yet.
    ///
    /// # Errors
    /// `CORRUPT` when the plan contradicts the table.
    pub fn new(table: &BatchTable, plan: &MergePlan, means: &PhaseMeans) -> Result<Self> {
        let view = &table.view;
        let directory = SpillDirectory::new(&means.limits, view.attempt);
        let mut backlog = Backlog::new(&view.layout, &means.limits, &directory);
        backlog.settle(&plan.settled.carried)?;
        Ok(Self {
            rules: Numbers::new(view, plan)?.rules(view)?,
            limits: means.limits.clone(),
            progressing: Progressing::new(means.observer.clone(), None),
            table: table.clone(),
            directory,
            backlog,
            carries: plan.settled.carries,
            events: plan.settled.counts.events,
        })
    }

    /// Takes events of a reader on another node.
    ///
    /// # Errors
    /// `STORAGE_FULL` or what else the disk says; `RESOURCE_EXHAUSTED` when memory is exceeded and the node
    /// may not spill; `CORRUPT` when they are no events of the plan's layout.
    pub fn take(&mut self, events: &RecordBatch) -> Result<()> {
        self.backlog.take_batch(events)
    }

    /// Takes all events of a reader of this process as they are.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn take_part(&mut self, part: ReadPart) -> Result<()> {
        let Some(mut own) = part.backlog else {
            return Ok(());
        };
        if self.backlog.events() > 0 {
            let (mut at, all) = (Cursor::default(), BucketSet::all());
            while let Some(events) = own.next_batch(&mut at, &all)? {
                self.take(&events)?;
            }
            return Ok(());
        }
        own.settle(self.backlog.carried())?;
        self.backlog = own;
        Ok(())
    }

    /// Merges all events with the table.
    ///
    /// # Errors
    /// Failures of storage; faults of the rules.
    pub async fn merge(self) -> Result<MergePart> {
        let mut merged = Merged::new(&self.limits, &self.directory)?;
        self.progressing
            .begin_merging(self.events, self.table.view.resolved.spec.buckets.count());
        let merging = Merging {
            table: &self.table.view,
            rules: &self.rules,
            limits: &self.limits,
            progressing: &self.progressing,
        };
        merging.run(self.backlog, self.carries, &mut merged).await?;
        Ok(MergePart::new(self.table, merged, self.rules.feed()))
    }
}

/// What merging works with.
#[derive(Clone, Copy, Debug)]
struct Merging<'a> {
    table: &'a Arc<TableView>,
    rules: &'a Arc<MergeRules>,
    limits: &'a Limits,
    progressing: &'a Progressing,
}

impl Merging<'_> {
    async fn run(self, mut backlog: Backlog, carries: bool, merged: &mut Merged) -> Result<()> {
        let count = backlog.events();
        let threads = rayon::current_num_threads().max(1);
        if carries {
            let slice_bytes = self.limits.slice_bytes(threads);
            merged.unresolved +=
                carrying::fill(self.table, self.rules, &mut backlog, slice_bytes).await?;
        }
        match backlog.finish()? {
            Waiting::Held(parts) => {
                let slices = self.cut(parts, count, threads)?;
                self.run_slices(slices, merged).await?;
            }
            Waiting::Spilled(events) => self.run_spilled(events, threads, merged).await?,
        }
        self.progressing.merged(WHOLE_SHARE);
        Ok(())
    }

    fn buckets(&self) -> u32 {
        self.table.resolved.spec.buckets.count()
    }

    fn cut(&self, parts: Vec<EventPart>, count: u64, threads: usize) -> Result<Vec<Slice>> {
        let (layout, buckets) = (&self.table.layout, self.buckets());
        if count == 0 {
            return Ok(Vec::new());
        }
        if count < SLICE_EVENTS_MIN {
            return Ok(vec![one_slice(&parts, layout, buckets)?]);
        }
        let slices = threads.min(buckets as usize);
        slice_by_bucket(&parts, layout, Cut { buckets, slices })
    }

    /// Runs slices in memory, in parallel where the runtime has threads; results come in their order.
    async fn run_slices(&self, slices: Vec<Slice>, merged: &mut Merged) -> Result<()> {
        let share = WHOLE_SHARE / (slices.len() as u64).max(1);
        if slices.len() == 1 {
            for slice in slices {
                let (table, rules) = (Arc::clone(self.table), Arc::clone(self.rules));
                merged.take(slice::run(table, rules, slice).await?).await?;
            }
            return Ok(());
        }
        let mut tasks = JoinSet::new();
        for (number, slice) in slices.into_iter().enumerate() {
            let (table, rules) = (Arc::clone(self.table), Arc::clone(self.rules));
            tasks.spawn(async move { (number, slice::run(table, rules, slice).await) });
        }
        let gathered = self.gather(&mut tasks, share).await;
        // Nothing of a failed attempt goes on: what it wrote is removed next.
        tasks.shutdown().await;
        let mut done = gathered?;
        done.sort_by_key(|(number, _)| *number);
        for (_, output) in done {
            merged.take(output).await?;
        }
        Ok(())
    }

    async fn gather(
        &self,
        tasks: &mut JoinSet<(usize, Result<SliceOutput>)>,
        share: u64,
    ) -> Result<Vec<(usize, SliceOutput)>> {
        let mut done = Vec::with_capacity(tasks.len());
        while let Some(joined) = tasks.join_next().await {
            let (number, result) = joined.map_err(died)?;
            done.push((number, result?));
            self.progressing.merged(share);
        }
        Ok(done)
    }

    /// Runs slices out of files, a few at a time.
    async fn run_spilled(
        &self,
        events: SpilledEvents,
        at_once: usize,
        merged: &mut Merged,
    ) -> Result<()> {
        let mut tasks = JoinSet::new();
        let queue = SliceQueue::new(events, self.limits.slice_bytes(at_once));
        let run = self.run_queue(queue, at_once, &mut tasks, merged).await;
        // As above; the temporary files go with the last task that reads them.
        tasks.shutdown().await;
        run
    }

    async fn run_queue(
        &self,
        mut queue: SliceQueue,
        at_once: usize,
        tasks: &mut JoinSet<Result<(u64, SliceOutput)>>,
        merged: &mut Merged,
    ) -> Result<()> {
        let slice_bytes = self.limits.slice_bytes(at_once);
        loop {
            while tasks.len() < at_once {
                let Some(next) = queue.next()? else { break };
                let (table, rules) = (Arc::clone(self.table), Arc::clone(self.rules));
                let reader = Arc::clone(queue.reader());
                let buckets = self.buckets();
                tasks.spawn(async move {
                    let (Next::Slice(chunk) | Next::HotKey(chunk)) = &next;
                    let share = chunk.share;
                    let done = match next {
                        Next::Slice(chunk) => {
                            let parts = chunk.load(&reader)?;
                            let slice = one_slice(&parts, &table.layout, buckets)?;
                            drop((parts, chunk));
                            slice::run(table, rules, slice).await?
                        }
                        Next::HotKey(chunk) => {
                            hot_keys::run(table, rules, reader, chunk, slice_bytes).await?
                        }
                    };
                    Ok((share, done))
                });
            }
            let Some(joined) = tasks.join_next().await else {
                return Ok(());
            };
            let (share, output) = joined.map_err(died)??;
            merged.take(output).await?;
            self.progressing.merged(share);
        }
    }
}

fn died(error: tokio::task::JoinError) -> Error {
    Error::internal("a slice of the batch died").with_source(error)
}
