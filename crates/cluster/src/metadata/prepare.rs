//! `Prepare`: the only place where a commit gets a version.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_change::mutants::{Mutant, is_on};
use tidegate_change::{Digest, TableVersion};

use super::limits::{
    ATTEMPT_AGE_MS_MAX, INLINE_COMMIT_BYTES_MAX, NAME_BYTES_MAX, OFFSETS_MAX, SOURCES_MAX,
    WATERMARK_BYTES_MAX,
};
use super::{
    Attempt, CommitBytes, OpenedAttempt, Outcome, Pending, Refusal, State, TableId, TableState,
    Watermark,
};

/// Offsets of one partition of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OffsetRange {
    /// First offset of the batch, where the submitter sent it: must be the table's next one. Offsets that
    /// were only found in records have none and are never checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<i64>,
    /// The offset after the last one.
    pub to: i64,
}

/// The commit of one table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparePart {
    /// The table.
    pub table: TableId,
    /// The attempt; what it said when it was opened holds.
    pub attempt: u64,
    /// The head that the commit was made on.
    pub expected: Option<TableVersion>,
    /// Digest of the exact bytes of the commit.
    pub commit_digest: Digest,
    /// Where these bytes are.
    pub bytes: CommitBytes,
    /// Offsets by `source/partition`.
    pub offsets: BTreeMap<String, OffsetRange>,
    /// The table's watermark after the commit; none leaves it as it is.
    pub watermark: Option<Watermark>,
    /// In-commit timestamp, milliseconds.
    pub time_ms: i64,
}

/// Gives the commits of one decision their versions, all or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepare {
    /// One part a table.
    pub parts: Vec<PreparePart>,
    /// The proposer's time, milliseconds; only ever used to refuse an attempt that grew old.
    pub proposed_ms: i64,
}

impl Prepare {
    pub(super) fn apply(&self, state: &mut State) -> Result<Outcome, Refusal> {
        let tables: std::collections::BTreeSet<_> =
            self.parts.iter().map(|part| &part.table).collect();
        if tables.len() < self.parts.len() || self.parts.is_empty() {
            return Err(Refusal::Limit {
                what: "parts of one table".into(),
            });
        }
        for part in &self.parts {
            part.check(state, self.proposed_ms)?;
        }
        let mut versions = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            versions.push(part.take_effect(state.table_mut(&part.table)?)?);
        }
        Ok(Outcome::Prepared(versions))
    }
}

impl PreparePart {
    fn check(&self, state: &State, proposed_ms: i64) -> Result<(), Refusal> {
        let table = state.table(&self.table)?;
        table.require_active()?;
        let attempt = table
            .attempts
            .get(&self.attempt)
            .ok_or(Refusal::AttemptNotOpen)?;
        if !state.is_current(&attempt.epoch) && !is_on(Mutant::NoAttemptFence) {
            return Err(Refusal::EpochDead);
        }
        if proposed_ms.saturating_sub(attempt.opened_ms) > ATTEMPT_AGE_MS_MAX {
            return Err(Refusal::AttemptTooOld);
        }
        if let Some(pending) = &table.pending {
            return Err(Refusal::PendingExists {
                version: pending.version,
            });
        }
        // The batch comes first: the loser of a race learns that its batch is in, not that the head moved.
        for batch in attempt.batches.iter().filter(|_| !is_on(Mutant::NoDedup)) {
            table.standing(batch).require_new()?;
        }
        if table.head != self.expected {
            return Err(Refusal::HeadMoved { head: table.head });
        }
        if table.head.is_some() && self.time_ms <= table.head_time_ms {
            return Err(Refusal::TimeNotRising);
        }
        self.check_progress(table, attempt)
    }

    fn check_progress(&self, table: &TableState, attempt: &Attempt) -> Result<(), Refusal> {
        for (partition, range) in &self.offsets {
            match (range.from, table.offsets.get(partition)) {
                (Some(from), Some(next)) if from != *next => {
                    return Err(Refusal::OffsetMismatch {
                        partition: partition.clone(),
                        expected: *next,
                    });
                }
                _ => {}
            }
        }
        if self
            .watermark
            .as_ref()
            .is_some_and(|w| w.is_lower_than(&table.watermark))
        {
            return Err(Refusal::WatermarkLower);
        }
        let added = |names: usize, known: usize, max: usize| names > 0 && known + names > max;
        let new_offsets = self
            .offsets
            .keys()
            .filter(|p| !table.offsets.contains_key(*p))
            .count();
        if added(new_offsets, table.offsets.len(), OFFSETS_MAX) {
            return Err(Refusal::Limit {
                what: "source partitions".into(),
            });
        }
        let sources: std::collections::BTreeSet<_> = attempt
            .batches
            .iter()
            .filter_map(|batch| batch.sequence.as_ref().map(|s| &s.source))
            .collect();
        let new_sources = sources
            .iter()
            .filter(|s| !table.producers.contains_key(**s))
            .count();
        if added(new_sources, table.producers.len(), SOURCES_MAX) {
            return Err(Refusal::Limit {
                what: "sources".into(),
            });
        }
        if self.offsets.keys().any(|name| name.len() > NAME_BYTES_MAX) {
            return Err(Refusal::Limit {
                what: "bytes in a partition name".into(),
            });
        }
        if self
            .watermark
            .as_ref()
            .is_some_and(|w| w.json.len() + w.order.len() > WATERMARK_BYTES_MAX)
        {
            return Err(Refusal::Limit {
                what: "bytes in a watermark".into(),
            });
        }
        table.require_room(self.weight())?;
        match &self.bytes {
            CommitBytes::Inline(text) if text.len() > INLINE_COMMIT_BYTES_MAX => {
                Err(Refusal::Limit {
                    what: "bytes in an inline commit".into(),
                })
            }
            _ => Ok(()),
        }
    }

    fn take_effect(&self, table: &mut TableState) -> Result<TableVersion, Refusal> {
        let attempt = table
            .attempts
            .remove(&self.attempt)
            .ok_or(Refusal::AttemptNotOpen)?;
        let version = table.next_version();
        table.pending = Some(Box::new(Pending {
            version,
            opened: OpenedAttempt {
                index: self.attempt,
                attempt,
            },
            commit_digest: self.commit_digest,
            bytes: self.bytes.clone(),
            time_ms: self.time_ms,
            offsets: self
                .offsets
                .iter()
                .map(|(name, range)| (name.clone(), range.to))
                .collect(),
            watermark: self.watermark.clone(),
        }));
        Ok(version)
    }
}
