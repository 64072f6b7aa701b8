//! Every scenario case on disk, end to end, as written and in other orders and batches.

use std::sync::Mutex;

use anyhow::{Result, ensure};
use tidegate_tests::binary::Binary;
use tidegate_tests::case::{self, Case};
use tidegate_tests::embedded::InProcess;
use tidegate_tests::workspace;

/// Seeds of shuffling, splitting and duplicating for each order-free case.
const SEEDS: u64 = 20;

/// Bytes of memory in which some events of a case go to files and some do not.
const LITTLE_MEMORY: u64 = 100_000;

/// Runs a check on every case, two at a time, and names each that fails.
fn check_all(cases: &[Case], check: impl Fn(&Case) -> Result<()> + Sync) -> Result<()> {
    let failures = Mutex::new(Vec::new());
    let next = Mutex::new(cases.iter());
    let work = || {
        while let Some(case) = next.lock().ok().and_then(|mut cases| cases.next()) {
            if let (Err(error), Ok(mut failures)) = (check(case), failures.lock()) {
                failures.push(format!("{}: {error:#}", case.id));
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let mut failed = failures
        .into_inner()
        .map_err(|_| anyhow::anyhow!("a case panicked"))?;
    failed.sort();
    ensure!(
        failed.is_empty(),
        "{} of {} cases fail:\n{}",
        failed.len(),
        cases.len(),
        failed.join("\n")
    );
    Ok(())
}

#[test]
fn every_case_passes_on_the_command_line() -> Result<()> {
    let cases = case::discover(&workspace::tests_dir("cases"))?;
    check_all(&cases, |case| case.run(&Binary::new()?))
}

#[test]
fn order_free_cases_pass_in_any_order_and_batching() -> Result<()> {
    let mut cases = case::discover(&workspace::tests_dir("cases"))?;
    cases.retain(|case| case.order_free);
    check_all(&cases, |case| {
        (0..SEEDS).try_for_each(|seed| {
            let harness = match seed % 4 {
                3 => InProcess::with_memory(LITTLE_MEMORY)?,
                _ => InProcess::new()?,
            };
            case.run_shuffled(&harness, seed)
        })
    })
}

#[test]
fn every_case_passes_in_little_memory() -> Result<()> {
    let cases = case::discover(&workspace::tests_dir("cases"))?;
    check_all(&cases, |case| {
        [0, LITTLE_MEMORY]
            .into_iter()
            .try_for_each(|bytes| case.run(&InProcess::with_memory(bytes)?))
    })
}
