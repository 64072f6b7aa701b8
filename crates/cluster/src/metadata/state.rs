//! The replicated state: what is known of every table.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_change::{AttemptId, BatchId, Code, Digest, Error, TableVersion, WriterId};

use super::refusal::Refusal;
use crate::placement::Placement;

/// Id of a table: the UUID of its Delta metadata.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TableId(pub String);

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Id of a node, issued once per data directory.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<u64> for NodeId {
    fn from(id: u64) -> Self {
        Self(id)
    }
}

/// Random id of a metadata group; nodes of two groups never take each other's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterId(pub u64);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for ClusterId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match u64::from_str_radix(text, 16) {
            Ok(id) if text.len() == 16 => Ok(Self(id)),
            _ => Err(Error::new(
                Code::InvalidArgument,
                format!("{text:?} is no cluster id, which has 16 hexadecimal digits"),
            )),
        }
    }
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It drives batches.
    Coordinator,
    /// It executes parts of batches.
    Worker,
}

/// The right of a node to a role; a newer grant of the same node and role kills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch {
    /// The node.
    pub node: NodeId,
    /// Its role.
    pub role: Role,
    /// Log index of the grant.
    pub number: u64,
}

/// Why a commit exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommitKind {
    /// It holds one batch or several.
    Batch,
    /// It rewrites files without changing rows.
    Maintenance,
    /// It creates or alters the table.
    Schema,
}

/// Place of a batch in the sequence of its source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProducerSequence {
    /// The source.
    pub source: String,
    /// Incarnation of the producer; a lower one than the known is dead.
    pub producer_epoch: u64,
    /// Number of the batch, rising by any step.
    pub number: u64,
}

/// What names a batch, and what tells its content.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BatchKey {
    /// The id.
    pub id: BatchId,
    /// Digest of what the submitter sent.
    pub input_digest: Digest,
    /// Place in the source's sequence, where the submitter has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<ProducerSequence>,
    /// The submitter's own time of the batch, by which an id older than the window is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logical_time_ms: Option<i64>,
}

/// A batch that is in the table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BatchMark {
    /// The id.
    pub id: BatchId,
    /// Digest of what the submitter sent.
    #[serde(rename = "digest")]
    pub input_digest: Digest,
    /// The version that holds it.
    pub version: TableVersion,
    /// Commit time of that version, milliseconds.
    pub time_ms: i64,
}

/// How far a source with sequence numbers has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProducerMark {
    /// Newest incarnation of the producer.
    pub producer_epoch: u64,
    /// Greatest number in the table.
    pub number: u64,
}

/// A watermark: JSON of the sequence, and the bytes that order it where the worker gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Watermark {
    /// JSON text of the value; empty before the first.
    pub json: String,
    /// Order-preserving bytes; empty when they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<u8>,
}

impl Watermark {
    /// Whether this one is known to be lower.
    #[must_use]
    pub fn is_lower_than(&self, other: &Self) -> bool {
        !self.order.is_empty() && !other.order.is_empty() && self.order < other.order
    }
}

/// What was said when an attempt was opened.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attempt {
    /// The coordinator.
    pub epoch: Epoch,
    /// Why the commit exists.
    pub kind: CommitKind,
    /// The batches that it holds; none unless the kind is `Batch`.
    pub batches: Vec<BatchKey>,
    /// Proposed time of opening, milliseconds.
    pub opened_ms: i64,
}

/// An attempt with its log index.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OpenedAttempt {
    /// Log index of its `OpenAttempt`.
    pub index: u64,
    /// What was said.
    pub attempt: Attempt,
}

/// Where the exact bytes of a prepared commit are.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommitBytes {
    /// In the staged file of the attempt and version.
    Staged,
    /// Here.
    Inline(String),
}

/// A prepared attempt: only the content of its slot decides what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pending {
    /// The version that it waits for.
    pub version: TableVersion,
    /// The attempt.
    pub opened: OpenedAttempt,
    /// Digest of the exact bytes of the commit.
    pub commit_digest: Digest,
    /// Where these bytes are.
    pub bytes: CommitBytes,
    /// In-commit timestamp, milliseconds.
    pub time_ms: i64,
    /// Next offsets after the commit, by `source/partition`.
    pub offsets: BTreeMap<String, i64>,
    /// Watermark after the commit.
    pub watermark: Option<Watermark>,
}

/// Whether a table takes writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableStatus {
    /// It does.
    Active,
    /// Not until an operator releases it.
    Quarantined {
        /// Why.
        reason: String,
    },
    /// It is on its way out.
    Dropping {
        /// Whether its objects stay.
        keep_files: bool,
    },
}

/// What is known of one table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TableState {
    /// The name.
    pub name: String,
    /// The root: a path below the lake's root, or a URL.
    pub location: String,
    /// Log index at which this table came to be; tells it from an earlier one of the same name.
    pub incarnation: u64,
    /// Newest decided version; none before version 0.
    pub head: Option<TableVersion>,
    /// Commit time of the head, milliseconds.
    pub head_time_ms: i64,
    /// Attempt that wrote the head; none where a foreign writer did.
    pub head_attempt: Option<u64>,
    /// Digest of the head's bytes; none where an older build or a log without that commit made it the head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_digest: Option<Digest>,
    /// The prepared attempt.
    pub pending: Option<Box<Pending>>,
    /// Open attempts by log index.
    pub attempts: BTreeMap<u64, Attempt>,
    /// Aborted attempts whose files may still lie about.
    pub uncollected: BTreeSet<u64>,
    /// All attempts below are closed.
    pub gc_floor: u64,
    /// Batches since the table came to be; number of the next mark.
    pub batches_count: u64,
    /// The newest batches, oldest first.
    pub marks: VecDeque<BatchMark>,
    /// Sources with sequence numbers.
    pub producers: BTreeMap<String, ProducerMark>,
    /// Next offset by `source/partition`.
    pub offsets: BTreeMap<String, i64>,
    /// Greatest sequence of any accepted event.
    pub watermark: Watermark,
    /// Whether it takes writes.
    pub status: TableStatus,
    /// The coordinator that creates the table, or drops it: nobody else goes on with that while its epoch
    /// is current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Epoch>,
}

impl TableState {
    /// A table without a version.
    #[must_use]
    pub fn unborn(name: String, location: String, incarnation: u64) -> Self {
        Self {
            name,
            location,
            incarnation,
            head: None,
            head_time_ms: 0,
            head_attempt: None,
            head_digest: None,
            pending: None,
            attempts: BTreeMap::new(),
            uncollected: BTreeSet::new(),
            gc_floor: 0,
            batches_count: 0,
            marks: VecDeque::new(),
            producers: BTreeMap::new(),
            offsets: BTreeMap::new(),
            watermark: Watermark::default(),
            status: TableStatus::Active,
            owner: None,
        }
    }

    /// The version after the head.
    #[must_use]
    pub fn next_version(&self) -> TableVersion {
        self.head.map_or(TableVersion(0), TableVersion::next)
    }

    /// Number of the first mark in [`Self::marks`].
    #[must_use]
    pub fn first_mark_number(&self) -> u64 {
        self.batches_count - self.marks.len() as u64
    }

    pub(crate) fn require_active(&self) -> Result<(), Refusal> {
        match &self.status {
            TableStatus::Active => Ok(()),
            TableStatus::Quarantined { reason } => Err(Refusal::Quarantined {
                reason: reason.clone(),
            }),
            TableStatus::Dropping { .. } => Err(Refusal::TableUnknown),
        }
    }

    pub(super) fn require_pending(
        &self,
        version: TableVersion,
        attempt: u64,
    ) -> Result<&Pending, Refusal> {
        self.pending
            .as_deref()
            .filter(|pending| pending.version == version && pending.opened.index == attempt)
            .ok_or(Refusal::NotPending)
    }
}

/// The whole replicated state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct State {
    /// The group; none before its first entry.
    pub cluster: Option<ClusterId>,
    /// Random id of the group's log; part of every attempt id.
    pub writer: WriterId,
    /// Index of the newest entry in this state.
    pub last_applied: u64,
    /// Metadata nodes of the group, voters and learners.
    pub members: BTreeSet<NodeId>,
    /// Nodes that once were members: their ids are never taken again.
    pub removed: BTreeSet<NodeId>,
    /// Current epochs.
    pub epochs: BTreeMap<NodeId, BTreeMap<Role, u64>>,
    /// The workers.
    #[serde(default)]
    pub placement: Placement,
    /// Tables by id.
    pub tables: BTreeMap<TableId, Arc<TableState>>,
    /// Ids by name.
    pub names: BTreeMap<String, TableId>,
}

impl State {
    /// The state before the first entry.
    #[must_use]
    pub fn new(writer: WriterId) -> Self {
        Self {
            cluster: None,
            writer,
            last_applied: 0,
            members: BTreeSet::new(),
            removed: BTreeSet::new(),
            epochs: BTreeMap::new(),
            placement: Placement::default(),
            tables: BTreeMap::new(),
            names: BTreeMap::new(),
        }
    }

    /// A digest of everything in this state: replicas at one index have equal ones.
    ///
    /// # Errors
    /// When the state has no stored form.
    pub fn digest(&self) -> Result<Digest, Error> {
        let bytes = serde_json::to_vec(self)
            .map_err(|e| Error::internal("the state has no stored form").with_source(e))?;
        Ok(Digest::of(&bytes))
    }

    /// Takes over the metadata nodes of a membership; those that are gone never come back.
    pub(crate) fn set_members(&mut self, members: BTreeSet<NodeId>) {
        let gone = self.members.difference(&members).copied();
        self.removed.extend(gone);
        self.members = members;
    }

    /// The id of an attempt of this state's log.
    #[must_use]
    pub fn attempt_id(&self, index: u64) -> AttemptId {
        AttemptId {
            writer: self.writer,
            index,
        }
    }

    /// A table by name.
    #[must_use]
    pub fn table_named(&self, name: &str) -> Option<(&TableId, &Arc<TableState>)> {
        let id = self.names.get(name)?;
        self.tables.get_key_value(id)
    }

    /// Whether the epoch is the newest of its node and role.
    #[must_use]
    pub fn is_current(&self, epoch: &Epoch) -> bool {
        self.epochs
            .get(&epoch.node)
            .and_then(|roles| roles.get(&epoch.role))
            == Some(&epoch.number)
    }

    pub(super) fn table(&self, id: &TableId) -> Result<&TableState, Refusal> {
        self.tables
            .get(id)
            .map(Arc::as_ref)
            .ok_or(Refusal::TableUnknown)
    }

    pub(super) fn table_mut(&mut self, id: &TableId) -> Result<&mut TableState, Refusal> {
        self.tables
            .get_mut(id)
            .map(Arc::make_mut)
            .ok_or(Refusal::TableUnknown)
    }

    /// Refuses a name or place that another table has.
    pub(super) fn require_free(
        &self,
        id: &TableId,
        name: &str,
        location: &str,
    ) -> Result<(), Refusal> {
        if self.names.contains_key(name) || self.tables.contains_key(id) {
            return Err(Refusal::TableExists);
        }
        match self
            .tables
            .values()
            .find(|table| overlap(&table.location, location))
        {
            None => Ok(()),
            Some(other) => Err(Refusal::LocationTaken {
                other: other.name.clone(),
            }),
        }
    }
}

/// Whether one place lies in the other.
fn overlap(a: &str, b: &str) -> bool {
    let within = |inner: &str, outer: &str| {
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    within(a, b) || within(b, a)
}
