//! `GcFloor`: all attempts below a floor are closed.

use serde::{Deserialize, Serialize};

use super::{Outcome, Refusal, State, TableId};

/// Lets vacuum collect unreferenced files of older attempts, also those that a dead worker wrote late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcFloor {
    /// The table.
    pub table: TableId,
    /// The floor.
    pub floor: u64,
}

impl GcFloor {
    pub(super) fn apply(&self, state: &mut State, index: u64) -> Result<Outcome, Refusal> {
        let table = state.table(&self.table)?;
        let oldest = table.attempts.keys().next().copied();
        let pending = table.pending.as_ref().map(|pending| pending.opened.index);
        let alive = oldest.into_iter().chain(pending).min();
        // No attempt may be opened later below the floor, so it cannot lie beyond this entry.
        if alive.is_some_and(|alive| alive < self.floor) || self.floor > index {
            return Err(Refusal::Busy);
        }
        let table = state.table_mut(&self.table)?;
        table.gc_floor = table.gc_floor.max(self.floor);
        Ok(Outcome::Done)
    }
}
