//! The tables in redb: log entries by index, and the state as of the newest snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};
use tidegate_change::{Error, Result, WriterId};
use tidegate_delta::store::StepKind;

use super::SingleMemberOptions;
use super::backend::HookedFile;
use super::frame;
use crate::catalog::step;
use crate::metadata::{Entry, NodeId, Role, State, TableId, TableState, apply};

const LOG_FILE: &str = "raft.redb";
const NEW_LOG_FILE: &str = "raft.redb.new";
/// redb's page cache; the log is small and read once.
const CACHE_BYTES: usize = 1 << 20;

const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const TABLES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("tables");
const META_KEY: &str = "state";

/// The state without its tables.
#[derive(Debug, Serialize, Deserialize)]
struct StoredMeta {
    writer: WriterId,
    last_applied: u64,
    epochs: BTreeMap<NodeId, BTreeMap<Role, u64>>,
}

/// The durable side of a single member.
#[derive(Debug)]
pub(super) struct RaftLog {
    database: Database,
    path: PathBuf,
    next_index: u64,
    /// Index of the newest entry that is in the stored state and no longer in the log.
    snapshot_index: u64,
    snapshot_entries: u64,
    /// The tables as they were stored, to write only those that changed.
    stored: BTreeMap<TableId, Arc<TableState>>,
}

impl RaftLog {
    /// Opens or makes the log; the state has all entries applied.
    pub(super) fn open(directory: &Path, options: &SingleMemberOptions) -> Result<(Self, State)> {
        let path = directory.join(LOG_FILE);
        let database = match open_file(&path, false) {
            Ok(file) => open_database(file, &path, options)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => make(directory, options)?,
            Err(error) => return Err(Error::io(path.display(), error)),
        };
        let mut log = Self {
            database,
            path,
            next_index: 1,
            snapshot_index: 0,
            snapshot_entries: options.snapshot_entries.max(1),
            stored: BTreeMap::new(),
        };
        let state = log.load()?;
        Ok((log, state))
    }

    fn load(&mut self) -> Result<State> {
        let read = self
            .database
            .begin_read()
            .map_err(|e| failed(&self.path, e))?;
        let meta = read.open_table(META).map_err(|e| failed(&self.path, e))?;
        let stored = meta.get(META_KEY).map_err(|e| failed(&self.path, e))?;
        let stored = stored.ok_or_else(|| Error::corrupt("the metadata log has no state"))?;
        let stored: StoredMeta = frame::decode("the state", stored.value())?;
        let mut state = State::new(stored.writer);
        state.last_applied = stored.last_applied;
        state.epochs = stored.epochs;
        let tables = read.open_table(TABLES).map_err(|e| failed(&self.path, e))?;
        for row in tables.iter().map_err(|e| failed(&self.path, e))? {
            let (id, bytes) = row.map_err(|e| failed(&self.path, e))?;
            let table: TableState = frame::decode("a table", bytes.value())?;
            let id = TableId(id.value().to_owned());
            state.names.insert(table.name.clone(), id.clone());
            state.tables.insert(id, Arc::new(table));
        }
        self.stored = state.tables.clone();
        self.snapshot_index = state.last_applied;
        let log = read.open_table(LOG).map_err(|e| failed(&self.path, e))?;
        for row in log.iter().map_err(|e| failed(&self.path, e))? {
            let (index, bytes) = row.map_err(|e| failed(&self.path, e))?;
            let index = index.value();
            if index != state.last_applied + 1 {
                return Err(Error::corrupt(format!(
                    "the metadata log has a gap before entry {index}"
                )));
            }
            let entry: Entry = frame::decode("an entry", bytes.value())?;
            apply(&mut state, index, &entry);
        }
        self.next_index = state.last_applied + 1;
        Ok(state)
    }

    /// Makes entries durable; `state` holds all entries before them.
    pub(super) fn append(&mut self, entries: &[&Entry], state: &State) -> Result<()> {
        let path = self.path.clone();
        let frames = entries
            .iter()
            .map(|entry| frame::encode("an entry", entry))
            .collect::<Result<Vec<_>>>()?;
        let take_snapshot = state.last_applied - self.snapshot_index >= self.snapshot_entries;
        let write = self.database.begin_write().map_err(|e| failed(&path, e))?;
        {
            let mut log = write.open_table(LOG).map_err(|e| failed(&path, e))?;
            if take_snapshot {
                log.retain(|_, _| false).map_err(|e| failed(&path, e))?;
            }
            for (index, bytes) in (self.next_index..).zip(&frames) {
                log.insert(index, bytes.as_slice())
                    .map_err(|e| failed(&path, e))?;
            }
        }
        if take_snapshot {
            self.write_state(&write, state)?;
        }
        write.commit().map_err(|e| failed(&path, e))?;
        self.next_index += entries.len() as u64;
        if take_snapshot {
            self.snapshot_index = state.last_applied;
            self.stored = state.tables.clone();
        }
        Ok(())
    }

    fn write_state(&self, write: &redb::WriteTransaction, state: &State) -> Result<()> {
        let path = &self.path;
        let mut meta = write.open_table(META).map_err(|e| failed(path, e))?;
        meta.insert(META_KEY, meta_frame(state)?.as_slice())
            .map_err(|e| failed(path, e))?;
        let mut tables = write.open_table(TABLES).map_err(|e| failed(path, e))?;
        let gone: BTreeSet<_> = self
            .stored
            .keys()
            .filter(|id| !state.tables.contains_key(*id))
            .collect();
        for id in gone {
            tables.remove(id.0.as_str()).map_err(|e| failed(path, e))?;
        }
        for (id, table) in &state.tables {
            if self
                .stored
                .get(id)
                .is_some_and(|stored| Arc::ptr_eq(stored, table))
            {
                continue;
            }
            let bytes = frame::encode("a table", table)?;
            tables
                .insert(id.0.as_str(), bytes.as_slice())
                .map_err(|e| failed(path, e))?;
        }
        Ok(())
    }
}

fn meta_frame(state: &State) -> Result<Vec<u8>> {
    let meta = StoredMeta {
        writer: state.writer,
        last_applied: state.last_applied,
        epochs: state.epochs.clone(),
    };
    frame::encode("the state", &meta)
}

/// Makes a log under another name first, so that a crash leaves none rather than half of one.
fn make(directory: &Path, options: &SingleMemberOptions) -> Result<Database> {
    let (path, new) = (directory.join(LOG_FILE), directory.join(NEW_LOG_FILE));
    let database = {
        let file = open_file(&new, true).map_err(|e| Error::io(new.display(), e))?;
        open_database(file, &path, options)?
    };
    let bits = options.random.next_u64();
    let writer = WriterId(u32::try_from(bits >> 32).unwrap_or_default());
    let write = database.begin_write().map_err(|e| failed(&path, e))?;
    {
        write.open_table(LOG).map_err(|e| failed(&path, e))?;
        write.open_table(TABLES).map_err(|e| failed(&path, e))?;
        let mut meta = write.open_table(META).map_err(|e| failed(&path, e))?;
        let frame = meta_frame(&State::new(writer))?;
        meta.insert(META_KEY, frame.as_slice())
            .map_err(|e| failed(&path, e))?;
    }
    write.commit().map_err(|e| failed(&path, e))?;
    let hook = options.step_hook.as_ref();
    step(hook, StepKind::Rename, &path, 0, || fs::rename(&new, &path))
        .and_then(|()| {
            step(hook, StepKind::SyncDirectory, directory, 0, || {
                File::open(directory)?.sync_all()
            })
        })
        .map_err(|e| Error::io(path.display(), e))?;
    Ok(database)
}

fn open_file(path: &Path, create: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(create)
        .truncate(create)
        .open(path)
}

fn open_database(file: File, path: &Path, options: &SingleMemberOptions) -> Result<Database> {
    let backend = HookedFile::new(file, path.to_owned(), options.step_hook.clone());
    Builder::new()
        .set_cache_size(CACHE_BYTES)
        .create_with_backend(backend)
        .map_err(|e| failed(path, e))
}

/// The error of a redb call, told by what the caller can do.
fn failed(path: &Path, error: impl Into<redb::Error>) -> Error {
    match error.into() {
        redb::Error::Io(e) => Error::io(path.display(), e),
        redb::Error::Corrupted(what) => {
            Error::corrupt(format!("metadata log {}: {what}", path.display()))
        }
        other => Error::new(
            tidegate_change::Code::Io,
            format!("metadata log {}: cannot be read or written", path.display()),
        )
        .with_source(other),
    }
}
