//! Drives the whole embedded path: files, decode, merge, index, Delta, commit, read, feed, rejects.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use tempfile::TempDir;
use tidegate_change::clock::SystemClock;
use tidegate_change::{BatchResult, Clock, Code, Error, Kind, TableVersion};
use tidegate_cluster::{LocalWorkers, Workers};
use tidegate_query::{FeedBounds, ReadOptions, Rows};
use tidegate_server::{ApplyOptions, Embedded, OpenOptions, SourceArgument};
use tokio::runtime::{Builder, Runtime};

use super::arrow_rows::value_at;
use super::files::write_batch;
use super::{Driver, Observed};
use crate::dice::Dice;
use crate::oracle::{Change, ChangeType, Oracle, Row};
use crate::scenario::{Batch, Scenario};
use crate::value::{self, Value};

const TABLE: &str = "t";

/// A clock that a test sets.
#[derive(Debug, Default)]
pub struct SetClock {
    now_ms: AtomicI64,
}

impl SetClock {
    /// A clock that stands at a time until it is set.
    #[must_use]
    pub fn new(now_ms: i64) -> Self {
        Self {
            now_ms: AtomicI64::new(now_ms),
        }
    }

    /// Sets the time, milliseconds since the epoch.
    pub fn set(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
    }
}

impl Clock for SetClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    fn monotonic_ns(&self) -> u64 {
        SystemClock.monotonic_ns()
    }
}

/// A temporary directory, in memory where there is a file system for it.
///
/// # Errors
/// A sentence where none can be made.
pub fn scratch() -> Result<TempDir, String> {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    made.map_err(|e| format!("temporary directory: {e}"))
}

/// The runtime of all histories of a process.
///
/// # Panics
/// When the machine has no threads left.
#[expect(clippy::expect_used, reason = "a harness without threads cannot go on")]
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime")
    })
}

fn sentence(error: &Error) -> String {
    let mut text = format!("{}: {error}", error.code());
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text += &format!(": {next}");
        cause = next.source();
    }
    text
}

/// A table in a directory.
#[derive(Debug)]
pub struct EmbeddedDriver {
    directory: TempDir,
    embedded: Option<Embedded>,
    clock: Arc<SetClock>,
    history: Scenario,
    /// Knows the visible columns; its rows are not looked at.
    reader: Oracle,
    dice: Arc<Dice>,
    head: TableVersion,
    watermark: Option<Value>,
    /// The rows of each version, to be read again by time travel.
    versions: Vec<(TableVersion, Vec<Row>)>,
    /// Bytes of memory of a batch; None for the usual.
    memory_bytes: Option<u64>,
    /// Who executes batches.
    workers: Arc<dyn Workers>,
}

impl EmbeddedDriver {
    /// An empty table in a directory of its own, with batches of the usual memory or of these bytes.
    ///
    /// # Errors
    /// The refusal of the spec, or what keeps the directory from being opened.
    pub fn new(history: &Scenario, seed: u64, memory_bytes: Option<u64>) -> Result<Self, String> {
        Self::with_workers(history, seed, memory_bytes, |_| Ok(Arc::new(LocalWorkers)))
    }

    /// The same, with batches that are executed by the workers that are made for the directory.
    ///
    /// # Errors
    /// As [`Self::new`], or when the workers cannot be made.
    pub fn with_workers(
        history: &Scenario,
        seed: u64,
        memory_bytes: Option<u64>,
        workers: impl FnOnce(&Path) -> Result<Arc<dyn Workers>, String>,
    ) -> Result<Self, String> {
        let directory = scratch()?;
        let workers = workers(&directory.path().join("data"))?;
        let mut driver = Self {
            directory,
            workers,
            embedded: None,
            clock: Arc::new(SetClock::new(1_800_000_000_000)),
            reader: Oracle::new(history).map_err(|code| code.to_string())?,
            history: history.clone(),
            dice: Arc::new(Dice::new(seed)),
            head: TableVersion(0),
            watermark: None,
            versions: Vec::new(),
            memory_bytes,
        };
        let spec = history.table_spec(TABLE).map_err(|e| sentence(&e))?;
        let embedded = driver.open()?;
        runtime()
            .block_on(embedded.create_table(spec))
            .map_err(|e| sentence(&e))?;
        driver.embedded = Some(embedded);
        Ok(driver)
    }

    fn open(&self) -> Result<Embedded, String> {
        let default = OpenOptions::new(Arc::clone(&self.workers));
        let options = OpenOptions {
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            random: Arc::clone(&self.dice) as Arc<dyn tidegate_change::Random>,
            memory_bytes: self.memory_bytes.unwrap_or(default.memory_bytes),
            ..default
        };
        let data = self.directory.path().join("data");
        let opened = Embedded::open(&data, options);
        runtime().block_on(opened).map_err(|e| sentence(&e))
    }

    fn embedded(&self) -> Result<&Embedded, String> {
        self.embedded
            .as_ref()
            .ok_or_else(|| "the directory is not open".to_owned())
    }

    fn submit(&self, id: &str, input: &Path) -> Result<Result<BatchResult, Error>, String> {
        let sources = [SourceArgument::Path(input.to_string_lossy().into_owned())];
        let options = ApplyOptions {
            batch_id: Some(id.into()),
            ..ApplyOptions::default()
        };
        let applied = self.embedded()?.apply(TABLE, &sources, &options);
        Ok(runtime().block_on(applied))
    }

    fn input(&self, index: usize) -> PathBuf {
        self.directory.path().join(format!("input-{index}"))
    }

    fn observe(&mut self, index: usize, result: &BatchResult) -> Result<Observed, String> {
        if result.version != self.head.next() {
            return Err(format!("version {} after {}", result.version, self.head));
        }
        self.head = result.version;
        self.watermark = self.read_watermark(&result.watermark)?;
        if self.dice.percent(10) {
            let again = self.submit(&format!("batch-{index}"), &self.input(index))?;
            let again = again.map_err(|e| format!("applied again: {}", sentence(&e)))?;
            if (again.version, again.counters) != (result.version, result.counters) {
                return Err(format!("applied again: {again:?}, not {result:?}"));
            }
        }
        let counters = result.counters;
        let rejects = self.rejects(result)?;
        let has_feed = self.history.spec.feed.as_deref() != Some("false");
        Ok(Observed {
            feed: if has_feed {
                Some(self.changes(result.version)?)
            } else {
                None
            },
            events: Some(counters.events),
            inserted: counters.inserted,
            updated: counters.updated,
            deleted: counters.deleted,
            quarantined: counters.quarantined,
            rejects: Some(rejects),
        })
    }

    fn read_watermark(&self, json: &serde_json::Value) -> Result<Option<Value>, String> {
        if json.is_null() {
            return Ok(None);
        }
        let (data_type, _) = self.reader.watermark();
        let value = value::from_json(&data_type, json);
        value
            .map(Some)
            .ok_or_else(|| format!("watermark {json} is not of type {data_type}"))
    }

    fn changes(&self, version: TableVersion) -> Result<Vec<Change>, String> {
        let bound = i64::try_from(version.0).ok();
        let bounds = FeedBounds {
            start_version: bound,
            end_version: bound,
            ..FeedBounds::default()
        };
        let log = self
            .embedded()?
            .reader()
            .log(TABLE)
            .map_err(|e| sentence(&e))?;
        let mut changes = Vec::new();
        for batch in collect(async { tidegate_query::changes(&log, &bounds).await })? {
            let kinds = text_column(&batch, "_change_type")?;
            for (row, kind) in kinds.iter().enumerate() {
                changes.push((change_type(kind)?, self.visible_row(&batch, row)?));
            }
        }
        Ok(changes)
    }

    fn rejects(&self, result: &BatchResult) -> Result<Vec<String>, String> {
        if result.counters.quarantined == 0 {
            return Ok(Vec::new());
        }
        let log = self
            .embedded()?
            .reader()
            .log(TABLE)
            .map_err(|e| sentence(&e))?;
        let mut reasons = Vec::new();
        for batch in collect(async { tidegate_query::rejects(&log).await })? {
            let ids = text_column(&batch, "batch_id")?;
            for (id, reason) in ids.into_iter().zip(text_column(&batch, "reason")?) {
                if id == result.batch_id.0 {
                    reasons.push(reason);
                }
            }
        }
        Ok(reasons)
    }

    fn rows_at(&self, version: TableVersion) -> Result<Vec<Row>, String> {
        let reader = self.embedded()?.reader();
        let root = reader.root(TABLE).map_err(|e| sentence(&e))?;
        let snapshot = runtime().block_on(reader.snapshot(TABLE, Some(version)));
        let snapshot = snapshot.map_err(|e| sentence(&e))?;
        let mut rows = Vec::new();
        let opened = async { tidegate_query::read(&root, &snapshot, &ReadOptions::default()) };
        for batch in collect(opened)? {
            for row in 0..batch.num_rows() {
                rows.push(self.visible_row(&batch, row)?);
            }
        }
        Ok(rows)
    }

    /// A row in the model's columns; columns that are not known yet are NULL.
    fn visible_row(&self, batch: &RecordBatch, row: usize) -> Result<Row, String> {
        let visible = self.reader.visible_columns();
        let known = |name: &str| {
            visible.iter().any(|(n, _)| n == name)
                || ["_change_type", "_commit_version", "_commit_timestamp"].contains(&name)
        };
        let schema = batch.schema();
        if let Some(field) = schema.fields().iter().find(|field| !known(field.name())) {
            return Err(format!("column {} shows", field.name()));
        }
        let cell = |(name, data_type): &(String, DataType)| match batch.column_by_name(name) {
            Some(column) if column.data_type() == data_type => Ok(value_at(column.as_ref(), row)),
            Some(column) => Err(format!("column {name} has type {}", column.data_type())),
            None => Ok(Value::Null),
        };
        visible.iter().map(cell).collect()
    }
}

impl Driver for EmbeddedDriver {
    fn apply(&mut self, index: usize, batch: &Batch) -> Result<Result<Observed, Code>, String> {
        let input = self.input(index);
        write_batch(&input, &self.history.spec, batch)?;
        let index_ms = i64::try_from(index).unwrap_or(0) * 1_000;
        let now_ms = batch
            .at
            .map_or(1_800_000_000_000 + index_ms, |at| at * 1_000);
        self.clock.set(now_ms);
        if self.dice.percent(15) {
            // The lock goes with the old holder, so it must be gone before the new one comes.
            drop(self.embedded.take());
            self.embedded = Some(self.open()?);
        }
        match self.submit(&format!("batch-{index}"), &input)? {
            Ok(result) => self.observe(index, &result).map(Ok),
            Err(error) if error.kind() == Kind::Invalid => Ok(Err(error.code())),
            Err(error) => Err(sentence(&error)),
        }
    }

    fn rows(&mut self) -> Result<Vec<Row>, String> {
        let rows = self.rows_at(self.head)?;
        self.versions.retain(|(version, _)| *version != self.head);
        self.versions.push((self.head, rows.clone()));
        if self.dice.percent(15) {
            for (version, expected) in &self.versions {
                let mut again = self.rows_at(*version)?;
                let mut expected = expected.clone();
                again.sort();
                expected.sort();
                if again != expected {
                    return Err(format!("version {version} reads other rows than it did"));
                }
            }
        }
        Ok(rows)
    }

    fn watermark(&mut self) -> Result<Option<Value>, String> {
        Ok(self.watermark.clone())
    }
}

fn collect(opened: impl Future<Output = Result<Rows, Error>>) -> Result<Vec<RecordBatch>, String> {
    let all = async {
        let mut rows = opened.await?;
        let mut batches = Vec::new();
        while let Some(batch) = rows.next_batch().await? {
            batches.push(batch);
        }
        Ok(batches)
    };
    runtime().block_on(all).map_err(|e: Error| sentence(&e))
}

fn text_column(batch: &RecordBatch, name: &str) -> Result<Vec<String>, String> {
    let column = batch
        .column_by_name(name)
        .ok_or_else(|| format!("no column {name}"))?;
    let text = cast(column, &DataType::Utf8).map_err(|e| format!("column {name}: {e}"))?;
    let text = text.as_string::<i32>();
    Ok((0..text.len())
        .map(|row| text.value(row).to_owned())
        .collect())
}

fn change_type(name: &str) -> Result<ChangeType, String> {
    let all = [
        ChangeType::Insert,
        ChangeType::Preimage,
        ChangeType::Postimage,
        ChangeType::Delete,
    ];
    let found = all.into_iter().find(|kind| kind.as_str() == name);
    found.ok_or_else(|| format!("change type {name}"))
}
