//! Base85 in the alphabet of ZeroMQ's Z85, which descriptors use.

const ALPHABET: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/// Encodes bytes, whose number is a multiple of four.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() / 4 * 5);
    let (words, _) = bytes.as_chunks::<4>();
    for word in words {
        let mut value = u32::from_be_bytes(*word);
        let mut digits = [0u8; 5];
        for digit in digits.iter_mut().rev() {
            let index = usize::try_from(value % 85).unwrap_or_default();
            *digit = ALPHABET.get(index).copied().unwrap_or_default();
            value /= 85;
        }
        text.extend(digits.map(char::from));
    }
    text
}

/// Decodes text; None when it is not the encoding of any bytes.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let (groups, rest) = text.as_bytes().as_chunks::<5>();
    if !rest.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(groups.len() * 4);
    for group in groups {
        let mut value = 0u32;
        for c in group {
            let digit = ALPHABET.iter().position(|letter| letter == c)?;
            value = value
                .checked_mul(85)?
                .checked_add(u32::try_from(digit).ok()?)?;
        }
        bytes.extend_from_slice(&value.to_be_bytes());
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_that_of_zeromq() {
        let bytes = [0x86, 0x4f, 0xd2, 0x6f, 0xb5, 0x59, 0xf7, 0x5b];
        assert_eq!(encode(&bytes), "HelloWorld");
        assert_eq!(decode("HelloWorld").unwrap(), bytes);
        assert_eq!(decode("Hello"), Some(vec![0x86, 0x4f, 0xd2, 0x6f]));
        assert_eq!(decode("Hell"), None);
        assert_eq!(decode("#####"), None);
        assert_eq!(decode("~~~~~"), None);
    }
}
