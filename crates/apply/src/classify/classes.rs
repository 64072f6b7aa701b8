//! What each event is, and which are set apart (R-S2, R-K2, R-K7, R-X5, R-X6).

use std::collections::BTreeSet;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use tidegate_change::source::{InvalidEvent, SourceBatch, SourceOperation};
use tidegate_change::spec::layout::SequenceSource;
use tidegate_change::spec::{OnTruncate, TableMode};
use tidegate_change::{Code, Error, Result, json};
use tidegate_expression::Compiled;
use tidegate_merge::EventKind;

use super::Classifier;
use crate::reject::rule_reject;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Change(EventKind),
    Truncate,
    Ignored,
    /// An update or delete where rows are only appended (R-K7).
    NoInsert,
    /// A condition of the spec has no result for the event.
    Undecided,
    Rejected,
}

/// A decoded part with what was worked out of it.
pub(super) struct Part<'a> {
    pub(super) batch: &'a SourceBatch,
    /// All source columns.
    pub(super) source: &'a RecordBatch,
    pub(super) null_sequence: &'a BooleanBuffer,
    /// Key columns in key order.
    pub(super) keys: &'a [ArrayRef],
}

impl Classifier {
    pub(super) fn classes(
        &self,
        part: &Part<'_>,
        rejects: &mut Vec<InvalidEvent>,
    ) -> Result<Vec<Class>> {
        let (batch, source) = (part.batch, part.source);
        let deletes = Verdict::of(self.deletes.as_ref(), source)?;
        let truncates = Verdict::of(self.truncates.as_ref(), source)?;
        let insert_only = self.spec.mode == TableMode::InsertOnly;
        let appends = self.spec.mode == TableMode::Append;
        let mut classes = Vec::with_capacity(batch.len());
        for (row, operation) in batch.operations.iter().enumerate() {
            let by_source = *operation == SourceOperation::Truncate;
            let is_delete = || *operation == SourceOperation::Delete || deletes.holds(row);
            let class = if truncates.fails(row) || deletes.fails(row) {
                Class::Undecided
            } else if truncates.holds(row) {
                Class::Truncate
            } else if by_source {
                self.source_truncate(batch, row)?
            } else if appends && (is_delete() || is_update(batch, row)) {
                Class::NoInsert
            } else if !insert_only && is_delete() {
                Class::Change(EventKind::Delete)
            } else {
                Class::Change(EventKind::Upsert)
            };
            classes.push(self.checked(class, part, row, rejects));
        }
        Ok(classes)
    }

    fn source_truncate(&self, batch: &SourceBatch, row: usize) -> Result<Class> {
        match self.spec.truncate_policy() {
            OnTruncate::Apply => Ok(Class::Truncate),
            OnTruncate::Ignore => Ok(Class::Ignored),
            OnTruncate::Fail => {
                let (file, place) = (&batch.origin.file, batch.origin.place(row));
                let message = format!(
                    "table {}: {file} {place}: a truncate of the source",
                    self.spec.name
                );
                let policies = match self.spec.mode {
                    TableMode::Append => "ignore",
                    _ => "apply or ignore",
                };
                Err(
                    Error::new(Code::TruncateRefused, message).with_hint(format!(
                        "set on_truncate: {policies} and apply the batch again"
                    )),
                )
            }
        }
    }

    /// The class that is left once the event is checked.
    fn checked(
        &self,
        class: Class,
        part: &Part<'_>,
        row: usize,
        rejects: &mut Vec<InvalidEvent>,
    ) -> Class {
        let mut reject = |code, field: Option<String>| {
            let origin = &part.batch.origin;
            // What the source can still tell is the event as it came; else its columns stand for it.
            let raw = origin.raw(row);
            let raw = raw.unwrap_or_else(|| row_json(part.source, row, self.layout.source.len()));
            let (file, place) = (&origin.file, origin.place(row));
            rejects.push(InvalidEvent {
                field,
                ..rule_reject(code, file, place, raw)
            });
            Class::Rejected
        };
        match class {
            Class::Ignored => return class,
            Class::NoInsert => return reject(Code::AppendOnly, None),
            Class::Undecided => return reject(Code::InvalidExpression, None),
            Class::Change(_) | Class::Truncate | Class::Rejected => {}
        }
        if let Class::Change(_) = class
            && let Some(position) = part.keys.iter().position(|key| key.is_null(row))
        {
            return reject(Code::NullKey, self.spec.keys.get(position).cloned());
        }
        if part.null_sequence.value(row) {
            return reject(Code::NullSequence, self.sequence_field());
        }
        class
    }

    /// The fields of an event that its sequence is made of.
    fn sequence_field(&self) -> Option<String> {
        match &self.layout.sequence_by {
            SequenceSource::Column(name) => Some(name.clone()),
            SequenceSource::Struct(names) => Some(names.join(", ")),
            SequenceSource::Position => Some("source".into()),
            SequenceSource::None => None,
        }
    }
}

/// What a condition that may be there says of each event.
#[derive(Default)]
struct Verdict {
    holds: Option<BooleanArray>,
    failed: BTreeSet<usize>,
}

impl Verdict {
    fn of(condition: Option<&Compiled>, source: &RecordBatch) -> Result<Self> {
        let Some(condition) = condition else {
            return Ok(Self::default());
        };
        let verdicts = condition.verdicts(source)?;
        Ok(Self {
            holds: Some(verdicts.holds),
            failed: verdicts.failed.iter().map(|failed| failed.row).collect(),
        })
    }

    fn holds(&self, row: usize) -> bool {
        self.holds.as_ref().is_some_and(|holds| holds.value(row))
    }

    fn fails(&self, row: usize) -> bool {
        self.failed.contains(&row)
    }
}

/// Whether an event is an update, or the second half of one that changed the key.
fn is_update(batch: &SourceBatch, row: usize) -> bool {
    batch.operations.get(row) == Some(&SourceOperation::Update)
        || batch.old_keys.as_ref().is_some_and(|old| old.is_valid(row))
}

/// The event's source columns as one JSON object, for the rejects table only.
fn row_json(source: &RecordBatch, row: usize, columns: usize) -> String {
    let mut object = serde_json::Map::new();
    for (field, column) in source
        .schema_ref()
        .fields()
        .iter()
        .zip(source.columns())
        .take(columns)
    {
        let value = json::value_at(column, row).unwrap_or(serde_json::Value::Null);
        object.insert(field.name().clone(), value);
    }
    serde_json::Value::Object(object).to_string()
}
