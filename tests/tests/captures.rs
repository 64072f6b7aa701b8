//! Real change streams: each table equals its source at every moment of which there is a dump.

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use tidegate_tests::capture::{Capture, CapturedTable, LARGE_PG, PG_DEFAULT, PG_STRING};
use tidegate_tests::difference::{self, Difference};
use tidegate_tests::embedded::InProcess;
use tidegate_tests::harness::{EventFile, Harness};
use tidegate_tests::readers;
use tidegate_tests::workspace;

/// Orders in which a stream is given besides its own.
const SEEDS: u64 = 3;

/// Columns that a key change carries from the old key: the stream does not hold them, so they need both
/// halves of the change in one batch and in order (R-K6).
const CARRIED: [(&str, &str, &[&str]); 1] = [("docs", "104", &["body", "meta", "bin", "tags"])];

fn expected(capture: &Capture) -> Result<std::collections::BTreeMap<Difference, String>> {
    let folder = workspace::tests_dir("captures/expected-differences");
    difference::expected(&folder.join(format!("{}.csv", capture.name)))
}

fn replay(capture: &Capture, tidegate: &InProcess) -> Result<()> {
    let lines = capture.lines()?;
    let mut differences = Vec::new();
    for table in capture.tables()? {
        differences.extend(capture.replay(tidegate, &table, &lines)?);
    }
    difference::check(&differences, &expected(capture)?)
}

fn equals_its_source_at_every_stage(capture: &Capture) -> Result<()> {
    let tidegate = InProcess::new()?;
    replay(capture, &tidegate)?;
    readers::check_python(tidegate.local())?;
    readers::check_kernel(tidegate.local())
}

#[test]
fn pg_default_equals_its_source_at_every_stage() -> Result<()> {
    equals_its_source_at_every_stage(&PG_DEFAULT)
}

#[test]
fn pg_string_equals_its_source_at_every_stage() -> Result<()> {
    equals_its_source_at_every_stage(&PG_STRING)
}

#[test]
fn large_pg_equals_its_source_at_every_stage() -> Result<()> {
    equals_its_source_at_every_stage(&LARGE_PG)
}

/// Key changes with unavailable values among them: the halves meet in files (R-K6).
#[test]
fn pg_default_equals_its_source_in_no_memory() -> Result<()> {
    replay(&PG_DEFAULT, &InProcess::with_memory(0)?)
}

#[test]
fn large_pg_equals_its_source_in_little_memory() -> Result<()> {
    replay(&LARGE_PG, &InProcess::with_memory(8 << 20)?)
}

fn is_carried(one: &Difference) -> bool {
    CARRIED.iter().any(|(table, key, columns)| {
        one.table == *table && one.key == *key && columns.contains(&one.column.as_str())
    })
}

/// Applies records in batches of random sizes and compares the end.
fn check_end(
    capture: &Capture,
    table: &CapturedTable,
    records: &[&str],
    random: &mut StdRng,
) -> Result<()> {
    let tidegate = InProcess::new()?;
    tidegate.create(&table.text)?;
    let name = &table.spec.name;
    let mut rest = records;
    let mut batch = 0;
    while !rest.is_empty() {
        let longest = rest.len().min(records.len().div_ceil(3));
        let (part, after) = rest.split_at(random.random_range(1..=longest));
        let file = EventFile::json_lines("events.jsonl", part.iter().copied());
        tidegate.apply(name, &format!("part-{batch}"), &[file])?;
        batch += 1;
        rest = after;
    }
    let stage = capture.last_stage();
    let mut found = capture.differences(stage, table, &tidegate.read(name, None)?)?;
    found.retain(|one| !is_carried(one));
    let mut wanted = expected(capture)?;
    wanted.retain(|one, _| one.stage == stage.name && one.table == *name && !is_carried(one));
    difference::check(&found, &wanted).with_context(|| format!("{name} of {}", capture.name))
}

fn equals_its_source_in_any_order(capture: &Capture) -> Result<()> {
    let lines = capture.lines()?;
    for table in capture.tables()? {
        for seed in 0..SEEDS {
            let mut random = StdRng::seed_from_u64(seed);
            let mut records = capture.records_for(&table, &lines);
            // In its own order but cut elsewhere, then shuffled with some records twice.
            if seed > 0 {
                let again: Vec<&str> = records
                    .iter()
                    .filter(|_| random.random_bool(0.2))
                    .copied()
                    .collect();
                records.extend(again);
                records.shuffle(&mut random);
            }
            check_end(capture, &table, &records, &mut random)
                .with_context(|| format!("seed {seed}"))?;
        }
    }
    Ok(())
}

#[test]
fn pg_default_equals_its_source_in_any_order_and_batching() -> Result<()> {
    equals_its_source_in_any_order(&PG_DEFAULT)
}

#[test]
fn pg_string_equals_its_source_in_any_order_and_batching() -> Result<()> {
    equals_its_source_in_any_order(&PG_STRING)
}

/// The whole stream again under another batch id changes no row.
fn is_unchanged_by_the_stream_again(capture: &Capture) -> Result<()> {
    let tidegate = InProcess::new()?;
    let lines = capture.lines()?;
    for table in capture.tables()? {
        let name = &table.spec.name;
        tidegate.create(&table.text)?;
        let all = EventFile::json_lines("events.jsonl", capture.records_for(&table, &lines));
        tidegate.apply(name, "once", std::slice::from_ref(&all))?;
        let once = tidegate.read(name, None)?;
        let result = tidegate.apply(name, "twice", &[all])?;
        for counter in ["inserted", "updated", "deleted"] {
            let count = result.get(counter).and_then(serde_json::Value::as_u64);
            ensure!(
                count == Some(0),
                "{name}: {counter} is {count:?} the second time"
            );
        }
        ensure!(
            tidegate.read(name, None)? == once,
            "{name} is another table after the second time"
        );
    }
    Ok(())
}

#[test]
fn pg_default_is_unchanged_by_the_stream_again() -> Result<()> {
    is_unchanged_by_the_stream_again(&PG_DEFAULT)
}

#[test]
fn pg_string_is_unchanged_by_the_stream_again() -> Result<()> {
    is_unchanged_by_the_stream_again(&PG_STRING)
}
