//! Turns entries in hash order into the bytes of a run, which can be taken away piece by piece.

use tidegate_change::{Error, Result};

use super::footer::{self, Footer, Segment};
use super::page::{self, BlockPlace};
use super::{BLOCK_ENTRIES_MAX, MAGIC, SEGMENT_BLOCKS_MAX, block};
use crate::entry::{FileKind, FileRef, FileTable, GONE, RawEntry};

/// Writes a run in memory; holds what was not drained, and a few bytes for each segment.
#[derive(Debug)]
pub(crate) struct RunEncoder {
    files: FileTable,
    out: Vec<u8>,
    /// Bytes drained.
    drained: u64,
    block: Vec<RawEntry>,
    /// Of the open segment.
    blocks: Vec<BlockPlace>,
    segment_offset: u64,
    segment_entries: u32,
    segments: Vec<Segment>,
    counts: [u64; 3],
    first: u128,
    last: Option<u128>,
}

impl RunEncoder {
    /// An encoder of an empty run that names these files.
    pub(crate) fn new(files: FileTable) -> Self {
        let out = MAGIC.to_vec();
        Self {
            files,
            segment_offset: wide(out.len()),
            out,
            drained: 0,
            block: Vec::with_capacity(BLOCK_ENTRIES_MAX),
            blocks: Vec::with_capacity(SEGMENT_BLOCKS_MAX),
            segment_entries: 0,
            segments: Vec::new(),
            counts: [0; 3],
            first: 0,
            last: None,
        }
    }

    /// The code that entries name the file by.
    pub(crate) fn code(&mut self, file: &FileRef) -> u32 {
        self.files.code(file)
    }

    /// Appends an entry, whose hash must be above the one before.
    pub(crate) fn push(&mut self, entry: RawEntry) -> Result<()> {
        match self.last {
            Some(last) if entry.hash == last => {
                return Err(Error::internal(
                    "index: two entries of one commit share a hash",
                ));
            }
            Some(last) if entry.hash < last => {
                return Err(Error::internal("index: entries are not in hash order"));
            }
            None => self.first = entry.hash,
            Some(_) => {}
        }
        let class = match (entry.code, self.files.kind(entry.code)) {
            (GONE, _) => 2,
            (_, Some(FileKind::Data)) => 0,
            (_, Some(FileKind::State)) => 1,
            (_, None) => return Err(Error::internal("index: an entry names an unknown file")),
        };
        if let Some(count) = self.counts.get_mut(class) {
            *count += 1;
        }
        self.last = Some(entry.hash);
        self.block.push(entry);
        if self.block.len() == BLOCK_ENTRIES_MAX {
            self.end_block();
        }
        Ok(())
    }

    /// Bytes that wait to be drained.
    pub(crate) fn waiting(&self) -> usize {
        self.out.len()
    }

    /// Takes the bytes that are complete.
    pub(crate) fn drain(&mut self) -> Vec<u8> {
        self.drained += wide(self.out.len());
        std::mem::take(&mut self.out)
    }

    /// Ends the run: its last bytes, its footer and its length; None when it has no entry.
    pub(crate) fn finish(mut self) -> Option<(Vec<u8>, Footer, u64)> {
        self.end_block();
        self.end_segment();
        let last = self.last?;
        let [live, tombstones, gone] = self.counts;
        let segments_offset = self.offset();
        footer::encode_segments(&mut self.out, &self.segments, segments_offset);
        let files_offset = self.offset();
        footer::encode_files(&mut self.out, self.files.files(), files_offset);
        let footer = Footer {
            entries: live + tombstones + gone,
            live,
            tombstones,
            segments: narrow(self.segments.len()),
            files: narrow(self.files.files().len()),
            segments_offset,
            files_offset,
            footer_offset: self.offset(),
            first: self.first,
            last,
        };
        footer.encode(&mut self.out);
        let bytes = self.offset();
        Some((self.out, footer, bytes))
    }

    /// Place in the run of the next byte.
    fn offset(&self) -> u64 {
        self.drained + wide(self.out.len())
    }

    fn end_block(&mut self) {
        let Some(first) = self.block.first().map(|entry| entry.hash) else {
            return;
        };
        let offset = self.offset();
        block::encode(&mut self.out, &self.block, offset);
        self.segment_entries += narrow(self.block.len());
        self.block.clear();
        // A segment holds at most 65,536 entries of at most 20 bytes.
        let end = u32::try_from(self.offset() - self.segment_offset).unwrap_or(u32::MAX);
        self.blocks.push(BlockPlace { first, end });
        if self.blocks.len() == SEGMENT_BLOCKS_MAX {
            self.end_segment();
        }
    }

    fn end_segment(&mut self) {
        let (Some(first), Some(last)) = (self.blocks.first(), self.blocks.last()) else {
            return;
        };
        let (first, blocks_bytes) = (first.first, last.end);
        let page_offset = self.offset();
        page::encode(&mut self.out, &self.blocks, page_offset);
        self.segments.push(Segment {
            first,
            entries: std::mem::take(&mut self.segment_entries),
            offset: self.segment_offset,
            blocks_bytes,
            page_bytes: u32::try_from(self.offset() - page_offset).unwrap_or(u32::MAX),
        });
        self.blocks.clear();
        self.segment_offset = self.offset();
    }
}

fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn narrow(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
