//! Workers as real processes beside three metadata nodes: batches go through them whatever becomes of some.
//!
//! `TIDEGATE_TEST_EVENTS=2000000 cargo test --release --test cluster_workers large` applies that many events in
//! little memory and prints what each process took.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tidegate_tests::cluster::Cluster;
use tidegate_tests::harness::{EventFile, Harness, WithBuckets};
use tidegate_tests::keyed_events::{Event, SPEC, check_counts, events, fold, table_of};

const META: usize = 3;
const WORKERS: usize = 3;
/// Events of a batch in the gate.
const EVENTS: u64 = 8_000;
/// Files of a batch.
const FILES: usize = 4;
/// Sets the events of the large batch.
const EVENTS_VARIABLE: &str = "TIDEGATE_TEST_EVENTS";
/// Events of the large batch in the gate.
const LARGE_EVENTS: u64 = 30_000;

fn files_of(events: &[Event]) -> Vec<EventFile> {
    let parts = events.chunks(events.len().div_ceil(FILES)).enumerate();
    parts
        .map(|(number, events)| {
            let lines: Vec<String> = events.iter().map(Event::json).collect();
            let name = format!("events-{number}.jsonl");
            EventFile::json_lines(&name, lines.iter().map(String::as_str))
        })
        .collect()
}

/// A stream of batches, each of which changes what the ones before made.
struct Stream {
    random: StdRng,
    all: Vec<Event>,
    batches: u64,
}

impl Stream {
    fn new() -> Self {
        Self {
            random: StdRng::seed_from_u64(23),
            all: Vec::new(),
            batches: 0,
        }
    }

    /// Applies the next batch at a node; one that fails for want of workers is sent again.
    fn batch(&mut self, cluster: &Cluster, node: usize, count: u64) -> Result<()> {
        let own = events(&mut self.random, 1 + self.batches * count, count);
        let (files, id) = (files_of(&own), format!("batch-{}", self.batches));
        let client = cluster.client(node)?;
        let mut tries = 0;
        let result = loop {
            tries += 1;
            match client.apply("t", &id, &files) {
                Ok(result) => break result,
                Err(refusal) if refusal.code == "UNAVAILABLE" && tries < 5 => {}
                Err(refusal) => {
                    let logs = cluster.logs();
                    return Err(refusal).with_context(|| format!("{id}\n{logs}"));
                }
            }
        };
        self.batches += 1;
        let before = fold(&self.all);
        self.all.extend(own.iter().cloned());
        let expected = fold(&self.all);
        ensure!(
            table_of(&client.read("t", None)?)? == expected,
            "{id}: another table"
        );
        check_counts(&result, &before, &expected, &own)
    }
}

fn started() -> Result<Cluster> {
    let cluster = Cluster::start_with_workers(META, WORKERS)?;
    let client = WithBuckets {
        harness: cluster.client(0)?,
        buckets: 16,
    };
    client.create(SPEC)?;
    Ok(cluster)
}

/// Applies batches on one thread while another does something to a worker.
fn while_batches_run(
    cluster: &mut Cluster,
    stream: &mut Stream,
    act: impl FnOnce(&mut Cluster) -> Result<()> + Send,
) -> Result<()> {
    let ended = AtomicBool::new(false);
    let own = cluster.same_endpoints();
    std::thread::scope(|scope| {
        let batches = scope.spawn(|| {
            let mut count = 0;
            while !ended.load(Ordering::SeqCst) || count < 2 {
                stream.batch(&own, count % META, EVENTS)?;
                count += 1;
            }
            anyhow::Ok(())
        });
        std::thread::sleep(Duration::from_millis(300));
        let acted = act(cluster);
        ended.store(true, Ordering::SeqCst);
        let streamed = batches.join();
        acted?;
        streamed.map_err(|_| anyhow::anyhow!("the stream panicked"))?
    })
}

#[test]
fn batches_go_on_while_workers_are_killed_paused_and_drained() -> Result<()> {
    let mut cluster = started()?;
    let mut stream = Stream::new();
    stream.batch(&cluster, 0, EVENTS)?;
    while_batches_run(&mut cluster, &mut stream, |cluster| {
        cluster.kill(META)?;
        cluster.wait_for_workers(WORKERS - 1)
    })
    .context("killed")?;
    cluster.launch(META)?;
    cluster.wait_for_workers(WORKERS)?;
    while_batches_run(&mut cluster, &mut stream, |cluster| {
        cluster.signal(META + 1, "-STOP")?;
        // Long enough that the leader takes it for dead.
        cluster.wait_for_workers(WORKERS - 1)?;
        cluster.signal(META + 1, "-CONT")?;
        cluster.wait_for_workers(WORKERS)
    })
    .context("paused")?;
    let node = cluster.worker_id(META + 2)?;
    let client = cluster.client(0)?;
    client.run(&["cluster", "drain", &node.to_string()])?;
    cluster.wait_for_workers(WORKERS - 1)?;
    stream.batch(&cluster, 1, EVENTS)?;
    ensure!(
        cluster.terminate(META + 2)? == Some(0),
        "{}",
        cluster.logs()
    );
    cluster.launch(META + 2)?;
    cluster.wait_for_workers(WORKERS)?;
    stream.batch(&cluster, 2, EVENTS)?;
    let keyless = stream.all.iter().filter(|event| event.id.is_none()).count();
    ensure!(cluster.client(1)?.rejects("t")?.len() == keyless, "rejects");
    Ok(())
}

#[test]
fn a_large_batch_goes_through_workers_with_little_memory() -> Result<()> {
    let count = match std::env::var(EVENTS_VARIABLE) {
        Ok(count) => count.parse()?,
        Err(_) => LARGE_EVENTS,
    };
    let mut cluster = started()?;
    Stream::new().batch(&cluster, 0, count)?;
    for number in 0..META + WORKERS {
        let bytes = cluster.memory_bytes_max(number)?;
        println!("node {number}: {} MiB", bytes >> 20);
        ensure!(bytes < 1 << 30, "node {number} took {bytes} bytes");
    }
    Ok(())
}
