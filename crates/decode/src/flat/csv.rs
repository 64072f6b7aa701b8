//! CSV by RFC 4180 with a header: an empty cell is NULL, `""` the empty string.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_change::source::Place;
use tidegate_change::{Code, Error, Result, json};

use crate::chunk::Chunk;
use crate::findings::FieldOrder;
use crate::plan::{DecodePlan, Decoded};
use crate::records::CsvTexts;
use crate::rows::{BATCH_EVENTS, Cell, Event, Rows};

/// One cell of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CsvCell<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) quoted: bool,
}

/// A record that breaks the format.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BrokenCsv;

/// The records of a text.
#[derive(Debug)]
pub(crate) struct CsvRecords<'a> {
    text: &'a str,
    position: usize,
    line: u64,
}

impl<'a> CsvRecords<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            text,
            position: 0,
            line: 0,
        }
    }

    /// Reads the next record that is not blank; gives its line, from 0.
    pub(crate) fn next(
        &mut self,
        cells: &mut Vec<CsvCell<'a>>,
    ) -> Option<Result<u64, (u64, BrokenCsv)>> {
        cells.clear();
        while let Some(rest) = self.text.as_bytes().get(self.position..) {
            match rest {
                [] => return None,
                [b'\n', ..] => self.position += 1,
                [b'\r', b'\n', ..] => self.position += 2,
                _ => break,
            }
            self.line += 1;
        }
        let line = self.line;
        loop {
            let Ok(cell) = self.cell() else {
                self.skip_line();
                return Some(Err((line, BrokenCsv)));
            };
            cells.push(cell);
            match self.text.as_bytes().get(self.position) {
                Some(b',') => self.position += 1,
                Some(b'\r') => {
                    self.position += 2;
                    self.line += 1;
                    return Some(Ok(line));
                }
                Some(_) => {
                    self.position += 1;
                    self.line += 1;
                    return Some(Ok(line));
                }
                None => return Some(Ok(line)),
            }
        }
    }

    /// The text of the record that was read last began here.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    fn cell(&mut self) -> Result<CsvCell<'a>, BrokenCsv> {
        let bytes = self
            .text
            .as_bytes()
            .get(self.position..)
            .unwrap_or_default();
        if let Some(quoted) = bytes.strip_prefix(b"\"") {
            return self.quoted_cell(quoted);
        }
        let end = bytes
            .iter()
            .position(|b| matches!(b, b',' | b'\n'))
            .unwrap_or(bytes.len());
        let cut = bytes.get(..end).unwrap_or_default();
        let carriage = cut.ends_with(b"\r") && bytes.get(end) != Some(&b',');
        let end = end - usize::from(carriage && bytes.get(end).is_some());
        let text = self
            .text
            .get(self.position..self.position + end)
            .ok_or(BrokenCsv)?;
        self.position += end;
        Ok(CsvCell {
            text: Cow::Borrowed(text),
            quoted: false,
        })
    }

    fn quoted_cell(&mut self, bytes: &[u8]) -> Result<CsvCell<'a>, BrokenCsv> {
        let start = self.position + 1;
        let mut length = 0;
        let mut doubled = false;
        loop {
            let rest = bytes.get(length..).unwrap_or_default();
            length += rest.iter().position(|b| *b == b'"').ok_or(BrokenCsv)?;
            if bytes.get(length + 1) != Some(&b'"') {
                break;
            }
            doubled = true;
            length += 2;
        }
        let text = self.text.get(start..start + length).ok_or(BrokenCsv)?;
        match bytes.get(length + 1..).unwrap_or_default() {
            [] | [b',' | b'\n', ..] | [b'\r', b'\n', ..] => {}
            _ => return Err(BrokenCsv),
        }
        let lines = text.bytes().filter(|b| *b == b'\n').count();
        self.line += u64::try_from(lines).unwrap_or(0);
        self.position = start + length + 1;
        let text = if doubled {
            Cow::Owned(text.replace("\"\"", "\""))
        } else {
            Cow::Borrowed(text)
        };
        Ok(CsvCell { text, quoted: true })
    }

    fn skip_line(&mut self) {
        let rest = self
            .text
            .as_bytes()
            .get(self.position..)
            .unwrap_or_default();
        let length = rest
            .iter()
            .position(|b| *b == b'\n')
            .map_or(rest.len(), |end| end + 1);
        self.position += length;
        self.line += 1;
    }
}

/// Where records end, found without reading cells.
pub(crate) struct CsvBoundary;

impl CsvBoundary {
    /// The end of the first record that is not blank, or 0.
    pub(crate) fn first(bytes: &[u8]) -> usize {
        let mut end = 0;
        walk(bytes, |position, blank| {
            end = position;
            blank
        });
        end
    }

    /// The end of the last record, or 0.
    pub(crate) fn last(bytes: &[u8]) -> usize {
        let mut end = 0;
        walk(bytes, |position, _| {
            end = position;
            true
        });
        end
    }

    /// Number of records that are not blank, an open last one included.
    pub(crate) fn records(bytes: &[u8]) -> u64 {
        let (mut count, mut end) = (0, 0);
        walk(bytes, |position, blank| {
            end = position;
            count += u64::from(!blank);
            true
        });
        count + u64::from(end < bytes.len())
    }
}

/// Calls back at each record's end, with whether the record is blank, until the callback says no.
fn walk(bytes: &[u8], mut ended: impl FnMut(usize, bool) -> bool) {
    // A quote only counts in a cell that begins with one; there a second one right after continues it.
    let (mut quoted, mut quotable, mut cell, mut start) = (false, false, 0, 0);
    for (position, byte) in bytes.iter().enumerate() {
        match byte {
            b'"' if position == cell => (quoted, quotable) = (true, true),
            b'"' if quotable => quoted = !quoted,
            b',' if !quoted => (quotable, cell) = (false, position + 1),
            b'\n' if !quoted => {
                let record = bytes.get(start..position).unwrap_or_default();
                start = position + 1;
                (quotable, cell) = (false, start);
                if !ended(start, matches!(record, [] | [b'\r'])) {
                    return;
                }
            }
            _ => {}
        }
    }
}

/// Decodes records under a header.
pub(crate) fn decode_csv(
    plan: &DecodePlan,
    chunk: &Chunk,
    header: &Arc<[String]>,
    bytes: &Bytes,
) -> Result<Decoded> {
    let null_value = plan.null_value.as_deref();
    let source = CsvTexts::of(chunk, bytes, header, plan.null_value.as_ref());
    let text = std::str::from_utf8(bytes).map_err(|_| {
        let message = format!(
            "CSV is no UTF-8, in the text from line {} on",
            chunk.first_line
        );
        Error::new(Code::InvalidRecord, message)
    })?;
    let mut fields = FieldOrder::new(plan, &chunk.name);
    let slots: Vec<Option<usize>> = header.iter().map(|name| fields.column(name)).collect();
    let mut by_column: Vec<Option<usize>> = vec![None; plan.columns.len()];
    for (position, column) in slots.iter().enumerate() {
        if let Some(place) = column.and_then(|column| by_column.get_mut(column)) {
            *place = Some(position);
        }
    }
    let mut batches = Vec::new();
    let mut rows = Rows::new(plan, &source)?;
    let mut records = CsvRecords::new(text);
    let mut cells = Vec::new();
    let mut row = chunk.first_row;
    while let Some(record) = records.next(&mut cells) {
        let (line, fault) = match record {
            Ok(line) if cells.len() == header.len() => (line, None),
            Ok(line) => (line, Some("another number of cells than the header has")),
            Err((line, BrokenCsv)) => (line, Some("a quoted cell that does not end")),
        };
        let line = chunk.first_line + line;
        let place = Place {
            row,
            line: Some(line),
            ..Place::default()
        };
        fields.at(line);
        match fault {
            Some(fault) => rows.refuse(place, fault),
            None => {
                for (name, (cell, column)) in header.iter().zip(cells.iter().zip(&slots)) {
                    if column.is_none() && !is_null(null_value, cell) {
                        fields.observe_text(name, &cell.text, cell.quoted);
                    }
                }
                push(&mut rows, null_value, place, &cells, &by_column)?;
            }
        }
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

fn push(
    rows: &mut Rows<'_>,
    null_value: Option<&str>,
    place: Place,
    cells: &[CsvCell<'_>],
    by_column: &[Option<usize>],
) -> Result<()> {
    let cell = |index: usize| match by_column.get(index) {
        Some(Some(position)) => match cells.get(*position) {
            Some(cell) if is_null(null_value, cell) => Cell::Null,
            Some(cell) => Cell::Text(&cell.text),
            None => Cell::Null,
        },
        // The file's schema lacks the column (R-N5).
        _ => Cell::NotAuthored,
    };
    rows.push(&Event::flat(place), cell, None)
}

fn is_null(null_value: Option<&str>, cell: &CsvCell<'_>) -> bool {
    !cell.quoted && (cell.text.is_empty() || null_value == Some(&*cell.text))
}

/// A record as a JSON object of its cells.
pub(crate) fn cells_json(
    null_value: Option<&str>,
    header: &[String],
    cells: &[CsvCell<'_>],
) -> String {
    let mut out = b"{".to_vec();
    for (name, cell) in header.iter().zip(cells) {
        if out.len() > 1 {
            out.push(b',');
        }
        json::write_string(name, &mut out);
        out.push(b':');
        if is_null(null_value, cell) {
            out.extend_from_slice(b"null");
        } else {
            json::write_string(&cell.text, &mut out);
        }
    }
    out.push(b'}');
    String::from_utf8_lossy(&out).into_owned()
}

/// A text as a JSON string.
pub(crate) fn json_text(text: &str) -> String {
    let mut out = Vec::new();
    json::write_string(text, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &str) -> Vec<Option<Vec<(String, bool)>>> {
        let mut records = CsvRecords::new(text);
        let mut cells = Vec::new();
        let mut all = Vec::new();
        while let Some(record) = records.next(&mut cells) {
            let row = cells
                .iter()
                .map(|cell| (cell.text.to_string(), cell.quoted))
                .collect();
            all.push(record.ok().map(|_| row));
        }
        all
    }

    fn plain(cells: &[&str]) -> Option<Vec<(String, bool)>> {
        Some(
            cells
                .iter()
                .map(|cell| ((*cell).to_owned(), false))
                .collect(),
        )
    }

    #[test]
    fn records_follow_the_rfc() {
        assert_eq!(
            records("a,b\r\n1,\r\n\n2,x"),
            [plain(&["a", "b"]), plain(&["1", ""]), plain(&["2", "x"]),]
        );
        assert_eq!(
            records("\"a\"\"b\",\"\",\"c\nd\"\n1"),
            [
                Some(vec![
                    ("a\"b".into(), true),
                    (String::new(), true),
                    ("c\nd".into(), true)
                ]),
                plain(&["1"]),
            ]
        );
        assert_eq!(records("a,"), [plain(&["a", ""])]);
        assert_eq!(records("5\" pipe,x\n"), [plain(&["5\" pipe", "x"])]);
        assert_eq!(records("\"open\nx,y\n"), [None, plain(&["x", "y"])]);
        assert_eq!(records("\"a\"b\n1\n"), [None, plain(&["1"])]);
    }

    #[test]
    fn boundaries_are_where_records_end() {
        let text = b"\n\"a\nb\",\"x\"\"\n\"\n1,5\" y\nopen,\"";
        assert_eq!(CsvBoundary::first(text), 14);
        assert_eq!(CsvBoundary::last(text), 21);
        assert_eq!(CsvBoundary::records(text), 3);
        assert_eq!(CsvBoundary::records(b"a\n\n\r\nb"), 2);
    }
}
