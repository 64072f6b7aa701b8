//! `OpenAttempt`: a try to write a version begins.

use serde::{Deserialize, Serialize};
use tidegate_change::mutants::{Mutant, is_on};

use super::limits::{BATCHES_PER_COMMIT_MAX, NAME_BYTES_MAX, OPEN_ATTEMPTS_MAX};
use super::weight::of_batches;
use super::{Attempt, BatchKey, CommitKind, Epoch, Outcome, Refusal, State, TableId};

/// Opens an attempt, whose id is the log index of this entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenAttempt {
    /// The table.
    pub table: TableId,
    /// The coordinator.
    pub epoch: Epoch,
    /// Why the commit will exist.
    pub kind: CommitKind,
    /// The batches that it will hold; none unless the kind is `Batch`.
    pub batches: Vec<BatchKey>,
    /// The proposer's time, milliseconds; only ever used to refuse an attempt that grew old.
    pub proposed_ms: i64,
}

impl OpenAttempt {
    pub(super) fn apply(&self, state: &mut State, index: u64) -> Result<Outcome, Refusal> {
        if !state.is_current(&self.epoch) {
            return Err(Refusal::EpochDead);
        }
        let table = state.table(&self.table)?;
        table.require_active()?;
        if table.attempts.len() >= OPEN_ATTEMPTS_MAX {
            return Err(Refusal::Limit {
                what: "open attempts".into(),
            });
        }
        self.check_batches()?;
        table.require_room(of_batches(&self.batches))?;
        for batch in self.batches.iter().filter(|_| !is_on(Mutant::NoDedup)) {
            table.standing(batch).require_new()?;
        }
        let attempt = Attempt {
            epoch: self.epoch,
            kind: self.kind,
            batches: self.batches.clone(),
            opened_ms: self.proposed_ms,
        };
        state
            .table_mut(&self.table)?
            .attempts
            .insert(index, attempt);
        Ok(Outcome::AttemptOpened(state.attempt_id(index)))
    }

    fn check_batches(&self) -> Result<(), Refusal> {
        let named = self.kind == CommitKind::Batch;
        if named == self.batches.is_empty() || self.batches.len() > BATCHES_PER_COMMIT_MAX {
            return Err(Refusal::Limit {
                what: "batches in a commit".into(),
            });
        }
        let long = |batch: &BatchKey| {
            batch.id.0.len() > NAME_BYTES_MAX
                || batch
                    .sequence
                    .as_ref()
                    .is_some_and(|s| s.source.len() > NAME_BYTES_MAX)
        };
        if self.batches.iter().any(long) {
            return Err(Refusal::Limit {
                what: "bytes in a batch id".into(),
            });
        }
        let twice = |(n, batch): (usize, &BatchKey)| {
            self.batches
                .iter()
                .take(n)
                .any(|other| other.id == batch.id)
        };
        if self.batches.iter().enumerate().any(twice) {
            return Err(Refusal::Limit {
                what: "batches of one id in a commit".into(),
            });
        }
        Ok(())
    }
}
