//! Random events of one table, and the plain fold that says what they make of it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use serde_json::{Value, json};

/// The key that nearly half of all events have.
const HOT_KEY: i64 = 7;

/// The spec of the table that the events go to, called `t`.
pub const SPEC: &str = "\
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

/// A change event.
#[derive(Clone, Debug)]
pub struct Event {
    /// The key; None is invalid.
    pub id: Option<i64>,
    /// The sequence.
    pub seq: u64,
    /// Whether it deletes.
    pub is_delete: bool,
}

impl Event {
    fn value(&self) -> String {
        format!("{:?} at {}, {}", self.id, self.seq, "x".repeat(40))
    }

    /// The event as a line.
    #[must_use]
    pub fn json(&self) -> String {
        let op = if self.is_delete { "D" } else { "U" };
        json!({"id": self.id, "seq": self.seq, "op": op, "v": self.value()}).to_string()
    }
}

/// So many events and more, in random order; each sequence once, some events twice, some without a key.
pub fn events(random: &mut StdRng, first: u64, count: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for seq in first..first + count {
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

/// Sequence and value by key.
pub type Table = BTreeMap<i64, (u64, String)>;

/// The table that the events make: the newest event of each key decides.
#[must_use]
pub fn fold(all: &[Event]) -> Table {
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

/// The rows as a table.
///
/// # Errors
/// When they are no rows of it, or a key has two.
pub fn table_of(rows: &[Value]) -> Result<Table> {
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
///
/// # Errors
/// Where the feed does not fit the table.
pub fn apply_feed(table: &mut Table, feed: &[Value]) -> Result<()> {
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

/// Checks what a batch counted.
///
/// # Errors
/// The first count that is wrong.
pub fn check_counts(result: &Value, before: &Table, after: &Table, events: &[Event]) -> Result<()> {
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
