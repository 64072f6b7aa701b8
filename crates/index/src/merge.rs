//! Streams of entries from several sources, as one in hash order with one entry a key.
//!
//! Sources are runs, read a segment at a time, or entries in memory. The CPU part runs over decoded
//! segments until one is used up, then the next is read: memory is one segment a source.

use std::sync::Arc;

use tidegate_change::mutants::{Mutant, is_on};
use tidegate_change::{Error, Result};

use crate::entry::{FileKind, FileRef, RawEntry, file_of};
use crate::error;
use crate::run::Run;

/// Entries that one step yields at most.
const STEP_ENTRIES: usize = 64 * 1024;

/// Which of a key's entries stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// That of the newest source. Sources from a position on are pieces of one commit, which says one
    /// thing of a key.
    Newest {
        /// Position of the first source of the commit.
        commit_from: usize,
    },
    /// Entries come from the table itself: a row beats a tombstone, a later tombstone an earlier one, and
    /// two rows contradict invariant 4.
    Table,
}

/// An entry that stands; its code is one of its source's files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Merged {
    pub(crate) entry: RawEntry,
    pub(crate) source: usize,
}

/// One source of entries, in hash order.
#[derive(Debug)]
pub(crate) struct Source {
    run: Option<Arc<Run>>,
    next_segment: usize,
    entries: Vec<RawEntry>,
    position: usize,
    files: Arc<[FileRef]>,
    last: Option<u128>,
}

impl Source {
    pub(crate) fn run(run: Arc<Run>) -> Self {
        let files = Arc::clone(run.files());
        let run = Some(run);
        Self {
            run,
            next_segment: 0,
            entries: Vec::new(),
            position: 0,
            files,
            last: None,
        }
    }

    /// Entries in memory, in hash order, that name these files.
    pub(crate) fn memory(entries: Vec<RawEntry>, files: Arc<[FileRef]>) -> Self {
        Self {
            run: None,
            next_segment: 0,
            entries,
            position: 0,
            files,
            last: None,
        }
    }

    /// The files that the source's codes name.
    pub(crate) fn files(&self) -> &Arc<[FileRef]> {
        &self.files
    }

    fn head(&self) -> Option<&RawEntry> {
        self.entries.get(self.position)
    }

    /// Whether reading could yield an entry that memory does not hold.
    fn is_dry(&self) -> bool {
        let more = self
            .run
            .as_ref()
            .is_some_and(|run| self.next_segment < run.segment_count());
        self.position >= self.entries.len() && more
    }

    async fn refill(&mut self) -> Result<()> {
        let Some(run) = &self.run else { return Ok(()) };
        self.entries = run.read_segment(self.next_segment).await?;
        self.position = 0;
        self.next_segment += 1;
        let rising = self.entries.is_sorted_by(|a, b| a.hash < b.hash);
        let joins = self
            .entries
            .first()
            .is_none_or(|e| self.last.is_none_or(|l| l < e.hash));
        if !rising || !joins {
            return Err(error::corrupt(run.path(), "entries are not in hash order"));
        }
        self.last = self.entries.last().map(|entry| entry.hash);
        let known = |e: &RawEntry| e.code == 0 || file_of(&self.files, e.code).is_some();
        if !self.entries.iter().all(known) {
            return Err(error::corrupt(
                run.path(),
                "an entry names a file that the run lacks",
            ));
        }
        Ok(())
    }
}

/// Merges sources, oldest first.
#[derive(Debug)]
pub(crate) struct Merger {
    sources: Vec<Source>,
    rule: Rule,
}

impl Merger {
    pub(crate) fn new(sources: Vec<Source>, rule: Rule) -> Self {
        Self { sources, rule }
    }

    /// The files that a source's codes name.
    pub(crate) fn file(&self, merged: &Merged) -> Option<&FileRef> {
        file_of(self.sources.get(merged.source)?.files(), merged.entry.code)
    }

    pub(crate) fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The next entries; empty at the end.
    pub(crate) async fn step(&mut self, out: &mut Vec<Merged>) -> Result<()> {
        out.clear();
        loop {
            for source in &mut self.sources {
                if source.is_dry() {
                    source.refill().await?;
                }
            }
            self.merge_decoded(out)?;
            let ended = self
                .sources
                .iter()
                .all(|s| s.head().is_none() && !s.is_dry());
            if ended || out.len() >= STEP_ENTRIES {
                return Ok(());
            }
        }
    }

    /// Merges until enough entries are out or a source has to read.
    fn merge_decoded(&mut self, out: &mut Vec<Merged>) -> Result<()> {
        while out.len() < STEP_ENTRIES {
            let Some(hash) = self
                .sources
                .iter()
                .filter_map(|s| s.head().map(|e| e.hash))
                .min()
            else {
                return Ok(());
            };
            let mut standing: Option<Merged> = None;
            let mut dry = false;
            for position in 0..self.sources.len() {
                let entry = match self.sources.get(position).and_then(Source::head) {
                    Some(entry) if entry.hash == hash => *entry,
                    _ => continue,
                };
                let newer = Merged {
                    entry,
                    source: position,
                };
                standing = Some(match standing {
                    Some(older) => self.resolve(older, newer)?,
                    None => newer,
                });
                if let Some(source) = self.sources.get_mut(position) {
                    source.position += 1;
                    dry |= source.is_dry();
                }
            }
            out.extend(standing);
            if dry {
                return Ok(());
            }
        }
        Ok(())
    }

    fn resolve(&self, older: Merged, newer: Merged) -> Result<Merged> {
        if let Rule::Newest { commit_from } = self.rule {
            if older.source >= commit_from {
                return Err(error::said_twice());
            }
            return Ok(if is_on(Mutant::MergeKeepsOldest) {
                older
            } else {
                newer
            });
        }
        let (Some(old), Some(new)) = (self.file(&older), self.file(&newer)) else {
            return Err(Error::internal(
                "index: an entry of the table names no file",
            ));
        };
        stands(old, older.entry.row, new, newer.entry.row)
            .map(|newer_stands| if newer_stands { newer } else { older })
    }
}

/// Whether the later of two positions of one key stands, by [`Rule::Table`].
pub(crate) fn stands(old: &FileRef, old_row: u32, new: &FileRef, new_row: u32) -> Result<bool> {
    match (old.kind, new.kind) {
        (FileKind::Data, FileKind::Data) => Err(Error::corrupt(format!(
            "key index: one key has two live rows: {} row {old_row} and {} row {new_row}",
            old.path, new.path,
        ))),
        (FileKind::Data, FileKind::State) => Ok(false),
        (FileKind::State, _) => Ok(true),
    }
}
