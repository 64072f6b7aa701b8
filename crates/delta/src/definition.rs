//! What a table declares of itself: protocol, metadata and clustering, from a spec.
//!
//! Source: the table format's "Protocol" and "Table properties".

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::{DataType, Schema, TimeUnit};
use serde_json::json;
use tidegate_change::spec::{FeedMode, ResolvedSpec, Retention};
use tidegate_change::{Code, Error, Result};

use crate::actions::{
    Action, CLUSTERING_DOMAIN, DomainMetadata, Format, Metadata, Protocol, SPEC_DOMAIN,
};
use crate::log::TableSnapshot;
use crate::schema::{
    Assigned, Column, TableSchema, assign, forbidden_column, needs_mapping, uses_type, was_widened,
};

/// Names of the table properties that Tidegate sets.
pub mod properties {
    /// Days that removed files stay.
    pub const DELETED_FILE_RETENTION: &str = "delta.deletedFileRetentionDuration";
    /// Days that log entries stay.
    pub const LOG_RETENTION: &str = "delta.logRetentionDuration";
    /// Commits between checkpoints.
    pub const CHECKPOINT_INTERVAL: &str = "delta.checkpointInterval";
    /// Columns with statistics.
    pub const STATS_COLUMNS: &str = "delta.dataSkippingStatsColumns";
    /// Whether writers may use deletion vectors.
    pub const DELETION_VECTORS: &str = "delta.enableDeletionVectors";
    /// Whether commits hold their time.
    pub const IN_COMMIT_TIMESTAMPS: &str = "delta.enableInCommitTimestamps";
    /// Whether the feed may be read.
    pub const CHANGE_DATA_FEED: &str = "delta.enableChangeDataFeed";
    /// Whether columns may widen.
    pub const TYPE_WIDENING: &str = "delta.enableTypeWidening";
    /// How columns are found in files.
    pub const MAPPING_MODE: &str = "delta.columnMapping.mode";
    /// Highest id of column mapping.
    pub const MAPPING_MAX_ID: &str = "delta.columnMapping.maxColumnId";
}

/// Most clustering columns that Delta for Spark reads.
const CLUSTERING_COLUMNS_MAX: usize = 4;
/// Stands for "for ever": readers subtract it from the time and must not fall below the epoch.
const FOREVER_DAYS: i64 = 18_250;

/// Protocol, metadata and clustering of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableDefinition {
    /// The protocol.
    pub protocol: Protocol,
    /// Schema and properties.
    pub metadata: Metadata,
    /// The `delta.clustering` domain; None for tables with partitions or without clusterable key.
    pub clustering: Option<DomainMetadata>,
    /// The `tidegate.spec` domain.
    pub spec: DomainMetadata,
}

impl TableDefinition {
    /// The definition of a table that does not exist yet.
    ///
    /// # Errors
    /// `INVALID_SPEC` for columns that Delta cannot hold, and what the spec's layout says.
    pub fn create(spec: &ResolvedSpec, table_id: &str, created_ms: i64) -> Result<Self> {
        Self::build(spec, table_id, Some(created_ms), None)
    }

    /// The definition of a table whose spec or columns changed.
    ///
    /// # Errors
    /// As [`Self::create`]; `INVALID_ALTER` for a change of type that is no widening.
    pub fn evolve(spec: &ResolvedSpec, from: &TableSnapshot) -> Result<Self> {
        let metadata = &from.metadata;
        Self::build(spec, &metadata.id, metadata.created_time, Some(from))
    }

    /// All actions, for version 0.
    #[must_use]
    pub fn actions(&self) -> Vec<Action> {
        let mut actions = vec![
            Action::Protocol(self.protocol.clone()),
            Action::Metadata(self.metadata.clone()),
        ];
        actions.extend(self.clustering.clone().map(Action::Domain));
        actions.push(Action::Domain(self.spec.clone()));
        actions
    }

    /// The actions that a snapshot lacks; empty when nothing changed.
    #[must_use]
    pub fn changes_from(&self, snapshot: &TableSnapshot) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.protocol != snapshot.protocol {
            actions.push(Action::Protocol(self.protocol.clone()));
        }
        if self.metadata != *snapshot.metadata {
            actions.push(Action::Metadata(self.metadata.clone()));
        }
        match (&self.clustering, snapshot.domains.get(CLUSTERING_DOMAIN)) {
            (Some(domain), stored) if stored != Some(&domain.configuration) => {
                actions.push(Action::Domain(domain.clone()));
            }
            (None, Some(_)) => {
                actions.push(Action::Domain(DomainMetadata::unset(CLUSTERING_DOMAIN)));
            }
            _ => {}
        }
        if snapshot.domains.get(SPEC_DOMAIN) != Some(&self.spec.configuration) {
            actions.push(Action::Domain(self.spec.clone()));
        }
        actions
    }

    /// The schema, ready for writers.
    ///
    /// # Errors
    /// Never for a definition that this type built.
    pub fn schema(&self) -> Result<TableSchema> {
        TableSchema::from_metadata(&self.metadata)
    }

    fn build(
        spec: &ResolvedSpec,
        table_id: &str,
        created_ms: Option<i64>,
        from: Option<&TableSnapshot>,
    ) -> Result<Self> {
        let name = &spec.spec.name;
        let arrow = visible_schema(spec)?;
        let previous = from.map_or(&[][..], |from| from.schema().columns());
        let mapping = mapping_start(from, &arrow)?;
        refuse_mapped_partitions(spec, &arrow, mapping)?;
        let assigned = assign(previous, &arrow, table_id, mapping)
            .map_err(|e| e.context(format!("table {name}")))?;
        let partition_columns = partition_columns(spec, &assigned.columns)?;
        let clustering = clustering(spec, &assigned.columns, &partition_columns);
        let metadata = Metadata {
            id: table_id.to_owned(),
            name: Some(name.clone()),
            description: None,
            format: Format::default(),
            schema_string: crate::schema::columns_json(&assigned.columns),
            partition_columns,
            created_time: created_ms,
            configuration: configuration(spec, &assigned, mapping.is_some(), from),
        };
        let json = serde_json::to_string(spec).map_err(|e| {
            Error::internal(format!("table {name}: spec has no JSON")).with_source(e)
        })?;
        Ok(Self {
            protocol: protocol(
                spec,
                &assigned.columns,
                mapping.is_some(),
                &clustering,
                from,
            ),
            metadata,
            clustering,
            spec: DomainMetadata::set(SPEC_DOMAIN, json),
        })
    }
}

/// The visible columns that are known: none of a table whose columns come with its first batch.
fn visible_schema(spec: &ResolvedSpec) -> Result<Schema> {
    if spec.columns.is_empty() {
        return Ok(Schema::empty());
    }
    Ok(spec.layout()?.table_schema().as_ref().clone())
}

/// The highest id of column mapping so far where the table has it or needs it.
fn mapping_start(from: Option<&TableSnapshot>, arrow: &Schema) -> Result<Option<i64>> {
    let configuration = from.map(|from| &from.metadata.configuration);
    if let Some(configuration) = configuration
        && configuration
            .get(properties::MAPPING_MODE)
            .is_some_and(|mode| mode != "none")
    {
        let max = configuration.get(properties::MAPPING_MAX_ID);
        let max = max.and_then(|id| id.parse().ok());
        // A guess would give ids of columns a second time.
        let max = max.ok_or_else(|| {
            let what = format!("{} is no number", properties::MAPPING_MAX_ID);
            Error::corrupt(what)
        })?;
        return Ok(Some(max));
    }
    Ok(needs_mapping(&crate::schema::columns_of_arrow(arrow)?).then_some(0))
}

/// DuckDB reads NULL for the partition columns of a table with column mapping, whatever their names.
fn refuse_mapped_partitions(
    spec: &ResolvedSpec,
    arrow: &Schema,
    mapping: Option<i64>,
) -> Result<()> {
    if mapping.is_none() || spec.spec.partition_by.is_empty() {
        return Ok(());
    }
    let columns = crate::schema::columns_of_arrow(arrow)?;
    let column = forbidden_column(&columns).unwrap_or_default();
    let table = &spec.spec.name;
    let message = format!(
        "table {table}: column {column:?} has a character that no partitioned table may have in a name"
    );
    Err(Error::new(Code::InvalidSpec, message).with_hint("rename it under source.columns"))
}

fn partition_columns(spec: &ResolvedSpec, columns: &[Column]) -> Result<Vec<String>> {
    let wanted = &spec.spec.partition_by;
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    for name in wanted {
        if !columns.iter().any(|column| column.name == *name) {
            let message = format!(
                "table {}: partition column {name} is not stored",
                spec.spec.name
            );
            return Err(Error::new(Code::UnknownColumn, message));
        }
    }
    Ok(wanted.clone())
}

fn clustering(
    spec: &ResolvedSpec,
    columns: &[Column],
    partition_columns: &[String],
) -> Option<DomainMetadata> {
    if !partition_columns.is_empty() || !spec.spec.partition_by.is_empty() {
        return None;
    }
    let names: Vec<Vec<&str>> = spec
        .spec
        .keys
        .iter()
        .filter_map(|key| columns.iter().find(|column| column.name == *key))
        .filter(|column| has_bounds(&column.data_type.arrow(false)))
        .map(|column| vec![column.physical_name()])
        .take(CLUSTERING_COLUMNS_MAX)
        .collect();
    if names.is_empty() {
        return None;
    }
    let configuration = json!({ "clusteringColumns": names, "domainName": CLUSTERING_DOMAIN });
    Some(DomainMetadata::set(
        CLUSTERING_DOMAIN,
        configuration.to_string(),
    ))
}

/// Whether Delta keeps lower and upper bounds of values of the type.
pub(crate) fn has_bounds(data_type: &DataType) -> bool {
    data_type.is_numeric()
        || matches!(
            data_type,
            DataType::Utf8 | DataType::Date32 | DataType::Timestamp(..)
        )
}

fn protocol(
    spec: &ResolvedSpec,
    columns: &[Column],
    is_mapped: bool,
    clustering: &Option<DomainMetadata>,
    from: Option<&TableSnapshot>,
) -> Protocol {
    let mut reader = BTreeSet::from(["deletionVectors".to_owned()]);
    if is_mapped {
        reader.insert("columnMapping".into());
    }
    if was_widened(columns) {
        reader.insert("typeWidening".into());
    }
    if uses_type(columns, &DataType::Timestamp(TimeUnit::Microsecond, None)) {
        reader.insert("timestampNtz".into());
    }
    let mut writer = reader.clone();
    writer.extend(
        [
            "appendOnly",
            "invariants",
            "domainMetadata",
            "inCommitTimestamp",
        ]
        .map(str::to_owned),
    );
    if spec.spec.change_data_feed != FeedMode::False {
        writer.insert("changeDataFeed".into());
    }
    if clustering.is_some() {
        writer.insert("clustering".into());
    }
    // A feature that a version once used stays: older versions still need it.
    if let Some(before) = from.map(|from| &from.protocol) {
        reader.extend(before.reader_features.iter().flatten().cloned());
        writer.extend(before.writer_features.iter().flatten().cloned());
    }
    Protocol {
        min_reader_version: 3,
        min_writer_version: 7,
        reader_features: Some(reader.into_iter().collect()),
        writer_features: Some(writer.into_iter().collect()),
    }
}

fn configuration(
    spec: &ResolvedSpec,
    assigned: &Assigned,
    is_mapped: bool,
    from: Option<&TableSnapshot>,
) -> BTreeMap<String, String> {
    let mut set = from
        .map(|from| from.metadata.configuration.clone())
        .unwrap_or_default();
    let mut put = |name: &str, value: String| set.insert(name.to_owned(), value);
    let feed = spec.spec.change_data_feed != FeedMode::False;
    put(properties::DELETION_VECTORS, "true".into());
    put(properties::IN_COMMIT_TIMESTAMPS, "true".into());
    put(properties::CHANGE_DATA_FEED, feed.to_string());
    put(
        properties::DELETED_FILE_RETENTION,
        interval(spec.spec.deleted_file_retention),
    );
    put(properties::LOG_RETENTION, interval(spec.spec.log_retention));
    put(
        properties::CHECKPOINT_INTERVAL,
        spec.spec.checkpoint.commits.max(1).to_string(),
    );
    let keys = assigned
        .columns
        .iter()
        .filter(|column| spec.spec.keys.contains(&column.name));
    let keys: Vec<String> = keys.map(|column| quoted(&column.name)).collect();
    if !keys.is_empty() {
        put(properties::STATS_COLUMNS, keys.join(","));
    }
    if was_widened(&assigned.columns) {
        put(properties::TYPE_WIDENING, "true".into());
    }
    if is_mapped {
        put(properties::MAPPING_MODE, "name".into());
        put(properties::MAPPING_MAX_ID, assigned.max_id.to_string());
    }
    set
}

/// A column name as Spark parses it in a list.
fn quoted(name: &str) -> String {
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if is_plain {
        name.to_owned()
    } else {
        format!("`{}`", name.replace('`', "``"))
    }
}

fn interval(retention: Retention) -> String {
    match retention.ms() {
        None => format!("interval {FOREVER_DAYS} days"),
        Some(ms) if ms % 86_400_000 == 0 => format!("interval {} days", ms / 86_400_000),
        Some(ms) if ms % 1_000 == 0 => format!("interval {} seconds", ms / 1_000),
        Some(ms) => format!("interval {ms} milliseconds"),
    }
}

#[cfg(test)]
mod definition_test;
