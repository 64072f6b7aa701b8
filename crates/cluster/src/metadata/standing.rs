//! Whether a batch is in a table.

use tidegate_change::{Digest, TableVersion};

use super::limits::BATCH_MARKS_MAX;
use super::{BatchKey, Refusal, TableState};

/// What a table knows of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing: it may be applied.
    New,
    /// It is in that version.
    Final {
        /// The version.
        version: TableVersion,
    },
    /// The id is in that version with other content.
    Mismatch {
        /// Digest of the content that is in the table.
        known: Digest,
        /// The version.
        version: TableVersion,
    },
    /// The source's sequence has passed it.
    AlreadyApplied,
    /// The id may have been forgotten.
    Expired,
    /// A newer incarnation of the producer has written.
    ProducerDead,
}

impl Standing {
    /// Refuses all but a new batch.
    pub(crate) fn require_new(self) -> Result<(), Refusal> {
        match self {
            Self::New => Ok(()),
            Self::Final { version } => Err(Refusal::BatchFinal { version }),
            Self::Mismatch { known, version } => Err(Refusal::BatchMismatch { known, version }),
            Self::AlreadyApplied => Err(Refusal::AlreadyApplied),
            Self::Expired => Err(Refusal::BatchExpired),
            Self::ProducerDead => Err(Refusal::ProducerDead),
        }
    }
}

impl TableState {
    /// What the table knows of the batch; a prepared batch counts only once it is final.
    #[must_use]
    pub fn standing(&self, batch: &BatchKey) -> Standing {
        if let Some(mark) = self.marks.iter().rev().find(|mark| mark.id == batch.id) {
            return if mark.input_digest == batch.input_digest {
                Standing::Final {
                    version: mark.version,
                }
            } else {
                Standing::Mismatch {
                    known: mark.input_digest,
                    version: mark.version,
                }
            };
        }
        if let Some(sequence) = &batch.sequence
            && let Some(mark) = self.producers.get(&sequence.source)
        {
            if sequence.producer_epoch < mark.producer_epoch {
                return Standing::ProducerDead;
            }
            if sequence.number <= mark.number {
                return Standing::AlreadyApplied;
            }
            return Standing::New;
        }
        match (batch.logical_time_ms, self.marks.front()) {
            (Some(time), Some(oldest))
                if self.marks.len() >= BATCH_MARKS_MAX && time < oldest.time_ms =>
            {
                Standing::Expired
            }
            _ => Standing::New,
        }
    }
}
