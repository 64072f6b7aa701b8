//! Changes of a commit that memory does not hold: sorted runs in a temporary place, merged as they become many.

use std::sync::Arc;

use object_store::ObjectStoreExt;
use tidegate_change::Result;

use crate::entry::{FileTable, Presence, RawEntry};
use crate::manifest::RunDescriptor;
use crate::merge::{Merger, Rule, Source};
use crate::rebuild::{FAN_IN, Spill};
use crate::run::{Run, path_below};
use crate::writer::{Pruning, Target, write_merged};

/// Fewest entries that are put aside at a time.
const ENTRIES_MIN: usize = 16;

/// Runs of one commit in a temporary place; no key is in two of them.
#[derive(Debug)]
pub(crate) struct SpilledRuns {
    target: Target,
    entries_max: usize,
    runs: Vec<RunDescriptor>,
    written: u32,
    entries: usize,
}

impl SpilledRuns {
    /// No run yet.
    pub(crate) fn new(spill: Spill) -> Self {
        Self {
            entries_max: (spill.memory_bytes / size_of::<RawEntry>()).max(ENTRIES_MIN),
            target: Target {
                store: spill.store,
                root: spill.prefix,
            },
            runs: Vec::new(),
            written: 0,
            entries: 0,
        }
    }

    /// Entries that memory may hold.
    pub(crate) fn entries_max(&self) -> usize {
        self.entries_max
    }

    /// Entries in all runs.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// Takes sorted entries that name these files.
    pub(crate) async fn add(&mut self, entries: Vec<RawEntry>, files: &FileTable) -> Result<()> {
        self.entries += entries.len();
        let source = Source::memory(entries, files.files().into());
        let run = self.write(vec![source], 0).await?;
        self.runs.extend(run);
        while let Some(level) = self.full_level() {
            let newest = self.runs.split_off(self.runs.len().saturating_sub(FAN_IN));
            self.join(newest, level + 1).await?;
        }
        Ok(())
    }

    /// The runs as sources of a merge, few enough to be read at once.
    pub(crate) async fn sources(&mut self) -> Result<Vec<Source>> {
        while self.runs.len() > FAN_IN {
            let few = self.runs.split_off(self.runs.len().saturating_sub(FAN_IN));
            self.join(few, 0).await?;
        }
        self.open(&self.runs).await
    }

    /// The level of the newest runs, if they are many.
    fn full_level(&self) -> Option<u32> {
        let level = self.runs.last()?.level;
        let same = self.runs.iter().rev().take_while(|run| run.level == level);
        (same.count() >= FAN_IN).then_some(level)
    }

    async fn join(&mut self, runs: Vec<RunDescriptor>, level: u32) -> Result<()> {
        let sources = self.open(&runs).await?;
        let joined = self.write(sources, level).await?;
        self.runs.extend(joined);
        for run in &runs {
            let path = path_below(&self.target.root, &run.path)?;
            // What stays goes with the temporary place.
            let _ = self.target.store.delete(&path).await;
        }
        Ok(())
    }

    async fn open(&self, runs: &[RunDescriptor]) -> Result<Vec<Source>> {
        let mut sources = Vec::with_capacity(runs.len() + 1);
        for run in runs {
            let run = Run::open(&self.target.store, &self.target.root, run).await?;
            sources.push(Source::run(Arc::new(run)));
        }
        Ok(sources)
    }

    async fn write(&mut self, sources: Vec<Source>, level: u32) -> Result<Option<RunDescriptor>> {
        let path = format!("changes-{}.run", self.written);
        self.written += 1;
        let merger = Merger::new(sources, Rule::Newest { commit_from: 0 });
        let pruning = Pruning {
            oldest: false,
            presence: &|_| Presence::Present,
        };
        write_merged(merger, pruning, &self.target, path, level).await
    }
}
