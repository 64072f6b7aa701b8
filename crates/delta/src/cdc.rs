//! Change data files: the rows of a commit's changes, where readers could not infer them.
//!
//! If a commit has any, readers take the commit's changes from them alone, so they hold all of them
//! (R-C8). Source: Delta protocol, "Add CDC File".

use arrow::array::RecordBatch;
use tidegate_change::{AttemptId, Error, Result};

use crate::actions::CdcFile;
use crate::error;
use crate::names;
use crate::path;
use crate::schema::{TableSchema, split_by_partition};
use crate::table::TableRoot;

/// The column that says what happened to a row.
pub const CHANGE_TYPE: &str = "_change_type";

/// Values of [`CHANGE_TYPE`].
pub mod change_type {
    /// The row appeared.
    pub const INSERT: &str = "insert";
    /// The row before it changed.
    pub const UPDATE_PREIMAGE: &str = "update_preimage";
    /// The row after it changed.
    pub const UPDATE_POSTIMAGE: &str = "update_postimage";
    /// The row disappeared.
    pub const DELETE: &str = "delete";
}

/// Writes changes, one file for each partition that they touch, numbered from `first_number` on.
///
/// The batches have the table's columns and [`CHANGE_TYPE`]; no file is written for no rows.
///
/// # Errors
/// `INTERNAL` when a batch does not fit the schema or lacks the change type, else what the store says.
pub async fn write_changes(
    root: &TableRoot,
    schema: &TableSchema,
    attempt: AttemptId,
    first_number: u32,
    changes: &[RecordBatch],
) -> Result<Vec<CdcFile>> {
    let mut partitions = std::collections::BTreeMap::<_, Vec<RecordBatch>>::new();
    for batch in changes.iter().filter(|batch| batch.num_rows() > 0) {
        if batch.column_by_name(CHANGE_TYPE).is_none() {
            return Err(Error::internal("changes without their type"));
        }
        for (partition, rows) in split_by_partition(schema, batch)? {
            partitions
                .entry(partition)
                .or_default()
                .push(schema.to_physical(&rows)?);
        }
    }
    let mut files = Vec::with_capacity(partitions.len());
    for (number, (partition, rows)) in (first_number..).zip(partitions) {
        let name = names::change_file(attempt, number);
        let relative = format!(
            "{}/{}{name}",
            names::CHANGE_DIRECTORY,
            partition.directory()
        );
        let Some(first) = rows.first() else { continue };
        let size = write_file(root, &relative, &rows, first.schema()).await?;
        files.push(CdcFile {
            path: path::encode(&relative),
            partition_values: partition.values().clone(),
            size: i64::try_from(size).unwrap_or(i64::MAX),
            data_change: false,
            tags: None,
        });
    }
    Ok(files)
}

async fn write_file(
    root: &TableRoot,
    relative: &str,
    rows: &[RecordBatch],
    schema: arrow::datatypes::SchemaRef,
) -> Result<u64> {
    use parquet::arrow::ArrowWriter;
    use parquet::arrow::arrow_writer::ArrowWriterOptions;
    use parquet::basic::{Compression, ZstdLevel};
    use parquet::file::properties::WriterProperties;

    let failed = |e| error::parquet(format!("file {relative}"), e);
    let level = ZstdLevel::try_new(1).map_err(failed)?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_bytes(Some(64 << 20))
        .build();
    let options = ArrowWriterOptions::new()
        .with_properties(properties)
        .with_skip_arrow_metadata(true);
    let mut writer =
        ArrowWriter::try_new_with_options(Vec::new(), schema, options).map_err(failed)?;
    let mut upload = crate::upload::Upload::new(root, relative)?;
    for batch in rows {
        writer.write(batch).map_err(failed)?;
        upload.take(writer.inner_mut()).await?;
    }
    writer.finish().map_err(failed)?;
    upload.take(writer.inner_mut()).await?;
    upload.finish().await
}
