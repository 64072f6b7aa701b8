//! An index from the table itself: its rows and tombstones, sorted by hash in bounded memory.

use std::sync::Arc;

use futures::stream::{Stream, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tidegate_change::key::IndexHash;
use tidegate_change::{Error, Result};

use crate::entry::{FileRef, FileTable, Presence, RawEntry, file_of, stored_hash};
use crate::locate::Index;
use crate::manifest::{IndexManifest, RunDescriptor, RunNames};
use crate::merge::{Merger, Rule, Source, stands};
use crate::run::Run;
use crate::writer::{Pruning, Target, write_merged};

/// Spilled runs that are merged at a time; each costs a segment, three megabytes with its decoded form.
pub(crate) const FAN_IN: usize = 16;
/// Bytes of an entry while it is sorted.
const ENTRY_BYTES: usize = size_of::<RawEntry>();
/// Fewest entries that are sorted at a time.
const SORTED_MIN: usize = 1024;

/// Rows of one file, or tombstones of one state file.
#[derive(Clone, Debug)]
pub struct KeyRows {
    /// The file.
    pub file: FileRef,
    /// Positions in the file, deleted rows counted but not among them.
    pub rows: Vec<u32>,
    /// Hashes of their keys.
    pub hashes: Vec<IndexHash>,
}

/// Where sorting puts what does not fit into memory.
#[derive(Clone, Debug)]
pub struct Spill {
    /// The store; a local directory for temporary files serves best.
    pub store: Arc<dyn ObjectStore>,
    /// Below this path, which nobody else uses.
    pub prefix: Path,
    /// Bytes of entries that are sorted in memory; merging takes up to 64 MiB besides.
    pub memory_bytes: usize,
}

/// Makes the index of a table version from its rows, as the only run of a new manifest.
///
/// `rows` yields the live rows of all data files and the tombstones of all state files; state files in the
/// order of their commits and without purged tombstones. A row beats a tombstone of its key, a later
/// tombstone an earlier one. The old index is only asked for store and seed; its runs may be lost.
///
/// # Errors
/// `CORRUPT` when two live rows have one key (invariant 4), what `rows` yields, and what the stores say.
pub async fn rebuild(
    old: &Index,
    rows: impl Stream<Item = Result<KeyRows>>,
    spill: Spill,
    names: &mut RunNames,
) -> Result<IndexManifest> {
    let mut sorter = Sorter::new(spill);
    let written = write_sorted(old, rows, &mut sorter, names).await;
    sorter.clean().await;
    let mut manifest = old.manifest().cleared();
    manifest.runs.extend(written?);
    Ok(manifest)
}

async fn write_sorted(
    old: &Index,
    rows: impl Stream<Item = Result<KeyRows>>,
    sorter: &mut Sorter,
    names: &mut RunNames,
) -> Result<Option<RunDescriptor>> {
    sorter.take(rows).await?;
    let merger = sorter.merged().await?;
    let pruning = Pruning {
        oldest: true,
        presence: &|_| Presence::Present,
    };
    write_merged(merger, pruning, old.target(), names.next_path(), 0).await
}

/// Sorts the table's entries; what exceeds memory lies in runs of the spill directory.
pub(crate) struct Sorter {
    target: Target,
    entries_max: usize,
    files: FileTable,
    entries: Vec<RawEntry>,
    spilled: Vec<RunDescriptor>,
    written: Vec<String>,
}

impl Sorter {
    pub(crate) fn new(spill: Spill) -> Self {
        Self {
            target: Target {
                store: spill.store,
                root: spill.prefix,
            },
            entries_max: (spill.memory_bytes / ENTRY_BYTES).max(SORTED_MIN),
            files: FileTable::default(),
            entries: Vec::new(),
            spilled: Vec::new(),
            written: Vec::new(),
        }
    }

    /// Takes everything that the table yields.
    pub(crate) async fn take(&mut self, rows: impl Stream<Item = Result<KeyRows>>) -> Result<()> {
        let mut rows = std::pin::pin!(rows);
        while let Some(part) = rows.try_next().await? {
            if part.rows.len() != part.hashes.len() {
                return Err(Error::internal("index: rows and hashes differ in number"));
            }
            let code = self.files.code(&part.file);
            for (row, hash) in part.rows.into_iter().zip(part.hashes) {
                self.entries.push(RawEntry {
                    hash: stored_hash(hash),
                    code,
                    row,
                });
                if self.entries.len() >= self.entries_max {
                    self.spill().await?;
                }
            }
        }
        Ok(())
    }

    /// The entries of all keys, one for each.
    pub(crate) async fn merged(&mut self) -> Result<Merger> {
        while self.spilled.len() >= FAN_IN {
            let rest = self.spilled.split_off(FAN_IN);
            let oldest = std::mem::replace(&mut self.spilled, rest);
            let sources = self.open(&oldest).await?;
            // The result stands for the oldest spills, so that age stays the order.
            let merged = self.write(sources).await?;
            self.spilled.splice(0..0, merged);
            self.remove(&oldest).await;
        }
        let mut sources = self.open(&self.spilled).await?;
        sources.push(self.sorted()?);
        Ok(Merger::new(sources, Rule::Table))
    }

    /// Removes what was spilled. A failure leaves files in a temporary directory and is no one's concern.
    pub(crate) async fn clean(&mut self) {
        for path in std::mem::take(&mut self.written) {
            self.delete(&path).await;
        }
    }

    async fn spill(&mut self) -> Result<()> {
        let source = self.sorted()?;
        let run = self.write(vec![source]).await?;
        self.spilled.extend(run);
        Ok(())
    }

    /// The entries in memory in hash order, one for each key.
    fn sorted(&mut self) -> Result<Source> {
        let mut entries = std::mem::take(&mut self.entries);
        // Codes rise with the order in which files came, which is the order of age.
        entries.sort_unstable_by_key(RawEntry::sort_key);
        let files = self.files.files();
        let mut kept: usize = 0;
        for position in 0..entries.len() {
            let Some(new) = entries.get(position).copied() else {
                break;
            };
            let before = kept.checked_sub(1).and_then(|p| entries.get(p)).copied();
            let slot = match before {
                Some(old) if old.hash == new.hash => {
                    let (Some(a), Some(b)) = (file_of(files, old.code), file_of(files, new.code))
                    else {
                        return Err(Error::internal("index: an entry names no file"));
                    };
                    if !stands(a, old.row, b, new.row)? {
                        continue;
                    }
                    kept - 1
                }
                _ => kept,
            };
            if let Some(place) = entries.get_mut(slot) {
                *place = new;
            }
            kept = slot + 1;
        }
        entries.truncate(kept);
        Ok(Source::memory(entries, files.into()))
    }

    async fn open(&self, runs: &[RunDescriptor]) -> Result<Vec<Source>> {
        let mut sources = Vec::with_capacity(runs.len() + 1);
        for run in runs {
            let run = Run::open(&self.target.store, &self.target.root, run).await?;
            sources.push(Source::run(Arc::new(run)));
        }
        Ok(sources)
    }

    async fn write(&mut self, sources: Vec<Source>) -> Result<Option<RunDescriptor>> {
        let path = format!("spill-{}.run", self.written.len());
        self.written.push(path.clone());
        let pruning = Pruning {
            oldest: true,
            presence: &|_| Presence::Present,
        };
        write_merged(
            Merger::new(sources, Rule::Table),
            pruning,
            &self.target,
            path,
            0,
        )
        .await
    }

    async fn remove(&self, runs: &[RunDescriptor]) {
        for run in runs {
            self.delete(&run.path).await;
        }
    }

    async fn delete(&self, relative: &str) {
        let path: Path = self
            .target
            .root
            .parts()
            .chain(Path::from(relative).parts())
            .collect();
        match self.target.store.delete(&path).await {
            Ok(()) | Err(_) => {}
        }
    }
}
