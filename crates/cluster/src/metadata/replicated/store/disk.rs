//! The durable side: one transaction for everything that waits.
//!
//! Tables: `log` holds entries by index, `meta` the identity, the marks of the log and the head of the
//! stored state, `tables` the tables of that state. Every value carries its checksum; the marks name the
//! last entry and the head counts its tables, so that a lost value is found like a changed one.

use std::collections::BTreeMap;
use std::sync::Arc;

use redb::{Durability, ReadableTable, Table, TableDefinition, WriteTransaction};
use tidegate_change::{Error, Result};

use super::database::SharedDatabase;
use super::frame;
use super::identity::Identity;
use super::stored::{AppliedState, LogMarks, StateHead, table_sum};
use crate::metadata::replicated::types::{LogId, Vote};
use crate::metadata::{TableId, TableState};

pub(super) const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
pub(super) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
pub(super) const TABLES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("tables");
pub(super) const IDENTITY_KEY: &str = "identity";
pub(super) const MARKS_KEY: &str = "marks";
pub(super) const HEAD_KEY: &str = "head";

/// A change of the file. Changes take effect in the order in which they are given.
#[derive(Debug)]
pub(super) enum Write {
    /// Entries from an index on, in their stored form.
    Append {
        first: u64,
        frames: Vec<Arc<[u8]>>,
        last: LogId,
    },
    /// Drops the entries after `last`.
    Truncate { last: Option<LogId> },
    /// Drops the entries up to one, inclusive.
    Purge { upto: LogId },
    /// Replaces the vote.
    Vote(Vote),
    /// Replaces the mark of what is committed.
    Committed(Option<LogId>),
    /// Replaces the stored state, unless it is newer.
    State(Box<AppliedState>),
    /// Replaces the identity.
    Identity(Identity),
}

/// A table of the stored state.
#[derive(Clone, Debug)]
pub(super) struct StoredTable {
    pub(super) table: Arc<TableState>,
    /// Checksum of its stored form.
    pub(super) sum: u64,
}

/// Writes the file.
#[derive(Debug)]
pub(super) struct Disk {
    database: SharedDatabase,
    marks: LogMarks,
    applied: Option<LogId>,
    /// The tables as they are stored, to write only those that changed.
    stored: BTreeMap<TableId, StoredTable>,
}

impl Disk {
    /// A writer that knows what the file holds.
    pub(super) fn new(
        database: SharedDatabase,
        marks: LogMarks,
        applied: Option<LogId>,
        stored: BTreeMap<TableId, StoredTable>,
    ) -> Self {
        Self {
            database,
            marks,
            applied,
            stored,
        }
    }

    /// Makes changes durable, all of them or none.
    ///
    /// # Errors
    /// What the disk says; what the file holds is unknown then, and nothing may be written any more.
    pub(super) fn execute(&mut self, writes: &[&Write]) -> Result<()> {
        let mut plan = Plan::of(self, writes)?;
        let marks = frame::encode("the marks of the log", &plan.marks)?;
        let database = self.database.clone();
        database.with(|database| {
            let mut write = database.begin_write()?;
            write.set_durability(Durability::Immediate)?;
            plan.run(&write, writes)?;
            write
                .open_table(META)?
                .insert(MARKS_KEY, marks.as_slice())?;
            write.commit()?;
            Ok(())
        })?;
        self.marks = plan.marks;
        if let Some(state) = plan.state {
            self.applied = state.applied;
            self.stored = state.stored;
        }
        Ok(())
    }
}

/// What one transaction does, worked out before it begins.
struct Plan {
    marks: LogMarks,
    state: Option<StatePlan>,
}

/// How the stored state is replaced.
struct StatePlan {
    applied: Option<LogId>,
    head: Vec<u8>,
    changed: Vec<(TableId, Vec<u8>)>,
    gone: Vec<TableId>,
    stored: BTreeMap<TableId, StoredTable>,
}

impl Plan {
    fn of(disk: &Disk, writes: &[&Write]) -> Result<Self> {
        let mut marks = disk.marks.clone();
        let mut newest = None;
        for write in writes {
            match write {
                Write::Append { last, .. } => marks.append(*last),
                Write::Truncate { last } => marks.truncate(*last),
                Write::Purge { upto } => marks.purge(*upto),
                Write::Vote(vote) => marks.vote = Some(*vote),
                Write::Committed(committed) => marks.committed = *committed,
                Write::State(state) => {
                    let floor = newest.map_or(disk.applied, |newest: &AppliedState| newest.applied);
                    if state.applied >= floor {
                        newest = Some(state.as_ref());
                    }
                }
                Write::Identity(_) => {}
            }
        }
        let state = newest.map(|state| StatePlan::of(disk, state)).transpose()?;
        Ok(Self { marks, state })
    }

    fn run(
        &mut self,
        write: &WriteTransaction,
        writes: &[&Write],
    ) -> std::result::Result<(), redb::Error> {
        let mut log = write.open_table(LOG)?;
        for change in writes {
            run_on_log(&mut log, change)?;
            if let Write::Identity(identity) = change {
                let bytes = frame::encode("the identity", identity).map_err(unstorable)?;
                write
                    .open_table(META)?
                    .insert(IDENTITY_KEY, bytes.as_slice())?;
            }
        }
        drop(log);
        let Some(state) = &self.state else {
            return Ok(());
        };
        let mut tables = write.open_table(TABLES)?;
        for id in &state.gone {
            tables.remove(id.0.as_str())?;
        }
        for (id, bytes) in &state.changed {
            tables.insert(id.0.as_str(), bytes.as_slice())?;
        }
        write
            .open_table(META)?
            .insert(HEAD_KEY, state.head.as_slice())?;
        Ok(())
    }
}

fn unstorable(error: Error) -> redb::Error {
    redb::Error::Io(std::io::Error::other(error))
}

fn run_on_log(
    log: &mut Table<'_, u64, &'static [u8]>,
    change: &Write,
) -> std::result::Result<(), redb::Error> {
    match change {
        Write::Append { first, frames, .. } => {
            for (index, bytes) in (*first..).zip(frames) {
                log.insert(index, bytes.as_ref())?;
            }
        }
        Write::Truncate { last } => {
            let from = last.map_or(0, |last| last.index + 1);
            log.retain_in(from.., |_, _| false)?;
        }
        Write::Purge { upto } => log.retain_in(..=upto.index, |_, _| false)?,
        Write::Vote(_) | Write::Committed(_) | Write::State(_) | Write::Identity(_) => {}
    }
    Ok(())
}

impl StatePlan {
    fn of(disk: &Disk, next: &AppliedState) -> Result<Self> {
        let mut stored = BTreeMap::new();
        let mut changed = Vec::new();
        for (id, table) in &next.state.tables {
            let known = disk.stored.get(id);
            if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.table, table)) {
                stored.insert(id.clone(), known.clone());
                continue;
            }
            let bytes = frame::encode("a table", table.as_ref())?;
            let table = StoredTable {
                table: Arc::clone(table),
                sum: table_sum(id, &bytes),
            };
            stored.insert(id.clone(), table);
            changed.push((id.clone(), bytes));
        }
        let gone = disk
            .stored
            .keys()
            .filter(|id| !stored.contains_key(*id))
            .cloned()
            .collect();
        let sum = stored
            .values()
            .fold(0_u64, |sum, table| sum.wrapping_add(table.sum));
        let head = frame::encode("the head of the state", &StateHead::of(next, sum))?;
        Ok(Self {
            applied: next.applied,
            head,
            changed,
            gone,
            stored,
        })
    }
}

/// Writes the first transaction of a new file.
pub(super) fn fill(
    database: &redb::Database,
    identity: &Identity,
) -> std::result::Result<(), redb::Error> {
    let frames = [
        (IDENTITY_KEY, frame::encode("the identity", identity)),
        (
            MARKS_KEY,
            frame::encode("the marks of the log", &LogMarks::default()),
        ),
        (
            HEAD_KEY,
            frame::encode(
                "the head of the state",
                &StateHead::of(&AppliedState::default(), 0),
            ),
        ),
    ];
    let write = database.begin_write()?;
    {
        write.open_table(LOG)?;
        write.open_table(TABLES)?;
        let mut meta = write.open_table(META)?;
        for (key, bytes) in frames {
            let bytes = bytes.map_err(unstorable)?;
            meta.insert(key, bytes.as_slice())?;
        }
    }
    write.commit()?;
    Ok(())
}

/// The stored form of a key of `meta`.
pub(super) fn meta_of(
    meta: &impl ReadableTable<&'static str, &'static [u8]>,
    key: &str,
) -> std::result::Result<Option<Vec<u8>>, redb::Error> {
    Ok(meta.get(key)?.map(|bytes| bytes.value().to_vec()))
}
