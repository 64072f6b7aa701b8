//! `Quarantine` and `Release`: a table refuses writes, and takes them again.

use serde::{Deserialize, Serialize};

use super::limits::REASON_BYTES_MAX;
use super::{Outcome, Refusal, State, TableId, TableStatus};

/// Refuses all writes to a table until an operator releases it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// The table.
    pub table: TableId,
    /// Why.
    pub reason: String,
}

impl Quarantine {
    pub(super) fn apply(&self, state: &mut State) -> Result<Outcome, Refusal> {
        let table = state.table(&self.table)?;
        if matches!(table.status, TableStatus::Dropping { .. }) {
            return Err(Refusal::TableUnknown);
        }
        if self.reason.len() > REASON_BYTES_MAX {
            return Err(Refusal::Limit {
                what: "bytes in a reason".into(),
            });
        }
        state.table_mut(&self.table)?.status = TableStatus::Quarantined {
            reason: self.reason.clone(),
        };
        Ok(Outcome::Done)
    }
}

/// Takes a table out of quarantine; only an operator proposes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// The table.
    pub table: TableId,
}

impl Release {
    pub(super) fn apply(&self, state: &mut State) -> Result<Outcome, Refusal> {
        let table = state.table_mut(&self.table)?;
        if matches!(table.status, TableStatus::Quarantined { .. }) {
            table.status = TableStatus::Active;
        }
        Ok(Outcome::Done)
    }
}
