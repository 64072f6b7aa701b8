//! Rows of a table to a data file.

use std::collections::BTreeMap;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use tidegate_change::{Error, Result, hidden};

use super::stats::{GreatestSequence, StatsCollector};
use crate::actions::{AddFile, tags};
use crate::definition::has_bounds;
use crate::error;
use crate::path;
use crate::schema::{PartitionValues, TableSchema};
use crate::table::TableRoot;
use crate::upload::Upload;

/// Columns that most rows leave NULL, so that files without any such row leave them out.
const SPARSE_COLUMNS: [&str; 3] = [hidden::FLOOR, hidden::LEAVES, hidden::DELETES];

/// How a data file is written.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Key columns by the user's names: those with bounds in the statistics and in the page index.
    pub keys: Vec<String>,
    /// Whether the table is clustered.
    pub is_clustered: bool,
    /// Whether rows change with the file; false for compaction.
    pub data_change: bool,
    /// The file's time, ms since the epoch.
    pub modified_ms: i64,
    /// Whether some row may have a floor, leaf sequences or deletes; if not, those columns are left out.
    pub is_sparse: bool,
    /// Level of zstd.
    pub zstd_level: i32,
    /// Whether columns get dictionaries, which cost time and save space.
    pub has_dictionaries: bool,
    /// Rows of a page at most: what reading one row decodes.
    pub page_rows_max: usize,
    /// Rows of a row group at most.
    pub row_group_rows_max: usize,
    /// Encoded bytes of a row group at most: what the writer holds.
    pub row_group_bytes_max: usize,
}

impl WriterOptions {
    /// The options of the write path.
    #[must_use]
    pub fn new(keys: Vec<String>, modified_ms: i64) -> Self {
        Self {
            keys,
            is_clustered: false,
            data_change: true,
            modified_ms,
            is_sparse: true,
            zstd_level: 1,
            has_dictionaries: false,
            page_rows_max: 1024,
            row_group_rows_max: 512 << 10,
            row_group_bytes_max: 64 << 20,
        }
    }
}

/// A data file in memory, ready to be put where its action says.
#[derive(Clone, Debug)]
pub struct EncodedFile {
    /// The bytes.
    pub bytes: Bytes,
    /// The action.
    pub add: AddFile,
    /// The path on storage, relative to the table's root.
    pub relative_path: String,
}

impl EncodedFile {
    /// Writes the file.
    ///
    /// # Errors
    /// What the store says.
    pub async fn put(&self, root: &TableRoot) -> Result<()> {
        root.write(&self.relative_path, self.bytes.clone()).await
    }
}

/// Encodes a small data file in memory, without I/O; None without rows.
///
/// Batches have the columns of the table's file schema; partition columns are left out. Sparse hidden
/// columns are kept only where a row needs them.
///
/// # Errors
/// `INTERNAL` when the batches do not fit the schema.
pub fn encode_file(
    schema: &TableSchema,
    partition: &PartitionValues,
    name: &str,
    options: &WriterOptions,
    batches: &[RecordBatch],
) -> Result<Option<EncodedFile>> {
    let is_sparse = batches.iter().any(has_sparse_rows);
    let options = WriterOptions {
        is_sparse,
        ..options.clone()
    };
    let mut encoder = Encoder::new(schema, partition, name, options);
    for batch in batches {
        encoder.write(batch)?;
    }
    let relative_path = encoder.relative_path.clone();
    let Some((bytes, mut add)) = encoder.finish()? else {
        return Ok(None);
    };
    add.size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
    Ok(Some(EncodedFile {
        bytes: bytes.into(),
        add,
        relative_path,
    }))
}

fn has_sparse_rows(batch: &RecordBatch) -> bool {
    let columns = SPARSE_COLUMNS
        .iter()
        .filter_map(|name| batch.column_by_name(name));
    columns
        .into_iter()
        .any(|column| column.null_count() < column.len())
}

/// Writes one data file, whose rows come sorted, with memory for one row group.
#[derive(Debug)]
pub struct DataFileWriter {
    encoder: Encoder,
    upload: Upload,
}

impl DataFileWriter {
    /// A writer of a file in a partition. Nothing is on storage before bytes fill a part.
    ///
    /// # Errors
    /// `CORRUPT` for a name that is no path.
    pub fn new(
        root: &TableRoot,
        schema: &TableSchema,
        partition: &PartitionValues,
        name: &str,
        options: WriterOptions,
    ) -> Result<Self> {
        let encoder = Encoder::new(schema, partition, name, options);
        let upload = Upload::new(root, &encoder.relative_path)?;
        Ok(Self { encoder, upload })
    }

    /// Rows so far: the position of the next row.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.encoder.stats.rows()
    }

    /// Bytes so far, what is still in memory included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let writer = self.encoder.writer.as_ref();
        writer.map_or(0, |writer| {
            writer.bytes_written() + writer.in_progress_size()
        })
    }

    /// Appends rows with the columns of the table's file schema.
    ///
    /// # Errors
    /// `INTERNAL` when the batch does not fit the schema, else what the store says.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.encoder.write(batch)?;
        self.send().await
    }

    /// Ends the row group, so that the next row begins another.
    ///
    /// # Errors
    /// What the store says.
    pub async fn end_row_group(&mut self) -> Result<()> {
        if let Some(writer) = &mut self.encoder.writer {
            writer
                .flush()
                .map_err(|e| error::parquet(&self.encoder.relative_path, e))?;
        }
        self.send().await
    }

    /// Ends the file; None, and no file, without rows. The file is durable when this returns.
    ///
    /// # Errors
    /// What the store says.
    pub async fn finish(self) -> Result<Option<AddFile>> {
        let Self {
            encoder,
            mut upload,
        } = self;
        let Some((mut bytes, mut add)) = encoder.finish()? else {
            return Ok(None);
        };
        upload.take(&mut bytes).await?;
        add.size = i64::try_from(upload.finish().await?).unwrap_or(i64::MAX);
        Ok(Some(add))
    }

    async fn send(&mut self) -> Result<()> {
        match &mut self.encoder.writer {
            Some(writer) if !writer.inner().is_empty() => {
                self.upload.take(writer.inner_mut()).await
            }
            _ => Ok(()),
        }
    }
}

/// Rows to the bytes of a file and its action, without I/O.
#[derive(Debug)]
struct Encoder {
    schema: TableSchema,
    partition: PartitionValues,
    relative_path: String,
    options: WriterOptions,
    writer: Option<ArrowWriter<Vec<u8>>>,
    stats: StatsCollector,
    sequence: GreatestSequence,
    has_sparse_rows: bool,
}

impl Encoder {
    fn new(
        schema: &TableSchema,
        partition: &PartitionValues,
        name: &str,
        options: WriterOptions,
    ) -> Self {
        let keys = options
            .keys
            .iter()
            .filter(|key| !schema.is_partition_column(key));
        let keys = keys
            .filter_map(|key| schema.field(key))
            .map(|(physical, _)| physical);
        let keys = keys.filter(|field| has_bounds(field.data_type()));
        Self {
            stats: StatsCollector::new(keys.map(|field| field.name().clone())),
            schema: schema.clone(),
            partition: partition.clone(),
            relative_path: format!("{}{name}", partition.directory()),
            options,
            writer: None,
            sequence: GreatestSequence::default(),
            has_sparse_rows: false,
        }
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let has_sparse_rows = has_sparse_rows(batch);
        if has_sparse_rows && !self.options.is_sparse {
            let message = format!(
                "file {}: a sparse row in a file without",
                self.relative_path
            );
            return Err(Error::internal(message));
        }
        self.has_sparse_rows |= has_sparse_rows;
        let mut physical = self.schema.to_physical(batch)?;
        if !self.options.is_sparse {
            physical = without_sparse_columns(&physical)?;
        }
        self.stats.add(&physical);
        if let Some(sequences) = physical.column_by_name(hidden::SEQUENCE) {
            self.sequence.add(sequences)?;
        }
        let failed = |e| error::parquet(&self.relative_path, e);
        let writer = match &mut self.writer {
            Some(writer) => writer,
            slot => slot.insert(
                self.options
                    .writer(&self.schema, physical.schema())
                    .map_err(failed)?,
            ),
        };
        writer.write(&physical).map_err(failed)
    }

    fn finish(mut self) -> Result<Option<(Vec<u8>, AddFile)>> {
        let Some(mut writer) = self.writer.take() else {
            return Ok(None);
        };
        let mut notes = BTreeMap::new();
        notes.insert(
            tags::SPARSE.to_owned(),
            Some(self.has_sparse_rows.to_string()),
        );
        if let Some(greatest) = self.sequence.finish()? {
            notes.insert(tags::MAX_SEQUENCE.to_owned(), Some(greatest));
        }
        for (name, value) in &notes {
            writer.append_key_value_metadata(KeyValue::new(name.clone(), value.clone()));
        }
        writer
            .finish()
            .map_err(|e| error::parquet(&self.relative_path, e))?;
        let add = AddFile {
            path: path::encode(&self.relative_path),
            partition_values: self.partition.values().clone(),
            modification_time: self.options.modified_ms,
            data_change: self.options.data_change,
            stats: Some(self.stats.finish()?),
            tags: Some(notes),
            clustering_provider: self.options.is_clustered.then(|| "tidegate".to_owned()),
            ..AddFile::default()
        };
        Ok(Some((std::mem::take(writer.inner_mut()), add)))
    }
}

impl WriterOptions {
    fn writer(
        &self,
        schema: &TableSchema,
        file_schema: SchemaRef,
    ) -> parquet::errors::Result<ArrowWriter<Vec<u8>>> {
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(self.zstd_level)?))
            .set_dictionary_enabled(self.has_dictionaries)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_data_page_row_count_limit(self.page_rows_max)
            .set_write_batch_size(self.page_rows_max.min(1024))
            .set_max_row_group_row_count(Some(self.row_group_rows_max))
            .set_max_row_group_bytes(Some(self.row_group_bytes_max))
            .set_created_by(format!(
                "{}/{}",
                crate::actions::ENGINE,
                env!("CARGO_PKG_VERSION")
            ))
            // One value for nearly all rows of a file.
            .set_column_dictionary_enabled(ColumnPath::from(hidden::SCHEMA), true);
        for key in &self.keys {
            let column = ColumnPath::new(vec![schema.physical_name(key).to_owned()]);
            properties = properties.set_column_statistics_enabled(column, EnabledStatistics::Page);
        }
        let options = ArrowWriterOptions::new()
            .with_properties(properties.build())
            .with_skip_arrow_metadata(true);
        ArrowWriter::try_new_with_options(Vec::new(), file_schema, options)
    }
}

fn without_sparse_columns(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema();
    let keep: Vec<usize> = schema
        .fields()
        .iter()
        .enumerate()
        .filter(|(_, field)| !SPARSE_COLUMNS.contains(&field.name().as_str()))
        .map(|(position, _)| position)
        .collect();
    batch
        .project(&keep)
        .map_err(|e| error::arrow_internal("hidden columns cannot be left out", e))
}
