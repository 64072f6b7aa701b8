//! Checkpoints of version 1: the state of the log at a version as one Parquet file.
//!
//! Written by our own writer, compressed, since delta_kernel's are not and start an engine; read part by
//! part. Rows are encoded from the actions' serde form; files, of which there are many, are decoded by
//! column, everything else by its serde form again.
//! Source: Delta protocol, "Checkpoints".

mod read;
mod schema;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::json::ReaderBuilder;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde::{Deserialize, Serialize};
use tidegate_change::{Error, Result};

pub(in crate::log) use read::read_part;
use schema::checkpoint_schema;

use super::TableSnapshot;
use crate::actions::{ActionLine, DomainMetadata};
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
pub(in crate::log) struct Hint {
    pub(in crate::log) version: u64,
    size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size_in_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    num_of_add_files: Option<u64>,
}

/// What `_last_checkpoint` says; None when it is absent or damaged, as it is only a hint.
pub(in crate::log) async fn read_hint(root: &TableRoot) -> Result<Option<Hint>> {
    let bytes = root.read_if_there(HINT).await?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

/// Writes the checkpoint of a snapshot and the hint that points to it.
pub(in crate::log) async fn write(
    root: &TableRoot,
    snapshot: &TableSnapshot,
    now_ms: i64,
) -> Result<()> {
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
