//! The same tables, whoever works on them: cases, captures and histories through one, two and four workers on
//! ports of this machine, and one to 64 buckets.
//!
//! The gate takes a sample in which every number of workers meets some numbers of buckets;
//! `TIDEGATE_WORKERS=all cargo test --test workers -- --nocapture` runs all of them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow, ensure};
use tidegate_simulation::drivers::check;
use tidegate_simulation::drivers::embedded::EmbeddedDriver;
use tidegate_simulation::histories::random_history;
use tidegate_tests::capture::{Capture, LARGE_PG, PG_DEFAULT};
use tidegate_tests::case;
use tidegate_tests::difference;
use tidegate_tests::embedded::InProcess;
use tidegate_tests::grid::{Grid, GridOptions};
use tidegate_tests::harness::WithBuckets;
use tidegate_tests::workspace;

/// Workers and buckets of the gate.
const SAMPLE: [(u32, u32); 6] = [(1, 16), (2, 1), (4, 64), (2, 4), (1, 2), (4, 8)];
/// Memory of a batch where some of its events go to files.
const LITTLE_MEMORY: u64 = 200_000;
/// Memory of a batch otherwise.
const MEMORY: u64 = 256 << 20;
/// Histories of the gate.
const HISTORIES: u64 = 60;

/// Every pair, or what of the sample falls to the case.
fn pairs(case: usize) -> Vec<(u32, u32)> {
    if std::env::var("TIDEGATE_WORKERS").is_ok_and(|all| all == "all") {
        let buckets = [1, 2, 4, 8, 16, 32, 64];
        let of = |workers| buckets.map(|buckets| (workers, buckets));
        return [1, 2, 4].into_iter().flat_map(of).collect();
    }
    SAMPLE.into_iter().cycle().skip(case).take(1).collect()
}

fn on_workers(workers: u32, buckets: u32, memory_bytes: u64) -> Result<WithBuckets<InProcess>> {
    let harness = InProcess::with_workers(memory_bytes, |data| {
        let options = GridOptions {
            workers,
            memory_bytes,
            hook: None,
        };
        Ok(Grid::start(data, &options)?.workers())
    })?;
    Ok(WithBuckets { harness, buckets })
}

/// Runs checks on two threads; names each that fails.
fn all_of(count: usize, one: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            if let (Err(error), Ok(mut failures)) = (one(number), failures.lock()) {
                failures.push(format!("{number}: {error:#}"));
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let failed = failures
        .into_inner()
        .map_err(|_| anyhow!("a check panicked"))?;
    ensure!(
        failed.is_empty(),
        "{} of {count} fail:\n{}",
        failed.len(),
        failed.join("\n")
    );
    Ok(())
}

#[test]
fn every_case_passes_on_workers() -> Result<()> {
    let cases = case::discover(&workspace::tests_dir("cases"))?;
    all_of(cases.len(), |number| {
        let case = cases.get(number).context("no case")?;
        for (workers, buckets) in pairs(number) {
            let memory = if number % 3 == 0 {
                LITTLE_MEMORY
            } else {
                MEMORY
            };
            let harness = on_workers(workers, buckets, memory)?;
            case.run(&harness).with_context(|| {
                format!("{} with {workers} workers and {buckets} buckets", case.id)
            })?;
        }
        Ok(())
    })
}

fn replay(capture: &Capture, shift: usize, memory_bytes: u64) -> Result<()> {
    let lines = capture.lines()?;
    let folder = workspace::tests_dir("captures/expected-differences");
    let expected = difference::expected(&folder.join(format!("{}.csv", capture.name)))?;
    for (workers, buckets) in pairs(shift) {
        let tidegate = on_workers(workers, buckets, memory_bytes)?;
        let mut differences = Vec::new();
        for table in capture.tables()? {
            differences.extend(capture.replay(&tidegate, &table, &lines)?);
        }
        difference::check(&differences, &expected)
            .with_context(|| format!("{workers} workers and {buckets} buckets"))?;
    }
    Ok(())
}

/// Key changes that carry values need all their events in one place (R-K6).
#[test]
fn pg_default_equals_its_source_on_workers() -> Result<()> {
    replay(&PG_DEFAULT, 3, MEMORY)
}

#[test]
fn large_pg_equals_its_source_on_workers_with_little_memory() -> Result<()> {
    replay(&LARGE_PG, 2, 8 << 20)
}

#[test]
fn histories_agree_with_the_model_on_workers() -> Result<()> {
    let histories = match std::env::var("TIDEGATE_WORKERS_HISTORIES") {
        Ok(count) => count.parse()?,
        Err(_) => HISTORIES,
    };
    all_of(usize::try_from(histories)?, |number| {
        let seed = number as u64;
        let history = random_history(seed);
        let workers = 1 + u32::try_from(seed % 4)?;
        let memory = seed.is_multiple_of(3).then_some(LITTLE_MEMORY);
        let driver = EmbeddedDriver::with_workers(&history, 7, memory, |data| {
            let options = GridOptions {
                workers,
                memory_bytes: memory.unwrap_or(MEMORY),
                hook: None,
            };
            let grid = Grid::start(data, &options).map_err(|e| format!("{e:#}"))?;
            Ok(grid.workers())
        });
        let mut driver = driver.map_err(|e| anyhow!("{e}"))?;
        let agreement = check(&history, &mut driver);
        agreement
            .map(drop)
            .map_err(|e| anyhow!("{workers} workers: {e}"))
    })
}
