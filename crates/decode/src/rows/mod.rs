//! A [`SourceBatch`] under construction: one push an event, column by column, faults kept apart.
//!
//! An event at fault keeps its place until the end, so that columns stay in step; `keep` drops it then.

mod keep;
mod needed;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::builder::BooleanBufferBuilder;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StructArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, Field, Fields, Schema};
use tidegate_change::source::{InvalidEvent, Origin, OtherRecords, SourceOperation};
use tidegate_change::spec::{AbsentFields, OnInvalid};
use tidegate_change::text::{Failure, Parsed};
use tidegate_change::{Code, Error, Result, SourceBatch, types};

use self::keep::{keep, where_known};
use self::needed::needed_type;
use crate::column::{Column, Scalar, note};
use crate::debezium::{Position, Positions, SourceType, append_typed};
use crate::parquet_file::append_arrow;
use crate::plan::DecodePlan;
use crate::scan::Raw;
use crate::seen::Seen;

/// What an event says of one column.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cell<'a> {
    /// A JSON value without type.
    Json(Raw<'a>),
    /// A JSON value of a type that the event's schema names.
    Typed(Raw<'a>, &'a SourceType),
    /// Text, of CSV.
    Text(&'a str),
    /// A value of the envelope.
    Envelope(Option<Scalar<'a>>),
    /// A value of an array.
    Arrow(&'a ArrayRef, usize),
    /// NULL.
    Null,
    /// The event has no such field.
    Absent,
    /// The event's schema has no such field (R-N5).
    NotAuthored,
    /// The source could not tell the value (R-K6).
    Unavailable,
}

impl Cell<'_> {
    /// Whether there is no such field, so that the column's default stands in.
    fn is_lacking(&self) -> bool {
        matches!(self, Self::Absent | Self::NotAuthored)
    }
}

/// An event apart from its columns.
pub(crate) struct Event<'a> {
    /// Number of the record in the file, from 0.
    pub(crate) row: u64,
    /// Physical line, from 1.
    pub(crate) line: u64,
    pub(crate) operation: SourceOperation,
    pub(crate) position: Option<Position<'a>>,
    pub(crate) topic: Option<&'a str>,
    pub(crate) partition: Option<i64>,
    pub(crate) offset: Option<i64>,
    /// The record as JSON text, made only for rejects.
    pub(crate) raw: &'a dyn Fn() -> String,
}

/// The batch so far.
#[derive(Debug)]
pub(crate) struct Rows<'p> {
    plan: &'p DecodePlan,
    file: Arc<str>,
    columns: Vec<Column>,
    authored: Vec<Authored>,
    /// Columns that are whole already, and take no cells.
    ready: Vec<Option<ArrayRef>>,
    /// Positions of the others.
    open: Vec<usize>,
    operations: Vec<SourceOperation>,
    numbers: Vec<u64>,
    topics: Vec<Option<Arc<str>>>,
    partitions: Vec<Option<i64>>,
    offsets: Vec<Option<i64>>,
    kept: BooleanBufferBuilder,
    positions: Option<Positions>,
    old_keys: Option<(Vec<Column>, BooleanBufferBuilder)>,
    invalid: Vec<InvalidEvent>,
    /// Other records, counted by class.
    pub(crate) other: OtherRecords,
    /// Greatest offset + 1 by `topic/partition`.
    pub(crate) next_offsets: BTreeMap<String, i64>,
    /// By column: what values that did not fit would need.
    pub(crate) misfits: Vec<Seen>,
    absent: u64,
    unrepresentable: u64,
}

/// Which events author a column.
#[derive(Debug, Default)]
struct Authored {
    length: usize,
    bits: Option<BooleanBufferBuilder>,
    any: bool,
}

impl Authored {
    fn push(&mut self, authored: bool) {
        if !authored && self.bits.is_none() {
            let mut bits = BooleanBufferBuilder::new(self.length + 1);
            bits.append_n(self.length, true);
            self.bits = Some(bits);
        }
        if let Some(bits) = &mut self.bits {
            bits.append(authored);
        }
        self.length += 1;
        self.any |= authored;
    }
}

/// The first fault of an event.
struct Fault {
    field: String,
    code: Code,
    detail: String,
    policy: Option<OnInvalid>,
}

impl<'p> Rows<'p> {
    pub(crate) fn new(plan: &'p DecodePlan, file: &Arc<str>) -> Result<Self> {
        let columns = plan
            .columns
            .iter()
            .map(|c| c.builder())
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            plan,
            file: Arc::clone(file),
            authored: columns.iter().map(|_| Authored::default()).collect(),
            misfits: columns.iter().map(|_| Seen::Nothing).collect(),
            ready: columns.iter().map(|_| None).collect(),
            open: (0..columns.len()).collect(),
            columns,
            operations: Vec::new(),
            numbers: Vec::new(),
            topics: Vec::new(),
            partitions: Vec::new(),
            offsets: Vec::new(),
            kept: BooleanBufferBuilder::new(0),
            positions: None,
            old_keys: None,
            invalid: Vec::new(),
            other: OtherRecords::default(),
            next_offsets: BTreeMap::new(),
            absent: 0,
            unrepresentable: 0,
        })
    }

    /// Name of the file.
    pub(crate) fn file(&self) -> Arc<str> {
        Arc::clone(&self.file)
    }

    /// Gives a column whole, before the first event.
    pub(crate) fn set_ready(&mut self, index: usize, array: &ArrayRef) {
        if let Some(place) = self.ready.get_mut(index) {
            *place = Some(Arc::clone(array));
            self.open.retain(|open| *open != index);
        }
    }

    /// Number of events so far, those at fault included.
    pub(crate) fn len(&self) -> usize {
        self.operations.len()
    }

    /// Notes a record that is no event, because it cannot be read.
    pub(crate) fn refuse(&mut self, row: u64, line: u64, detail: &str, raw: String) {
        self.invalid.push(InvalidEvent {
            code: Code::InvalidRecord,
            file: Arc::clone(&self.file),
            row,
            field: None,
            detail: format!("line {line}: {detail}"),
            raw,
            policy: None,
        });
    }

    /// Adds an event with its columns and, in a key change, the cells of its old key by key column.
    ///
    /// # Errors
    /// `INVALID_RECORD` when positions of two kinds of source meet.
    pub(crate) fn push<'c>(
        &mut self,
        event: &Event<'_>,
        cells: impl Fn(usize) -> Cell<'c>,
        old_key: Option<&[Cell<'c>]>,
    ) -> Result<()> {
        let upsert = matches!(
            event.operation,
            SourceOperation::Unspecified
                | SourceOperation::Upsert
                | SourceOperation::Update
                | SourceOperation::Copy
        );
        let mut fault = None;
        for place in 0..self.open.len() {
            let Some(index) = self.open.get(place).copied() else {
                break;
            };
            let added = self.push_cell(index, cells(index), event.operation, upsert);
            fault = fault.or(added);
        }
        self.push_old_key(old_key, &mut fault)?;
        self.push_position(event.position.as_ref())?;
        self.operations.push(event.operation);
        self.numbers.push(event.row);
        self.push_topic(event.topic);
        self.partitions.push(event.partition);
        self.offsets.push(event.offset);
        self.kept.append(fault.is_none());
        if let Some(fault) = fault {
            self.invalid.push(InvalidEvent {
                code: fault.code,
                file: Arc::clone(&self.file),
                row: event.row,
                detail: format!(
                    "line {}, field {}: {}",
                    event.line, fault.field, fault.detail
                ),
                field: Some(fault.field),
                raw: (event.raw)(),
                policy: fault.policy,
            });
        }
        Ok(())
    }

    fn push_cell(
        &mut self,
        index: usize,
        cell: Cell<'_>,
        operation: SourceOperation,
        upsert: bool,
    ) -> Option<Fault> {
        let plan = self.plan;
        let column = plan.columns.get(index)?;
        let builder = self.columns.get_mut(index)?;
        let mut authored = true;
        let appended = match cell {
            Cell::Json(raw) => builder.append_json(raw),
            Cell::Typed(raw, source) => append_typed(builder, raw, source),
            Cell::Text(text) => builder.append_text(text),
            Cell::Envelope(Some(value)) => builder.append(value),
            Cell::Arrow(array, row) => append_arrow(builder, array, row),
            Cell::Null | Cell::Envelope(None) => {
                builder.append_null();
                Ok(())
            }
            Cell::Absent | Cell::NotAuthored | Cell::Unavailable => match &column.default {
                Some(default) if operation != SourceOperation::Truncate && cell.is_lacking() => {
                    builder.append_json(Raw(default))
                }
                _ => {
                    let counted = upsert && plan.absent == AbsentFields::Null;
                    authored = counted && matches!(cell, Cell::Absent);
                    self.absent += u64::from(authored);
                    builder.append_null();
                    Ok(())
                }
            },
        };
        // What a delete says of other columns than its key is filler (zero values under NOT NULL).
        let lenient = operation == SourceOperation::Delete && !column.strict;
        if appended.is_err() && lenient {
            authored = false;
        }
        if let Some(authors) = self.authored.get_mut(index) {
            authors.push(authored);
        }
        match appended {
            Ok(()) => None,
            Err(_) if lenient => None,
            Err(Failure::Invalid) => Some(self.misfit(index, cell)),
            Err(Failure::Unrepresentable) => self.unrepresentable(index),
        }
    }

    fn misfit(&mut self, index: usize, cell: Cell<'_>) -> Fault {
        if let (Some(seen), Some(column)) =
            (self.misfits.get_mut(index), self.plan.columns.get(index))
        {
            let needed = match cell {
                Cell::Json(raw) => needed_type(&column.data_type, raw.0.trim_matches('"')),
                Cell::Text(text) => needed_type(&column.data_type, text),
                _ => None,
            };
            if let Some(needed) = needed {
                seen.join(Seen::Typed(needed));
            }
        }
        let (field, type_name) = self.describe(index);
        let detail = format!("the value is no {type_name}");
        Fault {
            field,
            code: Code::InvalidValue,
            detail,
            policy: None,
        }
    }

    fn unrepresentable(&mut self, index: usize) -> Option<Fault> {
        let strict = self
            .plan
            .columns
            .get(index)
            .is_some_and(|column| column.strict);
        let policy = self.plan.unrepresentable_policy();
        if policy.is_none() && !strict {
            self.unrepresentable += 1;
            return None;
        }
        let (field, type_name) = self.describe(index);
        let detail = format!("a {type_name} cannot hold the value");
        let policy = if strict { None } else { policy };
        Some(Fault {
            field,
            code: Code::InvalidValue,
            detail,
            policy,
        })
    }

    fn describe(&self, index: usize) -> (String, String) {
        self.plan
            .columns
            .get(index)
            .map_or_else(Default::default, |column| {
                (
                    column.name.clone(),
                    types::type_name(&column.data_type).unwrap_or_default(),
                )
            })
    }

    fn push_old_key(
        &mut self,
        cells: Option<&[Cell<'_>]>,
        fault: &mut Option<Fault>,
    ) -> Result<()> {
        let plan = self.plan;
        let Some(cells) = cells else {
            if let Some((keys, validity)) = &mut self.old_keys {
                keys.iter_mut().for_each(Column::append_null);
                validity.append(false);
            }
            return Ok(());
        };
        if self.old_keys.is_none() {
            let columns = plan.keys.iter().filter_map(|key| plan.columns.get(*key));
            let mut keys = columns.map(|c| c.builder()).collect::<Result<Vec<_>>>()?;
            let length = self.operations.len();
            keys.iter_mut()
                .for_each(|key| (0..length).for_each(|_| key.append_null()));
            let mut validity = BooleanBufferBuilder::new(length);
            validity.append_n(length, false);
            self.old_keys = Some((keys, validity));
        }
        let Some((keys, validity)) = &mut self.old_keys else {
            return Err(Error::internal("old keys have no columns"));
        };
        let mut whole = Ok(());
        for (position, key) in keys.iter_mut().enumerate() {
            let default = plan
                .keys
                .get(position)
                .and_then(|key| plan.columns.get(*key));
            let default = default.and_then(|column| column.default.as_deref());
            let cell = cells.get(position).copied().unwrap_or(Cell::Absent);
            note(&mut whole, append_key(key, cell, default));
        }
        validity.append(whole.is_ok());
        if whole.is_err() && fault.is_none() {
            *fault = Some(Fault {
                field: "__debezium.oldkey".into(),
                code: Code::InvalidValue,
                detail: "the old key of a key change cannot be read".into(),
                policy: None,
            });
        }
        Ok(())
    }

    /// Records of one topic share its name.
    fn push_topic(&mut self, topic: Option<&str>) {
        let last = self.topics.last().cloned().flatten();
        let same = last.filter(|last| Some(&**last) == topic);
        self.topics.push(same.or_else(|| topic.map(Arc::from)));
    }

    fn push_position(&mut self, position: Option<&Position<'_>>) -> Result<()> {
        if let (None, Some(position)) = (&self.positions, position) {
            self.positions = Some(Positions::new(position.kind, self.operations.len())?);
        }
        match &mut self.positions {
            Some(positions) => positions.push(position),
            None => Ok(()),
        }
    }

    /// Type of the positions, if there is one.
    pub(crate) fn position_type(&self) -> Option<DataType> {
        self.positions.as_ref().map(Positions::data_type)
    }

    /// The batch; empties the builder.
    ///
    /// # Errors
    /// `INTERNAL` when columns fell out of step.
    pub(crate) fn finish(mut self) -> Result<SourceBatch> {
        let length = self.operations.len();
        let (columns, authored) = self.finish_columns(length)?;
        let position = self.positions.as_mut().map(Positions::finish).transpose()?;
        let old_keys = self.finish_old_keys()?;
        let batch = SourceBatch {
            columns,
            authored,
            operations: self.operations,
            position,
            old_keys,
            origin: Origin {
                file: self.file,
                rows: self.numbers,
                topics: where_known(self.topics),
                partitions: where_known(self.partitions),
                offsets: where_known(self.offsets),
            },
            invalid: self.invalid,
            other: self.other,
            absent: self.absent,
            unrepresentable: self.unrepresentable,
            offsets: self.next_offsets,
        };
        let kept = self.kept.finish();
        if kept.count_set_bits() == length {
            Ok(batch)
        } else {
            keep(batch, kept)
        }
    }

    fn finish_columns(
        &mut self,
        length: usize,
    ) -> Result<(RecordBatch, Vec<Option<BooleanBuffer>>)> {
        let mut fields = Vec::new();
        let mut arrays: Vec<ArrayRef> = Vec::new();
        let mut authored = Vec::new();
        let parts = self.plan.columns.iter().zip(&mut self.columns);
        let parts = parts.zip(&mut self.authored).zip(&self.ready);
        for (((column, builder), authors), ready) in parts {
            if let Some(ready) = ready {
                fields.push(Field::new(&column.name, column.data_type.clone(), true));
                arrays.push(Arc::clone(ready));
                authored.push(None);
            } else if authors.any {
                fields.push(Field::new(&column.name, column.data_type.clone(), true));
                arrays.push(builder.finish()?);
                authored.push(authors.bits.as_mut().map(BooleanBufferBuilder::finish));
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(length));
        let schema = Arc::new(Schema::new(fields));
        let columns = RecordBatch::try_new_with_options(schema, arrays, &options)
            .map_err(|e| Error::internal("decoded columns are out of step").with_source(e))?;
        Ok((columns, authored))
    }

    fn finish_old_keys(&mut self) -> Result<Option<StructArray>> {
        let plan = self.plan;
        let Some((mut keys, mut validity)) = self.old_keys.take() else {
            return Ok(None);
        };
        let planned = plan.keys.iter().filter_map(|key| plan.columns.get(*key));
        let fields: Fields = planned
            .map(|c| Field::new(&c.name, c.data_type.clone(), true))
            .collect();
        let arrays = keys
            .iter_mut()
            .map(Column::finish)
            .collect::<Result<Vec<_>>>()?;
        let length = validity.len();
        let nulls = Some(NullBuffer::new(validity.finish()));
        StructArray::try_new_with_length(fields, arrays, nulls, length)
            .map(Some)
            .map_err(|e| Error::internal("old keys are out of step").with_source(e))
    }
}

fn append_key(key: &mut Column, cell: Cell<'_>, default: Option<&str>) -> Parsed<()> {
    match (cell, default) {
        (Cell::Json(raw), _) if !raw.is_null() => key.append_json(raw),
        (Cell::Typed(raw, source), _) if !raw.is_null() => append_typed(key, raw, source),
        (Cell::Absent | Cell::NotAuthored, Some(default)) => key.append_json(Raw(default)),
        _ => {
            key.append_null();
            Err(Failure::Invalid)
        }
    }
}
