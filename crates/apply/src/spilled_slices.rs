//! Events in files, as slices that fit into memory.
//!
//! Ranges of the key hash are taken in order, small ones together. A range that is too large is read once
//! more and split: by finer ranges of the key hash, then, where all its keys share one (neighbouring
//! integers do), by a second hash of the whole key. What even that cannot split is the events of one key,
//! which `hot_keys` takes in pieces.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_change::key::CanonicalKeys;
use tidegate_change::{IndexHash, Result};

use crate::backlog::{EventReader, RANGES, SpilledEvents};
use crate::event_part::EventPart;
use crate::regrouping::Regrouping;
use crate::spill::SpilledBatch;

/// Parts that a range is split into at a time.
const SPLIT: u64 = 64;
/// Seed of the second hash. It only splits work: nothing stored depends on it.
const SECOND_SEED: u64 = 0x7469_6465;
/// The whole space of hashes, as the unit of [`Chunk::share`].
pub(crate) const WHOLE_SHARE: u64 = 1 << 32;

/// Which hash of the keys tells events apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    KeyHash,
    SecondHash,
}

/// Some events in files.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Where they are, in order of arrival.
    pub batches: Vec<SpilledBatch>,
    /// Which part of the space of key hashes they are, of [`WHOLE_SHARE`].
    pub share: u64,
    by: By,
    /// Bounds of their hashes, inclusive.
    bounds: (u64, u64),
}

/// Events to be merged next.
#[derive(Debug)]
pub(crate) enum Next {
    /// They fit into memory.
    Slice(Chunk),
    /// They do not, and are of one key.
    HotKey(Chunk),
}

/// The events of a batch that are still to be merged.
#[derive(Debug)]
pub(crate) struct SliceQueue {
    reader: Arc<EventReader>,
    slice_bytes: usize,
    waiting: VecDeque<Chunk>,
}

impl Chunk {
    /// Bytes that the events take in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.batches.iter().map(|batch| batch.bytes).sum()
    }

    /// Number of events.
    pub(crate) fn events(&self) -> usize {
        self.batches.iter().map(|batch| batch.rows).sum()
    }

    /// The events.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn load(&self, reader: &EventReader) -> Result<Vec<EventPart>> {
        self.batches
            .iter()
            .map(|batch| reader.load(batch))
            .collect()
    }
}

impl SliceQueue {
    /// All events, in slices of about these bytes at most.
    pub(crate) fn new(events: SpilledEvents, slice_bytes: usize) -> Self {
        let share = WHOLE_SHARE / RANGES as u64;
        let width = u64::MAX / RANGES as u64;
        let waiting = events.ranges.into_iter().zip(0u64..).map(|(batches, at)| {
            // Inclusive bounds of the range; the last one ends with the space.
            let first = at * (width + 1);
            Chunk {
                batches,
                share,
                by: By::KeyHash,
                bounds: (first, first.saturating_add(width)),
            }
        });
        Self {
            reader: events.reader,
            slice_bytes,
            waiting: waiting.collect(),
        }
    }

    /// How the events are read.
    pub(crate) fn reader(&self) -> &Arc<EventReader> {
        &self.reader
    }

    /// The next events, in the order of their hashes.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn next(&mut self) -> Result<Option<Next>> {
        while let Some(chunk) = self.waiting.pop_front() {
            if chunk.bytes() <= self.slice_bytes || chunk.events() <= 1 {
                return Ok(Some(Next::Slice(self.joined(chunk))));
            }
            if chunk.by == By::SecondHash && chunk.bounds.0 == chunk.bounds.1 {
                return Ok(Some(Next::HotKey(chunk)));
            }
            for part in self.split(&chunk)?.into_iter().rev() {
                self.waiting.push_front(part);
            }
        }
        Ok(None)
    }

    /// A chunk with those behind it that fit into the same slice. Chunks of one key hash stay apart from
    /// others, so that rows stay sorted.
    fn joined(&mut self, mut chunk: Chunk) -> Chunk {
        let mut bytes = chunk.bytes();
        while let Some(next) = self.waiting.front() {
            bytes = bytes.saturating_add(next.bytes());
            if bytes > self.slice_bytes || next.by != chunk.by {
                break;
            }
            let Some(next) = self.waiting.pop_front() else {
                break;
            };
            chunk.batches.extend(next.batches);
            chunk.share += next.share;
        }
        chunk
    }

    fn split(&self, chunk: &Chunk) -> Result<Vec<Chunk>> {
        let by = match chunk.by {
            By::KeyHash if chunk.bounds.0 < chunk.bounds.1 => By::KeyHash,
            By::KeyHash | By::SecondHash => By::SecondHash,
        };
        let bounds = match by == chunk.by {
            true => chunk.bounds,
            false => (0, u64::MAX),
        };
        let width = ((bounds.1 - bounds.0) / SPLIT).saturating_add(1);
        let group = |hash: u64| {
            usize::try_from(hash.saturating_sub(bounds.0) / width).unwrap_or(usize::MAX)
        };
        let mut parts: Vec<Chunk> = (0..SPLIT)
            .map(|_| Chunk {
                batches: Vec::new(),
                share: 0,
                by,
                bounds: (u64::MAX, 0),
            })
            .collect();
        let mut regrouping = Regrouping::new(&self.reader, parts.len())?;
        for batch in &chunk.batches {
            let part = self.reader.load(batch)?;
            let hashes = hashes(&part, by)?;
            for hash in &hashes {
                if let Some(to) = parts.get_mut(group(*hash)) {
                    to.bounds = (to.bounds.0.min(*hash), to.bounds.1.max(*hash));
                }
            }
            regrouping.put(&part, (0u32..).zip(hashes.iter().map(|hash| group(*hash))))?;
        }
        for (part, batches) in parts.iter_mut().zip(regrouping.finish()) {
            part.batches = batches;
        }
        parts.retain(|part| !part.batches.is_empty());
        spread(&mut parts, chunk.share);
        Ok(parts)
    }
}

/// The hashes that tell events apart.
fn hashes(part: &EventPart, by: By) -> Result<Vec<u64>> {
    match by {
        By::KeyHash => Ok(part.hashes.iter().map(|hash| hash.0).collect()),
        By::SecondHash => {
            let keys = CanonicalKeys::encode(&part.keys)?;
            let second = |key: &[u8]| {
                // The top half of the bits.
                u64::try_from(IndexHash::of(key, SECOND_SEED).0 >> 64).unwrap_or(u64::MAX)
            };
            Ok(keys.iter().map(second).collect())
        }
    }
}

/// Gives parts equal shares of a whole.
fn spread(parts: &mut [Chunk], whole: u64) {
    let count = parts.len() as u64;
    for (at, part) in (0u64..).zip(parts) {
        part.share = whole * (at + 1) / count - whole * at / count;
    }
}
