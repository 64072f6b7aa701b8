//! Records of a broker whose values are rows: their topics and offsets are kept beside the rows.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate_change::Result;

use super::json::{RowText, decode_rows, lines};
use crate::chunk::Chunk;
use crate::plan::{DecodePlan, Decoded};
use crate::scan::{Raw, Scanned, Scanner};

/// The parts of a record that matter to a row.
#[derive(Debug, Default)]
struct Record {
    topic: Option<String>,
    partition: Option<i64>,
    offset: Option<i64>,
    value: Option<String>,
}

/// Decodes lines that each hold a record with a row as text.
pub(crate) fn decode_records(plan: &DecodePlan, chunk: &Chunk, bytes: &Bytes) -> Result<Decoded> {
    let records: Vec<(u64, &[u8], Option<Record>)> = lines(chunk, bytes)
        .map(|(line, bytes)| (line, bytes, Record::of(bytes)))
        .collect();
    let texts = records.iter().map(|(line, bytes, record)| match record {
        Some(record) => RowText {
            line: *line,
            bytes: record.value.as_deref().map(str::as_bytes),
            topic: record.topic.as_deref(),
            partition: record.partition,
            offset: record.offset,
        },
        // What is no record is no row either, and is refused as one.
        None => RowText {
            line: *line,
            bytes: Some(bytes),
            topic: None,
            partition: None,
            offset: None,
        },
    });
    let mut decoded = decode_rows(plan, chunk, bytes, texts)?;
    let next = next_offsets(records.iter().filter_map(|(_, _, record)| record.as_ref()));
    if let Some(first) = decoded.batches.first_mut() {
        first.offsets.extend(next);
    }
    Ok(decoded)
}

impl Record {
    fn of(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut record = Self::default();
        let mut scanner = Scanner::new(text);
        scanner
            .object(|name, value| record.set(name.plain().unwrap_or_default(), value))
            .ok()?;
        scanner.peek().is_none().then_some(record)
    }

    fn set(&mut self, name: &str, value: Raw<'_>) -> Scanned<()> {
        let text = |value: Raw<'_>| value.string().map(|text| text.into_owned());
        match name {
            "topic" => self.topic = text(value),
            "partition" => self.partition = value.0.parse().ok(),
            "offset" => self.offset = value.0.parse().ok(),
            "value" => self.value = text(value),
            _ => {}
        }
        Ok(())
    }
}

/// Greatest offset + 1 by `topic/partition`, of all records that say both.
fn next_offsets<'a>(records: impl Iterator<Item = &'a Record>) -> BTreeMap<String, i64> {
    let mut next: BTreeMap<(&str, i64), i64> = BTreeMap::new();
    for record in records {
        if let (Some(topic), Some(offset)) = (&record.topic, record.offset) {
            let partition = record.partition.unwrap_or_default();
            let after = offset.saturating_add(1);
            let known = next.entry((topic, partition)).or_insert(after);
            *known = (*known).max(after);
        }
    }
    next.into_iter()
        .map(|((topic, partition), next)| (format!("{topic}/{partition}"), next))
        .collect()
}
