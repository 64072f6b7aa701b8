//! Batches race with somebody else who appends to the same table: nothing is lost on either side.
//!
//! `TIDEGATE_FOREIGN_RACES=100` runs as many races with each writer; without it a few.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tidegate_tests::embedded::InProcess;
use tidegate_tests::foreign::{Appender, BlindWriter, KernelWriter};
use tidegate_tests::harness::{EventFile, Harness};
use tidegate_tests::readers;

const TABLE: &str = "raced";
/// Races where nobody says how many.
const RACES_DEFAULT: i64 = 12;
/// Appends of a race.
const APPENDS: i64 = 2;

fn races() -> Result<i64> {
    match std::env::var("TIDEGATE_FOREIGN_RACES") {
        Ok(text) => Ok(text.parse()?),
        Err(_) => Ok(RACES_DEFAULT),
    }
}

fn create(mode: &Value) -> Result<InProcess> {
    let tidegate = InProcess::new()?;
    let mut spec = json!({
        "name": TABLE,
        "schema": [
            {"name": "id", "type": "long"}, {"name": "note", "type": "string"},
            {"name": "n", "type": "long"},
        ],
        "change_data_feed": true,
    });
    let fields = mode.as_object().context("fields are an object")?.clone();
    spec.as_object_mut()
        .context("a spec is an object")?
        .extend(fields);
    tidegate.create(&spec.to_string())?;
    Ok(tidegate)
}

fn keyed() -> Value {
    json!({"keys": ["id"], "sequence_by": "n"})
}

fn apply(tidegate: &InProcess, batch: i64, rows: &[Value]) -> Result<()> {
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    let file = EventFile::json_lines("events.jsonl", lines.iter().map(String::as_str));
    tidegate.apply(TABLE, &format!("race-{batch}"), &[file])?;
    Ok(())
}

fn row(id: i64, note: &str, n: i64) -> Value {
    json!({"id": id, "note": note, "n": n})
}

/// The key of an append of a race.
fn foreign_id(race: i64, append: i64) -> i64 {
    1_000_000 + race * APPENDS + append
}

/// One batch against some appends at the same time.
fn race(tidegate: &InProcess, other: &dyn Appender, race: i64, batch: &[Value]) -> Result<()> {
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let appending = scope.spawn(|| -> Result<()> {
            let mut random = StdRng::seed_from_u64(race.unsigned_abs());
            start.wait();
            for append in 0..APPENDS {
                thread::sleep(Duration::from_millis(random.random_range(0..25)));
                other.append(&[row(foreign_id(race, append), "foreign", race)])?;
            }
            Ok(())
        });
        start.wait();
        let applied = apply(tidegate, race, batch);
        appending
            .join()
            .map_err(|_| anyhow::anyhow!("the other writer panicked"))??;
        applied
    })
}

/// Each batch renews a row, adds one, and takes over a row that came from outside in the race before.
fn race_with(name: &str, other: impl Fn(&Path) -> Result<Box<dyn Appender>>) -> Result<()> {
    let tidegate = create(&keyed())?;
    let other = other(&tidegate.local().join("lake").join(TABLE))?;
    let mut expected = BTreeMap::new();
    apply(&tidegate, -1, &[row(0, "event", -1)])?;
    let races = races()?;
    for number in 0..races {
        let mut batch = vec![row(0, "event", number), row(number + 1, "event", number)];
        if number > 0 {
            batch.push(row(foreign_id(number - 1, 0), "event", number));
        }
        race(&tidegate, other.as_ref(), number, &batch)?;
        for append in 0..APPENDS {
            expected.insert(foreign_id(number, append), ("foreign", number));
        }
        for event in &batch {
            expected.insert(event["id"].as_i64().context("an id")?, ("event", number));
        }
    }
    apply(&tidegate, races, &[row(0, "event", races)])?;
    expected.insert(0, ("event", races));
    let counts = tidegate.conflicts();
    println!("{name}: {races} races, {counts:?}");
    let found = tidegate.read(TABLE, None)?;
    ensure!(found.len() == expected.len(), "rows were lost or doubled");
    for found in found {
        let id = found["id"].as_i64().context("an id")?;
        let own = (
            found["note"].as_str().context("a note")?,
            found["n"].as_i64().context("n")?,
        );
        ensure!(
            expected.get(&id) == Some(&own),
            "row {id} is {own:?}, not {:?}",
            expected.get(&id)
        );
    }
    ensure!(
        counts.recomputed > 0,
        "no batch met another commit: nothing was tested"
    );
    ensure!(counts.integrated > 0, "nothing was taken in");
    readers::check_python(tidegate.local())?;
    readers::check_kernel(tidegate.local())
}

#[test]
fn nothing_is_lost_beside_a_blind_writer() -> Result<()> {
    race_with("blind writer", |path| Ok(Box::new(BlindWriter::new(path))))
}

#[test]
fn nothing_is_lost_beside_delta_kernel() -> Result<()> {
    race_with("delta_kernel", |path| {
        Ok(Box::new(KernelWriter::new(path)?))
    })
}

#[test]
fn batches_of_a_table_without_key_move_behind_appends() -> Result<()> {
    let tidegate = create(&json!({"mode": "append", "keys": []}))?;
    let blind = BlindWriter::new(&tidegate.local().join("lake").join(TABLE));
    apply(&tidegate, -1, &[row(-1, "event", 0)])?;
    let races = races()?;
    for number in 0..races {
        race(&tidegate, &blind, number, &[row(number, "event", 0)])?;
    }
    let counts = tidegate.conflicts();
    println!("append table: {races} races, {counts:?}");
    let mut found: Vec<i64> = tidegate
        .read(TABLE, None)?
        .iter()
        .filter_map(|r| r["id"].as_i64())
        .collect();
    found.sort_unstable();
    let foreign = (0..races).flat_map(|race| (0..APPENDS).map(move |a| foreign_id(race, a)));
    let expected: Vec<i64> = (-1..races).chain(foreign).collect();
    ensure!(found == expected, "rows were lost or doubled: {found:?}");
    ensure!(counts.rebased > 0, "no batch moved: nothing was tested");
    ensure!(counts.recomputed == 0, "a batch was made anew for nothing");
    readers::check_python(tidegate.local())?;
    readers::check_kernel(tidegate.local())
}
