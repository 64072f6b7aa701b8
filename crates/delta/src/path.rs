//! File paths in the log: hive-style partition directories, and the URL encoding of `add.path`.
//!
//! Both escape with `%`: the directory name on storage holds hive escapes, and the log encodes that
//! name once more (Delta protocol: "Add File and Remove File").

use std::fmt::Write as _;

use tidegate_change::{Error, Result};

/// Directory of the NULL partition.
pub const NULL_PARTITION: &str = "__HIVE_DEFAULT_PARTITION__";

/// Characters that hive escapes in partition directories, control characters apart.
const HIVE_ESCAPED: &str = "\"#%'*/:=?\\\u{7f}{[]^";

/// The directory of partition values: `a=1/b=x%3Ay/`, empty without partition columns.
#[must_use]
pub fn partition_directory<'a>(
    values: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> String {
    let mut directory = String::new();
    for (column, value) in values {
        hive_escape(column, &mut directory);
        directory.push('=');
        match value {
            None | Some("") => directory.push_str(NULL_PARTITION),
            Some(value) => hive_escape(value, &mut directory),
        }
        directory.push('/');
    }
    directory
}

fn hive_escape(text: &str, out: &mut String) {
    for c in text.chars() {
        if c.is_ascii_control() || HIVE_ESCAPED.contains(c) {
            let _ = write!(out, "%{:02X}", u32::from(c));
        } else {
            out.push(c);
        }
    }
}

/// A relative storage path as the log writes it.
#[must_use]
pub fn encode(relative: &str) -> String {
    let mut encoded = String::with_capacity(relative.len());
    for byte in relative.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~=".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// The storage path that a path of the log names; the inverse of [`encode`].
///
/// # Errors
/// `CORRUPT` for broken escapes, and for absolute paths, which Tidegate's tables never hold.
pub fn decode(encoded: &str) -> Result<String> {
    let damaged = || Error::corrupt(format!("path {encoded}: no URL-encoded relative path"));
    if encoded.starts_with('/') || encoded.contains("://") {
        return Err(damaged());
    }
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let digits = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
            let byte = digits
                .and_then(|hex| u8::from_str_radix(hex, 16).ok())
                .ok_or_else(damaged)?;
            bytes.push(byte);
            rest = tail.get(2..).unwrap_or_default();
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).map_err(|_| damaged())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_escaped_for_hive_and_then_for_the_log() {
        let directory = partition_directory([("c d", Some("a:b/c%é")), ("n", None)]);
        assert_eq!(directory, "c d=a%3Ab%2Fc%25é/n=__HIVE_DEFAULT_PARTITION__/");
        let encoded = encode(&directory);
        assert_eq!(
            encoded,
            "c%20d=a%253Ab%252Fc%2525%C3%A9/n=__HIVE_DEFAULT_PARTITION__/"
        );
        assert_eq!(decode(&encoded).unwrap(), directory);
    }

    #[test]
    fn broken_and_absolute_paths_are_damage() {
        for path in ["a%2", "a%zz", "%ff", "/etc/passwd", "s3://bucket/x"] {
            assert!(decode(path).is_err(), "{path}");
        }
    }
}
