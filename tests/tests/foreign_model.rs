//! Batches and commits of others in any order, against a model that says what each of them means.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tidegate_tests::embedded::InProcess;
use tidegate_tests::foreign::{Appender, BlindWriter};
use tidegate_tests::harness::{EventFile, Harness};
use tidegate_tests::readers;

const TABLE: &str = "modelled";
/// Random histories.
const SEEDS: u64 = 6;
/// Batches of a history; between two of them others commit something or nothing.
const BATCHES: u64 = 12;
/// Keys that events name; those that only others write lie above.
const KEYS: i64 = 12;

/// What is known of a key: a row, the greatest delete.
#[derive(Clone, Debug, Default)]
struct State {
    row: Option<Row>,
    delete: Option<i64>,
}

#[derive(Clone, Debug, PartialEq)]
struct Row {
    /// None is below all: no event wrote the row.
    seq: Option<i64>,
    n: i64,
    /// Whether another engine gave it its value.
    foreign: bool,
}

#[derive(Default)]
struct Model(BTreeMap<i64, State>);

impl Model {
    fn upsert(&mut self, id: i64, seq: i64, n: i64) {
        let state = self.0.entry(id).or_default();
        let wins = match &state.row {
            None => true,
            Some(row) if row.seq == Some(seq) => !row.foreign && n > row.n,
            Some(row) => row.seq < Some(seq),
        };
        if wins && state.delete.is_none_or(|delete| seq >= delete) {
            let foreign = false;
            state.row = Some(Row {
                seq: Some(seq),
                n,
                foreign,
            });
        }
    }

    fn delete(&mut self, id: i64, seq: i64) {
        let state = self.0.entry(id).or_default();
        state.delete = state.delete.max(Some(seq));
        state.row = state.row.take().filter(|row| row.seq >= Some(seq));
    }

    /// Another engine's rows take the place of all.
    fn replace(&mut self, rows: &BTreeMap<i64, i64>) {
        for (id, state) in &mut self.0 {
            match (rows.get(id), &mut state.row) {
                (Some(n), Some(row)) if *n != row.n => {
                    row.n = *n;
                    row.foreign = true;
                }
                (None, Some(row)) => {
                    state.delete = state.delete.max(row.seq);
                    state.row = None;
                }
                _ => {}
            }
        }
        for (id, n) in rows {
            let state = self.0.entry(*id).or_default();
            state.row.get_or_insert(Row {
                seq: None,
                n: *n,
                foreign: false,
            });
        }
    }

    fn rows(&self) -> BTreeMap<i64, i64> {
        let rows = self.0.iter();
        rows.filter_map(|(id, state)| Some((*id, state.row.as_ref()?.n)))
            .collect()
    }

    /// Whether another engine may bring the key: nothing is known of it.
    fn is_free(&self, id: i64) -> bool {
        self.0
            .get(&id)
            .is_none_or(|s| s.row.is_none() && s.delete.is_none())
    }
}

fn row(id: i64, n: i64) -> Value {
    json!({"id": id, "note": "x", "n": n})
}

/// Others rewrite, change and delete some rows and bring some.
fn rewrite(model: &mut Model, blind: &BlindWriter, random: &mut StdRng) -> Result<()> {
    let mut rows = model.rows();
    let (changes, deletes) = (random.random_range(0..4), random.random_range(0..3));
    let ids: Vec<i64> = rows.keys().copied().collect();
    for _ in 0..changes {
        if let Some(id) = ids.choose(random) {
            rows.insert(*id, random.random_range(0..5));
        }
    }
    for _ in 0..deletes {
        if let Some(id) = ids.choose(random) {
            rows.remove(id);
        }
    }
    for _ in 0..random.random_range(0..3) {
        let id = random.random_range(0..2 * KEYS);
        if model.is_free(id) {
            rows.insert(id, random.random_range(0..5));
        }
    }
    let objects: Vec<Value> = rows.iter().map(|(id, n)| row(*id, *n)).collect();
    blind.replace(&objects, random.random_bool(0.5))?;
    model.replace(&rows);
    Ok(())
}

fn append(model: &mut Model, blind: &BlindWriter, random: &mut StdRng) -> Result<()> {
    let mut rows = model.rows();
    let mut new = Vec::new();
    for _ in 0..3 {
        let id = random.random_range(0..2 * KEYS);
        if model.is_free(id) && !rows.contains_key(&id) {
            rows.insert(id, 3);
            new.push(row(id, 3));
        }
    }
    if !new.is_empty() {
        blind.append(&new)?;
    }
    model.replace(&rows);
    Ok(())
}

fn events(model: &mut Model, random: &mut StdRng) -> Vec<String> {
    let mut lines = Vec::new();
    for _ in 0..random.random_range(1..6) {
        let (id, seq) = (random.random_range(0..2 * KEYS), random.random_range(-3..9));
        let event = match random.random_bool(0.3) {
            true => {
                model.delete(id, seq);
                json!({"id": id, "op": "D", "seq": seq})
            }
            false => {
                let n = random.random_range(0..5);
                model.upsert(id, seq, n);
                json!({"id": id, "op": "U", "seq": seq, "note": "x", "n": n})
            }
        };
        lines.push(event.to_string());
    }
    lines
}

fn run(seed: u64) -> Result<InProcess> {
    let mut random = StdRng::seed_from_u64(seed);
    let tidegate = InProcess::new()?;
    let feed = if seed.is_multiple_of(2) {
        json!(true)
    } else {
        json!("inferred")
    };
    let spec = json!({
        "name": TABLE,
        "schema": [
            {"name": "id", "type": "long"}, {"name": "op", "type": "string"},
            {"name": "seq", "type": "long"}, {"name": "note", "type": "string"},
            {"name": "n", "type": "long"},
        ],
        "keys": ["id"], "sequence_by": "seq", "apply_as_deletes": "op = 'D'",
        "except_column_list": ["op", "seq"], "change_data_feed": feed,
    });
    tidegate.create(&spec.to_string())?;
    let blind = BlindWriter::new(&tidegate.local().join("lake").join(TABLE));
    let mut model = Model::default();
    for batch in 0..BATCHES {
        for _ in 0..random.random_range(0..3) {
            match random.random_bool(0.5) {
                true => rewrite(&mut model, &blind, &mut random)?,
                false => append(&mut model, &blind, &mut random)?,
            }
        }
        let lines = events(&mut model, &mut random);
        let file = EventFile::json_lines("e.jsonl", lines.iter().map(String::as_str));
        tidegate.apply(TABLE, &format!("batch-{batch}"), &[file])?;
        let mut found = BTreeMap::new();
        for row in tidegate.read(TABLE, None)? {
            let id = row["id"].as_i64().context("an id")?;
            ensure!(
                found.insert(id, row["n"].as_i64().context("n")?).is_none(),
                "key {id} twice"
            );
        }
        let expected = model.rows();
        ensure!(
            found == expected,
            "seed {seed} batch {batch}: {found:?}, not {expected:?}"
        );
    }
    ensure!(tidegate.conflicts().integrated > 0, "nothing was taken in");
    Ok(tidegate)
}

#[test]
fn a_table_of_two_writers_is_what_both_say() -> Result<()> {
    for seed in 0..SEEDS {
        let tidegate = run(seed).with_context(|| format!("seed {seed}"))?;
        readers::check_kernel(tidegate.local())?;
        // One without a feed that others read: deltalake's shows the dead rows of a file that was removed with its
        // vector instead of the live ones.
        if seed == 1 {
            readers::check_python(tidegate.local())?;
        }
    }
    Ok(())
}
