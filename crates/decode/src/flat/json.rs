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

/// Decodes lines that each hold one row.
pub(crate) fn decode_lines(plan: &DecodePlan, chunk: &Chunk, bytes: &Bytes) -> Result<Decoded> {
    let source = LineRecords::of(chunk, bytes, false);
    let mut fields = FieldOrder::new(plan, &chunk.name);
    let mut batches = Vec::new();
    let mut rows = Rows::new(plan, &source)?;
    let mut row = chunk.first_row;
    let mut slots: Vec<Option<Raw<'_>>> = vec![None; plan.columns.len()];
    for (line, bytes) in (chunk.first_line..).zip(bytes.split(|b| *b == b'\n')) {
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        let place = Place {
            row,
            line: Some(line),
            ..Place::default()
        };
        fields.at(line);
        add_line(&mut rows, &mut fields, &mut slots, place, bytes)?;
        row += 1;
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

fn add_line<'a>(
    rows: &mut Rows<'_>,
    fields: &mut FieldOrder<'_>,
    slots: &mut Vec<Option<Raw<'a>>>,
    place: Place,
    bytes: &'a [u8],
) -> Result<()> {
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
    let cell = |index: usize| match slots.get(index) {
        Some(Some(raw)) => Cell::Json(*raw),
        _ => Cell::Absent,
    };
    rows.push(&Event::flat(place), cell, None)
}
