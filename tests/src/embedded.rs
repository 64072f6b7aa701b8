//! Tidegate as a library in this process: the same path without a process a command.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::Value;
use tempfile::TempDir;
use tidegate_change::clock::{Clock, SystemClock};
use tidegate_change::{Error, TableSpec, TableVersion, json};
use tidegate_cluster::{LocalWorkers, Workers};
use tidegate_query::{ChangesStart, FeedBounds, ReadOptions, Rows, stream_changes};
use tidegate_server::config::Stores;
use tidegate_server::{
    ApplyOptions, ConflictCounts, Embedded, OpenOptions, Reader, RemoteStores, SourceArgument,
};
use tokio::runtime::{Builder, Runtime};

use crate::harness::{Answer, EventFile, FeedRequest, Harness, Refusal};

/// The library on a directory that is removed with it.
#[derive(Debug)]
pub struct InProcess {
    // Dropped in this order: the directory goes last.
    embedded: Embedded,
    runtime: Runtime,
    clock: Arc<SetClock>,
    scratch: TempDir,
}

/// A clock that a test sets; unset it is the machine's.
#[derive(Debug)]
pub(crate) struct SetClock(AtomicI64);

const UNSET: i64 = i64::MIN;

impl Default for SetClock {
    fn default() -> Self {
        Self(AtomicI64::new(UNSET))
    }
}

impl SetClock {
    /// Sets it to unix seconds; None is the machine's.
    pub(crate) fn set(&self, seconds: Option<i64>) {
        let ms = seconds.map_or(UNSET, |seconds| seconds * 1_000);
        self.0.store(ms, Ordering::Relaxed);
    }
}

impl Clock for SetClock {
    fn now_ms(&self) -> i64 {
        match self.0.load(Ordering::Relaxed) {
            UNSET => SystemClock.now_ms(),
            set => set,
        }
    }

    fn monotonic_ns(&self) -> u64 {
        SystemClock.monotonic_ns()
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self {
            code: error.code().to_string(),
            message: error.to_string(),
        }
    }
}

impl InProcess {
    /// The library on an empty directory.
    ///
    /// # Errors
    /// When there is no room for the directory or it cannot be taken.
    pub fn new() -> anyhow::Result<Self> {
        Self::with_memory(OpenOptions::default().memory_bytes)
    }

    /// The library on an empty directory, with batches that take about these bytes of memory.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_memory(memory_bytes: u64) -> anyhow::Result<Self> {
        Self::with_workers(memory_bytes, |_| Ok(Arc::new(LocalWorkers)))
    }

    /// The same, with batches that are executed by the workers that are made for the directory.
    ///
    /// # Errors
    /// As [`Self::new`], or when the workers cannot be made.
    pub fn with_workers(
        memory_bytes: u64,
        workers: impl FnOnce(&Path) -> anyhow::Result<Arc<dyn Workers>>,
    ) -> anyhow::Result<Self> {
        Self::opened(|data| {
            Ok(OpenOptions {
                memory_bytes,
                ..OpenOptions::new(workers(data)?)
            })
        })
    }

    /// The library on an empty directory whose lake is in an object store.
    ///
    /// # Errors
    /// As [`Self::new`], and what is wrong with the store.
    pub fn in_lake(address: &str, stores: Stores) -> anyhow::Result<Self> {
        Self::opened(|_| {
            Ok(OpenOptions {
                lake: Some(address.to_owned()),
                stores: RemoteStores::new(stores),
                ..OpenOptions::default()
            })
        })
    }

    fn opened(options: impl FnOnce(&Path) -> anyhow::Result<OpenOptions>) -> anyhow::Result<Self> {
        let scratch = tempfile::tempdir()?;
        let data = scratch.path().join("data");
        let clock = Arc::new(SetClock::default());
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let shared: Arc<dyn Clock> = Arc::<SetClock>::clone(&clock);
        let options = OpenOptions {
            clock: shared,
            ..options(&data)?
        };
        let embedded = runtime.block_on(Embedded::open(&data, options))?;
        Ok(Self {
            embedded,
            runtime,
            clock,
            scratch,
        })
    }

    /// How often commits of other engines met those of this library.
    #[must_use]
    pub fn conflicts(&self) -> ConflictCounts {
        self.embedded.conflicts()
    }

    /// Takes a table that lies in the lake, such as a copy of another one.
    ///
    /// # Errors
    /// What refuses it.
    pub fn adopt(&self, location: &str) -> Answer<String> {
        Ok(self.runtime.block_on(self.embedded.adopt(location, None))?)
    }

    /// The directory that holds the tables.
    #[must_use]
    pub fn local(&self) -> &Path {
        self.embedded.directory()
    }
}

async fn lines(mut rows: Rows) -> Answer<Vec<Value>> {
    let mut text = Vec::new();
    while let Some(batch) = rows.next_batch().await? {
        json::write_rows(&batch, &mut text)?;
    }
    let text = String::from_utf8(text).map_err(Refusal::outside)?;
    text.lines()
        .map(|line| serde_json::from_str(line).map_err(Refusal::outside))
        .collect()
}

/// The rows of a version, or of the latest one.
pub(crate) async fn rows_of(
    reader: &Reader,
    table: &str,
    version: Option<TableVersion>,
) -> Answer<Vec<Value>> {
    let snapshot = reader.snapshot(table, version).await?;
    let rows = tidegate_query::read(&reader.root(table)?, &snapshot, &ReadOptions::default())?;
    lines(rows).await
}

/// The change feed.
pub(crate) async fn changes_of(
    reader: &Reader,
    table: &str,
    request: FeedRequest,
) -> Answer<Vec<Value>> {
    let log = reader.log(table)?;
    let bounds = |from, to, allow_out_of_range| FeedBounds {
        start_version: from,
        end_version: to,
        allow_out_of_range,
        ..FeedBounds::default()
    };
    let rows = match request {
        FeedRequest::Range {
            from,
            to,
            allow_out_of_range,
        } => tidegate_query::changes(&log, &bounds(from, to, allow_out_of_range)).await?,
        FeedRequest::Stream { from, after } => {
            let after = after
                .map(u64::try_from)
                .transpose()
                .map_err(Refusal::outside)?;
            let start = match (after, from) {
                (Some(seen), _) => ChangesStart::After(TableVersion(seen)),
                (None, None) => ChangesStart::Table,
                (None, from) => ChangesStart::From(bounds(from, None, false)),
            };
            stream_changes(&log, start, false).await?.rows
        }
    };
    lines(rows).await
}

impl Harness for InProcess {
    fn create(&self, spec: &str) -> Answer<()> {
        let spec = TableSpec::from_yaml(spec)?;
        Ok(self
            .runtime
            .block_on(self.embedded.create_table(spec))
            .map(drop)?)
    }

    fn alter(&self, table: &str, spec: &str) -> Answer<()> {
        let spec = TableSpec::from_yaml(spec)?;
        Ok(self
            .runtime
            .block_on(self.embedded.alter_table(table, spec))
            .map(drop)?)
    }

    fn apply(&self, table: &str, batch_id: &str, files: &[EventFile]) -> Answer<Value> {
        let mut sources = Vec::new();
        for file in files {
            let path = self.scratch.path().join(&file.name);
            std::fs::write(&path, &file.bytes).map_err(Refusal::outside)?;
            sources.push(SourceArgument::Path(path.to_string_lossy().into_owned()));
        }
        let options = ApplyOptions {
            batch_id: Some(batch_id.to_owned()),
            ..ApplyOptions::default()
        };
        let result = self
            .runtime
            .block_on(self.embedded.apply(table, &sources, &options))?;
        serde_json::to_value(result).map_err(Refusal::outside)
    }

    fn read(&self, table: &str, version: Option<i64>) -> Answer<Vec<Value>> {
        let version = version
            .map(u64::try_from)
            .transpose()
            .map_err(Refusal::outside)?;
        let reader = self.embedded.reader();
        self.runtime
            .block_on(rows_of(&reader, table, version.map(TableVersion)))
    }

    fn changes(&self, table: &str, request: FeedRequest) -> Answer<Vec<Value>> {
        self.runtime
            .block_on(changes_of(&self.embedded.reader(), table, request))
    }

    fn rejects(&self, table: &str) -> Answer<Vec<Value>> {
        self.runtime.block_on(async {
            let log = self.embedded.reader().log(table)?;
            lines(tidegate_query::rejects(&log).await?).await
        })
    }

    fn set_clock(&self, seconds: Option<i64>) {
        self.clock.set(seconds);
    }
}
