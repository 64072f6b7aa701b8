//! JSON lines: one object a row.

use bytes::Bytes;
use tidegate_change::Result;
use tidegate_change::source::Place;

use crate::chunk::Chunk;
use crate::findings::{FieldOrder, Infer};
use crate::plan::{DecodePlan, Decoded};
use crate::records::LineRecords;
use crate::rows::{BATCH_EVENTS, Cell, Event, Rows};
use crate::scan::{Malformed, Raw, Scanner};

/// The text of one row, and where it came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowText<'a> {
    /// Physical line, from 1.
    pub(super) line: u64,
    /// The row; None for a record without value.
    pub(super) bytes: Option<&'a [u8]>,
    pub(super) topic: Option<&'a str>,
    pub(super) partition: Option<i64>,
    pub(super) offset: Option<i64>,
}

/// The lines of a chunk that are not blank, with their numbers.
pub(super) fn lines<'a>(chunk: &Chunk, bytes: &'a [u8]) -> impl Iterator<Item = (u64, &'a [u8])> {
    let lines = (chunk.first_line..).zip(bytes.split(|b| *b == b'\n'));
    lines.filter(|(_, bytes)| !bytes.trim_ascii().is_empty())
}

/// Decodes lines that each hold one row.
pub(crate) fn decode_lines(plan: &DecodePlan, chunk: &Chunk, bytes: &Bytes) -> Result<Decoded> {
    let rows = lines(chunk, bytes).map(|(line, bytes)| RowText {
        line,
        bytes: Some(bytes),
        topic: None,
        partition: None,
        offset: None,
    });
    decode_rows(plan, chunk, bytes, rows)
}

/// Decodes the texts of rows.
pub(super) fn decode_rows<'a>(
    plan: &DecodePlan,
    chunk: &Chunk,
    bytes: &Bytes,
    texts: impl Iterator<Item = RowText<'a>>,
) -> Result<Decoded> {
    let source = LineRecords::of(chunk, bytes, false);
    let mut fields = FieldOrder::new(plan, &chunk.name);
    let mut batches = Vec::new();
    let mut rows = Rows::new(plan, &source)?;
    let mut slots: Vec<Option<Raw<'_>>> = vec![None; plan.columns.len()];
    for (row, text) in (chunk.first_row..).zip(texts) {
        fields.at(text.line);
        add_row(&mut rows, &mut fields, &mut slots, row, &text)?;
        if rows.len() >= BATCH_EVENTS {
            let full = std::mem::replace(&mut rows, Rows::new(plan, &source)?);
            batches.push(fields.take(full)?);
        }
    }
    batches.push(fields.take(rows)?);
    Ok(Decoded {
        batches,
        findings: fields.findings(),
    })
}

fn add_row<'a>(
    rows: &mut Rows<'_>,
    fields: &mut FieldOrder<'_>,
    slots: &mut Vec<Option<Raw<'a>>>,
    row: u64,
    text: &RowText<'a>,
) -> Result<()> {
    let Some(bytes) = text.bytes else {
        rows.other.count("null");
        return Ok(());
    };
    let place = Place {
        row,
        line: Some(text.line),
        partition: text.partition,
        offset: text.offset,
    };
    let topic = text.topic;
    let Ok(text) = std::str::from_utf8(bytes) else {
        rows.refuse(place, "no UTF-8");
        return Ok(());
    };
    slots.fill(None);
    let mut scanner = Scanner::new(text);
    let scanned = fields.object(&mut scanner, slots, Infer::All);
    if scanned == Err(Malformed) || scanner.peek().is_some() {
        rows.refuse(place, "no JSON object");
        return Ok(());
    }
    let event = Event {
        topic,
        ..Event::flat(place)
    };
    let cell = |index: usize| match slots.get(index) {
        Some(Some(raw)) => Cell::Json(*raw),
        _ => Cell::Absent,
    };
    rows.push(&event, cell, None)
}
