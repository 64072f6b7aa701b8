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

/// Decodes lines that each hold one row.
pub(crate) fn decode_lines(plan: &DecodePlan, chunk: &Chunk, bytes: &[u8]) -> Result<Decoded> {
    let mut fields = FieldOrder::new(plan);
    let mut batches = Vec::new();
    let mut rows = Rows::new(plan, &chunk.name)?;
    let mut row = chunk.first_row;
    let mut slots: Vec<Option<Raw<'_>>> = vec![None; plan.columns.len()];
    for (line, bytes) in (chunk.first_line..).zip(bytes.split(|b| *b == b'\n')) {
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        add_line(&mut rows, &mut fields, &mut slots, (row, line), bytes)?;
        row += 1;
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

fn add_line<'a>(
    rows: &mut Rows<'_>,
    fields: &mut FieldOrder<'_>,
    slots: &mut Vec<Option<Raw<'a>>>,
    (row, line): (u64, u64),
    bytes: &'a [u8],
) -> Result<()> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        rows.refuse(
            row,
            line,
            "no UTF-8",
            String::from_utf8_lossy(bytes).into_owned(),
        );
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
        topic: None,
        partition: None,
        offset: None,
        raw: &raw,
    };
    let cell = |index: usize| match slots.get(index) {
        Some(Some(raw)) => Cell::Json(*raw),
        _ => Cell::Absent,
    };
    rows.push(&event, cell, None)
}
