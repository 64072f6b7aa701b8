//! Private Parquet files of any shape: hidden state, rejects.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use tidegate_change::Result;

use super::reader::RowSelection;
use super::scan::{OpenFile, Scan};
use crate::error;
use crate::table::TableRoot;
use crate::upload::Upload;

/// Rows of a page at most: what reading one row decodes.
const PAGE_ROWS_MAX: usize = 1024;
/// Rows of a batch.
const BATCH_ROWS: usize = 8192;

/// Writes batches of one schema to a Parquet file; returns its bytes.
///
/// # Errors
/// What the store says; `INTERNAL` when the batches' schemas differ.
pub async fn write_rows(
    root: &TableRoot,
    relative: &str,
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> Result<u64> {
    let failed = |e| error::parquet(format!("file {relative}"), e);
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).map_err(failed)?))
        .set_data_page_row_count_limit(PAGE_ROWS_MAX)
        .set_write_batch_size(PAGE_ROWS_MAX)
        .set_max_row_group_bytes(Some(64 << 20))
        .build();
    let mut upload = Upload::new(root, relative)?;
    let mut writer =
        ArrowWriter::try_new(Vec::new(), Arc::clone(schema), Some(properties)).map_err(failed)?;
    for batch in batches {
        writer.write(batch).map_err(failed)?;
        upload.take(writer.inner_mut()).await?;
    }
    writer.finish().map_err(failed)?;
    upload.take(writer.inner_mut()).await?;
    upload.finish().await
}

/// The rows of a private file.
#[derive(Debug)]
pub struct RowsFile {
    scan: Scan,
}

/// Opens a private file: its columns of these names, in the file's order (all without names), and these rows.
///
/// # Errors
/// `NOT_FOUND` when the file is gone, `CORRUPT` when it is damaged.
pub async fn read_rows(
    root: &TableRoot,
    relative: &str,
    columns: Option<&[&str]>,
    rows: RowSelection,
) -> Result<RowsFile> {
    let positions = match rows {
        RowSelection::All => None,
        RowSelection::Positions(positions) => Some(positions),
    };
    let file = OpenFile::open(root, relative, None, positions.as_ref().map(Vec::len)).await?;
    let places = match columns {
        None => (0..file.schema().fields().len()).collect(),
        Some(names) => names
            .iter()
            .filter_map(|name| file.schema().index_of(name).ok())
            .collect(),
    };
    Ok(RowsFile {
        scan: file.scan(places, positions, BATCH_ROWS)?,
    })
}

impl RowsFile {
    /// The next rows with their positions; None behind the last.
    ///
    /// # Errors
    /// `CORRUPT` when the file is damaged, else what the store says.
    pub async fn next_batch(&mut self) -> Result<Option<(RecordBatch, Vec<u32>)>> {
        self.scan.next().await
    }

    /// All batches.
    ///
    /// # Errors
    /// As [`Self::next_batch`].
    pub async fn collect(mut self) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        while let Some((batch, _)) = self.next_batch().await? {
            batches.push(batch);
        }
        Ok(batches)
    }
}
