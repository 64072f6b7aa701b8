//! Workers that die, pause or are slow in the middle of a batch: the table, the feed and the counts are those of
//! a plain fold of the events, and only what was lost is done again.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;
use tidegate_change::{AttemptId, Code, WriterId};
use tidegate_cluster::metadata::NodeId;
use tidegate_cluster::worker::{CallError, FinishOrder, WorkToken, WorkerLink as _};
use tidegate_tests::embedded::InProcess;
use tidegate_tests::grid::{COORDINATOR, Call, CallHook, Grid, GridOptions, Moment};
use tidegate_tests::harness::{EventFile, FeedRequest, Harness, WithBuckets};
use tidegate_tests::keyed_events::{
    Event, SPEC, Table, apply_feed, check_counts, events, fold, table_of,
};

const WORKERS: u32 = 3;
const BUCKETS: u32 = 16;
const EVENTS: u64 = 6_000;
/// Files of a batch: each worker reads some.
const FILES: usize = 7;
const MEMORY: u64 = 64 << 20;

#[expect(clippy::disallowed_methods, reason = "a test that makes others wait")]
async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// A table on workers, with the events that it took.
struct Ledger {
    tidegate: WithBuckets<InProcess>,
    random: StdRng,
    all: Vec<Event>,
    folded: Table,
    batches: u64,
    next_seq: u64,
}

impl Ledger {
    fn new(hook: &Arc<dyn CallHook>, workers: u32, memory_bytes: u64) -> Result<(Self, Arc<Grid>)> {
        let mut made = None;
        let harness = InProcess::with_workers(memory_bytes, |data| {
            let options = GridOptions {
                workers,
                memory_bytes,
                hook: Some(Arc::clone(hook)),
            };
            let grid = Grid::start(data, &options)?;
            made = Some(Arc::clone(&grid));
            Ok(grid.workers())
        })?;
        let tidegate = WithBuckets {
            harness,
            buckets: BUCKETS,
        };
        tidegate.create(SPEC)?;
        let ledger = Self {
            tidegate,
            random: StdRng::seed_from_u64(11),
            all: Vec::new(),
            folded: Table::new(),
            batches: 0,
            next_seq: 1,
        };
        Ok((ledger, made.context("no grid")?))
    }

    /// Applies a batch of several files and checks table, feed and counts.
    fn batch(&mut self, count: u64) -> Result<()> {
        let mut own = events(&mut self.random, self.next_seq, count);
        self.next_seq += count;
        own.extend(self.all.iter().step_by(17).cloned());
        let files: Vec<EventFile> = own
            .chunks(own.len().div_ceil(FILES))
            .enumerate()
            .map(|(number, events)| {
                let lines: Vec<String> = events.iter().map(Event::json).collect();
                let name = format!("events-{number}.jsonl");
                EventFile::json_lines(&name, lines.iter().map(String::as_str))
            })
            .collect();
        let id = format!("batch-{}", self.batches);
        let result = self.tidegate.apply("t", &id, &files)?;
        self.batches += 1;
        let before = fold(&self.all);
        self.all.extend(own.iter().cloned());
        let expected = fold(&self.all);
        ensure!(
            table_of(&self.tidegate.read("t", None)?)? == expected,
            "{id}: another table"
        );
        check_counts(&result, &before, &expected, &own)?;
        let version = i64::try_from(self.batches)?;
        let request = FeedRequest::Range {
            from: Some(version),
            to: Some(version),
            allow_out_of_range: false,
        };
        apply_feed(&mut self.folded, &self.tidegate.changes("t", request)?)?;
        ensure!(self.folded == expected, "{id}: the feed leads elsewhere");
        Ok(())
    }

    fn rejects_are_those_without_a_key(&self) -> Result<()> {
        let keyless = self.all.iter().filter(|event| event.id.is_none()).count();
        let rejects = self.tidegate.rejects("t")?.len();
        ensure!(rejects == keyless, "{rejects} rejects of {keyless}");
        Ok(())
    }
}

/// When a worker dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

/// Kills one worker at one call, once.
#[derive(Debug)]
struct Killer {
    moment: Moment,
    side: Side,
    /// Whether the placement says so too, and not only broken connections.
    displaces: bool,
    grid: OnceLock<Weak<Grid>>,
    armed: AtomicU64,
    killed: Mutex<Option<NodeId>>,
    calls: Mutex<BTreeMap<(Moment, NodeId), u32>>,
}

impl Killer {
    fn act(&self, side: Side, call: Call) {
        let is_met = call.moment == self.moment && side == self.side;
        if !is_met || call.callee == COORDINATOR || self.armed.swap(0, Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(grid) = self.grid.get().and_then(Weak::upgrade) {
            *self.killed.lock().unwrap() = Some(call.callee);
            grid.kill(call.callee);
            if self.displaces {
                grid.displace(call.callee);
            }
        }
    }
}

#[async_trait]
impl CallHook for Killer {
    async fn before(&self, call: Call) {
        let key = (call.moment, call.callee);
        *self.calls.lock().unwrap().entry(key).or_default() += 1;
        self.act(Side::Before, call);
    }

    async fn after(&self, call: Call) {
        self.act(Side::After, call);
    }
}

fn a_worker_dies(moment: Moment, side: Side, displaces: bool) -> Result<()> {
    let killer = Arc::new(Killer {
        moment,
        side,
        displaces,
        grid: OnceLock::new(),
        armed: AtomicU64::new(0),
        killed: Mutex::new(None),
        calls: Mutex::default(),
    });
    let hook: Arc<dyn CallHook> = Arc::clone(&killer) as _;
    let (mut ledger, grid) = Ledger::new(&hook, WORKERS, MEMORY)?;
    killer.grid.set(Arc::downgrade(&grid)).ok().context("set")?;
    ledger.batch(EVENTS)?;
    killer.calls.lock().unwrap().clear();
    killer.armed.store(1, Ordering::SeqCst);
    ledger.batch(EVENTS)?;
    let killed = killer.killed.lock().unwrap().context("nobody was killed")?;
    // Those that live merge what was theirs once, and what was lost at most once more for each try to reach
    // the dead.
    let calls = killer.calls.lock().unwrap().clone();
    let merges = |node| calls.get(&(Moment::Merge, node)).copied().unwrap_or(0);
    let nodes = (1..=u64::from(WORKERS)).map(NodeId);
    for node in nodes.filter(|node| *node != killed) {
        let own = merges(node);
        let repeated = match moment {
            // Nothing of the dead was needed any more but its buckets.
            Moment::Finish => 1 + 3,
            _ => 3 + 3,
        };
        ensure!((1..=repeated).contains(&own), "{node} merged {own} times");
    }
    // The cluster goes on without the dead.
    grid.displace(killed);
    ledger.batch(EVENTS / 2)?;
    ledger.rejects_are_those_without_a_key()?;
    ensure!(
        grid.sessions_count() <= 1,
        "only the dead hold something: {}",
        grid.sessions_count()
    );
    Ok(())
}

#[test]
fn a_worker_that_dies_in_any_phase_costs_only_time() -> Result<()> {
    for moment in Moment::ALL {
        for side in [Side::Before, Side::After] {
            let displaces = side == Side::After;
            a_worker_dies(moment, side, displaces)
                .with_context(|| format!("{moment:?} {side:?}"))?;
        }
    }
    Ok(())
}

/// Holds one owner up while it fetches, and takes it out of the placement meanwhile.
#[derive(Debug, Default)]
struct Pauser {
    grid: OnceLock<Weak<Grid>>,
    hits: AtomicU64,
}

const PAUSED: NodeId = NodeId(2);

#[async_trait]
impl CallHook for Pauser {
    async fn before(&self, call: Call) {
        let is_met = call.caller == PAUSED && call.moment == Moment::FetchEvents;
        if !is_met || self.hits.fetch_add(1, Ordering::SeqCst) > 0 {
            return;
        }
        if let Some(grid) = self.grid.get().and_then(Weak::upgrade) {
            grid.displace(PAUSED);
        }
        // The batch goes on meanwhile.
        pause(300).await;
    }
}

/// Fault 6 of the plan of tests: a worker that is paused past its epoch and goes on.
#[test]
fn a_worker_that_pauses_past_its_epoch_is_refused() -> Result<()> {
    let pauser = Arc::new(Pauser::default());
    let hook: Arc<dyn CallHook> = Arc::clone(&pauser) as _;
    let (mut ledger, grid) = Ledger::new(&hook, WORKERS, MEMORY)?;
    pauser.grid.set(Arc::downgrade(&grid)).ok().context("set")?;
    ledger.batch(EVENTS)?;
    ensure!(pauser.hits.load(Ordering::SeqCst) > 0, "nobody paused");
    std::thread::sleep(Duration::from_millis(400));
    ledger.batch(EVENTS)?;
    ledger.rejects_are_those_without_a_key()?;
    // Work of the old placement is refused by whoever knows the newer one.
    let worker = grid.worker(NodeId(1))?;
    let order = FinishOrder {
        token: WorkToken {
            attempt: AttemptId {
                writer: WriterId(1),
                index: 1,
            },
            secret: 1,
            epoch: 1,
        },
        owner: 1,
        decision: tidegate_apply::phases::FeedDecision::Leave,
    };
    let refused = tokio::runtime::Builder::new_current_thread()
        .build()?
        .block_on(worker.finish(order));
    ensure!(
        matches!(&refused, Err(CallError::Stale(e)) if e.code() == Code::Fenced),
        "{refused:?}"
    );
    Ok(())
}

/// Makes all owners slow, and notes how far readers are ahead of them.
#[derive(Debug, Default)]
struct Slow {
    grid: OnceLock<Weak<Grid>>,
    taken: AtomicU64,
    ahead_max: AtomicU64,
}

#[async_trait]
impl CallHook for Slow {
    async fn rows(&self, call: Call, rows: u64) {
        if call.moment != Moment::FetchEvents {
            return;
        }
        pause(30).await;
        if let Some(grid) = self.grid.get().and_then(Weak::upgrade) {
            let ahead = grid
                .rows_sent()
                .saturating_sub(self.taken.load(Ordering::SeqCst));
            self.ahead_max.fetch_max(ahead, Ordering::SeqCst);
        }
        self.taken.fetch_add(rows, Ordering::SeqCst);
    }
}

/// Events with a value that does not compress: a KiB each.
fn bulky_events(count: u64) -> Vec<EventFile> {
    let mut random = StdRng::seed_from_u64(3);
    let mut line = |seq: u64| {
        let value: String = (0..64)
            .map(|_| format!("{:016x}", random.random::<u64>()))
            .collect();
        serde_json::json!({"id": seq * 4_099, "seq": seq, "op": "U", "v": value}).to_string()
    };
    let lines: Vec<String> = (1..=count).map(&mut line).collect();
    let files = lines.chunks(lines.len().div_ceil(2)).enumerate();
    files
        .map(|(number, lines)| {
            let name = format!("events-{number}.jsonl");
            EventFile::json_lines(&name, lines.iter().map(String::as_str))
        })
        .collect()
}

/// Half of the events go from one worker to another, two streams of some 6 MiB; on its way are at most the
/// window of each and a few messages, some 3 MiB.
#[test]
fn a_slow_owner_holds_its_readers_back() -> Result<()> {
    const COUNT: u64 = 24_000;
    let slow = Arc::new(Slow::default());
    let hook: Arc<dyn CallHook> = Arc::clone(&slow) as _;
    let (ledger, grid) = Ledger::new(&hook, 2, 128 << 20)?;
    slow.grid.set(Arc::downgrade(&grid)).ok().context("set")?;
    let result = ledger.tidegate.apply("t", "bulk", &bulky_events(COUNT))?;
    ensure!(result.get("inserted").and_then(Value::as_u64) == Some(COUNT));
    let (all, ahead) = (
        slow.taken.load(Ordering::SeqCst),
        slow.ahead_max.load(Ordering::SeqCst),
    );
    ensure!(all * 3 > COUNT, "{all} rows went between nodes");
    ensure!(
        ahead * 4 < all * 3,
        "{ahead} of {all} rows were on their way at once"
    );
    println!("{ahead} of {all} rows were on their way at most");
    Ok(())
}
