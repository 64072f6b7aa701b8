//! Why an entry had no effect.

use tidegate_change::{Code, Digest, Error, TableVersion};

/// The check that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
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
    /// A bound of the state.
    Limit {
        /// What there would be too much of.
        what: &'static str,
    },
}

impl Refusal {
    /// The error that a caller sees.
    #[must_use]
    pub fn into_error(self, table: &str) -> Error {
        let (code, what) = match self {
            Self::TableUnknown => (Code::TableNotFound, "does not exist".to_owned()),
            Self::TableExists => (Code::TableExists, "exists already".to_owned()),
            Self::LocationTaken { other } => {
                (Code::InvalidLocation, format!("its location overlaps that of table {other}"))
            }
            Self::EpochDead => (Code::Fenced, "the coordinator was replaced".to_owned()),
            Self::BatchFinal { version } => {
                (Code::CommitConflict, format!("the batch is in version {version}"))
            }
            Self::BatchMismatch { known, version } => (
                Code::BatchContentMismatch,
                format!("the batch id was used with other content (digest {known}) in version {version}"),
            ),
            Self::AlreadyApplied => (
                Code::BatchIdExpired,
                "the source has gone past this batch, its version is not remembered".to_owned(),
            ),
            Self::BatchExpired => {
                (Code::BatchIdExpired, "the batch id is older than the remembered ids".to_owned())
            }
            Self::ProducerDead => (Code::Fenced, "a newer producer took the source over".to_owned()),
            Self::AttemptNotOpen => (Code::Fenced, "the attempt was aborted".to_owned()),
            Self::AttemptTooOld => (Code::Fenced, "the attempt was opened too long ago".to_owned()),
            Self::HeadMoved { head } => {
                let head = head.map_or_else(|| "none".to_owned(), |head| head.to_string());
                (Code::CommitConflict, format!("another commit was first, the head is {head}"))
            }
            Self::PendingExists { version } => {
                (Code::CommitConflict, format!("version {version} is being published"))
            }
            Self::NotPending => (Code::CommitConflict, "the attempt is not the prepared one".to_owned()),
            Self::EvidenceMissing => {
                (Code::Internal, "a prepared attempt was to be closed without evidence".to_owned())
            }
            Self::OffsetMismatch { partition, expected } => (
                Code::InvalidArgument,
                format!("the offsets of {partition} must begin at {expected}"),
            ),
            Self::WatermarkLower => (Code::Internal, "the watermark would fall".to_owned()),
            Self::TimeNotRising => (Code::Internal, "the commit time would not rise".to_owned()),
            Self::Quarantined { reason } => (Code::Quarantined, format!("refuses writes: {reason}")),
            Self::Busy => (Code::CommitConflict, "work on the table is not finished".to_owned()),
            Self::Limit { what } => (Code::ResourceExhausted, format!("too many {what}")),
        };
        Error::new(code, format!("table {table}: {what}"))
    }
}
