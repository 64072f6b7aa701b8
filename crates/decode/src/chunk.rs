//! Inputs cut into chunks of whole records, so that decoding can go on in parallel.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tidegate_change::{Code, Error, Result};

use crate::flat::{CsvBoundary, Needs, parse_header};
use crate::input::{FileFormat, Input, Opened, identify, unreadable, untold};
use crate::parquet_file::{GroupRows, ParquetCutter, ParquetFile};
use crate::plan::{DecodePlan, Envelope};

/// Bytes of text in a chunk, about.
const CHUNK_BYTES: usize = 8 << 20;
/// Longest line or CSV record.
const RECORD_BYTES_MAX: usize = 64 << 20;
/// Lines at a chunk's end that are searched for the first half of a key change.
const PAIR_LINES: usize = 4;

/// A part of an input: whole records with their place.
#[derive(Debug)]
pub struct Chunk {
    pub(crate) name: Arc<str>,
    pub(crate) content: Content,
    pub(crate) first_row: u64,
    pub(crate) first_line: u64,
}

#[derive(Debug)]
pub(crate) enum Content {
    Lines(Bytes),
    /// Lines whose rows are text in a record.
    Records(Bytes),
    Csv {
        header: Arc<[String]>,
        bytes: Bytes,
    },
    Parquet {
        file: ParquetFile,
        rows: GroupRows,
    },
}

impl Chunk {
    /// Number of the first record in the file, from 0.
    #[must_use]
    pub fn first_row(&self) -> u64 {
        self.first_row
    }

    /// Bytes of text that the chunk holds; 0 where it only points into a file.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.content {
            Content::Lines(bytes) | Content::Records(bytes) | Content::Csv { bytes, .. } => {
                bytes.len()
            }
            Content::Parquet { .. } => 0,
        }
    }
}

/// The chunks of an input, in order.
pub struct Chunks {
    name: Arc<str>,
    cutter: Cutter,
    row: u64,
    line: u64,
    failed: bool,
    /// Bytes of the input that were taken.
    taken: Arc<AtomicU64>,
}

enum Cutter {
    Lines {
        text: TextCutter,
        envelope: Envelope,
        are_records: bool,
    },
    Csv {
        text: TextCutter,
        header: Option<Arc<[String]>>,
        needs: Needs,
        is_guessed: bool,
    },
    Parquet(ParquetCutter),
}

impl std::fmt::Debug for Chunks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chunks")
            .field("name", &self.name)
            .field("row", &self.row)
            .finish()
    }
}

/// Opens an input of a table's source; `name` is its name in messages and in `_source_file`.
///
/// Memory holds a chunk, never the input: a Parquet file that must be unpacked first goes to a nameless
/// file in `scratch` if it is large.
///
/// # Errors
/// `UNSUPPORTED` for a kind of file that this build does not read; `INVALID_RECORD` for a file that
/// contradicts its format; `IO` or `STORAGE_FULL` when it cannot be read or unpacked;
/// `RESOURCE_EXHAUSTED` when it must be unpacked and there is no `scratch`.
pub fn open(
    plan: &DecodePlan,
    format: Option<FileFormat>,
    name: &str,
    input: Input,
    scratch: Option<&Path>,
) -> Result<Chunks> {
    let mut taken = Arc::new(AtomicU64::new(0));
    let cutter = match identify(format, name, input, scratch)? {
        Opened::Text(opened) => {
            taken = opened.taken;
            let text = TextCutter::new(opened.reader);
            match opened.format {
                FileFormat::Csv => {
                    plan.check_kind(FileFormat::Csv)
                        .map_err(|e| e.context(name))?;
                    Cutter::Csv {
                        text,
                        header: None,
                        needs: plan.needs.clone(),
                        is_guessed: opened.is_guessed,
                    }
                }
                format => Cutter::Lines {
                    text,
                    envelope: plan.envelope,
                    are_records: format == FileFormat::Records,
                },
            }
        }
        Opened::Parquet(input) => {
            let cutter = plan.check_kind(FileFormat::Parquet);
            let cutter = cutter.and_then(|()| ParquetCutter::new(input));
            Cutter::Parquet(cutter.map_err(|e| e.context(name))?)
        }
    };
    Ok(Chunks {
        taken,
        name: name.into(),
        cutter,
        row: 0,
        line: 1,
        failed: false,
    })
}

impl Iterator for Chunks {
    type Item = Result<Chunk>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self
            .cut()
            .map_err(|e| e.context(format!("{} line {}", self.name, self.line)));
        self.failed = next.is_err();
        next.transpose()
    }
}

impl Chunks {
    /// Bytes of the input that were taken so far, compressed as they are; for progress.
    #[must_use]
    pub fn bytes_taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    fn cut(&mut self) -> Result<Option<Chunk>> {
        match &mut self.cutter {
            Cutter::Lines {
                text,
                envelope,
                are_records,
            } => {
                let pairs = *envelope == Envelope::Debezium;
                let find = |bytes: &[u8], _: bool| line_boundary(bytes, pairs);
                let Some(bytes) = text.next(find)? else {
                    return Ok(None);
                };
                let lines = count_lines(&bytes);
                let rows = if pairs {
                    lines
                } else {
                    lines - count_blank(&bytes)
                };
                // An envelope's decoder knows records by itself.
                let content = match *are_records && !pairs {
                    true => Content::Records(bytes),
                    false => Content::Lines(bytes),
                };
                Ok(Some(self.chunk(content, rows, lines)))
            }
            Cutter::Csv {
                text,
                header,
                needs,
                is_guessed,
            } => {
                if header.is_none() {
                    let Some(bytes) = text.next(|bytes, _| CsvBoundary::first(bytes))? else {
                        return Ok(None);
                    };
                    self.line += count_blank(&bytes);
                    *header = Some(checked_header(&bytes, needs, *is_guessed)?);
                    self.line += count_lines(&bytes) - count_blank(&bytes);
                }
                let header = header.as_ref().map(Arc::clone).unwrap_or_default();
                let last = |bytes: &[u8], _: bool| CsvBoundary::last(bytes);
                let Some(bytes) = text.next(last)? else {
                    return Ok(None);
                };
                let lines = count_lines(&bytes);
                let rows = CsvBoundary::records(&bytes);
                Ok(Some(self.chunk(
                    Content::Csv { header, bytes },
                    rows,
                    lines,
                )))
            }
            Cutter::Parquet(cutter) => {
                let Some((file, rows, bytes)) = cutter.next() else {
                    return Ok(None);
                };
                self.taken.fetch_add(bytes, Ordering::Relaxed);
                let count = u64::try_from(rows.count).unwrap_or(u64::MAX);
                Ok(Some(self.chunk(
                    Content::Parquet { file, rows },
                    count,
                    count,
                )))
            }
        }
    }

    fn chunk(&mut self, content: Content, rows: u64, lines: u64) -> Chunk {
        let chunk = Chunk {
            name: Arc::clone(&self.name),
            content,
            first_row: self.row,
            first_line: self.line,
        };
        self.row += rows;
        self.line += lines;
        chunk
    }
}

/// Reads text and cuts it where a callback finds the end of a record.
struct TextCutter {
    reader: Box<dyn Read + Send>,
    rest: Vec<u8>,
    started: bool,
    ended: bool,
}

impl TextCutter {
    fn new(reader: Box<dyn Read + Send>) -> Self {
        Self {
            reader,
            rest: Vec::new(),
            started: false,
            ended: false,
        }
    }

    /// The next piece. `find` gets the text at hand and says how much of it is whole records.
    fn next(&mut self, find: impl Fn(&[u8], bool) -> usize) -> Result<Option<Bytes>> {
        let mut wanted = CHUNK_BYTES;
        loop {
            self.fill(wanted)?;
            if self.rest.is_empty() {
                return Ok(None);
            }
            let found = find(&self.rest, self.ended);
            if self.ended && (found == 0 || found == self.rest.len()) {
                return Ok(Some(std::mem::take(&mut self.rest).into()));
            }
            if found > 0 {
                let tail = self.rest.split_off(found);
                return Ok(Some(std::mem::replace(&mut self.rest, tail).into()));
            }
            if self.rest.len() >= RECORD_BYTES_MAX {
                let message = "a record is longer than 64 MiB";
                return Err(Error::new(Code::ResourceExhausted, message));
            }
            wanted = self.rest.len().saturating_mul(2);
        }
    }

    fn fill(&mut self, wanted: usize) -> Result<()> {
        let missing = wanted.saturating_sub(self.rest.len());
        if self.ended || missing == 0 {
            return Ok(());
        }
        self.rest.reserve(missing);
        let limit = u64::try_from(missing).unwrap_or(u64::MAX);
        let read = self.reader.by_ref().take(limit).read_to_end(&mut self.rest);
        let read = read.map_err(unreadable)?;
        self.ended = read < missing;
        if !self.started {
            self.started = true;
            if self.rest.starts_with(b"\xef\xbb\xbf") {
                self.rest.drain(..3);
            }
        }
        Ok(())
    }
}

/// The end of the last whole line; with `pairs` not between the halves of a key change, which only
/// their place ties together once a sink has dropped the headers.
fn line_boundary(bytes: &[u8], pairs: bool) -> usize {
    let end = bytes
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |last| last + 1);
    if !pairs {
        return end;
    }
    let mut cut = end;
    for _ in 0..PAIR_LINES {
        let head = bytes.get(..cut.saturating_sub(1)).unwrap_or_default();
        let start = head
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |last| last + 1);
        let line = bytes.get(start..cut).unwrap_or_default();
        if contains(line, b"\"op\":\"d\"") {
            return if start > 0 { start } else { end };
        }
        let null = line.trim_ascii().len() <= 4 || contains(line, b":null}") && line.len() < 4096;
        if !null || start == 0 {
            break;
        }
        cut = start;
    }
    end
}

fn contains(line: &[u8], word: &[u8]) -> bool {
    line.windows(word.len()).any(|window| window == word)
}

fn count_lines(bytes: &[u8]) -> u64 {
    let ends = bytes.iter().filter(|b| **b == b'\n').count();
    let open = usize::from(bytes.last().is_some_and(|last| *last != b'\n'));
    u64::try_from(ends + open).unwrap_or(u64::MAX)
}

fn count_blank(bytes: &[u8]) -> u64 {
    let lines = bytes.split_inclusive(|b| *b == b'\n');
    u64::try_from(lines.filter(|line| line.trim_ascii().is_empty()).count()).unwrap_or(0)
}

/// The names of a CSV header, which must hold what the spec needs; one cell tells nothing of an unnamed kind.
fn checked_header(bytes: &[u8], needs: &Needs, is_guessed: bool) -> Result<Arc<[String]>> {
    let names = parse_header(bytes)?;
    if is_guessed && names.len() == 1 {
        return Err(untold());
    }
    needs.check(&names)?;
    Ok(names)
}
