//! Why an entry had no effect.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use tidegate_change::{Code, Digest, Error, TableVersion};

/// The check that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The group has its ids.
    AlreadyFounded,
    /// No table of that id.
    TableUnknown,
    /// The name or id is taken.
    TableExists,
    /// The place overlaps that of another table.
    LocationTaken {
        /// Name of the other table.
        other: String,
    },
    /// A newer grant replaced the epoch.
    EpochDead,
    /// The batch is in the table, with the same content.
    BatchFinal {
        /// The version that holds it.
        version: TableVersion,
    },
    /// The id was used with other content.
    BatchMismatch {
        /// Digest of the content that is in the table.
        known: Digest,
        /// The version that holds it.
        version: TableVersion,
    },
    /// The source has gone past this number; its version is not remembered.
    AlreadyApplied,
    /// The id may have left the window of remembered ids.
    BatchExpired,
    /// The producer was replaced by a newer incarnation.
    ProducerDead,
    /// The attempt is not open.
    AttemptNotOpen,
    /// The attempt is older than [`super::limits::ATTEMPT_AGE_MS_MAX`].
    AttemptTooOld,
    /// Another commit took the version.
    HeadMoved {
        /// The head now.
        head: Option<TableVersion>,
    },
    /// Another attempt is prepared and not yet decided.
    PendingExists {
        /// The version that it waits for.
        version: TableVersion,
    },
    /// The attempt is not the prepared one of that version.
    NotPending,
    /// A prepared attempt cannot be closed without a foreign digest in its slot.
    EvidenceMissing,
    /// The submitter's offsets do not begin where the table's end.
    OffsetMismatch {
        /// `source/partition`.
        partition: String,
        /// The next offset that the table expects.
        expected: i64,
    },
    /// The watermark would fall.
    WatermarkLower,
    /// The commit time is not above that of the head.
    TimeNotRising,
    /// The table refuses writes.
    Quarantined {
        /// Why.
        reason: String,
    },
    /// Work on the table is not finished.
    Busy,
    /// The workers changed since the proposer looked.
    PlacementMoved {
        /// The epoch now.
        epoch: u64,
    },
    /// No worker of that node.
    WorkerUnknown,
    /// A bound of the state.
    Limit {
        /// What there would be too much of.
        what: Cow<'static, str>,
    },
}

impl Refusal {
    /// The error that a caller sees.
    #[must_use]
    pub fn into_error(self, table: &str) -> Error {
        Error::new(self.code(), format!("table {table}: {}", self.sentence()))
    }

    fn code(&self) -> Code {
        match self {
            Self::AlreadyFounded => Code::Internal,
            Self::TableUnknown => Code::TableNotFound,
            Self::TableExists => Code::TableExists,
            Self::LocationTaken { .. } => Code::InvalidLocation,
            Self::BatchMismatch { .. } => Code::BatchContentMismatch,
            Self::AlreadyApplied | Self::BatchExpired => Code::BatchIdExpired,
            Self::EpochDead | Self::ProducerDead | Self::AttemptNotOpen | Self::AttemptTooOld => {
                Code::Fenced
            }
            Self::BatchFinal { .. }
            | Self::HeadMoved { .. }
            | Self::PendingExists { .. }
            | Self::NotPending
            | Self::PlacementMoved { .. }
            | Self::Busy => Code::CommitConflict,
            Self::WorkerUnknown => Code::NotFound,
            Self::OffsetMismatch { .. } => Code::InvalidArgument,
            Self::EvidenceMissing | Self::WatermarkLower | Self::TimeNotRising => Code::Internal,
            Self::Quarantined { .. } => Code::Quarantined,
            Self::Limit { .. } => Code::ResourceExhausted,
        }
    }

    fn sentence(&self) -> String {
        match self {
            Self::AlreadyFounded => "the group was founded before".into(),
            Self::TableUnknown => "does not exist".into(),
            Self::TableExists => "exists already".into(),
            Self::LocationTaken { other } => format!("its location overlaps that of table {other}"),
            Self::EpochDead => "the coordinator was replaced".into(),
            Self::BatchFinal { version } => format!("the batch is in version {version}"),
            Self::BatchMismatch { known, version } => {
                format!(
                    "the batch id was used with other content (digest {known}) in version {version}"
                )
            }
            Self::AlreadyApplied => {
                "the source has gone past this batch, its version is not remembered".into()
            }
            Self::BatchExpired => "the batch id is older than the remembered ids".into(),
            Self::ProducerDead => "a newer producer took the source over".into(),
            Self::AttemptNotOpen => "the attempt was aborted".into(),
            Self::AttemptTooOld => "the attempt was opened too long ago".into(),
            Self::HeadMoved { head: Some(head) } => {
                format!("another commit was first, the head is version {head}")
            }
            Self::HeadMoved { head: None } => "it has no version".into(),
            Self::PendingExists { version } => format!("version {version} is being published"),
            Self::NotPending => "the attempt is not the prepared one".into(),
            Self::EvidenceMissing => "a prepared attempt was to be closed without evidence".into(),
            Self::OffsetMismatch {
                partition,
                expected,
            } => {
                format!("the offsets of {partition} must begin at {expected}")
            }
            Self::WatermarkLower => "the watermark would fall".into(),
            Self::TimeNotRising => "the commit time would not rise".into(),
            Self::Quarantined { reason } => format!("refuses writes: {reason}"),
            Self::Busy => "work on the table is not finished".into(),
            Self::PlacementMoved { epoch } => format!("the placement has epoch {epoch}"),
            Self::WorkerUnknown => "the node is no worker".into(),
            Self::Limit { what } => format!("too many {what}"),
        }
    }
}
