//! How far a batch is, told to whoever wants to show it.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use crate::spilled_slices::WHOLE_SHARE;

/// What is done to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BatchPhase {
    /// Its sources are read. A batch that brings new columns is read more than once, from the start.
    #[default]
    Reading,
    /// Its events are merged with the table.
    Merging,
    /// What was written is committed.
    Committing,
}

/// How far a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BatchProgress {
    /// What is done.
    pub phase: BatchPhase,
    /// Events read so far.
    pub events_read: u64,
    /// Bytes of the sources read so far, compressed as they are.
    pub bytes_read: u64,
    /// Bytes of all sources; None where one does not tell.
    pub bytes_total: Option<u64>,
    /// Buckets of the table whose events are merged.
    pub buckets_merged: u32,
    /// Buckets of the table.
    pub buckets_total: u32,
}

/// Sees how far a batch is. Called often and from any thread, so that it must not block.
pub trait BatchObserver: Debug + Send + Sync {
    /// Takes note.
    fn observe(&self, progress: BatchProgress);

    /// Takes note of something that the user should know.
    fn warn(&self, text: &str) {
        let _ = text;
    }
}

/// The progress of one batch, and who sees it.
#[derive(Debug)]
pub(crate) struct Progressing {
    observer: Option<Arc<dyn BatchObserver>>,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    progress: BatchProgress,
    /// Part of the space of key hashes that is merged, of [`WHOLE_SHARE`].
    share: u64,
}

impl Progressing {
    pub(crate) fn new(
        observer: Option<Arc<dyn BatchObserver>>,
        bytes_total: Option<u64>,
    ) -> Arc<Self> {
        let progress = BatchProgress {
            bytes_total,
            ..BatchProgress::default()
        };
        Arc::new(Self {
            observer,
            state: Mutex::new(State { progress, share: 0 }),
        })
    }

    /// A round of reading begins.
    pub(crate) fn begin_reading(&self) {
        self.change(|state| {
            state.progress.events_read = 0;
            state.progress.bytes_read = 0;
        });
    }

    /// More of the sources was read: all events so far, and all bytes so far.
    pub(crate) fn read(&self, events: u64, bytes: u64) {
        self.change(|state| {
            state.progress.events_read = events;
            state.progress.bytes_read = bytes;
        });
    }

    /// Merging of so many events begins, on a table of so many buckets.
    pub(crate) fn begin_merging(&self, events: u64, buckets: u32) {
        self.change(|state| {
            state.share = 0;
            state.progress = BatchProgress {
                phase: BatchPhase::Merging,
                events_read: events,
                buckets_total: buckets,
                buckets_merged: 0,
                ..state.progress
            };
        });
    }

    /// One more part of the key hashes, of [`WHOLE_SHARE`], is merged.
    pub(crate) fn merged(&self, share: u64) {
        self.change(|state| {
            state.share = (state.share + share).min(WHOLE_SHARE);
            let buckets = u64::from(state.progress.buckets_total) * state.share / WHOLE_SHARE;
            state.progress.buckets_merged = u32::try_from(buckets).unwrap_or(u32::MAX);
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let Some(observer) = &self.observer else {
            return;
        };
        let progress = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut state);
            state.progress
        };
        observer.observe(progress);
    }
}
