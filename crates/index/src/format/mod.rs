//! The bytes of a run.
//!
//! ```text
//! magic                                            8 bytes
//! segments: each at most 256 blocks and their page
//!   block: at most 256 entries in hash order       [`block`]
//!   page: first hash and end of each block         [`page`]
//! segment table: first hash and place of each      [`footer`]
//! file table: kind and path of each file           [`footer`]
//! footer: counts, places, first and last hash      [`footer`], fixed size, at the very end
//! ```
//!
//! Everything is little-endian. Block, page, segment table, file table and footer end with a CRC32 that also
//! covers their offset in the run, so that right bytes in a wrong place are found too. A reader checks it
//! before it uses a byte. Nothing here does I/O.

pub(crate) mod block;
pub(crate) mod encoder;
pub(crate) mod footer;
pub(crate) mod page;

/// First and last-but-footer bytes of a run; the digit is the format's version.
pub(crate) const MAGIC: [u8; 8] = *b"TGINDEX1";
/// Most entries of a block.
pub(crate) const BLOCK_ENTRIES_MAX: usize = 256;
/// Most blocks of a segment.
pub(crate) const SEGMENT_BLOCKS_MAX: usize = 256;
/// Bytes of a stored hash.
pub(crate) const HASH_BYTES: usize = 12;

const CRC_BYTES: usize = 4;

/// Appends the CRC of `out[start..]`, which will stand at `offset` in the run.
pub(crate) fn seal(out: &mut Vec<u8>, start: usize, offset: u64) {
    let crc = checksum(out.get(start..).unwrap_or_default(), offset);
    out.extend_from_slice(&crc.to_le_bytes());
}

/// The bytes before the CRC, if it is right.
pub(crate) fn unseal(bytes: &[u8], offset: u64) -> Option<&[u8]> {
    let (content, crc) = bytes.split_last_chunk::<CRC_BYTES>()?;
    (checksum(content, offset) == u32::from_le_bytes(*crc)).then_some(content)
}

fn checksum(content: &[u8], offset: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&offset.to_le_bytes());
    hasher.update(content);
    hasher.finalize()
}

pub(crate) fn put_hash(out: &mut Vec<u8>, hash: u128) {
    put_low(out, hash, HASH_BYTES);
}

/// Appends the low `width` bytes.
pub(crate) fn put_low(out: &mut Vec<u8>, value: u128, width: usize) {
    out.extend(value.to_le_bytes().iter().take(width));
}

/// The value that `width` bytes at `at` hold; None beyond the end.
pub(crate) fn get_low(bytes: &[u8], at: usize, width: usize) -> Option<u128> {
    if let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<16>) {
        let unused = 128 - 8 * u32::try_from(width).ok()?;
        return u128::from_le_bytes(*chunk)
            .checked_shl(unused)
            .map_or(Some(0), |v| Some(v >> unused));
    }
    let slice = bytes.get(at..at.checked_add(width)?)?;
    Some(
        slice
            .iter()
            .rev()
            .fold(0, |value, byte| (value << 8) | u128::from(*byte)),
    )
}

/// Reads fields one after the other.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn hash(&mut self) -> Option<u128> {
        get_low(self.take(HASH_BYTES)?, 0, HASH_BYTES)
    }
}

/// Bytes that hold the value.
pub(crate) fn width_of(value: u128) -> usize {
    let bits = u128::BITS - value.leading_zeros();
    usize::try_from(bits.div_ceil(8)).unwrap_or(16)
}
