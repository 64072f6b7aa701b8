//! `DropTable`: a table goes.

use serde::{Deserialize, Serialize};

use super::{Outcome, Refusal, State, TableId, TableStatus};

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
}

impl DropTable {
    pub(super) fn apply(&self, state: &mut State) -> Result<Outcome, Refusal> {
        let table = state.table(&self.table)?;
        if table.pending.is_some() {
            return Err(Refusal::Busy);
        }
        match self.stage {
            DropStage::Begin { keep_files } => {
                let table = state.table_mut(&self.table)?;
                table.status = TableStatus::Dropping { keep_files };
                table.attempts.clear();
            }
            DropStage::Finish => {
                if !matches!(table.status, TableStatus::Dropping { .. }) {
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
