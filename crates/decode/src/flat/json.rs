//! JSON lines: one object a row.

use tidegate_change::Result;
use tidegate_change::source::SourceOperation;

use crate::chunk::Chunk;
use crate::findings::FieldOrder;
use crate::plan::{DecodePlan, Decoded};
use crate::rows::{Cell, Event, Rows};
use crate::scan::{Malformed, Raw, Scanner};

/// Most events in a batch.
pub(crate) const BATCH_EVENTS: usize = 1 << 16;

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

/// Decodes lines that each hold one row.
pub(crate) fn decode_lines(plan: &DecodePlan, chunk: &Chunk, bytes: &[u8]) -> Result<Decoded> {
    let lines = (chunk.first_line..).zip(bytes.split(|b| *b == b'\n'));
    let rows = lines.filter(|(_, bytes)| !bytes.trim_ascii().is_empty());
    let rows = rows.map(|(line, bytes)| RowText {
        line,
        bytes: Some(bytes),
        topic: None,
        partition: None,
        offset: None,
    });
    decode_rows(plan, chunk, rows)
}

/// Decodes the texts of rows.
pub(super) fn decode_rows<'a>(
    plan: &DecodePlan,
    chunk: &Chunk,
    texts: impl Iterator<Item = RowText<'a>>,
) -> Result<Decoded> {
    let mut fields = FieldOrder::new(plan);
    let mut batches = Vec::new();
    let mut rows = Rows::new(plan, &chunk.name)?;
    let mut slots: Vec<Option<Raw<'_>>> = vec![None; plan.columns.len()];
    for (row, text) in (chunk.first_row..).zip(texts) {
        add_row(&mut rows, &mut fields, &mut slots, row, &text)?;
        if rows.len() >= BATCH_EVENTS {
            let full = std::mem::replace(&mut rows, Rows::new(plan, &chunk.name)?);
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
    place: &RowText<'a>,
) -> Result<()> {
    let Some(bytes) = place.bytes else {
        rows.other.count("null");
        return Ok(());
    };
    let line = place.line;
    let Ok(text) = std::str::from_utf8(bytes) else {
        let raw = String::from_utf8_lossy(bytes).into_owned();
        rows.refuse(row, line, "no UTF-8", raw);
        return Ok(());
    };
    slots.fill(None);
    let mut scanner = Scanner::new(text);
    let scanned = fields.object(&mut scanner, slots, true);
    if scanned == Err(Malformed) || scanner.peek().is_some() {
        rows.refuse(row, line, "no JSON object", text.to_owned());
        return Ok(());
    }
    let raw = || text.to_owned();
    let event = Event {
        row,
        line,
        operation: SourceOperation::Unspecified,
        position: None,
        topic: place.topic,
        partition: place.partition,
        offset: place.offset,
        raw: &raw,
    };
    let cell = |index: usize| match slots.get(index) {
        Some(Some(raw)) => Cell::Json(*raw),
        _ => Cell::Absent,
    };
    rows.push(&event, cell, None)
}
