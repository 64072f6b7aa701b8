//! Reads a file back, and believes nothing that contradicts itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use redb::ReadableDatabase;
use redb::ReadableTable;
use tidegate_change::{Code, Error, Result};

use super::database::SharedDatabase;
use super::disk::{HEAD_KEY, IDENTITY_KEY, LOG, MARKS_KEY, META, StoredTable, TABLES, meta_of};
use super::frame;
use super::identity::Identity;
use super::stored::{AppliedState, LogMarks, StateHead, table_sum};
use crate::metadata::replicated::types::RaftEntry;
use crate::metadata::{TableId, TableState};

/// Everything that a file holds.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) identity: Identity,
    pub(super) marks: LogMarks,
    /// The entries with the sizes of their stored forms, bytes.
    pub(super) entries: Vec<(RaftEntry, usize)>,
    pub(super) state: AppliedState,
    pub(super) stored: BTreeMap<TableId, StoredTable>,
}

/// Values as they are stored.
struct Raw {
    identity: Option<Vec<u8>>,
    marks: Option<Vec<u8>>,
    head: Option<Vec<u8>>,
    entries: Vec<(u64, Vec<u8>)>,
    tables: Vec<(String, Vec<u8>)>,
}

impl Loaded {
    /// Reads a file.
    ///
    /// # Errors
    /// `CORRUPT` when a value contradicts its checksum or is missing, `UNSUPPORTED` for a file of another
    /// form, or what the disk says.
    pub(super) fn read(database: &SharedDatabase) -> Result<Self> {
        let raw = database.with(Raw::read)?;
        let Some(identity) = &raw.identity else {
            return Err(Error::new(
                Code::Unsupported,
                "the metadata log has a form that this build does not read",
            )
            .with_hint("move the directory away and adopt its tables in a new one"));
        };
        let identity = frame::decode("the identity", identity)?;
        let missing = |what: &str| Error::corrupt(format!("the metadata log has lost {what}"));
        let marks = raw.marks.ok_or_else(|| missing("its marks"))?;
        let marks: LogMarks = frame::decode("the marks", &marks)?;
        let head = raw.head.ok_or_else(|| missing("its state"))?;
        let head: StateHead = frame::decode("the state", &head)?;
        let entries = decode_entries(&marks, raw.entries)?;
        let stored = decode_tables(raw.tables)?;
        let sum = stored
            .values()
            .fold(0_u64, |sum, table| sum.wrapping_add(table.sum));
        let tables = stored
            .iter()
            .map(|(id, stored)| (id.clone(), Arc::clone(&stored.table)))
            .collect();
        Ok(Self {
            identity,
            marks,
            entries,
            state: head.assemble(tables, sum)?,
            stored,
        })
    }
}

impl Raw {
    fn read(database: &redb::Database) -> std::result::Result<Self, redb::Error> {
        let read = database.begin_read()?;
        let meta = read.open_table(META)?;
        let mut raw = Self {
            identity: meta_of(&meta, IDENTITY_KEY)?,
            marks: meta_of(&meta, MARKS_KEY)?,
            head: meta_of(&meta, HEAD_KEY)?,
            entries: Vec::new(),
            tables: Vec::new(),
        };
        if raw.identity.is_none() {
            return Ok(raw);
        }
        for row in read.open_table(LOG)?.iter()? {
            let (index, bytes) = row?;
            raw.entries.push((index.value(), bytes.value().to_vec()));
        }
        for row in read.open_table(TABLES)?.iter()? {
            let (id, bytes) = row?;
            raw.tables
                .push((id.value().to_owned(), bytes.value().to_vec()));
        }
        Ok(raw)
    }
}

fn decode_entries(marks: &LogMarks, raw: Vec<(u64, Vec<u8>)>) -> Result<Vec<(RaftEntry, usize)>> {
    let mut entries = Vec::with_capacity(raw.len());
    let mut next = marks.first_index();
    for (index, bytes) in raw {
        let entry = decode_entry(index, &bytes)?;
        if index != next {
            return Err(Error::corrupt(format!(
                "the metadata log has entry {index} where {next} belongs"
            )));
        }
        next += 1;
        entries.push((entry, bytes.len()));
    }
    let last = entries.last().map(|(entry, _)| entry.log_id);
    if last.or(marks.purged) != marks.last {
        return Err(Error::corrupt(format!(
            "the metadata log ends before entry {next} and says that it does not"
        )));
    }
    Ok(entries)
}

/// The entry of a stored form, which must be the one of that index.
pub(super) fn decode_entry(index: u64, bytes: &[u8]) -> Result<RaftEntry> {
    let entry: RaftEntry = frame::decode("an entry", bytes)?;
    if entry.log_id.index != index {
        return Err(Error::corrupt(format!(
            "entry {index} of the metadata log is another one"
        )));
    }
    Ok(entry)
}

fn decode_tables(raw: Vec<(String, Vec<u8>)>) -> Result<BTreeMap<TableId, StoredTable>> {
    let mut stored = BTreeMap::new();
    for (id, bytes) in raw {
        let id = TableId(id);
        let table: TableState = frame::decode("a table", &bytes)?;
        let table = StoredTable {
            table: Arc::new(table),
            sum: table_sum(&id, &bytes),
        };
        stored.insert(id, table);
    }
    Ok(stored)
}
