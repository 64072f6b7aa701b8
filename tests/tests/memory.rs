//! Batches that are many times larger than their memory make the table, the feed and the counts that a
//! plain fold of the events makes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tidegate_tests::embedded::InProcess;
use tidegate_tests::harness::{EventFile, FeedRequest, Harness};

/// Memory of a batch, bytes: a small part of what its events take.
const MEMORY_BYTES: u64 = 1 << 20;
/// Events of a batch.
const EVENTS: u64 = 60_000;
/// The key that nearly half of all events have.
const HOT_KEY: i64 = 7;

const SPEC: &str = "\
name: t
keys: [id]
sequence_by: seq
apply_as_deletes: \"op = 'D'\"
except_column_list: [op]
change_data_feed: true
on_invalid: quarantine
schema:
  - {name: id, type: long}
  - {name: seq, type: long}
  - {name: op, type: string}
  - {name: v, type: string}
";

#[derive(Clone, Debug)]
struct Event {
    id: Option<i64>,
    seq: u64,
    is_delete: bool,
}

impl Event {
    fn value(&self) -> String {
        format!("{:?} at {}, {}", self.id, self.seq, "x".repeat(40))
    }

    fn json(&self) -> String {
        let op = if self.is_delete { "D" } else { "U" };
        json!({"id": self.id, "seq": self.seq, "op": op, "v": self.value()}).to_string()
    }
}

/// Events in random order; each sequence once, some events twice, some without a key.
fn events(random: &mut StdRng, first: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for seq in first..first + EVENTS {
        let id = match random.random_range(0..100) {
            0..45 => Some(HOT_KEY),
            // Neighbours share a key hash.
            45..70 => Some(random.random_range(2_048..2_148)),
            70..95 => Some(random.random_range(0..50_000)),
            _ => None,
        };
        let is_delete = random.random_bool(0.2);
        let event = Event { id, seq, is_delete };
        if random.random_bool(0.05) {
            events.push(event.clone());
        }
        events.push(event);
    }
    events.shuffle(random);
    events
}

type Table = BTreeMap<i64, (u64, String)>;

/// The newest event of each key decides.
fn fold(all: &[Event]) -> Table {
    let mut newest: BTreeMap<i64, &Event> = BTreeMap::new();
    for event in all {
        let Some(id) = event.id else { continue };
        let known = newest.entry(id).or_insert(event);
        if event.seq > known.seq {
            *known = event;
        }
    }
    let live = newest.into_iter().filter(|(_, event)| !event.is_delete);
    live.map(|(id, event)| (id, (event.seq, event.value())))
        .collect()
}

fn table_of(rows: &[Value]) -> Result<Table> {
    let cell = |row: &Value| {
        let value = row.get("v")?.as_str()?.to_owned();
        Some((row.get("id")?.as_i64()?, (row.get("seq")?.as_u64()?, value)))
    };
    let table: Table = rows
        .iter()
        .map(|row| cell(row).with_context(|| format!("row {row}")))
        .collect::<Result<_>>()?;
    ensure!(table.len() == rows.len(), "a key has two rows");
    Ok(table)
}

/// Applies a change feed to a table.
fn apply_feed(table: &mut Table, feed: &[Value]) -> Result<()> {
    for row in feed {
        let kind = row.get("_change_type").and_then(Value::as_str);
        let one = table_of(std::slice::from_ref(row))?;
        let (id, value) = one.into_iter().next().context("no row")?;
        match kind {
            Some("delete" | "update_preimage") => {
                let old = table.remove(&id);
                ensure!(old.as_ref() == Some(&value), "{row} takes {old:?} away");
            }
            Some("insert" | "update_postimage") => {
                let old = table.insert(id, value);
                ensure!(old.is_none(), "{row} comes over {old:?}");
            }
            _ => anyhow::bail!("change {row}"),
        }
    }
    Ok(())
}

fn check_counts(result: &Value, before: &Table, after: &Table, events: &[Event]) -> Result<()> {
    let appeared = after.keys().filter(|id| !before.contains_key(id)).count();
    let gone = before.keys().filter(|id| !after.contains_key(id)).count();
    let (taken, keyless): (Vec<&Event>, Vec<&Event>) =
        events.iter().partition(|event| event.id.is_some());
    let mut counts = vec![
        ("events", events.len()),
        ("inserted", appeared),
        ("deleted", gone),
        ("quarantined", keyless.len()),
        ("ties", 0),
    ];
    if before.is_empty() {
        // Later batches also repeat what is stored.
        let distinct: BTreeSet<u64> = taken.iter().map(|event| event.seq).collect();
        counts.push(("duplicates", taken.len() - distinct.len()));
    }
    for (name, count) in counts {
        let found = result.get(name).and_then(Value::as_u64);
        ensure!(
            found == Some(count as u64),
            "{name} is not {count}: {result}"
        );
    }
    Ok(())
}

#[test]
fn batches_beyond_their_memory_make_the_same_table_feed_and_counts() -> Result<()> {
    let tidegate = InProcess::with_memory(MEMORY_BYTES)?;
    tidegate.create(SPEC)?;
    let mut random = StdRng::seed_from_u64(5);
    let (mut all, mut folded, mut keyless) = (Vec::new(), Table::new(), 0);
    for batch in 0..3 {
        // Later batches repeat some of the events before.
        let mut own = events(&mut random, 1 + batch * EVENTS);
        own.extend(all.iter().step_by(17).cloned());
        let lines: Vec<String> = own.iter().map(Event::json).collect();
        let file = EventFile::json_lines("events.jsonl", lines.iter().map(String::as_str));
        let result = tidegate.apply("t", &format!("batch-{batch}"), &[file])?;
        let before = fold(&all);
        keyless += own.iter().filter(|event| event.id.is_none()).count();
        all.extend(own.iter().cloned());
        let (expected, found) = (fold(&all), table_of(&tidegate.read("t", None)?)?);
        let rows = (found.len(), expected.len());
        ensure!(
            found == expected,
            "batch {batch}: another table: rows {rows:?}"
        );
        check_counts(&result, &before, &expected, &own)?;
        let version = i64::try_from(batch + 1)?;
        let request = FeedRequest::Range {
            from: Some(version),
            to: Some(version),
            allow_out_of_range: false,
        };
        apply_feed(&mut folded, &tidegate.changes("t", request)?)?;
        ensure!(
            folded == expected,
            "the feed of version {version} leads elsewhere"
        );
    }
    let rejects = tidegate.rejects("t")?.len();
    ensure!(
        rejects == keyless && keyless > 5_000,
        "{rejects} rejects of {keyless}"
    );
    Ok(())
}
