//! A block: up to 256 entries in hash order, column by column, each column as narrow as its values allow.
//!
//! `count u16 | hash width u8 | code width u8 | row width u8 | 0 u8 | first hash | hash - first … | code … |
//! row … | crc`

use super::{
    BLOCK_ENTRIES_MAX, HASH_BYTES, Reader, get_low, put_hash, put_low, seal, unseal, width_of,
};
use crate::entry::RawEntry;

/// Appends the block of these entries, which are in hash order; `offset` is its place in the run.
pub(crate) fn encode(out: &mut Vec<u8>, entries: &[RawEntry], offset: u64) {
    let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
        return;
    };
    let start = out.len();
    let greatest = |value: fn(&RawEntry) -> u32| entries.iter().map(value).max().unwrap_or(0);
    let hash_width = width_of(last.hash - first.hash);
    let code_width = width_of(u128::from(greatest(|e| e.code)));
    let row_width = width_of(u128::from(greatest(|e| e.row)));
    out.extend_from_slice(
        &u16::try_from(entries.len())
            .unwrap_or(u16::MAX)
            .to_le_bytes(),
    );
    for width in [hash_width, code_width, row_width, 0] {
        out.push(u8::try_from(width).unwrap_or(u8::MAX));
    }
    put_hash(out, first.hash);
    for entry in entries {
        put_low(out, entry.hash - first.hash, hash_width);
    }
    for entry in entries {
        put_low(out, u128::from(entry.code), code_width);
    }
    for entry in entries {
        put_low(out, u128::from(entry.row), row_width);
    }
    seal(out, start, offset);
}

/// A block whose checksum and lengths are right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'a> {
    count: usize,
    first: u128,
    hash_width: usize,
    code_width: usize,
    row_width: usize,
    hashes: &'a [u8],
    codes: &'a [u8],
    rows: &'a [u8],
}

impl<'a> Block<'a> {
    /// Checks and opens the bytes of a block; None when they are not what was written there.
    pub(crate) fn open(bytes: &'a [u8], offset: u64) -> Option<Self> {
        let mut reader = Reader(unseal(bytes, offset)?);
        let count = usize::from(reader.u16()?);
        let hash_width = usize::from(reader.u8()?);
        let code_width = usize::from(reader.u8()?);
        let row_width = usize::from(reader.u8()?);
        let reserved = reader.u8()?;
        let first = reader.hash()?;
        let widths = hash_width <= HASH_BYTES && code_width <= 4 && row_width <= 4;
        if count == 0 || count > BLOCK_ENTRIES_MAX || !widths || reserved != 0 {
            return None;
        }
        // Each column reaches to the block's end, so that fields are read 16 bytes at a time.
        let hashes = reader.0;
        reader.take(count * hash_width)?;
        let codes = reader.0;
        reader.take(count * code_width)?;
        let rows = reader.0;
        reader.take(count * row_width)?;
        let complete = reader.0.is_empty();
        complete.then_some(Self {
            count,
            first,
            hash_width,
            code_width,
            row_width,
            hashes,
            codes,
            rows,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn first(&self) -> u128 {
        self.first
    }

    pub(crate) fn hash(&self, position: usize) -> u128 {
        let width = self.hash_width;
        self.first + get_low(self.hashes, position * width, width).unwrap_or(0)
    }

    pub(crate) fn entry(&self, position: usize) -> RawEntry {
        let narrow = |bytes: &[u8], width: usize| {
            let value = get_low(bytes, position * width, width).unwrap_or(0);
            u32::try_from(value).unwrap_or(u32::MAX)
        };
        RawEntry {
            hash: self.hash(position),
            code: narrow(self.codes, self.code_width),
            row: narrow(self.rows, self.row_width),
        }
    }

    /// Position of the first entry at or above the hash, from `from` on.
    pub(crate) fn lower_bound(&self, hash: u128, from: usize) -> usize {
        let (mut low, mut high) = (from, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.hash(middle) < hash {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}
