//! What a coordinator asks of a worker, as data.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_apply::phases::{FeedDecision, FeedOutline, MergePlan, PartKind, ReadSpec};
use tidegate_apply::work::SourceFile;
use tidegate_change::{AttemptId, TableVersion};

use crate::metadata::TableId;
use crate::placement::Seat;

/// The right to work on an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkToken {
    /// The attempt.
    pub attempt: AttemptId,
    /// Random bits that only the attempt's coordinator and those who work for it know.
    pub secret: u64,
    /// The epoch of the placement by which the work was given.
    pub epoch: u64,
}

impl std::fmt::Debug for WorkToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WorkToken({} epoch {})", self.attempt, self.epoch)
    }
}

/// The table of an attempt, and what all who work on it agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableAt {
    /// Its id.
    pub table: TableId,
    /// Where it lies.
    pub location: String,
    /// The version that the batch builds on.
    pub version: TableVersion,
    /// The batch's clock, milliseconds (R-G2).
    pub now_ms: i64,
    /// Names of all sources of the batch, by number.
    pub sources: Vec<Arc<str>>,
}

/// Read some sources and hold their events.
#[derive(Clone, Debug)]
pub struct ReadOrder {
    /// The right to it.
    pub token: WorkToken,
    /// How they are read.
    pub spec: ReadSpec,
    /// Number of what is read, one for each order of an attempt.
    pub part: u32,
    /// The sources, with their numbers in the batch.
    pub sources: Vec<(u32, SourceFile)>,
}

/// Merge the events of some buckets with the table, and hold what that came to.
#[derive(Clone, Debug)]
pub struct MergeOrder {
    /// The right to it.
    pub token: WorkToken,
    /// The table.
    pub table: Arc<TableAt>,
    /// What reading came to.
    pub plan: Arc<MergePlan>,
    /// Number of the owner, one for each order of an attempt: no two owners write one file.
    pub owner: u32,
    /// Its buckets.
    pub buckets: Vec<Range<u32>>,
    /// Who holds the events.
    pub readers: Vec<ReaderAt>,
}

/// Where a part of the events of a batch is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderAt {
    /// Who read it.
    pub seat: Seat,
    /// Number of the part.
    pub part: u32,
}

/// What a merge came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeOutcome {
    /// It is done.
    Merged(FeedOutline),
    /// The events of this part cannot be had any more.
    ReaderLost {
        /// Number of the part.
        part: u32,
    },
}

/// Write the change rows of a merge, or forget them, and say what was written.
#[derive(Clone, Copy, Debug)]
pub struct FinishOrder {
    /// The right to it.
    pub token: WorkToken,
    /// Number of the owner.
    pub owner: u32,
    /// What becomes of the change rows.
    pub decision: FeedDecision,
}

/// What is fetched from a worker; the ticket of a Flight `DoGet` between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetch {
    /// The right to it.
    pub token: WorkToken,
    /// What is fetched.
    pub what: Fetched,
}

/// See [`Fetch`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fetched {
    /// Events of some buckets, of a table with so many.
    Events {
        /// Number of the part that was read.
        part: u32,
        /// The buckets.
        buckets: Vec<Range<u32>>,
        /// Buckets of the table.
        of: u32,
    },
    /// Quarantined events of what was read.
    Rejects {
        /// Number of the part that was read.
        part: u32,
    },
    /// Rows of a merge, of one kind. They are given once.
    Merged {
        /// Number of the owner.
        owner: u32,
        /// Which rows.
        kind: PartKind,
    },
}
