//! The bytes of one vector: magic, then the portable form of 64-bit Roaring bitmaps.

use roaring::RoaringTreemap;
use tidegate_change::{Error, Result};

use super::DeletionVector;

/// Begins the portable form, little-endian.
const MAGIC: u32 = 1_681_511_377;

pub(super) fn encoded_bytes(vector: &DeletionVector) -> usize {
    vector.0.serialized_size() + size_of::<u32>()
}

pub(super) fn encode(vector: &DeletionVector) -> Result<Vec<u8>> {
    let bitmap = &vector.0;
    let mut bytes = Vec::with_capacity(encoded_bytes(vector));
    bytes.extend_from_slice(&MAGIC.to_le_bytes());
    bitmap
        .serialize_into(&mut bytes)
        .map_err(|e| Error::internal("deletion vector: cannot be serialised").with_source(e))?;
    Ok(bytes)
}

pub(super) fn decode(name: &str, bytes: &[u8]) -> Result<DeletionVector> {
    let damaged = |what: &str| Error::corrupt(format!("deletion vector {name}: {what}"));
    let (magic, rest) = bytes
        .split_first_chunk::<4>()
        .ok_or_else(|| damaged("no magic number"))?;
    if u32::from_le_bytes(*magic) != MAGIC {
        return Err(damaged("another magic number"));
    }
    // The checked form: bytes of a foreign writer must not build an inconsistent bitmap.
    let mut rest = rest;
    let bitmap = RoaringTreemap::deserialize_from(&mut rest)
        .map_err(|e| damaged("no Roaring bitmap").with_source(e))?;
    if rest.is_empty() {
        Ok(DeletionVector(bitmap))
    } else {
        Err(damaged("bytes after the bitmap"))
    }
}
