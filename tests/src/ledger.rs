//! The ledger: a stream of batches against a cluster whose nodes fail, and the checks of what became of it.
//!
//! Each batch upserts the same few counters with its own number, and inserts one row of its own; it carries
//! offsets that continue those of the batch before. So a lost batch lacks its row or breaks the offsets, a
//! doubled one stands in two versions, and an older one that flows over a newer takes a counter back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tidegate_change::clock::{Clock, SystemClock};
use tidegate_change::{BatchResult, Error};
use tidegate_client::{Client, ClientOptions, SubmitOptions};

use crate::binary::Binary;

/// Counters that every batch writes.
const COUNTERS: u64 = 8;
/// Id of the first row that only one batch writes.
const OWN_ROWS: u64 = 1_000;
/// How long one try of a batch may take.
const TRY: Duration = Duration::from_secs(20);
/// Tries of one batch before the stream is given up.
const TRIES_MAX: u32 = 200;
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// Name of the table.
pub const TABLE: &str = "ledger";

/// The table's spec.
#[must_use]
pub fn spec() -> String {
    format!(
        "name: {TABLE}\nkeys: [id]\nsequence_by: seq\nschema:\n  - {{name: id, type: long}}\n  - {{name: seq, type: long}}\n  - {{name: n, type: long}}\n"
    )
}

/// A batch that was acknowledged.
#[derive(Clone, Debug)]
pub struct Acknowledged {
    /// Its number, from 1.
    pub number: u64,
    /// The version that holds it, by the answer.
    pub version: u64,
    /// When it was submitted first, monotonic nanoseconds.
    pub invoked_ns: u64,
    /// When it was answered.
    pub answered_ns: u64,
    /// Tries that it took.
    pub tries_count: u32,
}

/// What the stream and the test tell each other.
#[derive(Debug, Default)]
pub struct Signals {
    stops: AtomicBool,
    acknowledged_count: AtomicU64,
}

impl Signals {
    /// Ends the stream after the batch that is under way.
    pub fn stop(&self) {
        self.stops.store(true, Ordering::SeqCst);
    }

    /// Batches that were acknowledged so far.
    #[must_use]
    pub fn acknowledged_count(&self) -> u64 {
        self.acknowledged_count.load(Ordering::SeqCst)
    }
}

/// Submits batch after batch until it is told to stop; each goes to another node first.
///
/// # Errors
/// When a batch is refused, or cannot be brought in at all.
pub fn stream(
    endpoints: &[String],
    directory: &Path,
    signals: &Signals,
) -> Result<Vec<Acknowledged>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let clients = endpoints.iter().map(|endpoints| client(endpoints));
    let clients = clients.collect::<Result<Vec<_>>>()?;
    let mut acknowledged = Vec::new();
    for number in 1.. {
        if signals.stops.load(Ordering::SeqCst) {
            break;
        }
        let invoked_ns = SystemClock.monotonic_ns();
        let file = write_batch(directory, number)?;
        let (result, tries_count) = runtime.block_on(insist(&clients, &file, number))?;
        acknowledged.push(Acknowledged {
            number,
            version: result.version.0,
            invoked_ns,
            answered_ns: SystemClock.monotonic_ns(),
            tries_count,
        });
        signals.acknowledged_count.fetch_add(1, Ordering::SeqCst);
        std::fs::remove_file(&file)?;
    }
    Ok(acknowledged)
}

fn client(endpoints: &str) -> Result<Client> {
    let options = ClientOptions {
        deadline: Some(TRY),
        retry_for: Duration::from_millis(300),
        ..ClientOptions::new(endpoints)
    };
    Ok(Client::new(options)?)
}

/// The file of a batch.
///
/// # Errors
/// When it cannot be written.
pub fn write_batch(directory: &Path, number: u64) -> Result<PathBuf> {
    let counters = (0..COUNTERS).map(|id| json!({"id": id, "seq": number, "n": number}));
    let own = json!({"id": OWN_ROWS + number, "seq": number, "n": number});
    let lines: Vec<String> = counters
        .chain([own])
        .map(|event| event.to_string())
        .collect();
    let path = directory.join(format!("batch-{number}.jsonl"));
    std::fs::write(&path, lines.join("\n"))?;
    Ok(path)
}

/// How a batch is submitted.
#[must_use]
pub fn options(number: u64) -> SubmitOptions {
    let offset = i64::try_from(number).unwrap_or_default();
    SubmitOptions {
        batch_id: Some(batch_id(number)),
        offsets: BTreeMap::from([("events/0".to_owned(), (Some(offset), offset + 1))]),
        ..SubmitOptions::default()
    }
}

fn batch_id(number: u64) -> String {
    format!("batch-{number}")
}

/// Submits a batch under its id until there is an answer.
async fn insist(clients: &[Client], file: &Path, number: u64) -> Result<(BatchResult, u32)> {
    let address = format!("file://{}", file.display());
    let start = usize::try_from(number)?;
    for tries_count in 1..=TRIES_MAX {
        let turn = start + usize::try_from(tries_count)?;
        let client = clients.get(turn % clients.len()).context("no client")?;
        match submit(client, &address, number).await {
            Ok(result) => return Ok((result, tries_count)),
            Err(error) if is_final(&error) => {
                return Err(error).with_context(|| format!("batch {number}"));
            }
            Err(error) => {
                if std::env::var_os("TIDEGATE_TEST_TALK").is_some() {
                    eprintln!("batch {number} at {}: {error}", client.address());
                }
            }
        }
        rest().await;
    }
    anyhow::bail!("batch {number} does not come in")
}

#[expect(clippy::disallowed_methods, reason = "a test's pace")]
async fn rest() {
    tokio::time::sleep(PAUSE).await;
}

async fn submit(client: &Client, address: &str, number: u64) -> Result<BatchResult, Error> {
    let sources = [address.to_owned()];
    let batch = client.submit(TABLE, &sources, &options(number)).await?;
    client
        .follow_batch(TABLE, &batch.batch_id, Some(TRY), |_| {})
        .await
}

/// Whether another try cannot end otherwise.
fn is_final(error: &Error) -> bool {
    use tidegate_change::Kind;
    let is_unknown = matches!(
        error.code(),
        tidegate_change::Code::NotFound | tidegate_change::Code::Cancelled
    );
    !is_unknown && matches!(error.kind(), Kind::Invalid | Kind::Corrupt | Kind::Internal)
}

/// Checks what the table holds against what was acknowledged.
///
/// # Errors
/// The first thing that was lost, doubled or turned around.
pub fn check(client: &Binary, acknowledged: &[Acknowledged]) -> Result<()> {
    ensure!(!acknowledged.is_empty(), "nothing was acknowledged");
    check_versions(client, acknowledged)?;
    check_order(acknowledged)?;
    check_rows(client, acknowledged)
}

/// Each batch stands in exactly one version, the one that was answered; versions have no holes.
fn check_versions(client: &Binary, acknowledged: &[Acknowledged]) -> Result<()> {
    let limit = (acknowledged.len() + 100).to_string();
    let printed = client.run(&["table", "history", TABLE, "--limit", &limit, "-o", "json"]);
    let history: Vec<Value> = serde_json::from_slice(&printed.map_err(refused)?)?;
    let mut versions: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for line in &history {
        let version = line
            .get("version")
            .and_then(Value::as_u64)
            .context("no version")?;
        all.insert(version);
        if let Some(id) = line.get("batch_id").and_then(Value::as_str) {
            versions.entry(id.to_owned()).or_default().push(version);
        }
    }
    for batch in acknowledged {
        let found = versions.remove(&batch_id(batch.number));
        ensure!(
            found.as_deref() == Some(&[batch.version]),
            "batch {} was acknowledged as version {}, it stands in {found:?}",
            batch.number,
            batch.version
        );
    }
    ensure!(
        versions.is_empty(),
        "versions hold batches that were never acknowledged: {versions:?}"
    );
    let newest = all.iter().next_back().copied().unwrap_or_default();
    let expected: BTreeSet<u64> = (0..=newest).collect();
    ensure!(all == expected, "versions have holes: {all:?}");
    Ok(())
}

/// What was answered before something was submitted stands before it.
fn check_order(acknowledged: &[Acknowledged]) -> Result<()> {
    for pair in acknowledged.windows(2) {
        let [before, after] = pair else { continue };
        ensure!(
            before.answered_ns > after.invoked_ns || before.version < after.version,
            "{after:?} stands before {before:?}"
        );
    }
    Ok(())
}

/// The counters hold the newest batch, and every batch has its own row.
fn check_rows(client: &Binary, acknowledged: &[Acknowledged]) -> Result<()> {
    let printed = client
        .run(&["read", TABLE, "-o", "jsonl"])
        .map_err(refused)?;
    let text = String::from_utf8(printed)?;
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line)?;
        let number = |name: &str| row.get(name).and_then(Value::as_u64).context("no number");
        let twice = found.insert(number("id")?, number("n")?);
        ensure!(twice.is_none(), "a key stands twice: {line}");
    }
    let newest = acknowledged.iter().map(|batch| batch.number).max();
    let newest = newest.unwrap_or_default();
    let counters = (0..COUNTERS).map(|id| (id, newest));
    let own = acknowledged
        .iter()
        .map(|batch| (OWN_ROWS + batch.number, batch.number));
    let expected: BTreeMap<u64, u64> = counters.chain(own).collect();
    let differs: Vec<_> = expected
        .iter()
        .filter(|(id, n)| found.get(id) != Some(n))
        .collect();
    ensure!(
        found.len() == expected.len() && differs.is_empty(),
        "rows differ: {differs:?} of {} expected, {} found",
        expected.len(),
        found.len()
    );
    Ok(())
}

fn refused(refusal: crate::harness::Refusal) -> anyhow::Error {
    anyhow::anyhow!("{refusal:?}")
}

/// Runs a stream beside something else, and returns what was acknowledged.
///
/// # Errors
/// What either of them failed with.
pub fn beside(
    endpoints: Vec<String>,
    directory: PathBuf,
    work: impl FnOnce(&Signals) -> Result<()>,
) -> Result<Vec<Acknowledged>> {
    let signals = Arc::new(Signals::default());
    let told = Arc::clone(&signals);
    let streaming = std::thread::spawn(move || stream(&endpoints, &directory, &told));
    let worked = work(&signals);
    signals.stop();
    let streamed = streaming
        .join()
        .map_err(|_| anyhow::anyhow!("the stream panicked"))?;
    // What broke the stream explains what the work missed.
    let acknowledged = streamed?;
    worked?;
    Ok(acknowledged)
}

/// Waits until so many more batches are acknowledged; returns the milliseconds until the first of them.
///
/// # Errors
/// When it takes too long.
pub fn wait_for_progress(signals: &Signals, batches_count: u64) -> Result<u64> {
    const PATIENCE: Duration = Duration::from_secs(60);
    let started_ns = SystemClock.monotonic_ns();
    let begun = signals.acknowledged_count();
    let mut first_ms = None;
    loop {
        let took = Duration::from_nanos(SystemClock.monotonic_ns() - started_ns);
        let count = signals.acknowledged_count() - begun;
        if count > 0 && first_ms.is_none() {
            first_ms = Some(u64::try_from(took.as_millis())?);
        }
        if let Some(first_ms) = first_ms.filter(|_| count >= batches_count) {
            return Ok(first_ms);
        }
        ensure!(took < PATIENCE, "no progress for {took:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
