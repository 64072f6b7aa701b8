//! Stored values: a format byte, a CRC32 and JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_change::{Error, Result};

const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 5;

/// The stored form of a value.
pub(crate) fn encode<T: Serialize>(what: &str, value: &T) -> Result<Vec<u8>> {
    let mut bytes = vec![0; HEADER_BYTES];
    serde_json::to_writer(&mut bytes, value)
        .map_err(|e| Error::internal(format!("{what} cannot be written")).with_source(e))?;
    let (header, payload) = bytes.split_at_mut(HEADER_BYTES);
    let crc = crc32fast::hash(payload).to_le_bytes();
    if let Some((format, sum)) = header.split_first_mut() {
        *format = FORMAT;
        sum.copy_from_slice(&crc);
    }
    Ok(bytes)
}

/// The value of a stored form.
pub(crate) fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T> {
    let corrupt = |why: &str| Error::corrupt(format!("{what} of the metadata log {why}"));
    let Some((header, payload)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(corrupt("is cut short"));
    };
    let (format, sum) = match header {
        [format, a, b, c, d] => (*format, [*a, *b, *c, *d]),
        _ => return Err(corrupt("is cut short")),
    };
    if format != FORMAT {
        return Err(corrupt("has a format that this build does not read"));
    }
    if crc32fast::hash(payload) != u32::from_le_bytes(sum) {
        return Err(corrupt("contradicts its checksum"));
    }
    serde_json::from_slice(payload).map_err(|e| corrupt("cannot be read").with_source(e))
}
