//! `SyncForeign`: the head moves over a foreign commit.

use serde::{Deserialize, Serialize};
use tidegate_change::{Digest, TableVersion};

use super::{Outcome, Refusal, State, TableId};

/// Takes a foreign commit into the table's history; the caller has judged its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncForeign {
    /// The table.
    pub table: TableId,
    /// Its version.
    pub version: TableVersion,
    /// Digest of its bytes.
    pub digest: Digest,
    /// Its commit time, milliseconds.
    pub time_ms: i64,
}

impl SyncForeign {
    pub(super) fn apply(&self, state: &mut State) -> Result<Outcome, Refusal> {
        let table = state.table(&self.table)?;
        if let Some(pending) = &table.pending {
            return Err(Refusal::PendingExists {
                version: pending.version,
            });
        }
        if table.next_version() != self.version {
            return Err(Refusal::HeadMoved { head: table.head });
        }
        let table = state.table_mut(&self.table)?;
        table.head = Some(self.version);
        table.head_time_ms = self.time_ms.max(table.head_time_ms);
        table.head_attempt = None;
        table.head_digest = Some(self.digest);
        Ok(Outcome::Done)
    }
}
