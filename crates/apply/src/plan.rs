//! What all phases of a batch agree on: the table as the batch sees it, what is read of the sources, and
//! what is merged.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_change::sequence::{SequenceBytes, SequenceEncoder};
use tidegate_change::spec::{ResolvedSpec, TableLayout};
use tidegate_change::{AttemptId, Error, Result};
use tidegate_delta::actions::Action;
use tidegate_delta::{TableDefinition, TableRoot, TableSnapshot};
use tidegate_index::IndexManifest;
use tidegate_merge::{MergeContext, MergeMode, MergeRules};

use crate::index_rebuild;
use crate::limits::Limits;
use crate::observer::BatchObserver;
use crate::progress::{self, sequence_from_json, sequence_to_json};
use crate::retention;
use crate::settle::{Settled, known_or_empty};
use crate::spill::SpillDirectory;
use crate::table::{Attempt, TableView};
use crate::work::Work;

/// Number of the owner that composes, and of the only one of an embedded batch.
pub const COMPOSER: u32 = 0;
/// File numbers that one owner of buckets may give.
const OWNER_FILES_BITS: u32 = 16;

/// One try to apply a batch, as every node that works on it sees it.
#[derive(Clone, Debug)]
pub struct BatchContext {
    /// Where the table lies.
    pub root: TableRoot,
    /// The table as the batch must see it.
    pub snapshot: Arc<TableSnapshot>,
    /// The attempt whose name every file carries.
    pub attempt: AttemptId,
    /// The batch's clock, milliseconds (R-G2).
    pub now_ms: i64,
    /// Names of all sources of the batch, by number.
    pub sources: Vec<Arc<str>>,
}

impl BatchContext {
    /// The context of a batch that this node coordinates.
    #[must_use]
    pub fn of(work: &Work) -> Self {
        let names = work.sources.iter().map(|source| source.name.as_str());
        Self {
            root: work.root.clone(),
            snapshot: Arc::clone(&work.snapshot),
            attempt: work.attempt,
            now_ms: work.now_ms,
            sources: names.map(Arc::from).collect(),
        }
    }
}

/// What a node gives to a phase.
#[derive(Clone, Debug, Default)]
pub struct PhaseMeans {
    /// Memory and temporary space.
    pub limits: Limits,
    /// Who sees how far the batch is.
    pub observer: Option<Arc<dyn BatchObserver>>,
}

/// How the sources of a batch are read; the same for all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadSpec {
    /// The spec that they are read by.
    pub resolved: ResolvedSpec,
    /// Whether no batch has fixed the table's columns yet.
    pub first: bool,
    /// How often they were read before.
    pub round: u32,
    /// Whether earlier rounds changed the spec.
    pub evolved: bool,
    /// Whether a reader may leave events out that will be read again.
    pub may_skip: bool,
}

impl ReadSpec {
    /// The first round on a version of a table.
    #[must_use]
    pub fn new(resolved: ResolvedSpec, snapshot: &TableSnapshot) -> Self {
        // A declared sequence has its type from the start; only an inferred one is stored by itself.
        let known = |layout: TableLayout| layout.sequence_type.is_some();
        let first = !resolved.layout().is_ok_and(known)
            || !snapshot.domains.contains_key(progress::PROGRESS);
        Self {
            resolved,
            first,
            round: 0,
            evolved: false,
            may_skip: true,
        }
    }
}

/// What the merge of a batch needs to know, beside events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MergePlan {
    /// What reading came to.
    pub settled: Settled,
    /// The purge horizon, as JSON (R-G4).
    pub horizon: Value,
    /// The manifest of the index where it was made anew for the batch; owners look keys up in it.
    pub rebuilt_index: Option<String>,
}

/// A table opened for the phases of one node.
#[derive(Clone, Debug)]
pub struct BatchTable {
    pub(crate) view: Arc<TableView>,
    /// What the commit says of schema and spec.
    pub(crate) definition: Vec<Action>,
}

impl BatchTable {
    /// Opens the table by the settled spec. `owner` keeps the file names of nodes apart: [`COMPOSER`], or
    /// any other number for an owner of buckets.
    ///
    /// # Errors
    /// `INVALID_ALTER` and `INVALID_SPEC` for columns that the table cannot take, `CORRUPT` when a domain of
    /// the table contradicts the spec.
    pub fn open(context: &BatchContext, settled: &Settled, owner: u32) -> Result<Self> {
        let resolved = &settled.resolved;
        let definition = TableDefinition::evolve(resolved, &context.snapshot)?;
        let first_file = owner
            .checked_shl(OWNER_FILES_BITS)
            .filter(|first| first >> OWNER_FILES_BITS == owner)
            .ok_or_else(|| Error::internal("an owner's number is too large"))?;
        let attempt = Attempt {
            id: context.attempt,
            now_ms: context.now_ms,
            sources: context.sources.clone(),
            first_file,
        };
        let view = TableView::open(
            &context.root,
            &context.snapshot,
            definition.schema()?,
            (
                resolved.clone(),
                known_or_empty(resolved, resolved.layout())?,
            ),
            attempt,
        )?;
        Ok(Self {
            view: Arc::new(view),
            definition: definition.changes_from(&context.snapshot),
        })
    }
}

impl BatchTable {
    /// Opens the table for an owner of buckets, by a plan that another node made.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_planned(context: &BatchContext, plan: &MergePlan, owner: u32) -> Result<Self> {
        let mut table = Self::open(context, &plan.settled, owner)?;
        if let Some(text) = &plan.rebuilt_index {
            let view = table.view_mut()?;
            view.index = view.index.with_manifest(IndexManifest::from_json(text)?);
            view.is_rebuilt = true;
        }
        Ok(table)
    }

    /// Makes the index anew from the table's files, because a run of it is lost or damaged. The node that
    /// plans does it before the plan, and commits it.
    ///
    /// # Errors
    /// `CORRUPT` when two live rows have one key or a file is damaged; failures of storage.
    pub async fn rebuild_index(&mut self, means: &PhaseMeans) -> Result<()> {
        let view = self.view_mut()?;
        let directory = SpillDirectory::new(&means.limits, view.attempt);
        index_rebuild::rebuild(view, &means.limits, &directory).await
    }

    fn view_mut(&mut self) -> Result<&mut TableView> {
        Arc::get_mut(&mut self.view)
            .ok_or_else(|| Error::internal("the index of a table in use is replaced"))
    }
}

impl MergePlan {
    /// Adds what the table knows to what reading came to.
    ///
    /// # Errors
    /// Failures of storage; `CORRUPT` when a state file contradicts the table.
    pub async fn new(table: &BatchTable, settled: Settled) -> Result<Self> {
        let horizon = retention::horizon(&table.view).await?;
        Ok(Self {
            settled,
            horizon: sequence_to_json(&table.view.encoder, horizon.as_ref())?,
            rebuilt_index: match table.view.is_rebuilt {
                true => Some(table.view.index.manifest().to_json()?),
                false => None,
            },
        })
    }
}

/// Numbers of the batch that hold for all its events.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    /// Greatest purged delete.
    pub horizon: Option<SequenceBytes>,
    /// Truncates of earlier batches.
    pub truncates: Vec<SequenceBytes>,
    /// Truncates of this one that are not among them, ascending.
    pub new_truncates: Vec<SequenceBytes>,
    /// Greatest truncate of this one.
    pub max_truncate: Option<SequenceBytes>,
}

impl Numbers {
    pub(crate) fn new(table: &TableView, plan: &MergePlan) -> Result<Self> {
        let encoder = &table.encoder;
        let stored = &table.progress.truncates;
        let truncates = sequences(encoder, stored.iter().cloned())?;
        let own = plan.settled.truncates.iter();
        let own = own.map(|text| serde_json::from_str(text).unwrap_or_default());
        let mut own = sequences(encoder, own)?;
        own.sort();
        own.dedup();
        Ok(Self {
            horizon: sequence_from_json(encoder, &plan.horizon)?,
            max_truncate: own.last().cloned(),
            new_truncates: own
                .into_iter()
                .filter(|sequence| !truncates.contains(sequence))
                .collect(),
            truncates,
        })
    }

    /// The rules of the merge.
    pub(crate) fn rules(&self, table: &TableView) -> Result<Arc<MergeRules>> {
        let context = MergeContext {
            truncates: self.truncates.clone(),
            new_truncates: self.new_truncates.clone(),
            horizon: self.horizon.clone(),
            now_ms: table.now_ms,
        };
        MergeRules::new(&table.layout, &table.resolved.spec, context).map(Arc::new)
    }

    /// The truncates that the table remembers: the greatest with hard deletes, all with soft ones (R-X3).
    pub(crate) fn remembered(&self, table: &TableView, mode: MergeMode) -> Result<Vec<Value>> {
        let all = self.truncates.iter().chain(&self.new_truncates);
        let mut all: Vec<&SequenceBytes> = all.collect();
        all.sort();
        match mode {
            MergeMode::First | MergeMode::Once => all.clear(),
            MergeMode::Last => all = all.last().copied().into_iter().collect(),
            MergeMode::Flagged => {}
        }
        all.into_iter()
            .map(|sequence| sequence_to_json(&table.encoder, Some(sequence)))
            .collect()
    }
}

fn sequences(
    encoder: &SequenceEncoder,
    values: impl Iterator<Item = Value>,
) -> Result<Vec<SequenceBytes>> {
    let one = |value| sequence_from_json(encoder, &value).transpose();
    values.filter_map(one).collect()
}

/// Counts of reading a batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadCounts {
    /// Events read, quarantined ones included.
    pub events: u64,
    /// Truncates that the policy ignores (R-X6).
    pub ignored: u64,
    /// Fields that JSON events lacked (R-N5).
    pub absent: u64,
    /// Values that Delta cannot hold (R-K9).
    pub unrepresentable: u64,
    /// Records that are no row events, by class.
    pub other: BTreeMap<String, u64>,
    /// Greatest offset + 1 found in records, by `topic/partition`.
    pub offsets: BTreeMap<String, i64>,
}
