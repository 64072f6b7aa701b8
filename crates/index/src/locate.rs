//! An index that is open: look-ups, and the commits that follow.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use object_store::ObjectStore;
use object_store::path::Path;
use tidegate_change::key::IndexHash;
use tidegate_change::mutants::{Mutant, is_on};
use tidegate_change::{Error, Result};

use crate::entry::{
    FileKind, FileRef, FileTable, GONE, Located, Location, Presence, PresenceOf, file_of,
    stored_hash,
};
use crate::manifest::{IndexManifest, RunDescriptor, RunNames, runs_to_merge};
use crate::merge::{Merger, Rule, Source};
use crate::run::{Hit, Probe, Run};
use crate::writer::{Pruning, RunWriter, Target, missing, write_merged};

/// Segments of a run that are read and searched at a time.
const SEGMENTS_AT_ONCE: usize = 8;

/// The index of one table version.
///
/// Making one reads nothing; a run is opened (one or two reads) when it is first needed, and stays open in
/// the indexes that follow by [`Index::with_manifest`].
#[derive(Clone, Debug)]
pub struct Index {
    target: Target,
    manifest: IndexManifest,
    runs: Vec<Arc<Slot>>,
}

/// A run that is opened on first use.
#[derive(Debug)]
struct Slot {
    descriptor: RunDescriptor,
    open: OnceLock<Arc<Run>>,
}

impl Index {
    /// The index that a manifest names, of the table at `root` in the store.
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>, root: Path, manifest: IndexManifest) -> Self {
        let runs = manifest.runs.iter().map(|d| Slot::new(d.clone())).collect();
        Self {
            target: Target { store, root },
            manifest,
            runs,
        }
    }

    /// The index of another version of the same table; runs that both name stay open.
    #[must_use]
    pub fn with_manifest(&self, manifest: IndexManifest) -> Self {
        let known = |d: &RunDescriptor| self.runs.iter().find(|slot| slot.descriptor == *d);
        let runs = manifest
            .runs
            .iter()
            .map(|d| known(d).map_or_else(|| Slot::new(d.clone()), Arc::clone))
            .collect();
        Self {
            target: self.target.clone(),
            manifest,
            runs,
        }
    }

    /// The runs that make up the index.
    #[must_use]
    pub fn manifest(&self) -> &IndexManifest {
        &self.manifest
    }

    /// Seed of the table's index hashes.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.manifest.seed()
    }

    /// Finds keys by their hashes, in any order; sorted ones are a little cheaper.
    ///
    /// `presence` says what the table's version thinks of a file; it is asked once for each file and run.
    ///
    /// # Errors
    /// `CORRUPT` when a run's bytes are not what was written or an entry names a missing file, `NOT_FOUND`
    /// when a run is lost, and what the store says. Cancel safe.
    pub async fn locate(
        &self,
        hashes: &[IndexHash],
        presence: &(dyn Fn(&FileRef) -> Presence + Sync),
    ) -> Result<Located> {
        let mut probes = probes(hashes)?;
        let mut answer = Answer::new(hashes.len(), presence);
        for position in 0..self.runs.len() {
            let newest = self.runs.len() - 1 - position;
            let position = if is_on(Mutant::OldestRunWins) {
                position
            } else {
                newest
            };
            let Some(slot) = self.runs.get(position) else {
                continue;
            };
            if !slot.may_know(&probes) {
                continue;
            }
            let run = slot.run(&self.target).await?;
            let found = search(&run, &probes).await?;
            if found.is_empty() {
                continue;
            }
            let mut codes = vec![None; run.files().len() + 1];
            for hit in &found {
                answer.take(hit, run.files(), &mut codes)?;
            }
            probes.retain(|probe| !answer.is_resolved(probe.place));
            if probes.is_empty() {
                break;
            }
        }
        Ok(answer.finish())
    }

    /// Writes the changes of a commit and returns the index of the version that the commit makes.
    ///
    /// Where runs become many, the newest are merged in the same step, with the changes as their newest;
    /// runs that the new manifest no longer names serve older versions and may go when those do.
    /// `presence` speaks for the new version. Nothing is visible before the manifest is committed.
    ///
    /// # Errors
    /// As [`Index::locate`], and `INTERNAL` when two changes are of one key.
    pub async fn commit(
        &self,
        changes: RunWriter,
        names: &mut RunNames,
        presence: &(dyn Fn(&FileRef) -> Presence + Sync),
    ) -> Result<IndexManifest> {
        if changes.is_empty() {
            return Ok(self.manifest.clone());
        }
        let mut sizes: Vec<u64> = self.manifest.runs.iter().map(|run| run.entries).collect();
        sizes.push(u64::try_from(changes.len()).unwrap_or(u64::MAX));
        if let Some(range) = runs_to_merge(&sizes) {
            return self
                .merge(range.start..self.runs.len(), Some(changes), names, presence)
                .await;
        }
        let mut manifest = self.manifest.clone();
        manifest
            .runs
            .push(changes.write(&self.target, names.next_path()).await?);
        Ok(manifest)
    }

    /// Merges all runs into one and returns the index that has it.
    ///
    /// # Errors
    /// As [`Index::locate`].
    pub async fn compact(
        &self,
        names: &mut RunNames,
        presence: &(dyn Fn(&FileRef) -> Presence + Sync),
    ) -> Result<IndexManifest> {
        if self.runs.is_empty() {
            return Ok(self.manifest.clone());
        }
        self.merge(0..self.runs.len(), None, names, presence).await
    }

    /// Replaces the runs of a range that ends with the newest, and changes on top, by one.
    async fn merge(
        &self,
        range: Range<usize>,
        changes: Option<RunWriter>,
        names: &mut RunNames,
        presence: &PresenceOf<'_>,
    ) -> Result<IndexManifest> {
        let pruning = Pruning {
            oldest: range.start == 0,
            presence,
        };
        let mut manifest = self.manifest.clone();
        let merged = manifest
            .runs
            .split_off(range.start.min(manifest.runs.len()));
        let level = merged
            .iter()
            .map(|run| run.level)
            .max()
            .map_or(0, |level| level + 1);
        let mut sources = self.sources(range).await?;
        let rule = Rule::Newest {
            commit_from: sources.len(),
        };
        if let Some(mut changes) = changes {
            sources.append(&mut changes.sources().await?);
        }
        let merger = Merger::new(sources, rule);
        let run = write_merged(merger, pruning, &self.target, names.next_path(), level).await?;
        manifest.runs.extend(run);
        Ok(manifest)
    }

    /// Where the table and its runs lie.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// The entries of all keys, one for each.
    pub(crate) async fn merged(&self) -> Result<Merger> {
        let rule = Rule::Newest {
            commit_from: self.runs.len(),
        };
        Ok(Merger::new(self.sources(0..self.runs.len()).await?, rule))
    }

    async fn sources(&self, range: Range<usize>) -> Result<Vec<Source>> {
        let mut sources = Vec::with_capacity(range.len() + 1);
        for slot in self.runs.get(range).unwrap_or_default() {
            sources.push(Source::run(slot.run(&self.target).await?));
        }
        Ok(sources)
    }
}

impl Slot {
    fn new(descriptor: RunDescriptor) -> Arc<Self> {
        Arc::new(Self {
            descriptor,
            open: OnceLock::new(),
        })
    }

    fn may_know(&self, probes: &[Probe]) -> bool {
        match (probes.first(), probes.last()) {
            (Some(first), Some(last)) => {
                first.hash <= self.descriptor.last && last.hash >= self.descriptor.first
            }
            _ => false,
        }
    }

    /// The open run. Two callers may open it at once; one of the two equal results stays.
    async fn run(&self, target: &Target) -> Result<Arc<Run>> {
        if let Some(run) = self.open.get() {
            return Ok(Arc::clone(run));
        }
        let run = Arc::new(Run::open(&target.store, &target.root, &self.descriptor).await?);
        Ok(Arc::clone(self.open.get_or_init(|| run)))
    }
}

/// The hashes in order, each with its place in the question.
fn probes(hashes: &[IndexHash]) -> Result<Vec<Probe>> {
    let mut probes = Vec::with_capacity(hashes.len());
    for (place, hash) in hashes.iter().enumerate() {
        let place = u32::try_from(place)
            .map_err(|_| Error::internal("index: more hashes than a look-up takes"))?;
        probes.push(Probe {
            hash: stored_hash(*hash),
            place,
        });
    }
    probes.sort_unstable_by_key(|probe| probe.hash);
    Ok(probes)
}

async fn search(run: &Arc<Run>, probes: &[Probe]) -> Result<Vec<Hit>> {
    // Boxed, so that callers may look up in a spawned task: an opaque future per closure is not general
    // enough over the lifetimes of segment and probes.
    let mut searches: Vec<BoxFuture<'_, Result<Vec<Hit>>>> = Vec::new();
    for (segment, probes) in run.split(probes) {
        searches.push(run.search(segment, probes).boxed());
    }
    let mut parts = stream::iter(searches).buffered(SEGMENTS_AT_ONCE);
    let mut found = Vec::new();
    while let Some(hits) = parts.try_next().await? {
        found.extend(hits);
    }
    Ok(found)
}

/// Gathers what runs say, newest first.
struct Answer<'a> {
    presence: &'a PresenceOf<'a>,
    files: FileTable,
    locations: Vec<Location>,
    resolved: Vec<bool>,
}

impl<'a> Answer<'a> {
    fn new(count: usize, presence: &'a PresenceOf<'a>) -> Self {
        Self {
            presence,
            files: FileTable::default(),
            locations: vec![Location::Absent; count],
            resolved: vec![false; count],
        }
    }

    fn take(&mut self, hit: &Hit, files: &[FileRef], codes: &mut [Option<u32>]) -> Result<()> {
        if hit.code == GONE && is_on(Mutant::GoneIsForgotten) {
            return Ok(());
        }
        let place = usize::try_from(hit.place).unwrap_or(usize::MAX);
        let location = self.location(hit, files, codes)?;
        if let (Some(slot), Some(resolved)) =
            (self.locations.get_mut(place), self.resolved.get_mut(place))
        {
            *slot = location;
            *resolved = true;
        }
        Ok(())
    }

    /// `codes` translates the run's codes into the answer's, once asked.
    fn location(
        &mut self,
        hit: &Hit,
        files: &[FileRef],
        codes: &mut [Option<u32>],
    ) -> Result<Location> {
        if hit.code == GONE {
            return Ok(Location::Absent);
        }
        let slot = usize::try_from(hit.code)
            .ok()
            .and_then(|code| codes.get_mut(code));
        let (Some(slot), Some(file)) = (slot, file_of(files, hit.code)) else {
            return Err(Error::corrupt(
                "index run: an entry names a file that the run lacks",
            ));
        };
        let code = match *slot {
            Some(code) => code,
            None => match (self.presence)(file) {
                Presence::Present => self.files.code(file),
                Presence::Dropped => GONE,
                Presence::Missing => return Err(missing(file)),
            },
        };
        *slot = Some(code);
        let (Some(position), row) = (code.checked_sub(1), hit.row) else {
            return Ok(Location::Absent);
        };
        Ok(match file.kind {
            FileKind::Data => Location::Live {
                file: position,
                row,
            },
            FileKind::State => Location::Tombstone {
                file: position,
                row,
            },
        })
    }

    fn is_resolved(&self, place: u32) -> bool {
        usize::try_from(place)
            .ok()
            .and_then(|p| self.resolved.get(p))
            .copied()
            .unwrap_or(true)
    }

    fn finish(self) -> Located {
        Located {
            files: self.files.into_files(),
            locations: self.locations,
        }
    }
}
