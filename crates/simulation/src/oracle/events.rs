//! From JSON to events: typed, classified, valid or not.

use tidegate_change::Code;

use super::columns::{Columns, Leaf, Test};
use crate::scenario::{FileFormat, JsonRow};
use crate::value::{self, Value};

/// What an event does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Truncate,
    Delete,
    Upsert,
}

/// A valid event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    pub(crate) key: Vec<Value>,
    pub(crate) sequence: Value,
    /// By leaf: the value, or nothing where the event does not author it.
    pub(crate) leaves: Vec<Option<Value>>,
}

/// How events are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) format: FileFormat,
    /// `absent_fields: keep`.
    pub(crate) keep_absent: bool,
    pub(crate) insert_only: bool,
}

/// Reads one event.
pub(crate) fn read(columns: &Columns, row: &JsonRow, reading: Reading) -> Result<Event, Code> {
    let mut cells = Vec::with_capacity(columns.source.len());
    for column in &columns.source {
        cells.push(match row.get(&column.name) {
            Some(json) => {
                Some(value::from_json(&column.data_type, json).ok_or(Code::InvalidValue)?)
            }
            None => {
                let null = reading.format == FileFormat::Jsonl && !reading.keep_absent;
                (null && column.declared).then_some(Value::Null)
            }
        });
    }
    let cell = |position: usize| cells[position].clone().unwrap_or(Value::Null);
    let holds = |test: &Option<Test>| {
        test.as_ref().is_some_and(|test| {
            let value = cell(test.source);
            !value.is_null() && test.values.contains(&value)
        })
    };
    let kind = if reading.insert_only {
        Kind::Upsert
    } else if holds(&columns.truncate_when) {
        Kind::Truncate
    } else if holds(&columns.delete_when) {
        Kind::Delete
    } else {
        Kind::Upsert
    };
    let sequence = sequence(columns, &cell);
    if !columns.sequence.is_empty() && sequence.is_all_null() {
        return Err(Code::NullSequence);
    }
    let key: Vec<Value> = columns.keys.iter().map(|p| cell(*p)).collect();
    if kind != Kind::Truncate && key.iter().any(Value::is_null) {
        return Err(Code::NullKey);
    }
    let listed = listed_columns(columns, &cell);
    let leaves = columns
        .leaves
        .iter()
        .map(|leaf| {
            let named = listed.as_ref().is_none_or(|list| {
                list.iter().any(|name| *name == columns.source[leaf.source].name)
            });
            named.then(|| authored(leaf, cells[leaf.source].as_ref())).flatten()
        })
        .collect();
    Ok(Event { kind, key, sequence, leaves })
}

fn sequence(columns: &Columns, cell: &impl Fn(usize) -> Value) -> Value {
    let members: Vec<Value> = columns.sequence.iter().map(|p| cell(*p)).collect();
    if columns.sequence_is_struct {
        return Value::Struct(members);
    }
    members.into_iter().next().unwrap_or(Value::Null)
}

/// What `columns_to_update` names; None is all (R-N6).
fn listed_columns(columns: &Columns, cell: &impl Fn(usize) -> Value) -> Option<Vec<String>> {
    let Value::List(items) = cell(columns.columns_to_update?) else { return None };
    let names = items.into_iter().filter_map(|item| match item {
        Value::Text(name) => Some(name),
        _ => None,
    });
    Some(names.collect())
}

fn authored(leaf: &Leaf, cell: Option<&Value>) -> Option<Value> {
    let mut value = cell?;
    for member in &leaf.path {
        match value {
            Value::Struct(members) => value = members.get(*member)?,
            _ => return None,
        }
    }
    (!(leaf.ignore_null && value.is_null())).then(|| value.clone())
}
