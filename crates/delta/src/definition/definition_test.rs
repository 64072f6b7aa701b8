//! Definitions of tables of several kinds.

use serde_json::json;

use super::*;

fn spec(fields: serde_json::Value) -> ResolvedSpec {
    let mut spec = json!({"name": "t", "keys": ["id"], "sequence_by": "seq", "schema": [
        {"name": "id", "type": "long"}, {"name": "seq", "type": "long"}, {"name": "v v", "type": "string"}]});
    spec.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    ResolvedSpec::declared(serde_json::from_value(spec).unwrap())
}

fn features(definition: &TableDefinition) -> (Vec<String>, Vec<String>) {
    let protocol = definition.protocol.clone();
    (
        protocol.reader_features.unwrap(),
        protocol.writer_features.unwrap(),
    )
}

#[test]
fn a_plain_table_is_clustered_by_its_key() {
    let plain = json!([{"name": "id", "type": "long"}, {"name": "seq", "type": "long"}]);
    let definition = TableDefinition::create(&spec(json!({"schema": plain})), "id-1", 5).unwrap();
    let (reader, writer) = features(&definition);
    assert_eq!(reader, ["deletionVectors"]);
    for feature in [
        "appendOnly",
        "changeDataFeed",
        "clustering",
        "domainMetadata",
        "inCommitTimestamp",
    ] {
        assert!(writer.iter().any(|name| name == feature), "{feature}");
    }
    let clustering = definition.clustering.clone().unwrap();
    assert!(
        clustering
            .configuration
            .contains(r#""clusteringColumns":[["id"]]"#)
    );
    let configuration = &definition.metadata.configuration;
    assert_eq!(configuration[properties::STATS_COLUMNS], "id");
    assert_eq!(
        configuration[properties::DELETED_FILE_RETENTION],
        "interval 7 days"
    );
    assert_eq!(configuration[properties::CHANGE_DATA_FEED], "true");
    let snapshot = TableSnapshot::first(&definition.actions()).unwrap();
    assert!(definition.changes_from(&snapshot).is_empty());
}

#[test]
fn a_partitioned_table_is_not_clustered() {
    let plain = json!([{"name": "id", "type": "long"}, {"name": "seq", "type": "long"}]);
    let fields = json!({"schema": plain, "partition_by": ["seq"], "change_data_feed": false});
    let definition = TableDefinition::create(&spec(fields), "id-1", 5).unwrap();
    assert!(definition.clustering.is_none());
    assert_eq!(definition.metadata.partition_columns, ["seq"]);
    assert_eq!(
        definition.metadata.configuration[properties::CHANGE_DATA_FEED],
        "false"
    );
    let (_, writer) = features(&definition);
    assert!(
        !writer
            .iter()
            .any(|name| name == "clustering" || name == "changeDataFeed")
    );
}

#[test]
fn a_name_with_a_space_maps_columns() {
    let definition = TableDefinition::create(&spec(json!({})), "id-1", 5).unwrap();
    let (reader, _) = features(&definition);
    assert_eq!(reader, ["columnMapping", "deletionVectors"]);
    assert_eq!(
        definition.metadata.configuration[properties::MAPPING_MAX_ID],
        "3"
    );
    assert_eq!(definition.schema().unwrap().physical_name("id"), "id");
}

#[test]
fn a_partition_column_must_be_stored() {
    let error =
        TableDefinition::create(&spec(json!({"schema": [{"name": "id", "type": "long"}, {"name": "seq", "type": "long"}], "partition_by": ["none"]})), "i", 5).unwrap_err();
    assert_eq!(error.code(), Code::UnknownColumn);
}

#[test]
fn a_partitioned_table_needs_plain_names() {
    let error =
        TableDefinition::create(&spec(json!({"partition_by": ["seq"]})), "i", 5).unwrap_err();
    assert_eq!(error.code(), Code::InvalidSpec);
    assert!(error.to_string().contains("v v") && error.hint().unwrap().contains("source.columns"));
}

#[test]
fn only_what_changed_is_written() {
    let before = TableDefinition::create(&spec(json!({})), "id-1", 5).unwrap();
    let snapshot = TableSnapshot::first(&before.actions()).unwrap();
    let retention = spec(json!({"log_retention": "30d", "deleted_file_retention": "forever"}));
    let after = TableDefinition::evolve(&retention, &snapshot).unwrap();
    let changes = after.changes_from(&snapshot);
    assert!(
        matches!(changes.as_slice(), [Action::Metadata(_), Action::Domain(_)]),
        "{changes:?}"
    );
    assert_eq!(
        after.metadata.configuration[properties::LOG_RETENTION],
        "interval 30 days"
    );
    assert_eq!(after.metadata.created_time, Some(5));
    assert_eq!(quoted("a.b"), "`a.b`");
}

#[test]
fn a_table_without_keys_names_no_hidden_column() {
    let plain = json!([{"name": "id", "type": "long"}, {"name": "seq", "type": "long"}]);
    let fields = json!({"schema": plain, "mode": "append", "keys": []});
    let definition = TableDefinition::create(&spec(fields), "id-1", 5).unwrap();
    assert!(definition.clustering.is_none());
    let configuration = &definition.metadata.configuration;
    assert!(!configuration.contains_key(properties::STATS_COLUMNS));
    assert!(!definition.metadata.schema_string.contains("__tidegate"));
    let snapshot = TableSnapshot::first(&definition.actions()).unwrap();
    assert!(definition.changes_from(&snapshot).is_empty());
}
