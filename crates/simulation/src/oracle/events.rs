//! From JSON to events: typed, classified, valid or not.

use tidegate_change::Code;

use super::columns::{Columns, Leaf, Test};
use crate::scenario::{FileFormat, JsonRow};
use crate::value::{self, Value};

/// What an event does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Everything older goes.
    Truncate,
    /// The row goes.
    Delete,
    /// The row takes the event's values.
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
    pub(crate) append: bool,
}

/// The name of the file that an event stands in, and the number of its record.
pub(crate) type Place = (String, usize);

/// An event as it was read, before leaves are told apart.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// What it does.
    pub kind: Kind,
    /// The key, in key order; in an append table the event's place and all that it says there (R-K7).
    pub key: Vec<Value>,
    /// The sequence; NULL where the table has none.
    pub sequence: Value,
    /// By source column: the value, or nothing where the event does not author it.
    pub cells: Vec<Option<Value>>,
}

/// Reads one event.
pub(crate) fn decode(
    columns: &Columns,
    row: &JsonRow,
    place: Place,
    reading: Reading,
) -> Result<Decoded, Code> {
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
    if reading.append && kind == Kind::Delete {
        return Err(Code::AppendOnly);
    }
    let sequence = sequence(columns, &cell);
    if !columns.sequence.is_empty() && sequence.is_all_null() {
        return Err(Code::NullSequence);
    }
    let key: Vec<Value> = if reading.append {
        let said = (0..cells.len()).map(cell).collect();
        let number = i128::try_from(place.1).unwrap_or(i128::MAX);
        vec![
            Value::Text(place.0),
            Value::Integer(number),
            Value::Struct(said),
        ]
    } else {
        columns.keys.iter().map(|p| cell(*p)).collect()
    };
    if kind != Kind::Truncate && key.iter().any(Value::is_null) {
        return Err(Code::NullKey);
    }
    if let Some(listed) = listed_columns(columns, &cell) {
        for (column, cell) in columns.source.iter().zip(&mut cells) {
            if !listed.contains(&column.name) {
                *cell = None;
            }
        }
    }
    Ok(Decoded {
        kind,
        key,
        sequence,
        cells,
    })
}

/// Tells the leaves apart.
pub(crate) fn event(columns: &Columns, decoded: Decoded) -> Event {
    let cells = &decoded.cells;
    let leaves = columns
        .leaves
        .iter()
        .map(|leaf| authored(leaf, cells[leaf.source].as_ref()))
        .collect();
    Event {
        kind: decoded.kind,
        key: decoded.key,
        sequence: decoded.sequence,
        leaves,
    }
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
    let Value::List(items) = cell(columns.columns_to_update?) else {
        return None;
    };
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
