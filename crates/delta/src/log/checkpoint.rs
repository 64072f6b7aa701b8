//! Checkpoints of version 1: the state of the log at a version as one Parquet file.
//!
//! Written by our own writer, compressed, since delta_kernel's are not and start an engine; read part by
//! part. Rows pass as JSON of the actions, whose shape the serde types already have.
//! Source: Delta protocol, "Checkpoints".

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use arrow::json::ReaderBuilder;
use futures::TryStreamExt;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::async_reader::ParquetRecordBatchStreamBuilder;
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde::{Deserialize, Serialize};
use tidegate_change::{Error, Result, types};

use super::TableSnapshot;
use crate::actions::{Action, ActionLine, DomainMetadata};
use crate::data::ObjectReader;
use crate::definition::properties;
use crate::error;
use crate::names;
use crate::table::TableRoot;
use crate::upload::Upload;

/// Rows encoded at a time.
const BATCH_ROWS: usize = 4096;
/// Rows of a row group.
const ROW_GROUP_ROWS: usize = 65_536;
/// Where readers look for the newest checkpoint.
const HINT: &str = "_delta_log/_last_checkpoint";
/// How long removed files stay where the table does not say.
const RETENTION_DEFAULT_MS: i64 = 7 * 86_400_000;

/// The content of `_last_checkpoint`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hint {
    pub(super) version: u64,
    size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size_in_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    num_of_add_files: Option<u64>,
}

/// What `_last_checkpoint` says; None when it is absent or damaged, as it is only a hint.
pub(super) async fn read_hint(root: &TableRoot) -> Result<Option<Hint>> {
    let bytes = root.read_if_there(HINT).await?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

/// Reads a part of a checkpoint and hands over its actions.
pub(super) async fn read_part(
    root: &TableRoot,
    path: &str,
    apply: &mut (dyn FnMut(Action) + Send),
) -> Result<()> {
    let location = root.location(path)?;
    let reader = ObjectReader::new(Arc::clone(root.store()), location, None);
    let builder = ParquetRecordBatchStreamBuilder::new(reader)
        .await
        .map_err(|e| error::parquet(path, e))?;
    let mask = projection(builder.parquet_schema());
    let mut stream = builder
        .with_projection(mask)
        .with_batch_size(BATCH_ROWS)
        .build()
        .map_err(|e| error::parquet(path, e))?;
    while let Some(batch) = stream
        .try_next()
        .await
        .map_err(|e| error::parquet(path, e))?
    {
        for action in actions_of(path, &batch)? {
            apply(action);
        }
    }
    Ok(())
}

/// Leaves out what other engines add for themselves: parsed statistics are large and follow the table's schema.
fn projection(schema: &parquet::schema::types::SchemaDescriptor) -> ProjectionMask {
    let leaves = schema.columns().iter().enumerate().filter(|(_, column)| {
        let parts = column.path().parts();
        let parsed = parts.get(1).is_some_and(|part| part.ends_with("_parsed"));
        let known = parts.first().is_some_and(|part| {
            [
                "txn",
                "add",
                "remove",
                "metaData",
                "protocol",
                "domainMetadata",
            ]
            .contains(&part.as_str())
        });
        known && !parsed
    });
    ProjectionMask::leaves(schema, leaves.map(|(position, _)| position))
}

fn actions_of(path: &str, batch: &RecordBatch) -> Result<Vec<Action>> {
    let mut json = Vec::new();
    let mut writer = arrow::json::WriterBuilder::new()
        .with_explicit_nulls(true)
        .build::<_, arrow::json::writer::LineDelimited>(&mut json);
    let failed = |e| error::arrow_read(path, e);
    writer.write(batch).map_err(failed)?;
    writer.finish().map_err(failed)?;
    drop(writer);
    let mut actions = Vec::with_capacity(batch.num_rows());
    for line in json
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let line: ActionLine = serde_json::from_slice(line)
            .map_err(|e| Error::corrupt(format!("{path}: a row is no action")).with_source(e))?;
        actions.extend(line.into_action());
    }
    Ok(actions)
}

/// Writes the checkpoint of a snapshot and the hint that points to it.
pub(super) async fn write(root: &TableRoot, snapshot: &TableSnapshot, now_ms: i64) -> Result<()> {
    let path = names::checkpoint(snapshot.version);
    let failed = |e| error::parquet(&path, e);
    let schema = checkpoint_schema();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3).map_err(failed)?))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .build();
    let options = ArrowWriterOptions::new()
        .with_properties(properties)
        .with_skip_arrow_metadata(true);
    let mut writer = ArrowWriter::try_new_with_options(Vec::new(), Arc::clone(&schema), options)
        .map_err(failed)?;
    let mut upload = Upload::new(root, &path)?;
    let mut rows = rows(snapshot, now_ms);
    let mut count = 0u64;
    loop {
        let chunk: Vec<ActionLine> = rows.by_ref().take(BATCH_ROWS).collect();
        if chunk.is_empty() {
            break;
        }
        count += u64::try_from(chunk.len()).unwrap_or_default();
        writer
            .write(&encode(&path, &schema, &chunk)?)
            .map_err(failed)?;
        upload.take(writer.inner_mut()).await?;
    }
    writer.finish().map_err(failed)?;
    upload.take(writer.inner_mut()).await?;
    let bytes = upload.finish().await?;
    let hint = Hint {
        version: snapshot.version.0,
        size: count,
        size_in_bytes: Some(bytes),
        num_of_add_files: u64::try_from(snapshot.files.len()).ok(),
    };
    let hint = serde_json::to_vec(&hint)
        .map_err(|e| Error::internal("_last_checkpoint has no JSON form").with_source(e))?;
    root.write(HINT, hint).await
}

fn encode(path: &str, schema: &SchemaRef, rows: &[ActionLine]) -> Result<RecordBatch> {
    let failed = |e| error::arrow_internal(format!("{path}: actions do not fit their schema"), e);
    let mut decoder = ReaderBuilder::new(Arc::clone(schema))
        .with_batch_size(BATCH_ROWS)
        .build_decoder()
        .map_err(failed)?;
    decoder.serialize(rows).map_err(failed)?;
    let batch = decoder.flush().map_err(failed)?;
    batch.ok_or_else(|| Error::internal(format!("{path}: no rows were encoded")))
}

/// The rows of a checkpoint: everything in them is state, so nothing changes data.
fn rows(snapshot: &TableSnapshot, now_ms: i64) -> impl Iterator<Item = ActionLine> {
    let line = ActionLine::default;
    let head = [
        ActionLine {
            protocol: Some(snapshot.protocol.clone()),
            ..line()
        },
        ActionLine {
            meta_data: Some(snapshot.metadata.as_ref().clone()),
            ..line()
        },
    ];
    let transactions = snapshot.transactions.values().map(move |txn| ActionLine {
        txn: Some(txn.clone()),
        ..line()
    });
    let domains = snapshot
        .domains
        .iter()
        .map(move |(name, configuration)| ActionLine {
            domain_metadata: Some(DomainMetadata::set(name.clone(), configuration.clone())),
            ..line()
        });
    let keep_from = now_ms.saturating_sub(retention_ms(snapshot));
    let removes = snapshot
        .tombstones
        .values()
        .filter(move |remove| {
            remove
                .deletion_timestamp
                .is_none_or(|time| time > keep_from)
        })
        .map(move |remove| {
            let mut remove = remove.as_ref().clone();
            remove.data_change = false;
            ActionLine {
                remove: Some(remove),
                ..line()
            }
        });
    let adds = snapshot.files.iter().map(move |add| {
        let mut add = add.as_ref().clone();
        add.data_change = false;
        ActionLine {
            add: Some(add),
            ..line()
        }
    });
    head.into_iter()
        .chain(transactions)
        .chain(domains)
        .chain(removes)
        .chain(adds)
}

/// How long removed files stay, from the table's property.
fn retention_ms(snapshot: &TableSnapshot) -> i64 {
    let text = snapshot.property(properties::DELETED_FILE_RETENTION);
    let parsed = text.and_then(|text| {
        let (number, unit) = text
            .trim()
            .strip_prefix("interval")?
            .trim()
            .split_once(' ')?;
        let unit_ms = match unit.trim().trim_end_matches('s') {
            "millisecond" => 1,
            "second" => 1_000,
            "minute" => 60_000,
            "hour" => 3_600_000,
            "day" => 86_400_000,
            "week" => 604_800_000,
            _ => return None,
        };
        number.parse::<i64>().ok()?.checked_mul(unit_ms)
    });
    parsed.unwrap_or(RETENTION_DEFAULT_MS)
}

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

fn checkpoint_schema() -> SchemaRef {
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
