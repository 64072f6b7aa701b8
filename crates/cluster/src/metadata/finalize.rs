//! `Finalize`: the slot holds the prepared bytes.

use serde::{Deserialize, Serialize};
use tidegate_change::TableVersion;

use super::limits::BATCH_MARKS_MAX;
use super::{
    BatchKey, BatchMark, Outcome, Pending, ProducerMark, Refusal, State, TableId, TableState,
};

/// Makes the prepared attempt the head; proposed by whoever saw its bytes in the slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finalize {
    /// The table.
    pub table: TableId,
    /// The version.
    pub version: TableVersion,
    /// The attempt.
    pub attempt: u64,
}

impl Finalize {
    pub(super) fn apply(&self, state: &mut State) -> Result<Outcome, Refusal> {
        let table = state.table(&self.table)?;
        if table.head == Some(self.version) && table.head_attempt == Some(self.attempt) {
            return Ok(Outcome::Finalized);
        }
        table.require_pending(self.version, self.attempt)?;
        let table = state.table_mut(&self.table)?;
        if let Some(pending) = table.pending.take() {
            finish(table, *pending);
        }
        Ok(Outcome::Finalized)
    }
}

fn finish(table: &mut TableState, pending: Pending) {
    table.head = Some(pending.version);
    table.head_time_ms = pending.time_ms;
    table.head_attempt = Some(pending.opened.index);
    table.head_digest = Some(pending.commit_digest);
    for batch in pending.opened.attempt.batches {
        remember(table, batch, pending.version, pending.time_ms);
    }
    for (partition, next) in pending.offsets {
        let known = table.offsets.entry(partition).or_insert(next);
        *known = next.max(*known);
    }
    if let Some(watermark) = pending.watermark {
        table.watermark = watermark;
    }
}

fn remember(table: &mut TableState, batch: BatchKey, version: TableVersion, time_ms: i64) {
    table.batches_count += 1;
    table.marks.push_back(BatchMark {
        id: batch.id,
        input_digest: batch.input_digest,
        version,
        time_ms,
    });
    if table.marks.len() > BATCH_MARKS_MAX {
        table.marks.pop_front();
    }
    if let Some(sequence) = batch.sequence {
        let mark = ProducerMark {
            producer_epoch: sequence.producer_epoch,
            number: sequence.number,
        };
        table.producers.insert(sequence.source, mark);
    }
}
