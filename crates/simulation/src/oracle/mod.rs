//! The naive model of the rules: keeps every accepted event, folds each key anew after each batch, and
//! takes the feed as the difference of the visible tables ("The model in five sentences").
//!
//! - `columns`: roles of the columns, leaves;
//! - `events`: JSON to typed, classified events;
//! - `fold`: the state of one key.
//!
//! Written from the rules alone and kept slow and plain: it shares no merge code with the product.
//! Covers SCD 0 and 1, soft delete, insert-only, append of flat files; not R-K6, snapshots and SCD 2.

mod columns;
mod events;
mod fold;

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::DataType;
use tidegate_change::Code;

use self::columns::Columns;
pub use self::events::{Decoded, Kind};
use self::events::{Event, Reading};
use self::fold::Folding;
use crate::scenario::{Batch, JsonRow, Scenario, ScenarioSpec};
use crate::value::{self, Value};

/// A visible row, in table order.
pub type Row = Vec<Value>;

/// The kind of a change row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeType {
    /// The row appeared.
    Insert,
    /// The row before an update.
    Preimage,
    /// The row after an update.
    Postimage,
    /// The row disappeared.
    Delete,
}

impl ChangeType {
    /// The name in `_change_type`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Preimage => "update_preimage",
            Self::Postimage => "update_postimage",
            Self::Delete => "delete",
        }
    }
}

/// A row of the feed.
pub type Change = (ChangeType, Row);

/// What one batch did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The change rows, sorted.
    pub feed: Vec<Change>,
    /// Events read, quarantined ones included.
    pub events: u64,
    /// Rows that appeared.
    pub inserted: u64,
    /// Rows whose visible values changed.
    pub updated: u64,
    /// Rows that disappeared.
    pub deleted: u64,
    /// Reasons of quarantined events, sorted.
    pub rejects: Vec<&'static str>,
}

/// Why a batch was refused: any of these codes may be the one that is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub BTreeSet<Code>);

#[derive(Clone, Debug, Default)]
struct KeyHistory {
    events: Vec<Event>,
    /// First arrival of each delete, by sequence, in seconds (R-G2).
    arrivals: BTreeMap<Value, i64>,
}

/// The model of one table.
#[derive(Clone, Debug)]
pub struct Oracle {
    columns: Columns,
    folding: Folding,
    insert_only: bool,
    append: bool,
    quarantines: bool,
    keep_absent: bool,
    retention_s: Option<i64>,
    late_applies: bool,
    keys: BTreeMap<Row, KeyHistory>,
    truncates: BTreeSet<Value>,
    horizon: Option<Value>,
    watermark: Option<Value>,
    /// The latest time of a batch, seconds.
    now: i64,
    visible: BTreeMap<Row, Row>,
    /// Places where the rules leave the outcome of the last batch open.
    unsettled: Vec<&'static str>,
}

impl Oracle {
    /// The model of a scenario's table, before any batch.
    ///
    /// # Errors
    /// The code that the spec is refused with.
    pub fn new(scenario: &Scenario) -> Result<Self, Code> {
        let spec: &ScenarioSpec = &scenario.spec;
        let keep_absent = spec.keeps_absent_fields(&scenario.batches);
        let row_mode =
            spec.ignore_null_updates.is_off() && spec.columns_to_update.is_none() && !keep_absent;
        Ok(Self {
            columns: Columns::new(spec)?,
            folding: Folding {
                row_mode,
                soft_delete: spec.soft_delete,
                first: spec.scd == 0,
            },
            insert_only: spec.insert_only,
            append: spec.append,
            quarantines: spec.quarantines(),
            keep_absent,
            retention_s: spec
                .tombstone_retention_s
                .filter(|_| spec.scd == 1 && !spec.insert_only),
            late_applies: spec.late_after_gc.as_deref() == Some("apply"),
            keys: BTreeMap::new(),
            truncates: BTreeSet::new(),
            horizon: None,
            watermark: None,
            now: i64::MIN,
            visible: BTreeMap::new(),
            unsettled: Vec::new(),
        })
    }

    /// Applies one batch; a refused one changes nothing.
    ///
    /// # Errors
    /// The codes of the invalid events, where they fail the batch.
    pub fn apply(&mut self, batch: &Batch) -> Result<Outcome, Refusal> {
        self.unsettled.clear();
        let mut outcome = Outcome {
            events: batch.events.len() as u64,
            ..Outcome::default()
        };
        let valid = self.read_events(batch, &mut outcome)?;
        // A clock that is set back does not make the table younger.
        let now = self.now.max(batch.at.unwrap_or(0));
        self.now = now;
        self.purge(now);
        let accepted = self.refuse_late(valid, &mut outcome);
        for event in accepted
            .iter()
            .filter(|_| !self.columns.sequence.is_empty())
        {
            self.watermark = self.watermark.take().max(Some(event.sequence.clone()));
        }
        if self.insert_only || self.append {
            self.insert(accepted);
        } else {
            self.remember(accepted, now);
        }
        let before = std::mem::take(&mut self.visible);
        self.visible = self.fold_all();
        compare(&before, &self.visible, &mut outcome);
        outcome.rejects.sort_unstable();
        Ok(outcome)
    }

    /// The events of a batch, or why each is invalid.
    #[must_use]
    pub fn decode(&self, batch: &Batch) -> Vec<Result<Decoded, Code>> {
        let reading = Reading {
            format: batch.format,
            keep_absent: self.keep_absent,
            insert_only: self.insert_only,
            append: self.append,
        };
        let place = |event| {
            let (part, record) = batch.place_of(event);
            (batch.file_name(part), record)
        };
        let events = batch.events.iter().enumerate();
        events
            .map(|(event, row)| events::decode(&self.columns, row, place(event), reading))
            .collect()
    }

    fn read_events(&self, batch: &Batch, outcome: &mut Outcome) -> Result<Vec<Event>, Refusal> {
        let mut valid = Vec::new();
        let mut invalid = BTreeSet::new();
        for decoded in self.decode(batch) {
            match decoded {
                Ok(decoded) => valid.push(events::event(&self.columns, decoded)),
                Err(code) => {
                    outcome.rejects.push(code.as_str());
                    invalid.insert(code);
                }
            }
        }
        if invalid.is_empty() || self.quarantines {
            Ok(valid)
        } else {
            Err(Refusal(invalid))
        }
    }

    /// Forgets keys whose tombstone is too old (R-G2); their greatest delete raises the horizon (R-G4).
    fn purge(&mut self, now: i64) {
        let Some(retention) = self.retention_s else {
            return;
        };
        let mut purged = Vec::new();
        for (key, history) in &self.keys {
            let deciding = history.arrivals.last_key_value();
            if let Some((sequence, arrived)) = deciding
                && !self.visible.contains_key(key)
                && now - arrived > retention
            {
                purged.push((key.clone(), sequence.clone()));
            }
        }
        for (key, sequence) in purged {
            self.keys.remove(&key);
            if !self.late_applies {
                self.horizon = self.horizon.take().max(Some(sequence));
            }
        }
    }

    /// Quarantines upserts at or below the horizon of keys without row and tombstone (R-G4).
    fn refuse_late(&mut self, events: Vec<Event>, outcome: &mut Outcome) -> Vec<Event> {
        let Some(horizon) = self.horizon.clone() else {
            return events;
        };
        let mut accepted = Vec::new();
        for event in events {
            let known = self.keys.contains_key(&event.key);
            if event.sequence > horizon || event.kind == Kind::Truncate {
                accepted.push(event);
            } else if event.kind == Kind::Upsert && !known {
                outcome.rejects.push(Code::LateBeyondRetention.as_str());
            } else {
                if !known {
                    self.unsettled
                        .push("a delete below the horizon of a key without state");
                } else if !self.folding.row_mode {
                    self.unsettled
                        .push("an event below the horizon may reach unauthored leaves");
                }
                accepted.push(event);
            }
        }
        accepted
    }

    /// Stored keys are never touched; in one batch the lowest sequence, then payload, wins (R-I1). With
    /// places for keys that is an append (R-K7).
    fn insert(&mut self, events: Vec<Event>) {
        let mut first: BTreeMap<Row, Event> = BTreeMap::new();
        for event in events {
            let rank = |event: &Event| (event.sequence.clone(), nulls(&event.leaves));
            match first.get(&event.key) {
                Some(other) if rank(other) <= rank(&event) => {}
                _ => {
                    first.insert(event.key.clone(), event);
                }
            }
        }
        for (key, event) in first {
            self.keys.entry(key).or_insert_with(|| KeyHistory {
                events: vec![event],
                arrivals: BTreeMap::new(),
            });
        }
    }

    fn remember(&mut self, events: Vec<Event>, now: i64) {
        for event in events {
            if event.kind == Kind::Truncate {
                self.truncates.insert(event.sequence);
                continue;
            }
            let history = self.keys.entry(event.key.clone()).or_default();
            if event.kind == Kind::Delete {
                history
                    .arrivals
                    .entry(event.sequence.clone())
                    .or_insert(now);
            }
            if !history.events.contains(&event) {
                history.events.push(event);
            }
        }
    }

    fn fold_all(&self) -> BTreeMap<Row, Row> {
        let soft = self.folding.soft_delete;
        self.keys
            .iter()
            .filter_map(|(key, history)| {
                let state = fold::fold(&history.events, &self.truncates, self.folding)?;
                Some((key.clone(), fold::show(&self.columns, key, &state, soft)))
            })
            .collect()
    }

    /// The visible rows, in key order.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        self.visible.values().cloned().collect()
    }

    /// Names and types of the visible columns.
    #[must_use]
    pub fn visible_columns(&self) -> Vec<(String, DataType)> {
        self.columns.visible(self.folding.soft_delete)
    }

    /// The greatest sequence of any accepted event (R-W1) and its type.
    #[must_use]
    pub fn watermark(&self) -> (DataType, Option<Value>) {
        (self.columns.sequence_type(), self.watermark.clone())
    }

    /// Where the rules leave the outcome of the last batch open; random histories avoid these.
    #[must_use]
    pub fn unsettled(&self) -> &[&'static str] {
        &self.unsettled
    }

    /// A row from JSON by column name; columns that it lacks are NULL.
    #[must_use]
    pub fn row_from_json(&self, row: &JsonRow) -> Option<Row> {
        self.visible_columns()
            .iter()
            .map(|(name, data_type)| match row.get(name) {
                Some(json) => value::from_json(data_type, json),
                None => Some(Value::Null),
            })
            .collect()
    }

    /// A row as JSON.
    #[must_use]
    pub fn row_to_json(&self, row: &Row) -> JsonRow {
        let columns = self.visible_columns();
        columns
            .iter()
            .zip(row)
            .map(|((name, data_type), value)| (name.clone(), value::to_json(data_type, value)))
            .collect()
    }
}

fn nulls(leaves: &[Option<Value>]) -> Row {
    leaves
        .iter()
        .map(|leaf| leaf.clone().unwrap_or(Value::Null))
        .collect()
}

/// The feed is the difference of the visible tables (R-C1, R-C2).
fn compare(before: &BTreeMap<Row, Row>, after: &BTreeMap<Row, Row>, outcome: &mut Outcome) {
    for (key, row) in before {
        match after.get(key) {
            None => {
                outcome.deleted += 1;
                outcome.feed.push((ChangeType::Delete, row.clone()));
            }
            Some(new) if new != row => {
                outcome.updated += 1;
                outcome.feed.push((ChangeType::Preimage, row.clone()));
                outcome.feed.push((ChangeType::Postimage, new.clone()));
            }
            Some(_) => {}
        }
    }
    for (key, row) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
        let _ = key;
        outcome.inserted += 1;
        outcome.feed.push((ChangeType::Insert, row.clone()));
    }
    outcome.feed.sort();
}
