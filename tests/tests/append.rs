//! Tables without key hold each row of a stream once, whatever comes again and in whatever order.

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;
use tidegate_tests::binary::Binary;
use tidegate_tests::capture::{Capture, CapturedTable, LARGE_PG, PG_DEFAULT, PG_STRING, Stage};
use tidegate_tests::embedded::InProcess;
use tidegate_tests::harness::{EventFile, FeedRequest, Harness};
use tidegate_tests::readers;

/// Orders in which a stream is given besides its own.
const SEEDS: u64 = 5;

fn is_source(
    capture: &Capture,
    stage: Stage,
    table: &CapturedTable,
    tidegate: &InProcess,
) -> Result<()> {
    let rows = tidegate.read(&table.spec.name, None)?;
    let uncommon = capture.uncommon_rows(stage, table, &rows)?;
    let name = format!("{} of {}, {}", table.spec.name, capture.name, stage.name);
    ensure!(uncommon.is_empty(), "{name}:\n{}", uncommon.join("\n"));
    Ok(())
}

/// The connector of one of the captures was killed and sent its stream again under new offsets.
#[test]
fn a_log_equals_its_source_at_every_stage() -> Result<()> {
    for capture in [PG_DEFAULT, PG_STRING] {
        let tidegate = InProcess::new()?;
        let table = capture.appended("log_only")?;
        tidegate.create(&table.text)?;
        let lines = capture.lines()?;
        let mut applied = 0;
        for stage in capture.stages {
            let until = stage.records.unwrap_or(lines.len());
            let part = lines.get(applied..until).context("too short")?;
            let file = EventFile::json_lines("events.jsonl", capture.records_for(&table, part));
            tidegate.apply(&table.spec.name, stage.name, &[file])?;
            is_source(&capture, *stage, &table, &tidegate)?;
            applied = until;
        }
        feed_is_inserts_alone(&tidegate, &table)?;
        readers::check_python(tidegate.local())?;
        readers::check_kernel(tidegate.local())?;
    }
    Ok(())
}

#[test]
fn a_log_equals_its_source_in_any_order_and_batching() -> Result<()> {
    for capture in [PG_DEFAULT, PG_STRING] {
        let table = capture.appended("log_only")?;
        let lines = capture.lines()?;
        for seed in 0..SEEDS {
            let mut random = StdRng::seed_from_u64(seed);
            let mut records = capture.records_for(&table, &lines);
            records.extend(records.clone());
            records.shuffle(&mut random);
            let tidegate = InProcess::new()?;
            tidegate.create(&table.text)?;
            let mut rest = records.as_slice();
            let mut batch = 0;
            while !rest.is_empty() {
                let longest = rest.len().min(records.len() / 3);
                let (part, after) = rest.split_at(random.random_range(1..=longest));
                let name = format!("part-{}.jsonl", random.random_range(0..3));
                let file = EventFile::json_lines(&name, part.iter().copied());
                tidegate.apply(&table.spec.name, &format!("part-{batch}"), &[file])?;
                batch += 1;
                rest = after;
            }
            is_source(&capture, capture.last_stage(), &table, &tidegate)
                .with_context(|| format!("seed {seed}"))?;
        }
    }
    Ok(())
}

/// 604 of the 18,604 inserts come twice. The source dumped its history at the first stage; at the end it
/// emptied it, but each transaction adds its delta to the history and to the branch's balance.
#[test]
fn a_history_equals_its_source_and_then_the_balance() -> Result<()> {
    let capture = LARGE_PG;
    let tidegate = InProcess::new()?;
    let table = capture.appended("pgbench_history")?;
    let name = &table.spec.name;
    tidegate.create(&table.text)?;
    let lines = capture.lines()?;
    let middle = *capture.stages.first().context("no stage")?;
    let until = middle.records.context("no middle")?;
    let (before, after) = lines.split_at(until);
    let file = |part| EventFile::json_lines("events.jsonl", capture.records_for(&table, part));
    tidegate.apply(name, "before", &[file(before)])?;
    is_source(&capture, middle, &table, &tidegate)?;
    let result = tidegate.apply(name, "after", &[file(after)])?;
    let count = |of: &str| result.get(of).and_then(Value::as_u64);
    ensure!(count("ignored") == Some(1), "{result}");
    ensure!(count("duplicates") == Some(604), "{result}");
    ensure!(count("inserted") == Some(12_000), "{result}");
    let rows = tidegate.read(name, None)?;
    ensure!(rows.len() == 18_000, "{} rows", rows.len());
    let deltas = rows.iter().filter_map(|row| row.get("delta")?.as_i64());
    let sum: i64 = deltas.sum();
    ensure!(Some(sum) == balance(&lines), "the deltas sum to {sum}");
    feed_is_inserts_alone(&tidegate, &table)
}

/// The balance of the only branch after its last update.
fn balance(lines: &[String]) -> Option<i64> {
    let updates = lines
        .iter()
        .filter(|line| line.contains("\"topic\":\"bench.public.pgbench_branches\""));
    let records = updates.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let last = records.max_by_key(|record| {
        record
            .pointer("/value/source/lsn")
            .and_then(Value::as_i64)
            .unwrap_or_default()
    })?;
    last.pointer("/value/after/bbalance")?.as_i64()
}

fn feed_is_inserts_alone(tidegate: &InProcess, table: &CapturedTable) -> Result<()> {
    let request = FeedRequest::Range {
        from: Some(1),
        to: None,
        allow_out_of_range: false,
    };
    let changes = tidegate.changes(&table.spec.name, request)?;
    let kind = |row: &Value| row.get("_change_type").and_then(Value::as_str) == Some("insert");
    ensure!(changes.iter().all(kind), "a change that is no insert");
    let rows = tidegate.read(&table.spec.name, None)?.len();
    ensure!(changes.len() == rows, "{} inserts", changes.len());
    Ok(())
}

const CLICKS: &str = "name: clicks\nmode: append\nschema:\n  - {name: n, type: long}\n";

fn clicks(name: &str, numbers: std::ops::Range<i64>) -> EventFile {
    let lines: Vec<String> = numbers.map(|n| format!("{{\"n\":{n}}}")).collect();
    EventFile::json_lines(name, lines.iter().map(String::as_str))
}

fn numbers(tidegate: &Binary) -> Result<Vec<i64>> {
    let bytes = tidegate.run(&["read", "clicks", "--order", "-o", "jsonl"])?;
    let rows = std::str::from_utf8(&bytes)?.lines().map(|line| {
        let row: Value = serde_json::from_str(line)?;
        row.get("n").and_then(Value::as_i64).context("no number")
    });
    rows.collect()
}

fn copied(from: &std::path::Path, to: &std::path::Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copied(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// A copy that is adopted knows which records it has: all that it needs lies in the table.
#[test]
fn an_adopted_copy_goes_on_where_the_original_stood() -> Result<()> {
    let original = Binary::new()?;
    original.create(CLICKS)?;
    original.apply("clicks", "b", &[clicks("b.jsonl", 100..103)])?;
    original.apply("clicks", "a", &[clicks("a.jsonl", 0..12)])?;
    let in_order: Vec<i64> = (0..12).chain(100..103).collect();
    ensure!(
        numbers(&original)? == in_order,
        "not in the order of places"
    );

    let copy = Binary::new()?;
    let below = ["lake", "clicks"].iter().collect::<std::path::PathBuf>();
    let location = copy.local().join(&below);
    copied(&original.local().join(&below), &location)?;
    copy.run(&["table", "adopt", &location.to_string_lossy()])?;
    for tidegate in [&original, &copy] {
        let grown = clicks("a.jsonl", 0..14);
        let result = tidegate.apply("clicks", "grown", &[grown, clicks("b.jsonl", 100..103)])?;
        let count = |of: &str| result.get(of).and_then(Value::as_u64);
        ensure!(count("inserted") == Some(2), "{result}");
        ensure!(count("duplicates") == Some(15), "{result}");
        let in_order: Vec<i64> = (0..14).chain(100..103).collect();
        ensure!(numbers(tidegate)? == in_order, "not in the order of places");
    }
    Ok(())
}
