//! The commit state machine: what the replicated log decides about tables, as pure code.
//!
//! [`apply`] takes one [`Entry`] at its log index and changes the [`State`]; it reads no clock, draws no
//! randomness and does no I/O, so every replica that applies the same entries holds the same state. One
//! file per command holds its fields, its checks and its effect; a command that is refused changes nothing.
//!
//! The rule that everything rests on: after `Prepare` only the content of slot `N.json` decides. `Finalize`
//! is proposed by whoever saw our bytes there; `Rebase` and the `Abort` of a prepared attempt carry the
//! digest of foreign bytes that were seen there.

mod abort;
mod adopt;
mod collected;
mod create_table;
mod drop_table;
mod finalize;
mod found;
mod gc_floor;
mod grant;
pub mod limits;
mod open_attempt;
mod place;
mod prepare;
mod quarantine;
mod rebase;
mod refusal;
pub mod replicated;
mod standing;
mod state;
mod sync_foreign;
mod weight;

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_change::{AttemptId, TableVersion};

pub use abort::{Abort, SlotEvidence};
pub use adopt::Adopt;
pub use collected::Collected;
pub use create_table::CreateTable;
pub use drop_table::{DropStage, DropTable};
pub use finalize::Finalize;
pub use found::Found;
pub use gc_floor::GcFloor;
pub use grant::Grant;
pub use open_attempt::OpenAttempt;
pub use place::{Drain, Place};
pub use prepare::{OffsetRange, Prepare, PreparePart};
pub use quarantine::{Quarantine, Release};
pub use rebase::Rebase;
pub use refusal::Refusal;
pub use standing::Standing;
pub use state::{
    Attempt, BatchKey, BatchMark, ClusterId, CommitBytes, CommitKind, Epoch, NodeId, OpenedAttempt,
    Pending, ProducerMark, ProducerSequence, Role, State, TableId, TableState, TableStatus,
    Watermark,
};
pub use sync_foreign::SyncForeign;

/// One change of the replicated state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The group gets its ids.
    Found(Found),
    /// A node takes a role.
    Grant(Grant),
    /// A try begins.
    OpenAttempt(OpenAttempt),
    /// A try gets a version.
    Prepare(Prepare),
    /// The version holds the try's bytes.
    Finalize(Finalize),
    /// The version holds harmless foreign bytes; the try moves to the next one.
    Rebase(Rebase),
    /// A try ends without a version.
    Abort(Abort),
    /// The head moves over a foreign commit.
    SyncForeign(SyncForeign),
    /// Attempts below a floor are closed.
    GcFloor(GcFloor),
    /// The files of aborted attempts are gone.
    Collected(Collected),
    /// A table refuses writes.
    Quarantine(Quarantine),
    /// A table takes writes again.
    Release(Release),
    /// A table gets a name and a place.
    CreateTable(CreateTable),
    /// A table goes.
    DropTable(DropTable),
    /// A table comes back from its log alone.
    Adopt(Box<Adopt>),
    /// The workers change.
    Place(Place),
    /// A worker gets no more work.
    Drain(Drain),
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, table) = match self {
            Self::Found(_) => ("found", None),
            Self::Grant(_) => ("grant", None),
            Self::OpenAttempt(command) => ("open_attempt", Some(&command.table)),
            Self::Prepare(command) => {
                let first = command.parts.first();
                ("prepare", first.map(|part| &part.table))
            }
            Self::Finalize(command) => ("finalize", Some(&command.table)),
            Self::Rebase(command) => ("rebase", Some(&command.table)),
            Self::Abort(command) => ("abort", Some(&command.table)),
            Self::SyncForeign(command) => ("sync_foreign", Some(&command.table)),
            Self::GcFloor(command) => ("gc_floor", Some(&command.table)),
            Self::Collected(command) => ("collected", Some(&command.table)),
            Self::Quarantine(command) => ("quarantine", Some(&command.table)),
            Self::Release(command) => ("release", Some(&command.table)),
            Self::CreateTable(command) => ("create_table", Some(&command.table)),
            Self::DropTable(command) => ("drop_table", Some(&command.table)),
            Self::Adopt(command) => ("adopt", Some(&command.table)),
            Self::Place(_) => ("place", None),
            Self::Drain(_) => ("drain", None),
        };
        match table {
            Some(table) => write!(f, "{name} {table}"),
            None => f.write_str(name),
        }
    }
}

/// What applying an entry did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The new epoch.
    Granted(Epoch),
    /// The new attempt.
    AttemptOpened(AttemptId),
    /// The versions that the parts got, in order.
    Prepared(Vec<TableVersion>),
    /// The batch is final.
    Finalized,
    /// The attempt now waits for this version.
    Rebased(TableVersion),
    /// The attempt is closed.
    Aborted,
    /// The command took effect.
    Done,
    /// A check failed; nothing changed.
    Refused(Refusal),
}

/// Applies one entry: deterministic, total, and without effect when it is refused.
pub fn apply(state: &mut State, index: u64, entry: &Entry) -> Outcome {
    let outcome = match entry {
        Entry::Found(command) => command.apply(state),
        Entry::Grant(command) => command.apply(state, index),
        Entry::OpenAttempt(command) => command.apply(state, index),
        Entry::Prepare(command) => command.apply(state),
        Entry::Finalize(command) => command.apply(state),
        Entry::Rebase(command) => command.apply(state),
        Entry::Abort(command) => command.apply(state),
        Entry::SyncForeign(command) => command.apply(state),
        Entry::GcFloor(command) => command.apply(state, index),
        Entry::Collected(command) => command.apply(state),
        Entry::Quarantine(command) => command.apply(state),
        Entry::Release(command) => command.apply(state),
        Entry::CreateTable(command) => command.apply(state, index),
        Entry::DropTable(command) => command.apply(state),
        Entry::Adopt(command) => command.apply(state, index),
        Entry::Place(command) => command.apply(state),
        Entry::Drain(command) => command.apply(state),
    };
    state.last_applied = index;
    outcome.unwrap_or_else(Outcome::Refused)
}

#[cfg(test)]
mod tests;
