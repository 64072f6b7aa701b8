//! `Rebase`: a harmless foreign commit took the slot.

use serde::{Deserialize, Serialize};
use tidegate_change::{Digest, TableVersion};

use super::limits::INLINE_COMMIT_BYTES_MAX;
use super::{CommitBytes, Outcome, Refusal, State, TableId};

/// Moves the head over the foreign commit and the prepared attempt to the version after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rebase {
    /// The table.
    pub table: TableId,
    /// The version that the foreign commit took.
    pub version: TableVersion,
    /// Digest of the foreign bytes, the evidence.
    pub foreign_digest: Digest,
    /// Commit time of the foreign commit, milliseconds.
    pub foreign_time_ms: i64,
    /// The prepared attempt.
    pub attempt: u64,
    /// Digest of the attempt's bytes for the next version.
    pub commit_digest: Digest,
    /// Where these are.
    pub bytes: CommitBytes,
    /// In-commit timestamp for the next version, milliseconds.
    pub time_ms: i64,
}

impl Rebase {
    pub(super) fn apply(&self, state: &mut State) -> Result<Outcome, Refusal> {
        let pending = state
            .table(&self.table)?
            .require_pending(self.version, self.attempt)?;
        if self.foreign_digest == pending.commit_digest {
            return Err(Refusal::EvidenceMissing);
        }
        if self.time_ms <= self.foreign_time_ms {
            return Err(Refusal::TimeNotRising);
        }
        if matches!(&self.bytes, CommitBytes::Inline(text) if text.len() > INLINE_COMMIT_BYTES_MAX)
        {
            return Err(Refusal::Limit {
                what: "bytes in an inline commit".into(),
            });
        }
        let table = state.table_mut(&self.table)?;
        table.head = Some(self.version);
        table.head_time_ms = self.foreign_time_ms;
        table.head_attempt = None;
        table.head_digest = Some(self.foreign_digest);
        let next = self.version.next();
        if let Some(pending) = &mut table.pending {
            pending.version = next;
            pending.commit_digest = self.commit_digest;
            pending.bytes = self.bytes.clone();
            pending.time_ms = self.time_ms;
        }
        Ok(Outcome::Rebased(next))
    }
}
