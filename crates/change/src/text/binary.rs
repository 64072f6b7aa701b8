//! Bytes as text: base64 (standard alphabet) and hex.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::engine::{DecodePaddingMode, general_purpose};

use super::{Failure, Parsed};

/// Padding is optional on input, because some producers leave it out.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Appends the bytes as base64.
pub fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let length = base64::encoded_len(bytes.len(), true).unwrap_or(usize::MAX);
    out.resize(start.saturating_add(length), b'=');
    let written = out
        .get_mut(start..)
        .map(|place| STANDARD.encode_slice(bytes, place));
    if let Some(Ok(written)) = written {
        out.truncate(start + written);
    }
}

/// Decodes base64, of the standard or the URL alphabet.
///
/// # Errors
/// [`Failure::Invalid`] for any other text.
pub fn parse_base64(text: &str) -> Parsed<Vec<u8>> {
    LENIENT
        .decode(text)
        .or_else(|_| general_purpose::URL_SAFE.decode(text))
        .map_err(|_| Failure::Invalid)
}

/// Decodes hex digits, after an optional `\x` or `0x`.
///
/// # Errors
/// [`Failure::Invalid`] for any other text.
pub fn parse_hex(text: &str) -> Parsed<Vec<u8>> {
    let digits = text
        .strip_prefix("\\x")
        .or_else(|| text.strip_prefix("0x"))
        .unwrap_or(text);
    let pairs = digits.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return Err(Failure::Invalid);
    }
    pairs
        .map(|pair| match *pair {
            [high, low] => Some(hex_digit(high)? << 4 | hex_digit(low)?),
            _ => None,
        })
        .collect::<Option<Vec<u8>>>()
        .ok_or(Failure::Invalid)
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_with_and_without_padding() {
        let mut out = b"x".to_vec();
        write_base64(&[0xde, 0xad], &mut out);
        assert_eq!(out, b"x3q0=");
        assert_eq!(parse_base64("3q0="), Ok(vec![0xde, 0xad]));
        assert_eq!(parse_base64("3q0"), Ok(vec![0xde, 0xad]));
        assert_eq!(parse_base64(""), Ok(vec![]));
        assert_eq!(parse_base64("%"), Err(Failure::Invalid));
    }

    #[test]
    fn hex_takes_both_prefixes() {
        assert_eq!(parse_hex("\\xDEad"), Ok(vec![0xde, 0xad]));
        assert_eq!(parse_hex("0x00"), Ok(vec![0]));
        assert_eq!(parse_hex("abc"), Err(Failure::Invalid));
        assert_eq!(parse_hex("zz"), Err(Failure::Invalid));
    }
}
