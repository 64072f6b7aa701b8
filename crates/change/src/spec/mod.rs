//! The table spec: what a user declares, with the names of `create_auto_cdc_flow` where it has them.
//!
//! [`TableSpec`] is the written form (YAML or JSON, unknown fields are errors with a suggestion);
//! [`TableSpec::validate`] checks what needs no data; [`layout::TableLayout`] is what the rest works
//! with once the source columns are known; [`alter`] says what may change later.

pub mod alter;
mod duration;
pub mod layout;
mod options;
mod parse;
mod validate;

use serde::{Deserialize, Serialize};

pub use duration::{Retention, parse_duration_ms};
pub use layout::{ResolvedSpec, TableLayout};
pub use options::{
    AbsentFields, Buckets, DeleteMode, FeedMode, IgnoreNull, LatePolicy, MaintenanceMode,
    OnInvalid, OnTruncate, OnUnrepresentable, OneOrMany, ScdType, SchemaEvolution, TableMode,
    TimestampEncoding,
};
pub use validate::{PSEUDO_COLUMNS, RESERVED};

use crate::{Result, hidden, types};

/// A declared source column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnSpec {
    /// Name, in the table's spelling.
    pub name: String,
    /// Delta type name, see [`types::parse_type`].
    #[serde(rename = "type")]
    pub type_name: String,
    /// Value of rows that lack the column, also where it is a key column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<serde_json::Value>,
    /// How a timestamp arrives as a number, or binary as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<TimestampEncoding>,
    /// On a decimal: the source sends base64 of the unscaled big-endian integer with this scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<i8>,
}

impl ColumnSpec {
    /// The Arrow type.
    ///
    /// # Errors
    /// `INVALID_SPEC` that names the column.
    pub fn data_type(&self) -> Result<arrow::datatypes::DataType> {
        types::parse_type(&self.type_name).map_err(|e| e.context(format!("column {}", self.name)))
    }
}

/// Where the events come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    /// `flat`, `debezium`, and the formats that later builds read.
    #[serde(default = "options::flat")]
    pub format: String,
    /// Picks one table of a mixed source: `schema.table` (or `db.table`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Text that stands for an unavailable value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable_value: Option<String>,
    /// Text that stands for NULL in CSV.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub null_value: Option<String>,
    /// Renames: source name to table name; everywhere else the table's names are used.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub columns: std::collections::BTreeMap<String, String>,
    /// Envelope fields that become source columns: `op`, `lsn`, `commit_time`, … to a column name.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub metadata_columns: std::collections::BTreeMap<String, String>,
}

impl Default for SourceSpec {
    fn default() -> Self {
        Self {
            format: options::flat(),
            table: None,
            unavailable_value: None,
            null_value: None,
            columns: Default::default(),
            metadata_columns: Default::default(),
        }
    }
}

/// Other names for the bounds of SCD 2 versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistoryColumns {
    /// The start's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// The end's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// A boolean that marks the current version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// Value of an open end, instead of NULL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_end: Option<serde_json::Value>,
}

/// When the log is checkpointed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointSpec {
    /// Bytes of log after which a checkpoint is written.
    #[serde(default = "options::checkpoint_bytes")]
    pub log_bytes: u64,
    /// Commits after which a checkpoint is written at the latest.
    #[serde(default = "options::checkpoint_commits")]
    pub commits: u64,
}

impl Default for CheckpointSpec {
    fn default() -> Self {
        Self {
            log_bytes: options::checkpoint_bytes(),
            commits: options::checkpoint_commits(),
        }
    }
}

/// A table spec as a user writes it. The interface document describes every field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSpec {
    /// Letters, digits and `_`, with dots for namespaces.
    pub name: String,
    /// Where the table lies; below the lake's root by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Columns of the source's events, in the payload order of ties.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Vec<ColumnSpec>>,
    /// The business key (R-K1).
    #[serde(default)]
    pub keys: Vec<String>,
    /// A column, or a list that is compared in order (R-S1, R-S4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_by: Option<OneOrMany>,
    /// SQL over the source columns: true is a delete (R-D1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_as_deletes: Option<String>,
    /// SQL over the source columns: true is a truncate (R-X1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_as_truncates: Option<String>,
    /// The stored columns; or see `except_column_list` (R-CL1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column_list: Option<Vec<String>>,
    /// All columns but these are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub except_column_list: Option<Vec<String>>,
    /// 0, 1 or 2.
    #[serde(default)]
    pub stored_as_scd_type: ScdType,
    /// Columns whose changes open a version (SCD 2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub track_history_column_list: Option<Vec<String>>,
    /// All columns but these open a version (SCD 2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub track_history_except_column_list: Option<Vec<String>>,
    /// Whether a NULL is not authored (R-N2, R-N7).
    #[serde(default)]
    pub ignore_null_updates: IgnoreNull,
    /// The event column that lists what the event authors (R-N6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns_to_update: Option<String>,
    /// Whether deletes remove rows or flag them (R-L1).
    #[serde(default)]
    pub delete_mode: DeleteMode,
    /// What a batch is.
    #[serde(default)]
    pub mode: TableMode,
    /// Type of snapshot versions (R-P2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_version_type: Option<String>,
    /// Other names for the bounds of SCD 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_columns: Option<HistoryColumns>,
    /// What happens to invalid events (R-S2, R-S2q).
    #[serde(default)]
    pub on_invalid: OnInvalid,
    /// How long tombstones are kept (R-G1, R-G2).
    #[serde(default)]
    pub tombstone_retention: Retention,
    /// What happens to events below the purge horizon (R-G4, R-G5).
    #[serde(default)]
    pub late_after_retention: LatePolicy,
    /// Which changes of the source's schema are taken (R-E1, R-E2).
    #[serde(default)]
    pub schema_evolution: SchemaEvolution,
    /// How the change feed is kept.
    #[serde(default)]
    pub change_data_feed: FeedMode,
    /// Delta partition columns.
    #[serde(default)]
    pub partition_by: Vec<String>,
    /// Number of key buckets, a power of two.
    #[serde(default)]
    pub buckets: Buckets,
    /// What a declared field means that a JSON event lacks (R-N5).
    #[serde(default)]
    pub absent_fields: AbsentFields,
    /// What truncate records of the source do (R-X6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_truncate: Option<OnTruncate>,
    /// What happens to values that Delta cannot hold (R-K9).
    #[serde(default)]
    pub on_unrepresentable: OnUnrepresentable,
    /// Insert-only: the column whose age bounds the dedup state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_time: Option<String>,
    /// Insert-only: the age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup_horizon: Option<Retention>,
    /// Whether upkeep runs by itself.
    #[serde(default)]
    pub maintenance: MaintenanceMode,
    /// How long removed files stay.
    #[serde(default = "options::seven_days")]
    pub deleted_file_retention: Retention,
    /// How long log entries stay.
    #[serde(default = "options::seven_days")]
    pub log_retention: Retention,
    /// When the log is checkpointed.
    #[serde(default)]
    pub checkpoint: CheckpointSpec,
    /// Where the events come from.
    #[serde(default)]
    pub source: SourceSpec,
}

impl TableSpec {
    /// Whether the spec authors whole rows, so that ties compare whole payloads (R-T2, R-T3).
    #[must_use]
    pub fn is_row_mode(&self) -> bool {
        self.source.format == "flat"
            && self.ignore_null_updates.is_off()
            && self.columns_to_update.is_none()
            && self.absent_fields == AbsentFields::Null
    }

    /// Whether deletes flag rows instead of removing them (R-L1).
    #[must_use]
    pub fn is_soft_delete(&self) -> bool {
        self.delete_mode == DeleteMode::Soft
    }

    /// What truncate records of the source do (R-X6): the written policy or the default of the table's kind.
    #[must_use]
    pub fn truncate_policy(&self) -> OnTruncate {
        self.on_truncate
            .unwrap_or(match (self.mode, self.stored_as_scd_type) {
                (TableMode::Append, _) | (_, ScdType::Two) => OnTruncate::Fail,
                (_, ScdType::Zero | ScdType::One) => OnTruncate::Apply,
            })
    }

    /// The columns that rows are ordered by: the key, or what stands for it in an append table.
    #[must_use]
    pub fn order_columns(&self) -> Vec<String> {
        if self.mode == TableMode::Append {
            vec![hidden::POSITION.into()]
        } else {
            self.keys.clone()
        }
    }
}
