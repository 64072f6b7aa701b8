//! The columns of a checkpoint: one struct for each kind of action.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use tidegate_change::types;

fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8, true)
}

fn long(name: &str) -> Field {
    Field::new(name, DataType::Int64, true)
}

fn int(name: &str) -> Field {
    Field::new(name, DataType::Int32, true)
}

fn flag(name: &str) -> Field {
    Field::new(name, DataType::Boolean, true)
}

fn map(name: &str) -> Field {
    Field::new(name, types::map_of(DataType::Utf8, DataType::Utf8), true)
}

fn texts(name: &str) -> Field {
    Field::new(name, types::list_of(DataType::Utf8), true)
}

fn group(name: &str, fields: Vec<Field>) -> Field {
    Field::new(name, DataType::Struct(Fields::from(fields)), true)
}

fn vector() -> Field {
    let fields = vec![
        text("storageType"),
        text("pathOrInlineDv"),
        int("offset"),
        int("sizeInBytes"),
        long("cardinality"),
    ];
    group("deletionVector", fields)
}

/// The schema that is written, and to which foreign checkpoints are conformed on read.
pub(super) fn checkpoint_schema() -> SchemaRef {
    let add = vec![
        text("path"),
        map("partitionValues"),
        long("size"),
        long("modificationTime"),
        flag("dataChange"),
        text("stats"),
        map("tags"),
        vector(),
        long("baseRowId"),
        long("defaultRowCommitVersion"),
        text("clusteringProvider"),
    ];
    let remove = vec![
        text("path"),
        long("deletionTimestamp"),
        flag("dataChange"),
        flag("extendedFileMetadata"),
        map("partitionValues"),
        long("size"),
        vector(),
        long("baseRowId"),
        long("defaultRowCommitVersion"),
    ];
    let metadata = vec![
        text("id"),
        text("name"),
        text("description"),
        group("format", vec![text("provider"), map("options")]),
        text("schemaString"),
        texts("partitionColumns"),
        long("createdTime"),
        map("configuration"),
    ];
    let protocol = vec![
        int("minReaderVersion"),
        int("minWriterVersion"),
        texts("readerFeatures"),
        texts("writerFeatures"),
    ];
    Arc::new(Schema::new(vec![
        group(
            "txn",
            vec![text("appId"), long("version"), long("lastUpdated")],
        ),
        group("add", add),
        group("remove", remove),
        group("metaData", metadata),
        group("protocol", protocol),
        group(
            "domainMetadata",
            vec![text("domain"), text("configuration"), flag("removed")],
        ),
    ]))
}
