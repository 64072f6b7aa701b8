//! Random histories: a table and batches of events from a seed, dense in ties, NULLs, deletes,
//! truncates and duplicates; and the shrinking of those on which a check fails.
//!
//! - `tables`: the table, and with it the rules in reach;
//! - `pools`: few values, so that everything meets;
//! - `shrink`: the smallest history that still fails.
//!
//! What the rules leave open is not generated: conflicting ties of sparse events in row mode (R-T3b),
//! events below the purge horizon for keys without state, truncates beside tombstone retention.

mod pools;
mod shrink;
mod tables;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};

pub use self::shrink::shrink;
use self::tables::Table;
use crate::dice::Dice;
use crate::oracle::Oracle;
use crate::scenario::{Batch, Condition, FileFormat, JsonRow, Scenario};

/// The history that a seed names.
#[must_use]
pub fn random_history(seed: u64) -> Scenario {
    let dice = Dice::new(seed);
    // Long histories make the index merge its runs.
    let batch_count = if dice.percent(6) {
        dice.between(9, 14)
    } else {
        dice.between(1, 7)
    };
    let table = tables::random_table(&dice, batch_count);
    let mut events = EventMaker {
        dice: &dice,
        taken: BTreeSet::new(),
        past: Vec::new(),
        sent: Vec::new(),
        needs_unique: table.row_mode && (table.evolves() || dice.percent(25)),
        drifts: dice.percent(65),
        introduced: false,
        delete_percent: delete_percent(&dice, &table),
        batch_count,
        table: &table,
    };
    let mut scenario = Scenario {
        id: format!("seed-{seed}"),
        intent: String::new(),
        order_free: false,
        spec: table.spec.clone(),
        batches: Vec::new(),
        expect: None,
        reads: Vec::new(),
    };
    let mut now = 1_800_000_000;
    let mut batches = Vec::new();
    for index in 0..batch_count {
        now += *dice.pick(&[0, 10, 50, 100, 101, 150, -120]);
        let mut batch = events.batch(index);
        batch.at = table.spec.tombstone_retention_s.is_some().then_some(now);
        batches.push(batch);
    }
    scenario.batches = settle(&scenario, batches);
    scenario
}

/// Leaves out the events whose outcome the rules leave open.
fn settle(scenario: &Scenario, batches: Vec<Batch>) -> Vec<Batch> {
    let Ok(mut oracle) = Oracle::new(scenario) else {
        return batches;
    };
    let mut settled = Vec::new();
    for mut batch in batches {
        let at_start = oracle.clone();
        let empty = Batch {
            events: Vec::new(),
            ..batch.clone()
        };
        batch.events.retain(|event| {
            let mut alone = at_start.clone();
            let single = Batch {
                events: vec![event.clone()],
                ..empty.clone()
            };
            alone.apply(&single).is_err() || alone.unsettled().is_empty()
        });
        if oracle.apply(&batch).is_err() {
            oracle = at_start;
        }
        settled.push(batch);
    }
    settled
}

struct EventMaker<'a> {
    dice: &'a Dice,
    table: &'a Table,
    /// Keys and sequences that an upsert has, where ties would show arrival.
    taken: BTreeSet<(usize, usize)>,
    past: Vec<JsonRow>,
    /// Append tables: earlier batches with the columns that they carried.
    sent: Vec<(Batch, Vec<String>)>,
    needs_unique: bool,
    drifts: bool,
    /// Whether the column that comes by schema evolution has come.
    introduced: bool,
    delete_percent: usize,
    batch_count: usize,
}

/// How many of a hundred events are deletes; few where each refuses its batch.
fn delete_percent(dice: &Dice, table: &Table) -> usize {
    let percent = *dice.pick(&[10, 30, 50]);
    if table.spec.append && !table.spec.quarantines() {
        2
    } else {
        percent
    }
}

impl EventMaker<'_> {
    fn batch(&mut self, index: usize) -> Batch {
        let dice = self.dice;
        if !self.sent.is_empty() && dice.percent(35) {
            return self.again(index);
        }
        let mut format = match dice.below(100) {
            0..=54 => FileFormat::Jsonl,
            55..=74 if self.table.is_csv_able() => FileFormat::Csv,
            75..=99 => FileFormat::Parquet,
            _ => FileFormat::Jsonl,
        };
        let introduced = self.introduced;
        let introduces = |since: usize| since > 0 && since <= index && !introduced;
        let introducing = self
            .table
            .payload
            .iter()
            .any(|column| introduces(column.since));
        if introducing {
            format = FileFormat::Jsonl;
        }
        let carried = self.carried(index, format);
        if format == FileFormat::Csv && carried.len() == 1 {
            // A row whose only cell is NULL would be a blank line, which is no record.
            format = FileFormat::Jsonl;
        }
        let mut batch = Batch {
            format,
            files: 1,
            ..Batch::default()
        };
        if dice.percent(20) {
            batch.files = dice.between(2, 3);
        }
        for _ in 0..dice.between(1, 10) {
            if let Some(event) = self.event(index, &carried, format, introducing) {
                batch.events.push(event);
            }
        }
        for column in self
            .table
            .payload
            .iter()
            .filter(|column| introduces(column.since))
        {
            // The type is inferred from the first value that is not NULL.
            for event in &mut batch.events {
                if event.get(&column.name).is_none_or(Json::is_null) {
                    event.insert(column.name.clone(), column.values[0].clone());
                }
            }
        }
        self.introduced |= introducing && !batch.events.is_empty();
        if self.past.len() > 2 && dice.percent(15) && self.is_replayable(format) {
            batch.events.extend(dice.some_of(&self.past, 40));
        }
        self.past.extend(batch.events.iter().cloned());
        if self.table.spec.append {
            self.sent.push((batch.clone(), carried));
        }
        batch
    }

    /// An earlier batch once more, perhaps grown at its end: its records stand where they stood (R-K7).
    fn again(&mut self, index: usize) -> Batch {
        let (mut batch, carried) = self.dice.pick(&self.sent).clone();
        for _ in 0..self.dice.below(4) {
            batch
                .events
                .extend(self.event(index, &carried, batch.format, false));
        }
        batch
    }

    /// Whether earlier events may come again as they were: all carry what the batch carries.
    fn is_replayable(&self, format: FileFormat) -> bool {
        let plain = !self.table.evolves() && !self.needs_unique;
        format == FileFormat::Jsonl && plain
    }

    /// The columns that a batch has: files of a format with a schema may lack some as a whole (R-N5).
    fn carried(&self, index: usize, format: FileFormat) -> Vec<String> {
        let sparse = (self.needs_unique || !self.table.row_mode) && format != FileFormat::Jsonl;
        let mut carried = Vec::new();
        for name in &self.table.spec.source_columns {
            let column = self
                .table
                .payload
                .iter()
                .find(|column| column.name == *name);
            if column.is_some_and(|column| column.since > index) {
                continue;
            }
            let droppable = column.is_some() && sparse;
            if !(droppable && self.dice.percent(20)) {
                carried.push(name.clone());
            }
        }
        carried
    }

    fn event(
        &mut self,
        index: usize,
        carried: &[String],
        format: FileFormat,
        introducing: bool,
    ) -> Option<JsonRow> {
        let dice = self.dice;
        let key = dice.below(self.table.keys.len());
        let sequence = self.sequence(index);
        let op = self.operation();
        let spec = &self.table.spec;
        let conditions = spec.delete_when.iter().chain(&spec.truncate_when);
        let is_upsert = !conditions
            .flat_map(Condition::values)
            .any(|value| *value == op);
        if self.needs_unique && is_upsert && !self.taken.insert((key, sequence)) {
            return None;
        }
        let mut event = JsonRow::new();
        for (name, value) in key_names(self.table).zip(&self.table.keys[key]) {
            event.insert(name.clone(), pools::respell(dice, value));
        }
        for (i, value) in self.table.sequences[sequence].iter().enumerate() {
            event.insert(format!("s{i}"), pools::respell(dice, value));
        }
        if self.table.has_op {
            event.insert("op".into(), op.clone());
        }
        for column in &self.table.payload {
            let null = dice.percent(if is_upsert { 25 } else { 70 });
            let value = if null {
                Json::Null
            } else {
                dice.pick(&column.values).clone()
            };
            event.insert(column.name.clone(), value);
        }
        self.add_listed(&mut event, carried);
        if op == json!("T") && dice.percent(70) {
            key_names(self.table).for_each(|name| drop(event.insert(name.clone(), Json::Null)));
        }
        if !introducing {
            self.spoil(&mut event, format);
        }
        event.retain(|name, _| carried.contains(name));
        if format == FileFormat::Jsonl {
            self.leave_out(&mut event);
        }
        Some(event)
    }

    /// A sequence anywhere, or in histories that drift one that mostly rises with the batches.
    fn sequence(&self, index: usize) -> usize {
        let count = self.table.sequences.len();
        if !self.drifts || self.dice.percent(25) {
            return self.dice.below(count);
        }
        let window = count.div_ceil(self.batch_count) + 1;
        (index * count / self.batch_count + self.dice.below(window)).min(count - 1)
    }

    fn operation(&self) -> Json {
        if !self.table.has_op {
            return json!("U");
        }
        let dice = self.dice;
        if dice.percent(self.delete_percent) {
            return if dice.percent(20) {
                json!("d'")
            } else {
                json!("D")
            };
        }
        match dice.below(100) {
            0..=7 if self.table.spec.truncate_when.is_some() => json!("T"),
            8..=12 => Json::Null,
            13..=30 => json!("I"),
            _ => json!("U"),
        }
    }

    fn add_listed(&self, event: &mut JsonRow, carried: &[String]) {
        let Some(column) = &self.table.spec.columns_to_update else {
            return;
        };
        let names: Vec<String> = carried
            .iter()
            .filter(|n| n.starts_with(['v', 'w']))
            .cloned()
            .collect();
        let list = self.dice.some_of(&names, 50);
        let listed = if self.dice.percent(25) {
            Json::Null
        } else {
            json!(list)
        };
        event.insert(column.clone(), listed);
    }

    /// Makes the event invalid, seldom (R-S2, R-K2, R-K8).
    fn spoil(&self, event: &mut JsonRow, format: FileFormat) {
        let chance = if self.table.spec.quarantines() { 10 } else { 1 };
        if !self.dice.percent(chance) {
            return;
        }
        match self.dice.below(3) {
            0 => {
                event.retain(|name, _| !name.starts_with('s'));
                for name in self
                    .table
                    .spec
                    .types
                    .keys()
                    .filter(|name| name.starts_with('s'))
                {
                    event.insert(name.clone(), Json::Null);
                }
            }
            1 if !self.table.spec.append => {
                let key = self.dice.pick(&self.table.spec.keys);
                event.insert(key.clone(), Json::Null);
            }
            _ => {
                let types = &self.table.spec.types;
                let stored = self.table.payload.iter().filter(|c| c.since == 0);
                let mut typed = stored
                    .filter(|c| ["long", "date", "boolean"].contains(&types[&c.name].as_str()));
                if let (Some(column), true) = (typed.next_back(), format != FileFormat::Parquet) {
                    event.insert(column.name.clone(), json!("abc"));
                }
            }
        }
    }

    /// JSON events may lack declared fields, each on its own (R-N5).
    fn leave_out(&self, event: &mut JsonRow) {
        let declared = self.table.spec.declared_count();
        let keeps = self.table.keeps_absent;
        let chance = if keeps { 30 } else { 5 };
        let names: BTreeMap<&String, usize> =
            self.table.spec.source_columns.iter().zip(0..).collect();
        event.retain(|name, _| {
            // Without it a delete is one more upsert at its sequence, so the tie that is left open.
            let needs_op = self.needs_unique && name == "op";
            let steers = needs_op || name.starts_with(['k', 's', 'c']);
            let may_lack = !steers && (keeps || names[name] < declared);
            !(may_lack && self.dice.percent(chance))
        });
    }
}

/// Key columns in the order in which key values are made.
fn key_names(table: &Table) -> impl Iterator<Item = &String> {
    table.spec.types.keys().filter(|name| name.starts_with('k'))
}
