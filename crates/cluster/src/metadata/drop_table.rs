//! `DropTable`: a table goes.

use serde::{Deserialize, Serialize};

use super::{Epoch, Outcome, Refusal, State, TableId, TableStatus};

/// How far the drop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropStage {
    /// The table takes no more work; its objects are being deleted.
    Begin {
        /// Whether the objects stay.
        keep_files: bool,
    },
    /// Name and place are free.
    Finish,
}

/// Drops a table in two stages, so that a crash between them is continued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropTable {
    /// The table.
    pub table: TableId,
    /// How far the drop is.
    pub stage: DropStage,
    /// The coordinator that drops it. Objects are deleted by one coordinator at a time: the place may be
    /// another table's as soon as the drop is finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
}

impl DropTable {
    pub(super) fn apply(&self, state: &mut State) -> Result<Outcome, Refusal> {
        if self.epoch.is_some_and(|epoch| !state.is_current(&epoch)) {
            return Err(Refusal::EpochDead);
        }
        let table = state.table(&self.table)?;
        if table.pending.is_some() {
            return Err(Refusal::Busy);
        }
        let others = |owner: &Epoch| Some(owner) != self.epoch.as_ref() && state.is_current(owner);
        let is_dropping = matches!(table.status, TableStatus::Dropping { .. });
        if is_dropping && table.owner.as_ref().is_some_and(others) {
            return Err(Refusal::Busy);
        }
        match self.stage {
            DropStage::Begin { keep_files } => {
                let table = state.table_mut(&self.table)?;
                table.status = TableStatus::Dropping { keep_files };
                table.owner = self.epoch;
                table.attempts.clear();
            }
            DropStage::Finish => {
                if !is_dropping {
                    return Err(Refusal::Busy);
                }
                let name = table.name.clone();
                state.names.remove(&name);
                state.tables.remove(&self.table);
            }
        }
        Ok(Outcome::Done)
    }
}
