//! The log as openraft sees it.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use redb::ReadableDatabase;
use tidegate_change::{Error, Result};

use super::cache::{CachedEntry, EntryCache};
use super::database::SharedDatabase;
use super::disk::{LOG, Write};
use super::failure::FailureCell;
use super::frame;
use super::load::decode_entry;
use super::stored::LogMarks;
use super::writer::{Done, Writer};
use crate::metadata::replicated::types::{LogId, RaftEntry, Types, Vote};

/// Bytes of entries that one message carries; one entry goes alone whatever its size.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// The log of a member; its clones are one log.
#[derive(Clone, Debug)]
pub(crate) struct RaftLog {
    view: Arc<Mutex<LogView>>,
    database: SharedDatabase,
    writer: Writer,
    failure: Arc<FailureCell>,
}

/// The log as of the newest call, whether the file holds it yet or not.
#[derive(Debug)]
struct LogView {
    marks: LogMarks,
    cache: EntryCache,
}

impl RaftLog {
    /// A log that holds these entries, with their sizes.
    pub(super) fn new(
        marks: LogMarks,
        entries: Vec<(RaftEntry, usize)>,
        cache_bytes: usize,
        parts: (SharedDatabase, Writer, Arc<FailureCell>),
    ) -> Self {
        let mut cache = EntryCache::new(cache_bytes);
        let is_durable = Arc::new(AtomicBool::new(true));
        for (entry, bytes) in entries {
            cache.push(CachedEntry {
                entry: Arc::new(entry),
                bytes,
                is_durable: Arc::clone(&is_durable),
            });
        }
        let (database, writer, failure) = parts;
        Self {
            view: Arc::new(Mutex::new(LogView { marks, cache })),
            database,
            writer,
            failure,
        }
    }

    fn view(&self) -> MutexGuard<'_, LogView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entries of a range, in order, until their sizes exceed `bytes_max`; at least one if there is any.
    fn read(&self, from: u64, to: u64, bytes_max: usize) -> io::Result<Vec<RaftEntry>> {
        let mut picked = Picked::new(from.max(self.view().marks.first_index()), bytes_max);
        loop {
            let (next, cold_to) = {
                let view = self.view();
                let to = to.min(view.marks.next_index());
                let first = view.cache.first_index().unwrap_or(to);
                if picked.next >= first.min(to) {
                    for cached in view.cache.range(picked.next, to) {
                        if !picked.take(cached.entry.as_ref().clone(), cached.bytes) {
                            break;
                        }
                    }
                    return Ok(picked.entries);
                }
                (picked.next, first.min(to))
            };
            let cold = self.read_file(next, cold_to).map_err(|error| {
                self.failure.set(&error);
                io::Error::other(error)
            })?;
            let purged = cold.is_empty();
            for (entry, size) in cold {
                if !picked.take(entry, size) {
                    return Ok(picked.entries);
                }
            }
            if purged {
                picked.skip_to(cold_to);
            }
        }
    }

    /// Entries that are no longer in memory.
    fn read_file(&self, from: u64, to: u64) -> Result<Vec<(RaftEntry, usize)>> {
        let raw = self.database.with(|database| {
            let mut raw = Vec::new();
            let read = database.begin_read()?;
            for row in read.open_table(LOG)?.range(from..to)? {
                let (index, bytes) = row?;
                raw.push((index.value(), bytes.value().to_vec()));
            }
            Ok(raw)
        })?;
        // A purge meanwhile may have taken the first ones, nothing else.
        let first = raw.first().map_or(to, |(index, _)| *index);
        let mut entries = Vec::with_capacity(raw.len());
        for (expected, (index, bytes)) in (first..).zip(raw) {
            if index != expected {
                return Err(Error::corrupt(format!(
                    "the metadata log has lost entry {expected}"
                )));
            }
            entries.push((decode_entry(index, &bytes)?, bytes.len()));
        }
        if first < to && first + entries.len() as u64 != to {
            return Err(Error::corrupt(format!(
                "the metadata log has lost the entries before {to}"
            )));
        }
        Ok(entries)
    }
}

/// Entries of a range without a gap, up to a number of bytes.
struct Picked {
    entries: Vec<RaftEntry>,
    /// Index of the entry that comes next.
    next: u64,
    bytes: usize,
    bytes_max: usize,
}

impl Picked {
    fn new(from: u64, bytes_max: usize) -> Self {
        Self {
            entries: Vec::new(),
            next: from,
            bytes: 0,
            bytes_max,
        }
    }

    /// Takes an entry, unless it is too much or not the next one.
    fn take(&mut self, entry: RaftEntry, size: usize) -> bool {
        self.bytes = self.bytes.saturating_add(size);
        let index = entry.log_id.index;
        let fits = self.entries.is_empty() || (self.bytes <= self.bytes_max && index == self.next);
        if fits {
            self.next = index + 1;
            self.entries.push(entry);
        }
        fits
    }

    /// The entries before an index are gone.
    fn skip_to(&mut self, index: u64) {
        self.next = self.next.max(index);
    }
}

impl RaftLogReader<Types> for RaftLog {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<RaftEntry>> {
        let from = match range.start_bound() {
            Bound::Included(from) => *from,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(to) => *to,
            Bound::Unbounded => u64::MAX,
        };
        self.read(from, to, usize::MAX)
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.view().marks.vote)
    }

    async fn limited_get_log_entries(&mut self, from: u64, to: u64) -> io::Result<Vec<RaftEntry>> {
        self.read(from, to, PAYLOAD_BYTES_MAX)
    }
}

impl RaftLogStorage<Types> for RaftLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let view = self.view();
        Ok(LogState {
            last_purged_log_id: view.marks.purged,
            last_log_id: view.marks.last,
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.writer.write(Write::Vote(*vote)).await?;
        // Readers see a vote only once it is durable.
        self.view().marks.vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.view().marks.committed = committed;
        // It may lag: after a restart it only saves waiting for the leader's word.
        self.writer
            .submit(Write::Committed(committed), Done::Nobody);
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.view().marks.committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let is_durable = Arc::new(AtomicBool::new(false));
        let mut frames = Vec::new();
        let mut span: Option<(u64, LogId)> = None;
        {
            let mut view = self.view();
            for entry in entries {
                let frame = frame::encode("an entry", &entry).map_err(io::Error::other)?;
                let first = span.map_or(entry.log_id.index, |(first, _)| first);
                span = Some((first, entry.log_id));
                view.marks.append(entry.log_id);
                view.cache.push(CachedEntry {
                    entry: Arc::new(entry),
                    bytes: frame.len(),
                    is_durable: Arc::clone(&is_durable),
                });
                frames.push(frame.into());
            }
        }
        let Some((first, last)) = span else {
            callback.io_completed(Ok(()));
            return Ok(());
        };
        let write = Write::Append {
            first,
            frames,
            last,
        };
        self.writer
            .submit(write, Done::Flushed(callback, is_durable));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        {
            let mut view = self.view();
            view.marks.truncate(last);
            view.cache.truncate(last.map_or(0, |last| last.index + 1));
        }
        self.writer.write(Write::Truncate { last }).await
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        {
            let mut view = self.view();
            view.marks.purge(upto);
            view.cache.purge(upto.index);
        }
        // It may lag: entries that come back with a restart are purged again.
        self.writer.submit(Write::Purge { upto }, Done::Nobody);
        Ok(())
    }
}
