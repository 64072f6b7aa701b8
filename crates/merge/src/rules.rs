//! The rules of one table for one batch: its spec, its layout, and what the table remembers.

use arrow::datatypes::DataType;
use tidegate_change::sequence::{SequenceBytes, SequenceEncoder};
use tidegate_change::spec::layout::{ColumnRole, TableColumn};
use tidegate_change::spec::{FeedMode, LatePolicy, ScdType, TableLayout, TableMode};
use tidegate_change::{Code, TableSpec};

use crate::leaves::Leaves;
use crate::{Error, Result};

/// Which state a key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeMode {
    /// SCD type 0: the first upsert stays.
    First,
    /// SCD type 1: the last upsert stays, deletes remove it.
    Last,
    /// SCD type 1 with soft delete: deletes flag it (R-L1).
    Flagged,
    /// Insert-only and append: a stored row never changes (R-I1, R-K7).
    Once,
}

/// What the table remembers and the clock of the batch.
#[derive(Clone, Debug, Default)]
pub struct MergeContext {
    /// Truncates of earlier batches: all of them with soft delete, else the greatest is enough (R-X3).
    pub truncates: Vec<SequenceBytes>,
    /// Truncates of this batch.
    pub new_truncates: Vec<SequenceBytes>,
    /// The greatest purged delete (R-G4).
    pub horizon: Option<SequenceBytes>,
    /// The batch's clock, ms since the epoch: the arrival of its deletes (R-G2).
    pub now_ms: i64,
}

/// What is known of the file that holds a key's stored row, without reading the row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileBounds {
    /// The greatest sequence of its rows; None when it is not known.
    pub max_sequence: Option<SequenceBytes>,
    /// Whether some row has a floor, a leaf sequence of its own, or deletes above it.
    pub has_sparse_hidden: bool,
}

/// The rules of one table for one batch.
#[derive(Debug)]
pub struct MergeRules {
    pub(crate) layout: TableLayout,
    pub(crate) mode: MergeMode,
    /// Whole payloads compete in a tie (R-T2) instead of leaves (R-T3).
    pub(crate) row_mode: bool,
    pub(crate) feed: bool,
    pub(crate) sequence_type: DataType,
    pub(crate) encoder: SequenceEncoder,
    pub(crate) payload: Vec<TableColumn>,
    pub(crate) leaves: Leaves,
    pub(crate) context: MergeContext,
    late_policy: LatePolicy,
}

impl MergeRules {
    /// The rules of a table.
    ///
    /// # Errors
    /// `UNSUPPORTED` for SCD type 2 and snapshots; `INVALID_SPEC` while the type of the
    /// sequence is not known.
    pub fn new(layout: &TableLayout, spec: &TableSpec, context: MergeContext) -> Result<Self> {
        let name = &spec.name;
        let mode = merge_mode(spec)?;
        let sequence_type = layout.sequence_type.clone().ok_or_else(|| {
            let message = format!("table {name}: the type of the sequence is not known");
            Error::new(Code::InvalidSpec, message)
        })?;
        let encoder =
            SequenceEncoder::new(&sequence_type).map_err(|e| e.context(format!("table {name}")))?;
        let payload: Vec<TableColumn> = layout.payload_columns().cloned().collect();
        Ok(Self {
            layout: layout.clone(),
            mode,
            row_mode: spec.is_row_mode(),
            feed: spec.change_data_feed == FeedMode::True,
            sequence_type,
            encoder,
            leaves: Leaves::new(&payload),
            payload,
            context,
            late_policy: spec.late_after_retention,
        })
    }

    /// Which state a key has.
    #[must_use]
    pub fn mode(&self) -> MergeMode {
        self.mode
    }

    /// Whether the commit materialises its change feed (R-C9).
    #[must_use]
    pub fn feed(&self) -> bool {
        self.feed
    }

    /// The layout that stored rows have.
    #[must_use]
    pub fn layout(&self) -> &TableLayout {
        &self.layout
    }

    /// The horizon at or below which upserts of unknown keys are rejected, if they are (R-G4, R-G5).
    pub(crate) fn rejecting_horizon(&self) -> Option<&SequenceBytes> {
        let applies = self.takes_deletes() && self.late_policy == LatePolicy::Quarantine;
        self.context.horizon.as_ref().filter(|_| applies)
    }

    /// Whether deletes and truncates mean anything; SCD 0 and insert-only tables ignore them (R-0, R-X3).
    pub(crate) fn takes_deletes(&self) -> bool {
        match self.mode {
            MergeMode::Last | MergeMode::Flagged => true,
            MergeMode::First | MergeMode::Once => false,
        }
    }

    /// All truncates, remembered and new.
    pub(crate) fn truncates(&self) -> impl Iterator<Item = &SequenceBytes> {
        let all = self
            .context
            .truncates
            .iter()
            .chain(&self.context.new_truncates);
        all.filter(|_| self.takes_deletes())
    }

    /// Whether a NULL of the payload column is not authored (R-N2).
    pub(crate) fn ignores_null(column: &TableColumn) -> bool {
        matches!(column.role, ColumnRole::Payload { ignore_null: true })
    }
}

/// Refuses specs whose rules this build does not merge.
///
/// # Errors
/// `UNSUPPORTED` for SCD type 2 and snapshots.
pub fn check_supported(spec: &TableSpec) -> Result<()> {
    merge_mode(spec).map(drop)
}

fn merge_mode(spec: &TableSpec) -> Result<MergeMode> {
    let unsupported = |what: &str| {
        Err(Error::new(
            Code::Unsupported,
            format!("table {}: this build does not apply {what}", spec.name),
        ))
    };
    match (spec.mode, spec.stored_as_scd_type) {
        (TableMode::InsertOnly | TableMode::Append, _) => Ok(MergeMode::Once),
        (TableMode::Cdc, ScdType::Zero) => Ok(MergeMode::First),
        (TableMode::Cdc, ScdType::One) if spec.is_soft_delete() => Ok(MergeMode::Flagged),
        (TableMode::Cdc, ScdType::One) => Ok(MergeMode::Last),
        (TableMode::Cdc, ScdType::Two) => unsupported("scd type 2"),
        (TableMode::Snapshot, _) => unsupported("mode snapshot"),
    }
}
