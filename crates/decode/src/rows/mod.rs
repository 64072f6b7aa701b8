//! A [`SourceBatch`] under construction: one push an event, column by column, faults kept apart.
//!
//! An event at fault keeps its place until the end, so that columns stay in step; `keep` drops it then.

mod fault;
mod keep;
mod needed;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::builder::BooleanBufferBuilder;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StructArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, Field, Fields, Schema};
use tidegate_change::source::{InvalidEvent, Origin, OtherRecords, Place, SourceOperation};
use tidegate_change::spec::AbsentFields;
use tidegate_change::text::{Failure, Parsed};
use tidegate_change::{Code, Error, Result, SourceBatch};

use self::fault::Fault;
use self::keep::{keep, where_known};
use crate::column::{Column, Scalar, note};
use crate::debezium::{OtherKind, Position, Positions, SourceType, append_typed};
use crate::findings::{FoundAt, two_positions};
use crate::parquet_file::append_arrow;
use crate::plan::DecodePlan;
use crate::records::RecordSource;
use crate::scan::Raw;
use crate::seen::Seen;

/// Most events in a batch, about: halves of a key change are not cut apart.
pub(crate) const BATCH_EVENTS: usize = 1 << 16;

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
    pub(crate) place: Place,
    pub(crate) operation: SourceOperation,
    pub(crate) position: Option<Position<'a>>,
    pub(crate) topic: Option<&'a str>,
}

impl Event<'_> {
    /// An event of a source without envelope.
    pub(crate) fn flat(place: Place) -> Self {
        Self {
            place,
            operation: SourceOperation::Unspecified,
            position: None,
            topic: None,
        }
    }
}

/// The batch so far.
#[derive(Debug)]
pub(crate) struct Rows<'p> {
    plan: &'p DecodePlan,
    source: RecordSource,
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

impl<'p> Rows<'p> {
    pub(crate) fn new(plan: &'p DecodePlan, source: &RecordSource) -> Result<Self> {
        let columns = plan
            .columns
            .iter()
            .map(|c| c.builder())
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            plan,
            source: source.clone(),
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

    /// What the records come from.
    pub(crate) fn source(&self) -> RecordSource {
        self.source.clone()
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
        self.push_position(event)?;
        self.operations.push(event.operation);
        self.numbers.push(event.place.row);
        self.push_topic(event.topic);
        self.partitions.push(event.place.partition);
        self.offsets.push(event.place.offset);
        self.kept.append(fault.is_none());
        if let Some(fault) = fault {
            self.set_apart(event.place, fault);
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

    fn push_position(&mut self, event: &Event<'_>) -> Result<()> {
        let position = event.position.as_ref();
        let line = event.place.line.unwrap_or(event.place.row + 1);
        if let (None, Some(position)) = (&self.positions, position) {
            self.positions = Some(Positions::new(position.kind, self.operations.len())?);
        }
        match &mut self.positions {
            Some(positions) => positions.push(position, line).map_err(|OtherKind| {
                two_positions(&FoundAt {
                    file: Arc::clone(&self.source.file),
                    line,
                })
            }),
            None => Ok(()),
        }
    }

    /// Type of the positions, if there is one.
    pub(crate) fn position_type(&self) -> Option<DataType> {
        self.positions.as_ref().map(Positions::data_type)
    }

    /// Line of the first event that has one.
    pub(crate) fn first_position(&self) -> Option<u64> {
        self.positions.as_ref()?.first_line()
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
                file: self.source.file,
                rows: self.numbers,
                topics: where_known(self.topics),
                partitions: where_known(self.partitions),
                offsets: where_known(self.offsets),
                records: Some(self.source.records),
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
