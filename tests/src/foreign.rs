//! Other writers of a table: delta_kernel by its transactions, and one that writes valid commit files and
//! asks nobody.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::json::ReaderBuilder;
use delta_kernel::Snapshot;
use delta_kernel::committer::FileSystemCommitter;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::transaction::{CommitResult, UpdateTableOperation};
use delta_kernel_default_engine::DefaultEngineBuilder;
use delta_kernel_default_engine::executor::tokio::TokioMultiThreadExecutor;
use object_store::local::LocalFileSystem;
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use url::Url;

/// Data files of this process, so that none has the name of another.
static FILES: AtomicU64 = AtomicU64::new(0);

/// Commits that lose before a writer gives up.
const TRIES_MAX: u32 = 1_000;

/// The columns of the tables that are written: `id`, `note`, `n`.
#[must_use]
pub fn columns() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("note", DataType::Utf8, true),
        Field::new("n", DataType::Int64, true),
    ]))
}

/// Rows of [`columns`] from JSON objects.
///
/// # Errors
/// When they are none.
pub fn batch(rows: &[Value]) -> Result<RecordBatch> {
    let mut decoder = ReaderBuilder::new(columns()).build_decoder()?;
    for row in rows {
        decoder.decode(row.to_string().as_bytes())?;
    }
    match decoder.flush()? {
        Some(batch) => Ok(batch),
        None => Ok(RecordBatch::new_empty(columns())),
    }
}

/// Somebody else who adds rows to a table.
pub trait Appender: Send + Sync {
    /// Commits rows, however often others are first; returns the version.
    ///
    /// # Errors
    /// When they cannot be written.
    fn append(&self, rows: &[Value]) -> Result<u64>;
}

/// Writes Parquet files and commits that are valid, as any engine does that does not ask Tidegate.
#[derive(Debug)]
pub struct BlindWriter {
    table: PathBuf,
}

impl BlindWriter {
    /// A writer of the table in a directory.
    #[must_use]
    pub fn new(table: &Path) -> Self {
        Self {
            table: table.to_owned(),
        }
    }

    fn commit_path(&self, version: u64) -> PathBuf {
        self.table.join(format!("_delta_log/{version:020}.json"))
    }

    /// The newest version.
    ///
    /// # Errors
    /// When there is no table.
    pub fn latest(&self) -> Result<u64> {
        let mut latest = None;
        for entry in fs::read_dir(self.table.join("_delta_log"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let version = name
                .strip_suffix(".json")
                .and_then(|v| v.parse::<u64>().ok());
            latest = latest.max(version);
        }
        latest.context("the log is empty")
    }

    /// The actions of a version.
    ///
    /// # Errors
    /// When it is not there.
    pub fn actions(&self, version: u64) -> Result<Vec<Value>> {
        let text = fs::read_to_string(self.commit_path(version))?;
        Ok(text
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()?)
    }

    /// The `add`s of the live files.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn live(&self) -> Result<Vec<Value>> {
        let mut live = BTreeMap::new();
        for version in 0..=self.latest()? {
            let actions = self.actions(version)?;
            for remove in actions.iter().filter_map(|action| action.get("remove")) {
                live.remove(remove["path"].as_str().unwrap_or_default());
            }
            for add in actions.iter().filter_map(|action| action.get("add")) {
                live.insert(
                    add["path"].as_str().unwrap_or_default().to_owned(),
                    add.clone(),
                );
            }
        }
        Ok(live.into_values().collect())
    }

    /// Writes a data file and returns its `add`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, rows: &[Value], data_change: bool) -> Result<Value> {
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let name = format!("part-{number:05}-{}.c000.parquet", std::process::id());
        let path = self.table.join(&name);
        let batch = batch(rows)?;
        let mut writer = ArrowWriter::try_new(fs::File::create(&path)?, batch.schema(), None)?;
        writer.write(&batch)?;
        writer.close()?;
        let stats = json!({"numRecords": rows.len()}).to_string();
        Ok(json!({"add": {
            "path": name, "partitionValues": {}, "size": fs::metadata(&path)?.len(),
            "modificationTime": now_ms(), "dataChange": data_change, "stats": stats,
        }}))
    }

    /// Commits actions as a version if nobody else has; whether it did.
    ///
    /// # Errors
    /// When the log cannot be read or written.
    pub fn commit(&self, version: u64, operation: &str, actions: &[Value]) -> Result<bool> {
        let before = self.actions(version.checked_sub(1).context("version 0")?)?;
        let info = before.first().and_then(|action| action.get("commitInfo"));
        let last = info.and_then(|info| info["inCommitTimestamp"].as_i64());
        let time = now_ms().max(last.unwrap_or(0) + 1);
        let mut text = json!({"commitInfo": {
            "timestamp": time, "inCommitTimestamp": time, "operation": operation,
            "operationParameters": {}, "engineInfo": "blind writer",
        }})
        .to_string();
        for action in actions {
            text.push('\n');
            text.push_str(&action.to_string());
        }
        let mut whole = tempfile::NamedTempFile::new_in(&self.table)?;
        whole.write_all(text.as_bytes())?;
        match whole.persist_noclobber(self.commit_path(version)) {
            Ok(_) => Ok(true),
            Err(e) if e.error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(e.error.into()),
        }
    }

    /// Commits actions as the next version, however often others are first; returns it.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn commit_next(&self, operation: &str, actions: &[Value]) -> Result<u64> {
        for _ in 0..TRIES_MAX {
            let version = self.latest()? + 1;
            if self.commit(version, operation, actions)? {
                return Ok(version);
            }
        }
        bail!("others were always first")
    }

    /// Replaces all files by one with these rows, as an engine does that rewrites files.
    ///
    /// # Errors
    /// When a commit of somebody else came between, or files cannot be written.
    pub fn replace(&self, rows: &[Value], data_change: bool) -> Result<u64> {
        let version = self.latest()? + 1;
        let mut actions: Vec<Value> = Vec::new();
        for add in self.live()? {
            let mut remove = json!({
                "path": add["path"], "deletionTimestamp": now_ms(), "dataChange": data_change,
                "extendedFileMetadata": true, "partitionValues": add["partitionValues"],
                "size": add["size"],
            });
            if let Some(vector) = add.get("deletionVector") {
                remove["deletionVector"] = vector.clone();
            }
            actions.push(json!({"remove": remove}));
        }
        if !rows.is_empty() {
            actions.push(self.write(rows, data_change)?);
        }
        match self.commit(version, "REWRITE", &actions)? {
            true => Ok(version),
            false => bail!("version {version} is taken"),
        }
    }
}

impl Appender for BlindWriter {
    fn append(&self, rows: &[Value]) -> Result<u64> {
        let add = self.write(rows, true)?;
        self.commit_next("WRITE", &[add])
    }
}

fn now_ms() -> i64 {
    chrono::Utc::now().timestamp_millis()
}

/// delta_kernel as a writer.
#[derive(Debug)]
pub struct KernelWriter {
    table: Url,
    runtime: Runtime,
}

impl KernelWriter {
    /// A writer of the table in a directory.
    ///
    /// # Errors
    /// When the directory is no path.
    pub fn new(table: &Path) -> Result<Self> {
        Ok(Self {
            table: Url::from_directory_path(table).ok().context("no path")?,
            runtime: Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()?,
        })
    }
}

impl Appender for KernelWriter {
    fn append(&self, rows: &[Value]) -> Result<u64> {
        let executor = TokioMultiThreadExecutor::new(self.runtime.handle().clone());
        let engine = DefaultEngineBuilder::new(Arc::new(LocalFileSystem::new()))
            .with_task_executor(Arc::new(executor))
            .build();
        let data = ArrowEngineData::new(batch(rows)?);
        for _ in 0..TRIES_MAX {
            let snapshot = Snapshot::builder_for(self.table.clone()).build(&engine)?;
            let mut transaction = snapshot
                .update_table(UpdateTableOperation::Write, "kernel writer", true)
                .build(&engine, Box::new(FileSystemCommitter::new()))?;
            let context = transaction.write_state()?.write_context_builder().build()?;
            let added = self
                .runtime
                .block_on(engine.write_parquet(&data, &context))?;
            transaction.add_files(added);
            match transaction.commit(&engine)? {
                CommitResult::Committed(done) => return Ok(done.commit_version()),
                CommitResult::Conflicted(_) | CommitResult::Retryable(_) => {}
            }
        }
        bail!("others were always first")
    }
}
