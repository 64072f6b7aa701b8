//! What a record is, and the events that it makes.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_change::Result;
use tidegate_change::source::{Place, SourceOperation};

use super::envelope::envelope_value;
use super::image::{Image, is_document, unwrapped};
use super::key_change::{FirstHalf, old_key_header};
use super::record::Record;
use super::schema::{Binding, Described, RowSchema, Schemas};
use super::source_block::{SourceBlock, plain, whole};
use crate::chunk::Chunk;
use crate::findings::FieldOrder;
use crate::plan::{DecodePlan, Decoded};
use crate::records::LineRecords;
use crate::rows::{BATCH_EVENTS, Cell, Event, Rows};
use crate::scan::{Kind, Malformed, Raw, Scanned};

/// Decodes lines that each hold one record.
pub(crate) fn decode_lines(plan: &DecodePlan, chunk: &Chunk, bytes: &Bytes) -> Result<Decoded> {
    let source = LineRecords::of(chunk, bytes, true);
    let mut decoder = Decoder {
        plan,
        rows: Rows::new(plan, &source)?,
        fields: FieldOrder::new(plan, &chunk.name),
        key_fields: FieldOrder::new(plan, &chunk.name),
        values: Schemas::new(Described::Envelope),
        keys: Schemas::new(Described::Key),
        first_half: None,
        offsets: Vec::new(),
        has_metadata: plan.columns.iter().any(|column| column.metadata.is_some()),
    };
    let mut batches = Vec::new();
    let lines = bytes
        .strip_suffix(b"\n")
        .unwrap_or(bytes)
        .split(|b| *b == b'\n');
    for (place, line) in lines.enumerate() {
        let place = u64::try_from(place).unwrap_or(u64::MAX);
        let line_number = chunk.first_line + place;
        let place = Place {
            row: chunk.first_row + place,
            line: Some(line_number),
            ..Place::default()
        };
        decoder.fields.at(line_number);
        match std::str::from_utf8(line) {
            Ok(line) => decoder.add_line(line, place)?,
            Err(_) => decoder.rows.refuse(place, "no UTF-8"),
        }
        if decoder.rows.len() >= BATCH_EVENTS && decoder.first_half.is_none() {
            batches.push(decoder.take_batch()?);
        }
    }
    batches.push(decoder.take_batch()?);
    let findings = decoder.fields.findings();
    findings
        .check_tables()
        .map_err(|e| e.context(&chunk.name))?;
    Ok(Decoded { batches, findings })
}

pub(super) struct Decoder<'p> {
    pub(super) plan: &'p DecodePlan,
    rows: Rows<'p>,
    pub(super) fields: FieldOrder<'p>,
    /// Keys have other fields than rows, in an order of their own; what they lack is no finding.
    pub(super) key_fields: FieldOrder<'p>,
    values: Schemas,
    pub(super) keys: Schemas,
    first_half: Option<FirstHalf>,
    /// Topic, partition and next offset.
    offsets: Vec<(String, i64, i64)>,
    has_metadata: bool,
}

/// What is common to the events of a record.
struct Context<'r, 'a> {
    record: &'r Record<'a>,
    source: &'r SourceBlock<'a>,
    place: Place,
    binding: Option<Arc<Binding>>,
}

impl<'p> Decoder<'p> {
    fn take_batch(&mut self) -> Result<tidegate_change::SourceBatch> {
        let next = Rows::new(self.plan, &self.rows.source())?;
        let mut full = std::mem::replace(&mut self.rows, next);
        for (topic, partition, next) in self.offsets.drain(..) {
            full.next_offsets
                .insert(format!("{topic}/{partition}"), next);
        }
        self.fields.take(full)
    }

    /// Adds one record.
    fn add_line(&mut self, line: &str, mut place: Place) -> Result<()> {
        let Ok(record) = Record::scan(self.plan, &mut self.values, line) else {
            self.rows.refuse(place, "no JSON object");
            return Ok(());
        };
        place.partition = whole(record.partition);
        place.offset = whole(record.offset);
        if let Some(wrapped) = record.wrapped {
            return self.add_wrapped(&record, wrapped, place);
        }
        self.note_offset(&record);
        if record.is_null {
            self.rows.other.count("null");
            return Ok(());
        }
        let op = plain(record.op).unwrap_or_default();
        let Some(operation) = operation_of(op) else {
            match other_class(&record, op) {
                Some(class) => self.rows.other.count(class),
                None => self.rows.refuse(place, "no Debezium change event"),
            }
            return Ok(());
        };
        let Some(source) = &record.source else {
            let detail = "a change event without source";
            self.rows.refuse_field(place, Some("source"), detail);
            return Ok(());
        };
        if self
            .plan
            .source_table
            .as_deref()
            .is_some_and(|wanted| !source.is_table(wanted))
        {
            self.rows.other.count("other_table");
            return Ok(());
        }
        self.note_table(source);
        let Ok(binding) = self.binding(&record) else {
            let detail = "what it says of the row cannot be read";
            self.rows.refuse_field(place, Some("schema"), detail);
            return Ok(());
        };
        let context = Context {
            record: &record,
            source,
            place,
            binding,
        };
        let (field, added) = match operation {
            SourceOperation::Delete => ("before", self.add_delete(&context)?),
            SourceOperation::Truncate => ("op", self.add_truncate(&context)?),
            _ => ("after", self.add_upsert(&context, operation)?),
        };
        if added.is_err() {
            let detail = "a change event without its row";
            self.rows.refuse_field(place, Some(field), detail);
        }
        Ok(())
    }

    /// Dumps of some tools hold key and value as text: they are put in as JSON and read again.
    fn add_wrapped(&mut self, record: &Record<'_>, wrapped: Raw<'_>, place: Place) -> Result<()> {
        let value = wrapped.string().filter(|text| is_document(text));
        let Some(value) = value else {
            self.rows.refuse(place, "no Debezium change event");
            return Ok(());
        };
        let value = if value.trim().is_empty() {
            Cow::Borrowed("null")
        } else {
            value
        };
        let mut line = format!("{{\"value\":{value}");
        let key = record
            .key
            .and_then(Raw::string)
            .filter(|text| is_document(text));
        let key = key.as_deref().or_else(|| record.key.map(|key| key.0));
        let key = key.filter(|key| !key.trim().is_empty());
        let parts = [
            ("key", key),
            ("topic", record.topic.map(|raw| raw.0)),
            ("partition", record.partition.map(|raw| raw.0)),
            ("offset", record.offset.map(|raw| raw.0)),
            ("headers", record.headers.map(|raw| raw.0)),
        ];
        for (name, part) in parts {
            if let Some(part) = part {
                line.push_str(&format!(",\"{name}\":{part}"));
            }
        }
        line.push('}');
        match Record::scan(self.plan, &mut self.values, &line) {
            // A value that is text again would go on for ever.
            Ok(record) if record.wrapped.is_none() => self.add_line(&line, place),
            _ => {
                self.rows.refuse(place, "no Debezium change event");
                Ok(())
            }
        }
    }

    fn note_offset(&mut self, record: &Record<'_>) {
        let (Some(topic), Some(offset)) = (plain(record.topic), whole(record.offset)) else {
            return;
        };
        let partition = whole(record.partition).unwrap_or(0);
        let next = offset.saturating_add(1);
        let same = |known: &&mut (String, i64, i64)| known.0 == topic && known.1 == partition;
        match self.offsets.iter_mut().find(same) {
            Some(known) => known.2 = known.2.max(next),
            None => self.offsets.push((topic.to_owned(), partition, next)),
        }
    }

    fn note_table(&mut self, source: &SourceBlock<'_>) {
        let Some(table) = plain(source.table) else {
            return;
        };
        if !self.fields.tables.contains(table) {
            self.fields.tables.insert(table.to_owned());
        }
    }

    /// The types of a record's row, where it has a schema that tells them.
    fn binding(&mut self, record: &Record<'_>) -> Scanned<Option<Arc<Binding>>> {
        let Some(schema) = self.values.current().filter(|_| record.has_schema) else {
            return Ok(None);
        };
        let binding = match &schema.row {
            RowSchema::Untyped => return Ok(None),
            RowSchema::Unreadable => return Err(Malformed),
            RowSchema::Typed(binding) => Arc::clone(binding),
        };
        if !schema.reported {
            schema.reported = true;
            binding.report(&mut self.fields);
        }
        Ok(Some(binding))
    }

    fn add_upsert(
        &mut self,
        context: &Context<'_, '_>,
        operation: SourceOperation,
    ) -> Result<Scanned<()>> {
        let record = context.record;
        let binding = context.binding.clone();
        let Some(after) = record.after.filter(|after| after.kind() == Kind::Object) else {
            return Ok(Err(Malformed));
        };
        let Ok(image) = self.image(after, binding.clone()) else {
            return Ok(Err(Malformed));
        };
        let header = record.headers.and_then(old_key_header).map(unwrapped);
        let half = self
            .first_half
            .take()
            .filter(|_| plain(record.op) == Some("c"));
        if let Some(header) = &header {
            let old = self.key_image(Raw(header), binding);
            let Ok(old) = old else {
                return Ok(Err(Malformed));
            };
            return self
                .push(context, operation, |column| image.cell(column), Some(&old))
                .map(Ok);
        }
        if let Some(half) = half.filter(|half| context.source.tie().as_ref() == Some(&half.tie)) {
            let Ok(old) = self.key_image(Raw(&half.key), half.binding.clone()) else {
                return Ok(Err(Malformed));
            };
            if self.is_other_key(&old, &image) {
                let old = Some(&old);
                return self
                    .push(context, operation, |column| image.cell(column), old)
                    .map(Ok);
            }
        }
        if let Some(before) = record.before.filter(|before| before.kind() == Kind::Object) {
            let Ok(old) = self.image(before, binding) else {
                return Ok(Err(Malformed));
            };
            if self.is_other_key(&old, &image) {
                self.push(
                    context,
                    SourceOperation::Delete,
                    |column| old.cell(column),
                    None,
                )?;
                let old = Some(&old);
                return self
                    .push(context, operation, |column| image.cell(column), old)
                    .map(Ok);
            }
        }
        self.push(context, operation, |column| image.cell(column), None)
            .map(Ok)
    }

    fn add_delete(&mut self, context: &Context<'_, '_>) -> Result<Scanned<()>> {
        let record = context.record;
        let binding = context.binding.clone();
        let before = record.before.filter(|before| before.kind() == Kind::Object);
        if before.is_none() && record.key.is_none() {
            return Ok(Err(Malformed));
        }
        let row = match before {
            Some(before) => self.image(before, binding.clone()),
            None => Ok(Image {
                slots: Vec::new(),
                binding: binding.clone(),
            }),
        };
        let key_text = record.key.map(unwrapped);
        let key = match &key_text {
            Some(key) => self.key_image(Raw(key), binding.clone()).map(Some),
            None => Ok(None),
        };
        let (Ok(row), Ok(key)) = (row, key) else {
            return Ok(Err(Malformed));
        };
        let columns = &self.plan.columns;
        let is_key = |column: usize| self.plan.keys.contains(&column);
        let from_key = |column: usize| {
            is_key(column) && key.as_ref().is_some_and(|key| key.raw(column).is_some())
        };
        let cells: Vec<Cell<'_>> = (0..columns.len())
            .map(|column| match &key {
                Some(key) if from_key(column) => key.cell(column),
                _ => match row.cell(column) {
                    Cell::Absent => Cell::NotAuthored,
                    cell => cell,
                },
            })
            .collect();
        let cell = |column: usize| cells.get(column).copied().unwrap_or(Cell::NotAuthored);
        self.push(context, SourceOperation::Delete, cell, None)?;
        let key = key_text
            .as_deref()
            .or_else(|| before.map(|before| before.0));
        let half = key.zip(context.source.tie());
        self.first_half = half.map(|(key, tie)| FirstHalf {
            key: key.to_owned(),
            binding,
            tie,
        });
        Ok(Ok(()))
    }

    fn add_truncate(&mut self, context: &Context<'_, '_>) -> Result<Scanned<()>> {
        self.first_half = None;
        let cell = |_: usize| Cell::NotAuthored;
        self.push(context, SourceOperation::Truncate, cell, None)
            .map(Ok)
    }

    fn push<'c>(
        &mut self,
        context: &Context<'_, 'c>,
        operation: SourceOperation,
        cells: impl Fn(usize) -> Cell<'c>,
        old_key: Option<&'c Image<'c>>,
    ) -> Result<()> {
        let plan = self.plan;
        let record = context.record;
        if operation != SourceOperation::Delete {
            self.first_half = None;
        }
        let old_cells: Option<Vec<Cell<'c>>> =
            old_key.map(|image| plan.keys.iter().map(|key| image.cell(*key)).collect());
        let event = Event {
            place: context.place,
            operation,
            position: context.source.position(operation),
            topic: plain(record.topic),
        };
        let has_metadata = self.has_metadata;
        let cell = |index: usize| {
            let planned = plan.columns.get(index);
            if has_metadata && let Some(field) = planned.and_then(|column| column.metadata) {
                return Cell::Envelope(envelope_value(field, record, context.source));
            }
            let cell = cells(index);
            match cell {
                Cell::Typed(raw, source) => {
                    let bytes = matches!(source, super::SourceType::Bytes);
                    if plan.placeholder.matches(raw, bytes) {
                        Cell::Unavailable
                    } else {
                        cell
                    }
                }
                Cell::Json(raw) => {
                    let bytes =
                        planned.is_some_and(|c| c.data_type == arrow::datatypes::DataType::Binary);
                    if plan.placeholder.matches(raw, bytes) {
                        Cell::Unavailable
                    } else {
                        cell
                    }
                }
                other => other,
            }
        };
        self.rows.push(&event, cell, old_cells.as_deref())
    }
}

/// The operation that Debezium's letter stands for.
fn operation_of(op: &str) -> Option<SourceOperation> {
    Some(match op {
        "c" => SourceOperation::Upsert,
        "u" => SourceOperation::Update,
        "r" => SourceOperation::Copy,
        "d" => SourceOperation::Delete,
        "t" => SourceOperation::Truncate,
        _ => return None,
    })
}

/// The class of a record that is no row event.
fn other_class(record: &Record<'_>, op: &str) -> Option<&'static str> {
    let signs = &record.signs;
    if op == "m" || (op.is_empty() && signs.message) {
        Some("message")
    } else if !op.is_empty() {
        None
    } else if signs.ddl {
        Some("schema_change")
    } else if signs.status && signs.id {
        Some("transaction")
    } else if record.ts_ms.is_some() && !signs.other && (record.is_dumped() || !signs.outer) {
        Some("heartbeat")
    } else {
        None
    }
}
