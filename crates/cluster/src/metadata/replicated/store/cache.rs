//! The newest entries, in memory: all that are not durable yet, and as many others as fit.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::metadata::replicated::types::RaftEntry;

/// An entry in memory.
#[derive(Clone, Debug)]
pub(super) struct CachedEntry {
    pub(super) entry: Arc<RaftEntry>,
    /// Size of its stored form, bytes.
    pub(super) bytes: usize,
    /// Whether the file holds it.
    pub(super) is_durable: Arc<AtomicBool>,
}

/// A run of entries without a gap, up to the newest one.
#[derive(Debug)]
pub(super) struct EntryCache {
    entries: VecDeque<CachedEntry>,
    bytes: usize,
    bytes_max: usize,
}

impl EntryCache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            bytes_max,
        }
    }

    /// Index of the oldest entry in memory.
    pub(super) fn first_index(&self) -> Option<u64> {
        self.entries.front().map(|cached| cached.entry.log_id.index)
    }

    /// Adds the entry after the newest one.
    pub(super) fn push(&mut self, cached: CachedEntry) {
        self.bytes += cached.bytes;
        self.entries.push_back(cached);
        while self.bytes > self.bytes_max && self.entries.len() > 1 {
            let oldest = self.entries.front();
            if !oldest.is_some_and(|oldest| oldest.is_durable.load(Ordering::Acquire)) {
                break;
            }
            self.pop_front();
        }
    }

    /// Drops the entries from an index on.
    pub(super) fn truncate(&mut self, from: u64) {
        while let Some(last) = self.entries.back()
            && last.entry.log_id.index >= from
        {
            self.bytes -= last.bytes;
            self.entries.pop_back();
        }
    }

    /// Drops the entries up to an index, inclusive.
    pub(super) fn purge(&mut self, upto: u64) {
        while self.first_index().is_some_and(|first| first <= upto) {
            self.pop_front();
        }
    }

    /// The entries of a range that are in memory.
    pub(super) fn range(&self, from: u64, to: u64) -> impl Iterator<Item = &CachedEntry> {
        let first = self.first_index().unwrap_or(to);
        let skip = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        self.entries
            .iter()
            .skip(skip)
            .take_while(move |cached| cached.entry.log_id.index < to)
    }

    fn pop_front(&mut self) {
        if let Some(oldest) = self.entries.pop_front() {
            self.bytes -= oldest.bytes;
        }
    }
}
