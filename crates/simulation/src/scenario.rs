//! A history of change events with the spec that it runs under, in the format of the scenario cases,
//! with a few fields more that random histories need.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use tidegate_change::TableSpec;
use tidegate_change::spec::{IgnoreNull, OneOrMany};

/// One event or row as JSON.
pub type JsonRow = Map<String, Json>;

/// A spec, the batches that arrive under it, and what a case expects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scenario {
    /// Name.
    pub id: String,
    /// What it shows.
    #[serde(default)]
    pub intent: String,
    /// Whether order, batching and duplication cannot change the final rows.
    #[serde(default)]
    pub order_free: bool,
    /// The table.
    pub spec: ScenarioSpec,
    /// The batches in order of arrival.
    pub batches: Vec<Batch>,
    /// What a case expects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expect>,
    /// Feed reads of a case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<JsonRow>,
}

/// One commit's worth of events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Batch {
    /// The events in order.
    #[serde(default)]
    pub events: Vec<JsonRow>,
    /// Processing time, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<i64>,
    /// How the events are written.
    #[serde(default, skip_serializing_if = "FileFormat::is_default")]
    pub format: FileFormat,
    /// Number of files that the events are dealt over.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub files: usize,
}

impl Batch {
    /// Name of a file of the batch, from 0: the next batch has files of the same names.
    #[must_use]
    pub fn file_name(&self, part: usize) -> String {
        let end = match self.format {
            FileFormat::Jsonl => "jsonl",
            FileFormat::Csv => "csv",
            FileFormat::Parquet => "parquet",
        };
        format!("part-{part}.{end}")
    }

    /// The file and the record in it, both from 0, where an event stands.
    #[must_use]
    pub fn place_of(&self, event: usize) -> (usize, usize) {
        let files = self.files.max(1);
        (event % files, event / files)
    }
}

fn one() -> usize {
    1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_one(files: &usize) -> bool {
    *files == 1
}

/// How a batch is written for a driver that reads files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileFormat {
    /// JSON lines.
    #[default]
    Jsonl,
    /// CSV with a header.
    Csv,
    /// Parquet.
    Parquet,
}

impl FileFormat {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde calls it with a reference"
    )]
    fn is_default(&self) -> bool {
        *self == Self::Jsonl
    }
}

/// What a case expects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Expect {
    /// The rows at the end, a bag.
    #[serde(default)]
    pub rows: Vec<JsonRow>,
    /// The change rows of each batch, bags.
    #[serde(default)]
    pub cdf: Option<Vec<Vec<JsonRow>>>,
    /// The failure.
    #[serde(default)]
    pub error: Option<ExpectedError>,
    /// Reasons of quarantined events.
    #[serde(default)]
    pub rejects: Option<Vec<String>>,
}

/// Which batch fails (none: the spec) and with what code.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExpectedError {
    /// The batch from 0, or the spec.
    pub batch: Option<usize>,
    /// The code.
    pub code: String,
}

/// A condition over one source column.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Condition {
    /// The column.
    pub col: String,
    /// The value that makes it true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eq: Option<Json>,
    /// The values that make it true.
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub any_of: Option<Vec<Json>>,
}

impl Condition {
    /// The values that make it true.
    #[must_use]
    pub fn values(&self) -> Vec<&Json> {
        self.eq.iter().chain(self.any_of.iter().flatten()).collect()
    }

    /// The condition as SQL.
    #[must_use]
    pub fn to_sql(&self) -> String {
        let literal = |value: &Json| match value {
            Json::String(text) => format!("'{}'", text.replace('\'', "''")),
            other => other.to_string(),
        };
        match (&self.eq, &self.any_of) {
            (Some(value), _) => format!("{} = {}", self.col, literal(value)),
            (None, list) => {
                let items: Vec<_> = list.iter().flatten().map(literal).collect();
                format!("{} IN ({})", self.col, items.join(", "))
            }
        }
    }
}

/// The table of a scenario.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ScenarioSpec {
    /// Key columns.
    pub keys: Vec<String>,
    /// Sequence column, or the members of a STRUCT.
    pub sequence_by: Option<OneOrMany>,
    /// 0, 1 or 2.
    pub scd: u8,
    /// Source columns in payload order.
    pub source_columns: Vec<String>,
    /// Stored columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// Columns that are not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub except: Option<Vec<String>>,
    /// What makes an event a delete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_when: Option<Condition>,
    /// What makes an event a truncate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncate_when: Option<Condition>,
    /// Columns whose NULLs are not authored.
    pub ignore_null_updates: IgnoreNull,
    /// Event column that lists what the event authors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns_to_update: Option<String>,
    /// Columns whose changes open a version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub track_history: Option<Json>,
    /// Whether deletes flag rows.
    pub soft_delete: bool,
    /// Whether stored keys are never touched.
    pub insert_only: bool,
    /// Whether rows have no key and are only appended.
    pub append: bool,
    /// Where the events come from, for cases whose events are records of another format than flat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Json>,
    /// Whether batches are snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_snapshot: Option<Json>,
    /// `fail` or `quarantine`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_invalid: Option<String>,
    /// Seconds after which tombstones go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tombstone_retention_s: Option<i64>,
    /// `reject` or `apply`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_after_gc: Option<String>,
    /// Type names by column.
    pub types: BTreeMap<String, String>,
    /// How many source columns the spec declares; the others come by schema evolution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<usize>,
    /// `keep` or `null`; without it `keep` where some event lacks a source column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent_fields: Option<String>,
    /// `true` (without it), `inferred` or `false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feed: Option<String>,
    /// Number of buckets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buckets: Option<u32>,
    /// Delta partition columns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partition_by: Vec<String>,
}

impl ScenarioSpec {
    /// Whether events without a declared field leave it unauthored (R-N5).
    #[must_use]
    pub fn keeps_absent_fields(&self, batches: &[Batch]) -> bool {
        match &self.absent_fields {
            Some(policy) => policy == "keep",
            None => batches.iter().flat_map(|batch| &batch.events).any(|event| {
                self.source_columns
                    .iter()
                    .any(|column| !event.contains_key(column))
            }),
        }
    }

    /// The table's mode.
    #[must_use]
    pub fn mode(&self) -> &'static str {
        match (self.append, self.insert_only) {
            (true, _) => "append",
            (false, true) => "insert_only",
            (false, false) => "cdc",
        }
    }

    /// Number of columns that the table spec declares.
    #[must_use]
    pub fn declared_count(&self) -> usize {
        self.declared.unwrap_or(self.source_columns.len())
    }

    /// Whether NULL and changed events are quarantined instead of failing the batch.
    #[must_use]
    pub fn quarantines(&self) -> bool {
        self.on_invalid.as_deref() == Some("quarantine")
    }
}

impl Scenario {
    /// The table spec that the product is given.
    ///
    /// # Errors
    /// The product's refusal of the spec.
    pub fn table_spec(&self, name: &str) -> tidegate_change::Result<TableSpec> {
        TableSpec::from_yaml(&self.table_spec_json(name).to_string())
    }

    /// The table spec as JSON, which is YAML too.
    #[must_use]
    pub fn table_spec_json(&self, name: &str) -> Json {
        let spec = &self.spec;
        let columns: Vec<Json> = spec
            .source_columns
            .iter()
            .take(spec.declared_count())
            .map(|column| json!({"name": column, "type": spec.types.get(column)}))
            .collect();
        let mut table = json!({
            "name": name,
            "schema": columns,
            "keys": spec.keys,
            "stored_as_scd_type": spec.scd,
            "ignore_null_updates": spec.ignore_null_updates,
            "change_data_feed": feed_json(spec.feed.as_deref()),
            "partition_by": spec.partition_by,
            "delete_mode": if spec.soft_delete { "soft" } else { "hard" },
            "mode": spec.mode(),
            "on_invalid": spec.on_invalid.as_deref().unwrap_or("fail"),
        });
        let mut set = |name: &str, value: Option<Json>| {
            if let (Some(value), Some(fields)) = (value, table.as_object_mut()) {
                fields.insert(name.into(), value);
            }
        };
        set("sequence_by", spec.sequence_by.as_ref().map(|by| json!(by)));
        set("column_list", spec.columns.as_ref().map(|list| json!(list)));
        set(
            "except_column_list",
            spec.except.as_ref().map(|list| json!(list)),
        );
        set(
            "apply_as_deletes",
            spec.delete_when.as_ref().map(|when| json!(when.to_sql())),
        );
        set(
            "apply_as_truncates",
            spec.truncate_when.as_ref().map(|when| json!(when.to_sql())),
        );
        set(
            "columns_to_update",
            spec.columns_to_update.as_ref().map(|column| json!(column)),
        );
        set(
            "tombstone_retention",
            spec.tombstone_retention_s.map(|s| json!(format!("{s}s"))),
        );
        let late = spec.late_after_gc.as_deref();
        let late = late.map(|policy| {
            if policy == "apply" {
                "apply"
            } else {
                "quarantine"
            }
        });
        set("late_after_retention", late.map(|policy| json!(policy)));
        set("buckets", spec.buckets.map(|count| json!(count)));
        let keep = spec.keeps_absent_fields(&self.batches);
        set("absent_fields", keep.then(|| json!("keep")));
        table
    }
}

fn feed_json(feed: Option<&str>) -> Json {
    match feed {
        Some("inferred") => json!("inferred"),
        Some("false") => json!(false),
        _ => json!(true),
    }
}
