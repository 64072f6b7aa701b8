//! `Abort`: an attempt ends without a version.

use serde::{Deserialize, Serialize};
use tidegate_change::mutants::{Mutant, is_on};
use tidegate_change::{Digest, TableVersion};

use super::limits::UNCOLLECTED_MAX;
use super::{Outcome, Refusal, State, TableId, TableState};

/// What was seen in the slot of a prepared attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SlotEvidence {
    /// The slot.
    pub version: TableVersion,
    /// Digest of the foreign bytes in it.
    pub digest: Digest,
}

/// Closes an attempt: an open one at any time, a prepared one only on evidence that its slot is foreign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abort {
    /// The table.
    pub table: TableId,
    /// The attempt.
    pub attempt: u64,
    /// What was seen in the slot, for a prepared attempt.
    pub evidence: Option<SlotEvidence>,
}

impl Abort {
    pub(super) fn apply(&self, state: &mut State) -> Result<Outcome, Refusal> {
        let table = state.table(&self.table)?;
        if table.attempts.contains_key(&self.attempt) {
            let table = state.table_mut(&self.table)?;
            if !is_on(Mutant::NoAttemptFence) {
                table.attempts.remove(&self.attempt);
            }
            forget(table, self.attempt);
            return Ok(Outcome::Aborted);
        }
        let pending = match &table.pending {
            Some(pending) if pending.opened.index == self.attempt => pending,
            _ => return Err(Refusal::AttemptNotOpen),
        };
        let proven = |evidence: &SlotEvidence| {
            evidence.version == pending.version && evidence.digest != pending.commit_digest
        };
        if !self.evidence.as_ref().is_some_and(proven) && !is_on(Mutant::AbortsOnTimeout) {
            return Err(Refusal::EvidenceMissing);
        }
        let table = state.table_mut(&self.table)?;
        table.pending = None;
        forget(table, self.attempt);
        Ok(Outcome::Aborted)
    }
}

/// Its files can never be referenced any more; they wait for clean-up.
fn forget(table: &mut TableState, attempt: u64) {
    table.uncollected.insert(attempt);
    if table.uncollected.len() > UNCOLLECTED_MAX {
        table.uncollected.pop_first();
    }
}
