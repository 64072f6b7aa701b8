//! What a worker is given and what it gives back: one batch on one table, as data.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tidegate_change::spec::ResolvedSpec;
use tidegate_change::{AttemptId, Counters};
use tidegate_delta::actions::Action;
use tidegate_delta::{TableRoot, TableSnapshot};

use crate::limits::Limits;
use crate::observer::BatchObserver;

/// Bytes of one source file.
#[derive(Clone, Debug)]
pub enum SourceInput {
    /// A file of this machine alone.
    Path(PathBuf),
    /// A file that every node reaches under this path.
    Shared(PathBuf),
    /// Bytes in memory.
    Bytes(Bytes),
}

/// One source file of a batch.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Name that errors, rejects and `_source_file` show.
    pub name: String,
    /// Where the bytes are.
    pub input: SourceInput,
    /// File format, where the submitter gave it; otherwise by name and content.
    pub format: Option<tidegate_decode::FileFormat>,
}

/// One try to apply a batch.
#[derive(Clone, Debug)]
pub struct Work {
    /// Where the table lies.
    pub root: TableRoot,
    /// The same as the metadata names it, so that other nodes can open it.
    pub location: String,
    /// The table as the batch must see it.
    pub snapshot: Arc<TableSnapshot>,
    /// The spec as resolved at that version.
    pub resolved: ResolvedSpec,
    /// The attempt whose name every file carries.
    pub attempt: AttemptId,
    /// The batch's clock, milliseconds (R-G2).
    pub now_ms: i64,
    /// The sources; together one batch.
    pub sources: Vec<SourceFile>,
    /// Whether the index is made anew from the table's files before anything is looked up, and committed
    /// with the batch: a run of it is lost or damaged.
    pub rebuild_index: bool,
    /// Memory and temporary space; a worker on another machine puts its own in their place.
    pub limits: Limits,
    /// Who sees how far the batch is.
    pub observer: Option<Arc<dyn BatchObserver>>,
}

/// What a try wrote and what its commit must say; the coordinator adds `commitInfo`, `txn` and the batch marks.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    /// Actions of the commit, in order (`remove` before `add` of one path).
    pub actions: Vec<Action>,
    /// The counts.
    pub counters: Counters,
    /// The table's watermark after the batch (R-W1).
    pub watermark: Value,
    /// Greatest offset + 1 found in records, by `topic/partition`.
    pub offsets: BTreeMap<String, i64>,
    /// Records that are no row events, by class.
    pub other: BTreeMap<String, u64>,
    /// Store keys of all files written, for clean-up of an aborted attempt.
    pub written: Vec<String>,
    /// The spec with the columns that this batch added.
    pub resolved: Option<ResolvedSpec>,
    /// JSON of one key with a tie, for a warning (R-T5).
    pub tie_example: Option<Value>,
}
