//! The records of a chunk as they came, found again for errors and rejects only.
//!
//! Nothing is kept beside the chunk itself: where its records stand is found out at the first question.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tidegate_change::source::RawRecords;

use crate::chunk::Chunk;
use crate::flat::{CsvRecords, cells_json, json_text};

/// A file with the records of one of its chunks.
#[derive(Clone, Debug)]
pub(crate) struct RecordSource {
    /// Name of the file.
    pub(crate) file: Arc<str>,
    /// Its records.
    pub(crate) records: Arc<dyn RawRecords>,
}

/// Where a record stands.
#[derive(Clone, Debug)]
struct Span {
    line: u64,
    bytes: Range<usize>,
}

/// The place of a chunk's first record, and where all of them stand, once that is asked.
#[derive(Debug)]
struct Index {
    first_row: u64,
    spans: OnceLock<Vec<Span>>,
}

impl Index {
    fn new(chunk: &Chunk) -> Self {
        Self {
            first_row: chunk.first_row,
            spans: OnceLock::new(),
        }
    }

    fn span(&self, row: u64, build: impl FnOnce() -> Vec<Span>) -> Option<&Span> {
        let nth = usize::try_from(row.checked_sub(self.first_row)?).ok()?;
        self.spans.get_or_init(build).get(nth)
    }
}

/// Lines of JSON.
#[derive(Debug)]
pub(crate) struct LineRecords {
    bytes: Bytes,
    first_line: u64,
    /// Whether a blank line is a record.
    counts_blank: bool,
    index: Index,
}

impl LineRecords {
    /// The records of a chunk of lines; `counts_blank` says whether blank lines are records.
    pub(crate) fn of(chunk: &Chunk, bytes: &Bytes, counts_blank: bool) -> RecordSource {
        RecordSource {
            file: Arc::clone(&chunk.name),
            records: Arc::new(Self {
                bytes: bytes.clone(),
                first_line: chunk.first_line,
                counts_blank,
                index: Index::new(chunk),
            }),
        }
    }

    fn span(&self, row: u64) -> Option<&Span> {
        self.index.span(row, || {
            let mut start = 0;
            let lines = self.bytes.split_inclusive(|byte| *byte == b'\n');
            let spans = (self.first_line..).zip(lines).map(|(line, text)| {
                let bytes = start..start + text.len();
                start = bytes.end;
                (text, Span { line, bytes })
            });
            spans
                .filter(|(text, _)| self.counts_blank || !text.trim_ascii().is_empty())
                .map(|(_, span)| span)
                .collect()
        })
    }
}

impl RawRecords for LineRecords {
    fn line(&self, row: u64) -> Option<u64> {
        self.span(row).map(|span| span.line)
    }

    fn json(&self, row: u64) -> Option<String> {
        let text = self.bytes.get(self.span(row)?.bytes.clone())?;
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

/// Records of CSV under a header.
#[derive(Debug)]
pub(crate) struct CsvTexts {
    bytes: Bytes,
    header: Arc<[String]>,
    null_value: Option<String>,
    first_line: u64,
    index: Index,
}

impl CsvTexts {
    /// The records of a chunk of CSV.
    pub(crate) fn of(
        chunk: &Chunk,
        bytes: &Bytes,
        header: &Arc<[String]>,
        null_value: Option<&String>,
    ) -> RecordSource {
        RecordSource {
            file: Arc::clone(&chunk.name),
            records: Arc::new(Self {
                bytes: bytes.clone(),
                header: Arc::clone(header),
                null_value: null_value.cloned(),
                first_line: chunk.first_line,
                index: Index::new(chunk),
            }),
        }
    }

    fn span(&self, row: u64) -> Option<&Span> {
        self.index.span(row, || {
            // A chunk that is no UTF-8 is refused as a whole, and no record of it is asked for.
            let text = std::str::from_utf8(&self.bytes).unwrap_or_default();
            let mut records = CsvRecords::new(text);
            let (mut spans, mut cells, mut start) = (Vec::new(), Vec::new(), 0);
            while let Some(record) = records.next(&mut cells) {
                let (Ok(line) | Err((line, _))) = record;
                let bytes = start..records.position();
                start = bytes.end;
                let line = self.first_line + line;
                spans.push(Span { line, bytes });
            }
            spans
        })
    }
}

impl RawRecords for CsvTexts {
    fn line(&self, row: u64) -> Option<u64> {
        self.span(row).map(|span| span.line)
    }

    fn json(&self, row: u64) -> Option<String> {
        let text = self.bytes.get(self.span(row)?.bytes.clone())?;
        let text = std::str::from_utf8(text).ok()?;
        let mut cells = Vec::new();
        let read = CsvRecords::new(text).next(&mut cells);
        let is_whole = matches!(read, Some(Ok(_))) && cells.len() == self.header.len();
        Some(if is_whole {
            cells_json(self.null_value.as_deref(), &self.header, &cells)
        } else {
            json_text(text.trim_matches(['\r', '\n']))
        })
    }
}
