//! A page: the directory of a segment's blocks, which stands right behind them.
//!
//! `count u16 | 0 u16 | (first hash, end u32 relative to the segment) … | crc`

use std::ops::Range;

use super::{Reader, SEGMENT_BLOCKS_MAX, put_hash, seal, unseal};

/// First hash of a block and where it ends in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPlace {
    pub(crate) first: u128,
    pub(crate) end: u32,
}

/// Appends the page of these blocks; `offset` is its place in the run.
pub(crate) fn encode(out: &mut Vec<u8>, blocks: &[BlockPlace], offset: u64) {
    let start = out.len();
    out.extend_from_slice(
        &u16::try_from(blocks.len())
            .unwrap_or(u16::MAX)
            .to_le_bytes(),
    );
    out.extend_from_slice(&[0; 2]);
    for block in blocks {
        put_hash(out, block.first);
        out.extend_from_slice(&block.end.to_le_bytes());
    }
    seal(out, start, offset);
}

/// The directory of a segment.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    blocks: Vec<BlockPlace>,
}

impl Page {
    /// Checks and opens the bytes of a page; `blocks_bytes` is the length of its blocks.
    pub(crate) fn open(bytes: &[u8], offset: u64, blocks_bytes: u32) -> Option<Self> {
        let mut reader = Reader(unseal(bytes, offset)?);
        let count = usize::from(reader.u16()?);
        if reader.u16()? != 0 || count == 0 || count > SEGMENT_BLOCKS_MAX {
            return None;
        }
        let mut blocks = Vec::with_capacity(count);
        for _ in 0..count {
            blocks.push(BlockPlace {
                first: reader.hash()?,
                end: reader.u32()?,
            });
        }
        let rising = blocks.is_sorted_by(|a, b| a.first < b.first && a.end < b.end);
        let complete = blocks.last().is_some_and(|last| last.end == blocks_bytes);
        (rising && complete && reader.0.is_empty()).then_some(Self { blocks })
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// First hash of a block.
    pub(crate) fn first(&self, block: usize) -> Option<u128> {
        self.blocks.get(block).map(|place| place.first)
    }

    /// Where a block stands in its segment.
    pub(crate) fn range(&self, block: usize) -> Option<Range<u32>> {
        let start = match block.checked_sub(1) {
            Some(before) => self.blocks.get(before)?.end,
            None => 0,
        };
        Some(start..self.blocks.get(block)?.end)
    }
}
