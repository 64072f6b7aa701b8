//! The end of a run: segment table, file table and footer.

use std::ops::Range;

use super::{HASH_BYTES, MAGIC, Reader, put_hash, seal, unseal};
use crate::entry::{FileKind, FileRef};

/// Bytes of a footer.
pub(crate) const FOOTER_BYTES: usize = 8 + 3 * 8 + 2 * 4 + 3 * 8 + 2 * HASH_BYTES + 4;

/// What stands at the very end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) entries: u64,
    pub(crate) live: u64,
    pub(crate) tombstones: u64,
    pub(crate) segments: u32,
    pub(crate) files: u32,
    /// Where the segment table starts; the file table follows it, then the footer.
    pub(crate) segments_offset: u64,
    pub(crate) files_offset: u64,
    pub(crate) footer_offset: u64,
    pub(crate) first: u128,
    pub(crate) last: u128,
}

impl Footer {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        for number in [self.entries, self.live, self.tombstones] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.segments, self.files] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.segments_offset, self.files_offset, self.footer_offset] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        put_hash(out, self.first);
        put_hash(out, self.last);
        out.extend_from_slice(&MAGIC);
        seal(out, start, self.footer_offset);
    }

    /// Checks and reads the last bytes of a run of this length.
    pub(crate) fn open(bytes: &[u8], run_bytes: u64) -> Option<Self> {
        let footer_offset = run_bytes.checked_sub(u64::try_from(FOOTER_BYTES).ok()?)?;
        let mut reader = Reader(unseal(bytes, footer_offset)?);
        let footer = Self {
            entries: reader.u64()?,
            live: reader.u64()?,
            tombstones: reader.u64()?,
            segments: reader.u32()?,
            files: reader.u32()?,
            segments_offset: reader.u64()?,
            files_offset: reader.u64()?,
            footer_offset: reader.u64()?,
            first: reader.hash()?,
            last: reader.hash()?,
        };
        let ordered = footer.segments_offset <= footer.files_offset
            && footer.files_offset <= footer.footer_offset
            && footer.footer_offset == footer_offset
            && footer.first <= footer.last;
        let known = reader.0 == MAGIC;
        (ordered && known).then_some(footer)
    }
}

/// A segment: where its blocks and, behind them, its page stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) first: u128,
    pub(crate) entries: u32,
    pub(crate) offset: u64,
    pub(crate) blocks_bytes: u32,
    pub(crate) page_bytes: u32,
}

impl Segment {
    pub(crate) fn page_offset(&self) -> u64 {
        self.offset + u64::from(self.blocks_bytes)
    }

    pub(crate) fn page_range(&self) -> Range<u64> {
        self.page_offset()..self.page_offset() + u64::from(self.page_bytes)
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.page_range().end
    }
}

pub(crate) fn encode_segments(out: &mut Vec<u8>, segments: &[Segment], offset: u64) {
    let start = out.len();
    for segment in segments {
        put_hash(out, segment.first);
        out.extend_from_slice(&segment.entries.to_le_bytes());
        out.extend_from_slice(&segment.offset.to_le_bytes());
        out.extend_from_slice(&segment.blocks_bytes.to_le_bytes());
        out.extend_from_slice(&segment.page_bytes.to_le_bytes());
    }
    seal(out, start, offset);
}

/// Checks and reads the segment table: segments follow each other from the magic to the table.
pub(crate) fn open_segments(bytes: &[u8], footer: &Footer) -> Option<Vec<Segment>> {
    let mut reader = Reader(unseal(bytes, footer.segments_offset)?);
    let mut segments: Vec<Segment> = Vec::new();
    let mut place = u64::try_from(MAGIC.len()).ok()?;
    for _ in 0..footer.segments {
        let segment = Segment {
            first: reader.hash()?,
            entries: reader.u32()?,
            offset: reader.u64()?,
            blocks_bytes: reader.u32()?,
            page_bytes: reader.u32()?,
        };
        let rising = segments
            .last()
            .is_none_or(|before| before.first < segment.first);
        if segment.offset != place || !rising {
            return None;
        }
        place = segment.range().end;
        segments.push(segment);
    }
    let entries: u64 = segments.iter().map(|s| u64::from(s.entries)).sum();
    let complete = place == footer.segments_offset && entries == footer.entries;
    (complete && reader.0.is_empty()).then_some(segments)
}

pub(crate) fn encode_files(out: &mut Vec<u8>, files: &[FileRef], offset: u64) {
    let start = out.len();
    for file in files {
        out.push(match file.kind {
            FileKind::Data => 0,
            FileKind::State => 1,
        });
        out.extend_from_slice(
            &u32::try_from(file.path.len())
                .unwrap_or(u32::MAX)
                .to_le_bytes(),
        );
        out.extend_from_slice(file.path.as_bytes());
    }
    seal(out, start, offset);
}

pub(crate) fn open_files(bytes: &[u8], footer: &Footer) -> Option<Vec<FileRef>> {
    let mut reader = Reader(unseal(bytes, footer.files_offset)?);
    let mut files = Vec::new();
    for _ in 0..footer.files {
        let kind = match reader.u8()? {
            0 => FileKind::Data,
            1 => FileKind::State,
            _ => return None,
        };
        let length = usize::try_from(reader.u32()?).ok()?;
        let path = std::str::from_utf8(reader.take(length)?).ok()?;
        files.push(FileRef {
            kind,
            path: path.into(),
        });
    }
    reader.0.is_empty().then_some(files)
}
