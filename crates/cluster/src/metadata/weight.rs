//! How much of the state a table takes, so that it has a bound (commit protocol 2.10).

use super::limits::TABLE_BYTES_MAX;
use super::{Attempt, BatchKey, CommitBytes, Pending, PreparePart, Refusal, TableState, Watermark};

/// What a batch takes besides its id: digest, numbers and field names in the stored form, roughly.
const BATCH_BYTES: usize = 160;
/// The same of a source or an attempt.
const SOURCE_BYTES: usize = 96;
/// The same of an offset.
const OFFSET_BYTES: usize = 32;

impl TableState {
    /// Bytes that the table takes in the state, roughly; equal on every replica.
    #[must_use]
    pub fn weight(&self) -> usize {
        let marks = self.marks.iter().map(|mark| BATCH_BYTES + mark.id.0.len());
        let producers = self.producers.keys().map(|name| SOURCE_BYTES + name.len());
        let offsets = self.offsets.keys().map(|name| OFFSET_BYTES + name.len());
        let attempts = self.attempts.values().map(of_attempt);
        let items: usize = marks.chain(producers).chain(offsets).chain(attempts).sum();
        let uncollected = self.uncollected.len() * size_of::<u64>();
        let pending = self.pending.as_deref().map_or(0, of_pending);
        self.name.len()
            + self.location.len()
            + of_watermark(Some(&self.watermark))
            + items
            + uncollected
            + pending
    }

    /// Refuses what would make the table too large.
    pub(super) fn require_room(&self, added: usize) -> Result<(), Refusal> {
        if self.weight().saturating_add(added) <= TABLE_BYTES_MAX {
            return Ok(());
        }
        Err(Refusal::Limit {
            what: "bytes of progress in a table".into(),
        })
    }
}

impl PreparePart {
    /// Bytes that the part adds to its table's state until it is final.
    pub(super) fn weight(&self) -> usize {
        // Offsets stand in the pending commit and in the table.
        let offsets: usize = self
            .offsets
            .keys()
            .map(|name| OFFSET_BYTES + name.len())
            .sum();
        let inline = match &self.bytes {
            CommitBytes::Inline(text) => text.len(),
            CommitBytes::Staged => 0,
        };
        2 * offsets + inline + of_watermark(self.watermark.as_ref())
    }
}

/// Bytes that batches add to a table, open and as marks.
pub(super) fn of_batches(batches: &[BatchKey]) -> usize {
    batches.iter().map(of_batch).sum()
}

fn of_batch(batch: &BatchKey) -> usize {
    let sequence = batch.sequence.as_ref();
    let source = sequence.map_or(0, |s| SOURCE_BYTES + s.source.len());
    BATCH_BYTES + batch.id.0.len() + source
}

fn of_attempt(attempt: &Attempt) -> usize {
    SOURCE_BYTES + of_batches(&attempt.batches)
}

fn of_pending(pending: &Pending) -> usize {
    let offsets = pending.offsets.keys();
    let offsets: usize = offsets.map(|name| OFFSET_BYTES + name.len()).sum();
    let inline = match &pending.bytes {
        CommitBytes::Inline(text) => text.len(),
        CommitBytes::Staged => 0,
    };
    of_attempt(&pending.opened.attempt)
        + offsets
        + inline
        + of_watermark(pending.watermark.as_ref())
}

fn of_watermark(watermark: Option<&Watermark>) -> usize {
    // The order stands as a list of numbers.
    watermark.map_or(0, |w| w.json.len() + 4 * w.order.len())
}
