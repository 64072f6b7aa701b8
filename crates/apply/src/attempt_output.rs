//! What an attempt has written so far, and the actions of the commit that names it.
//!
//! It grows with the batch while slices come and go, so that every list that has an entry for each row is
//! bounded: index changes, dead rows, change rows and rejects go to files beyond their share of memory.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use tidegate_change::{Counters, Error, Result};
use tidegate_delta::actions::{Action, AddFile, CdcFile, DomainMetadata};
use tidegate_delta::dv::{self, DeletionVector, Remains};
use tidegate_delta::{cdc, path};
use tidegate_index::{Entry, FileRef, IndexHash, Presence, RunWriter, Spill};

use crate::dead_rows::DeadRows;
use crate::kept_batches::KeptBatches;
use crate::limits::Limits;
use crate::output::{Output, Placed};
use crate::part::FeedDecision;
use crate::progress::{self, StateFile};
use crate::spill::SpillDirectory;
use crate::table::TableView;

/// Bytes of deletion vectors that are written into one file, about.
const VECTORS_BYTES: usize = 64 << 20;

/// What an owner of buckets wrote, as data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnerFiles {
    /// New data files.
    pub adds: Vec<AddFile>,
    /// New change data files.
    pub changes: Vec<CdcFile>,
    /// New files of tombstones.
    pub states: Vec<StateFile>,
    /// Counts.
    pub counters: Counters,
    /// Paths of all files written.
    pub written: Vec<String>,
    /// Paths of new data and state files, as the index names them.
    pub new_files: BTreeSet<String>,
}

/// Everything that an attempt wrote and found.
#[derive(Debug)]
pub(crate) struct AttemptOutput {
    adds: Vec<AddFile>,
    changes: Vec<CdcFile>,
    /// New state files.
    pub states: Vec<StateFile>,
    /// Dead positions.
    pub dead: DeadRows,
    /// Data files that die whole without their rows being named.
    dropped: Vec<Arc<str>>,
    run: RunWriter,
    /// Change rows, until it is decided what becomes of them.
    pub feed: KeptBatches,
    /// Counts.
    pub counters: Counters,
    /// Paths of all files written.
    pub written: Vec<String>,
    new_files: HashSet<String>,
}

impl AttemptOutput {
    /// Nothing yet.
    ///
    /// # Errors
    /// `INTERNAL` when the place for temporary files is none.
    pub(crate) fn new(limits: &Limits, directory: &Arc<SpillDirectory>) -> Result<Self> {
        let bytes = limits.list_bytes();
        Ok(Self {
            adds: Vec::new(),
            changes: Vec::new(),
            states: Vec::new(),
            dead: DeadRows::new(directory, bytes),
            dropped: Vec::new(),
            run: match run_spill(directory, bytes)? {
                Some(spill) => RunWriter::with_spill(spill),
                None => RunWriter::new(),
            },
            feed: KeptBatches::new(directory, bytes),
            counters: Counters::default(),
            written: Vec::new(),
            new_files: HashSet::new(),
        })
    }

    /// Takes what a slice did.
    ///
    /// # Errors
    /// `STORAGE_FULL` or what else the disk says; `INTERNAL` when a key is placed twice.
    pub(crate) async fn take(&mut self, mut output: Output) -> Result<()> {
        self.adds.append(&mut output.adds);
        self.states.append(&mut output.states);
        for (path, rows) in output.dead {
            self.dead.add(path, rows)?;
        }
        self.counters.add(&output.counters);
        self.written.append(&mut output.written);
        self.new_files.extend(output.new_files);
        if let Some(feed) = output.feed {
            self.feed.push(feed)?;
        }
        self.place(output.placed)?;
        self.run.relieve().await
    }

    fn place(&mut self, placed: Vec<(IndexHash, Placed)>) -> Result<()> {
        self.run.reserve(placed.len());
        // Rows of one file follow each other: its name is looked up once.
        let mut last: Option<(Arc<str>, Entry)> = None;
        for (hash, placed) in placed {
            let entry = match placed {
                Placed::Row(path, row) => match &last {
                    Some((known, Entry::Live { file, .. })) if Arc::ptr_eq(known, &path) => {
                        Entry::Live { file: *file, row }
                    }
                    _ => {
                        let file = self.run.file(&FileRef::data(Arc::clone(&path)));
                        let entry = Entry::Live { file, row };
                        last = Some((path, entry));
                        entry
                    }
                },
                Placed::Tombstone(path, row) => match &last {
                    Some((known, Entry::Tombstone { file, .. })) if Arc::ptr_eq(known, &path) => {
                        Entry::Tombstone { file: *file, row }
                    }
                    _ => {
                        let file = self.run.file(&FileRef::state(Arc::clone(&path)));
                        let entry = Entry::Tombstone { file, row };
                        last = Some((path, entry));
                        entry
                    }
                },
                Placed::Gone => Entry::Gone,
            };
            self.run.push(hash, entry)?;
        }
        Ok(())
    }

    /// Takes what an owner wrote and noted, its rows apart.
    pub(crate) fn take_files(&mut self, files: OwnerFiles) {
        self.adds.extend(files.adds);
        self.changes.extend(files.changes);
        self.states.extend(files.states);
        self.counters.add(&files.counters);
        self.written.extend(files.written);
        self.new_files.extend(files.new_files);
    }

    /// What this owner wrote and noted, its rows apart.
    pub(crate) fn files(&mut self) -> OwnerFiles {
        OwnerFiles {
            adds: std::mem::take(&mut self.adds),
            changes: std::mem::take(&mut self.changes),
            states: std::mem::take(&mut self.states),
            counters: std::mem::take(&mut self.counters),
            written: std::mem::take(&mut self.written),
            new_files: self.new_files.drain().collect(),
        }
    }

    /// Takes index changes of another node.
    ///
    /// # Errors
    /// `STORAGE_FULL` or what else the disk says; `INTERNAL` when a key is placed twice.
    pub(crate) async fn take_places(&mut self, placed: Vec<(IndexHash, Placed)>) -> Result<()> {
        self.place(placed)?;
        self.run.relieve().await
    }

    /// Takes the index changes out.
    pub(crate) fn take_run(&mut self) -> RunWriter {
        std::mem::take(&mut self.run)
    }

    /// Notes a data file that dies whole.
    ///
    /// # Errors
    /// What the disk says; `CORRUPT` for a file without statistics.
    pub(crate) fn drop_file(&mut self, file: &AddFile) -> Result<()> {
        let replaced = self.dead.remove(&file.path)?;
        let live = file.num_records()?.saturating_sub(file.deleted_count());
        self.counters.deleted += live.saturating_sub(replaced);
        self.dropped.push(file.path.as_str().into());
        Ok(())
    }

    /// Whether rows die.
    pub(crate) fn has_dead(&self) -> bool {
        !self.dead.is_empty() || !self.dropped.is_empty()
    }

    /// Whether rows are added.
    pub(crate) fn has_adds(&self) -> bool {
        !self.adds.is_empty()
    }

    /// Whether there are change rows.
    pub(crate) fn has_feed(&self) -> bool {
        self.feed.rows() > 0
    }

    /// Whether nothing was written and no row dies.
    pub(crate) fn is_empty(&self) -> bool {
        self.written.is_empty() && !self.has_dead() && self.run.is_empty() && !self.has_feed()
    }

    /// Writes the collected change rows, files by partition, or forgets them.
    ///
    /// # Errors
    /// Failures of storage.
    pub(crate) async fn finish_feed(
        &mut self,
        table: &TableView,
        decision: FeedDecision,
    ) -> Result<()> {
        let groups = self.feed.take_groups();
        if decision != FeedDecision::Write {
            return Ok(());
        }
        for group in groups {
            let rows = group.load()?;
            let own = u32::try_from(self.changes.len()).unwrap_or(u32::MAX);
            let number = table.first_file.saturating_add(own);
            let (root, schema) = (&table.root, &table.schema);
            for file in cdc::write_changes(root, schema, table.attempt, number, &rows).await? {
                self.counters.files_written += 1;
                self.counters.bytes_written += u64::try_from(file.size).unwrap_or_default();
                self.written.push(path::decode(&file.path)?);
                self.changes.push(file);
            }
        }
        Ok(())
    }

    /// The `remove`s and `add`s of touched and new files, in an order that does not depend on threads.
    ///
    /// # Errors
    /// Failures of storage; `CORRUPT` when a deletion vector contradicts its file.
    pub(crate) async fn file_actions(
        &mut self,
        table: &TableView,
        data_change: bool,
    ) -> Result<Vec<Action>> {
        let mut actions = Vec::new();
        let mut touched = Vec::new();
        let mut vectors = Vectors::default();
        for path in &self.dropped {
            let remove = table.file(path)?.to_remove(table.now_ms, data_change);
            actions.push(Action::Remove(remove));
        }
        for path in self.dead.paths() {
            let file = table.file(&path)?;
            let dead = self.dead.of(&path)?;
            let vector = dv::of_file(&table.root, file).await?;
            match vector.delete_all(&dead.positions, file.num_records()?)? {
                Remains::Some(vector, died) if died == dead.named => {
                    vectors.add(Arc::clone(file), vector);
                }
                Remains::Nothing => {}
                Remains::Some(..) | Remains::Unchanged => {
                    return Err(Error::corrupt(format!("file {path}: a row dies twice")));
                }
            }
            let remove = file.to_remove(table.now_ms, data_change);
            actions.push(Action::Remove(remove));
            if vectors.bytes >= VECTORS_BYTES {
                touched.append(&mut self.write_vectors(table, &mut vectors, data_change).await?);
            }
        }
        self.counters.files_touched += actions.len() as u64;
        touched.append(&mut self.write_vectors(table, &mut vectors, data_change).await?);
        actions.append(&mut touched);
        self.adds.sort_by(|a, b| a.path.cmp(&b.path));
        for mut add in std::mem::take(&mut self.adds) {
            add.data_change = data_change;
            actions.push(Action::Add(add));
        }
        let changes = std::mem::take(&mut self.changes);
        actions.extend(changes.into_iter().map(Action::Cdc));
        Ok(actions)
    }

    async fn write_vectors(
        &mut self,
        table: &TableView,
        vectors: &mut Vectors,
        data_change: bool,
    ) -> Result<Vec<Action>> {
        let Vectors { files, vectors, .. } = std::mem::take(vectors);
        if vectors.is_empty() {
            return Ok(Vec::new());
        }
        let n = table.next_file();
        let descriptors = dv::write_packed(&table.root, table.attempt, n, &vectors).await?;
        let bytes = descriptors.last().map_or(0, |last| {
            i64::from(last.offset.unwrap_or(0)) + i64::from(last.size_in_bytes) + 8
        });
        self.counters.files_written += 1;
        self.counters.bytes_written += u64::try_from(bytes).unwrap_or_default();
        self.written
            .push(dv::file_name(dv::file_uuid(table.attempt, n)?));
        let touched = files.iter().zip(descriptors);
        let add = |(file, descriptor): (&Arc<AddFile>, _)| {
            Action::Add(file.with_deletion_vector(descriptor, data_change))
        };
        Ok(touched.map(add).collect())
    }

    /// Writes the index run; what it says of files is true of the version that the batch makes. None where
    /// no key's place changes and the index was not rebuilt.
    ///
    /// # Errors
    /// Failures of storage.
    pub(crate) async fn write_index(&mut self, table: &TableView) -> Result<Option<Action>> {
        let run = std::mem::take(&mut self.run);
        if run.is_empty() && !table.is_rebuilt {
            return Ok(None);
        }
        let dropped: HashSet<&Arc<str>> = self.dropped.iter().collect();
        let presence = |file: &FileRef| {
            if self.new_files.contains(&*file.path) {
                Presence::Present
            } else if dropped.contains(&file.path) {
                Presence::Dropped
            } else {
                table.presence(file)
            }
        };
        let known = table.index.manifest();
        let runs = known.runs.iter().filter(|_| !table.is_rebuilt);
        let before: HashSet<&str> = runs.map(|run| run.path.as_str()).collect();
        let manifest = match run.is_empty() {
            true => known.clone(),
            false => {
                let mut names = table.run_names.clone();
                table.index.commit(run, &mut names, &presence).await?
            }
        };
        let is_new = |path: &str| !before.contains(path);
        for run in manifest.runs.iter().filter(|run| is_new(&run.path)) {
            self.written.push(run.path.clone());
            self.counters.bytes_written += run.bytes;
        }
        let manifest = DomainMetadata::set(progress::INDEX, manifest.to_json()?);
        Ok(Some(Action::Domain(manifest)))
    }
}

/// Deletion vectors that are to be written into one file.
#[derive(Default)]
struct Vectors {
    files: Vec<Arc<AddFile>>,
    vectors: Vec<DeletionVector>,
    bytes: usize,
}

impl Vectors {
    fn add(&mut self, file: Arc<AddFile>, vector: DeletionVector) {
        self.bytes += vector.encoded_bytes();
        self.files.push(file);
        self.vectors.push(vector);
    }
}

/// Where index changes go beyond their share of memory; None where the attempt may not spill.
pub(crate) fn run_spill(directory: &SpillDirectory, memory_bytes: usize) -> Result<Option<Spill>> {
    let Some(path) = directory.path() else {
        return Ok(None);
    };
    let prefix = Path::from_absolute_path(path.join("index")).map_err(|e| {
        Error::internal(format!("temporary file {}: is no path", path.display())).with_source(e)
    })?;
    Ok(Some(Spill {
        store: Arc::new(LocalFileSystem::new()),
        prefix,
        memory_bytes,
    }))
}
