//! `Collected`: the files of aborted attempts are gone.

use serde::{Deserialize, Serialize};
use tidegate_change::mutants::{Mutant, is_on};

use super::{Outcome, Refusal, State, TableId};

/// Ends the clean-up of aborted attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// The table.
    pub table: TableId,
    /// The attempts.
    pub attempts: Vec<u64>,
}

impl Collected {
    pub(super) fn apply(&self, state: &mut State) -> Result<Outcome, Refusal> {
        let table = state.table_mut(&self.table)?;
        for attempt in &self.attempts {
            table.uncollected.remove(attempt);
            if is_on(Mutant::NoAttemptFence) {
                table.attempts.remove(attempt);
            }
        }
        Ok(Outcome::Done)
    }
}
