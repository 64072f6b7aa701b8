//! Random tables: which rules a history can reach is decided here.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use tidegate_change::spec::{IgnoreNull, OneOrMany};

use super::pools;
use crate::dice::Dice;
use crate::scenario::{Condition, ScenarioSpec};

/// A payload column with its values.
#[derive(Clone, Debug)]
pub(super) struct PayloadColumn {
    pub(super) name: String,
    pub(super) type_name: String,
    pub(super) values: Vec<Json>,
    /// First batch that carries it; later than 0 only for columns that the spec does not declare.
    pub(super) since: usize,
}

/// A table and what is needed to make events for it.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) spec: ScenarioSpec,
    pub(super) keys: Vec<Vec<Json>>,
    pub(super) sequences: Vec<Vec<Json>>,
    pub(super) payload: Vec<PayloadColumn>,
    pub(super) keeps_absent: bool,
    /// Whole rows are authored, so that ties of sparse events would show arrival (R-T3b).
    pub(super) row_mode: bool,
    pub(super) has_op: bool,
}

impl Table {
    pub(super) fn is_csv_able(&self) -> bool {
        self.spec.types.values().all(|name| !name.contains('<'))
    }

    pub(super) fn evolves(&self) -> bool {
        self.payload.iter().any(|column| column.since > 0)
    }
}

/// A random table.
pub(super) fn random_table(dice: &Dice, batches: usize) -> Table {
    let mut spec = ScenarioSpec {
        scd: 1,
        ..ScenarioSpec::default()
    };
    match dice.below(100) {
        0..=9 => spec.scd = 0,
        10..=19 => spec.insert_only = true,
        20..=44 => spec.soft_delete = true,
        45..=53 => spec.append = true,
        _ => {}
    }
    let keys = add_keys(dice, &mut spec);
    let mut sequences = add_sequence(dice, &mut spec);
    let payload = add_payload(dice, &mut spec, batches);
    let has_op = !spec.insert_only && dice.percent(92);
    if has_op {
        add_operations(dice, &mut spec);
    }
    let keeps_absent = add_partial_mode(dice, &mut spec, &payload);
    // No event of an append table ties with another, so that sparse ones may come as they like.
    let row_mode = spec.ignore_null_updates.is_off()
        && spec.columns_to_update.is_none()
        && !keeps_absent
        && !spec.append;
    let count = if row_mode {
        4 + dice.below(20)
    } else {
        2 + dice.below(7)
    };
    while sequences.len() > count {
        sequences.remove(dice.below(sequences.len()));
    }
    add_column_selection(dice, &mut spec, &payload);
    if spec.append {
        // What would be the key are columns like any other.
        spec.keys.clear();
    }
    let evolves = payload.iter().any(|column| column.since > 0);
    add_policies(dice, &mut spec, evolves);
    let mut table = Table {
        spec,
        keys,
        sequences,
        payload,
        keeps_absent,
        row_mode,
        has_op,
    };
    add_physical(dice, &mut table);
    order_columns(dice, &mut table);
    table
}

fn add_keys(dice: &Dice, spec: &mut ScenarioSpec) -> Vec<Vec<Json>> {
    let members = if dice.percent(70) {
        1
    } else {
        dice.between(2, 3)
    };
    let mut pools = Vec::new();
    for i in 0..members {
        let type_name = *dice.pick(&pools::KEY_TYPES);
        let name = format!("k{i}");
        spec.types.insert(name.clone(), type_name.into());
        spec.keys.push(name);
        pools.push(pools::choose(dice, pools::key_values(type_name), 6));
    }
    dice.shuffle(&mut spec.keys);
    let wanted = *dice.pick(&[2, 2, 3, 3, 4, 6]);
    let mut keys: Vec<Vec<Json>> = Vec::new();
    for _ in 0..30 {
        let key: Vec<Json> = pools.iter().map(|pool| dice.pick(pool).clone()).collect();
        if keys.len() < wanted && !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

fn add_sequence(dice: &Dice, spec: &mut ScenarioSpec) -> Vec<Vec<Json>> {
    if (spec.insert_only || spec.append) && dice.percent(40) {
        return vec![Vec::new()];
    }
    let is_struct = dice.percent(25);
    let members = if is_struct { dice.between(1, 3) } else { 1 };
    let mut names = Vec::new();
    let mut pools = Vec::new();
    for i in 0..members {
        let type_name = *dice.pick(&pools::SEQUENCE_TYPES);
        let name = format!("s{i}");
        spec.types.insert(name.clone(), type_name.into());
        names.push(name);
        let mut pool = pools::sequence_values(type_name);
        if is_struct {
            pool = pools::choose(dice, pool, 4);
            pool.push(Json::Null);
        }
        pools.push(pool);
    }
    if !is_struct {
        spec.sequence_by = Some(OneOrMany::One(names.remove(0)));
        return pools
            .remove(0)
            .into_iter()
            .map(|value| vec![value])
            .collect();
    }
    spec.sequence_by = Some(OneOrMany::Many(names));
    let mut sequences: Vec<Vec<Json>> = Vec::new();
    for _ in 0..60 {
        let sequence: Vec<Json> = pools.iter().map(|pool| dice.pick(pool).clone()).collect();
        let valid = sequence.iter().any(|member| !member.is_null());
        if valid && !sequences.contains(&sequence) {
            sequences.push(sequence);
        }
    }
    sequences
}

fn add_payload(dice: &Dice, spec: &mut ScenarioSpec, batches: usize) -> Vec<PayloadColumn> {
    let mut payload = Vec::new();
    for i in 0..dice.below(5) {
        let type_name = *dice.pick(&pools::PAYLOAD_TYPES);
        let name = format!("v{i}");
        spec.types.insert(name.clone(), type_name.into());
        let values = pools::choose(dice, pools::payload_values(type_name), dice.between(2, 4));
        payload.push(PayloadColumn {
            name,
            type_name: type_name.into(),
            values,
            since: 0,
        });
    }
    if batches > 1 && !spec.insert_only && dice.percent(15) {
        // The type is inferred from what the column holds, so it is one that JSON shows.
        let type_name = *dice.pick(&["string", "long"]);
        let name = "w".to_owned();
        spec.types.insert(name.clone(), type_name.into());
        let values = pools::payload_values(type_name);
        let since = dice.between(1, batches - 1);
        payload.push(PayloadColumn {
            name,
            type_name: type_name.into(),
            values,
            since,
        });
    }
    payload
}

fn add_operations(dice: &Dice, spec: &mut ScenarioSpec) {
    spec.types.insert("op".into(), "string".into());
    let condition = |eq: Option<Json>, any_of: Option<Vec<Json>>| {
        Some(Condition {
            col: "op".into(),
            eq,
            any_of,
        })
    };
    spec.delete_when = if dice.percent(50) {
        condition(Some(json!("D")), None)
    } else {
        condition(None, Some(vec![json!("D"), json!("d'")]))
    };
    if spec.scd == 1 && !spec.append && dice.percent(35) {
        spec.truncate_when = condition(Some(json!("T")), None);
    }
}

/// Returns whether absent fields are kept.
fn add_partial_mode(dice: &Dice, spec: &mut ScenarioSpec, payload: &[PayloadColumn]) -> bool {
    if spec.insert_only {
        return false;
    }
    let names: Vec<String> = payload
        .iter()
        .filter(|c| c.since == 0)
        .map(|c| c.name.clone())
        .collect();
    if spec.append {
        return dice.percent(25);
    }
    match dice.below(100) {
        0..=29 => {
            let some = dice.some_of(&names, 50);
            spec.ignore_null_updates = match dice.below(3) {
                0 if !some.is_empty() => IgnoreNull::Columns(some),
                1 if !some.is_empty() => IgnoreNull::Except { except: some },
                _ => IgnoreNull::Switch(true),
            };
        }
        30..=44 => {
            spec.types.insert("cols".into(), "array<string>".into());
            spec.columns_to_update = Some("cols".into());
        }
        _ => {}
    }
    dice.percent(25)
}

/// Drops the columns that only steer, mostly.
fn add_column_selection(dice: &Dice, spec: &mut ScenarioSpec, payload: &[PayloadColumn]) {
    let mut dropped: Vec<String> = spec
        .types
        .keys()
        .filter(|name| !spec.keys.contains(name) && !name.starts_with(['v', 'w']))
        .filter(|name| *name == "cols" || dice.percent(75))
        .cloned()
        .collect();
    let values: Vec<String> = payload
        .iter()
        .filter(|c| c.since == 0)
        .map(|c| c.name.clone())
        .collect();
    if dice.percent(20) {
        dropped.extend(dice.some_of(&values, 30));
    }
    let evolves = payload.iter().any(|column| column.since > 0);
    if !evolves && dice.percent(20) {
        let kept = spec
            .types
            .keys()
            .filter(|name| !dropped.contains(name))
            .cloned();
        spec.columns = Some(kept.collect());
    } else if !dropped.is_empty() {
        spec.except = Some(dropped);
    }
}

fn add_policies(dice: &Dice, spec: &mut ScenarioSpec, evolves: bool) {
    if dice.percent(30) {
        spec.on_invalid = Some("quarantine".into());
    }
    let deletes = spec.delete_when.is_some() && spec.scd == 1 && !spec.append;
    // How truncates and purged tombstones meet is left open by the rules.
    if deletes && !evolves && spec.truncate_when.is_none() && dice.percent(30) {
        spec.tombstone_retention_s = Some(100);
        spec.late_after_gc = dice.percent(35).then(|| "apply".to_owned());
    }
    spec.feed = match dice.below(100) {
        0..=34 => Some("inferred".into()),
        35..=42 => Some("false".into()),
        _ => None,
    };
}

fn add_physical(dice: &Dice, table: &mut Table) {
    let spec = &mut table.spec;
    spec.buckets = *dice.pick(&[None, Some(1), Some(4), Some(64)]);
    let stored = |name: &String| match (&spec.columns, &spec.except) {
        (Some(list), _) => list.contains(name),
        (None, Some(except)) => !except.contains(name),
        (None, None) => true,
    };
    let fits = |type_name: &str| ["string", "long", "date", "boolean"].contains(&type_name);
    let candidates: Vec<String> = table
        .payload
        .iter()
        .filter(|column| column.since == 0 && fits(&column.type_name) && stored(&column.name))
        .map(|column| column.name.clone())
        .collect();
    if dice.percent(20) {
        spec.partition_by = dice.some_of(&candidates, 60);
    }
    if let Some(text) = table
        .payload
        .iter_mut()
        .find(|column| spec.partition_by.contains(&column.name) && column.type_name == "string")
    {
        text.values.push(json!("x/y=%2 \u{e9}"));
    }
}

/// Payload order is column order, so it is shuffled; columns that come later stand last.
fn order_columns(dice: &Dice, table: &mut Table) {
    let late: BTreeMap<&str, usize> = table
        .payload
        .iter()
        .map(|c| (c.name.as_str(), c.since))
        .collect();
    let is_late = |name: &String| late.get(name.as_str()).is_some_and(|since| *since > 0);
    let mut early: Vec<String> = table
        .spec
        .types
        .keys()
        .filter(|name| !is_late(name))
        .cloned()
        .collect();
    dice.shuffle(&mut early);
    let declared = early.len();
    let later: Vec<String> = table
        .spec
        .types
        .keys()
        .filter(|name| is_late(name))
        .cloned()
        .collect();
    if !later.is_empty() {
        table.spec.declared = Some(declared);
    }
    early.extend(later);
    table.spec.source_columns = early;
    table.spec.absent_fields = Some(if table.keeps_absent {
        "keep".to_owned()
    } else {
        "null".to_owned()
    });
}
