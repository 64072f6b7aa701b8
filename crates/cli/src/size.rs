//! Sizes as people write them.

/// Units by their ends, the longer ones first.
const UNITS: [(&str, u64); 7] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("b", 1),
];

/// Bytes of a size: `512MiB`, `2GB`, `1000000`.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let unit = UNITS
        .iter()
        .find_map(|(end, bytes)| Some((lower.strip_suffix(end)?, *bytes)));
    let (number, bytes) = unit.unwrap_or((lower.as_str(), 1));
    let count: Option<u64> = number.trim().parse().ok();
    count
        .and_then(|count| count.checked_mul(bytes))
        .ok_or_else(|| "is no size such as 512MiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_or_are_bytes() {
        let sizes = [
            ("512MiB", 512 << 20),
            ("2 gb", 2_000_000_000),
            ("7", 7),
            ("7b", 7),
            ("1KiB", 1024),
        ];
        for (text, bytes) in sizes {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "1.5GiB", "-1", "999999999999GiB", "1 TB x"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
