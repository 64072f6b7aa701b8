//! Bytes and spans of time as people write them.

use std::fmt;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidegate_change::spec::parse_duration_ms;

/// Units that bytes are written in, the largest first.
const BYTE_UNITS: [(&str, u64); 5] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// Further units that they are read in.
const DECIMAL_UNITS: [(&str, u64); 4] = [
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
];

const SPAN_UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A number of bytes: `4MiB`, or a plain number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    /// As a length in memory; the largest one where it is longer.
    #[must_use]
    pub fn as_length(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// The number of a text: `4MiB`, `2 gb`, `1000000`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let scale = match unit.trim() {
            "" => 1,
            unit => {
                let mut units = BYTE_UNITS.iter().chain(&DECIMAL_UNITS);
                units.find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1
            }
        };
        number.parse::<u64>().ok()?.checked_mul(scale).map(Self)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled(f, self.0, &BYTE_UNITS)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Written::deserialize(deserializer)? {
            Written::Number(number) => Ok(Self(number)),
            Written::Text(text) => Self::parse(&text).ok_or_else(|| {
                D::Error::custom("bytes are a number, or one with a unit such as MiB")
            }),
        }
    }
}

/// A span of time: `10s`, `500ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(u64);

impl Span {
    /// A span of milliseconds.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// Its milliseconds.
    #[must_use]
    pub fn ms(self) -> u64 {
        self.0
    }

    /// As the standard library has it.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// The span of a text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        u64::try_from(parse_duration_ms(text)?).ok().map(Self)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled(f, self.0, &SPAN_UNITS)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| D::Error::custom("a span is a number with ms, s, m, h, d or w"))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Text(String),
}

/// Writes a number in the largest unit that it is a multiple of.
fn write_scaled(f: &mut fmt::Formatter<'_>, number: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = units
        .iter()
        .find(|(_, scale)| number != 0 && number.is_multiple_of(*scale));
    match fits.or_else(|| units.last()) {
        Some((unit, scale)) => write!(f, "{}{unit}", number / scale),
        None => write!(f, "{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_in_the_largest_whole_unit_and_read_again() {
        for (bytes, text) in [
            (4 << 20, "4MiB"),
            (1500, "1500B"),
            (0, "0B"),
            (3 << 40, "3TiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
            assert_eq!(Bytes::parse(text), Some(Bytes(bytes)));
        }
        for (text, bytes) in [
            ("17", 17),
            ("2 gb", 2_000_000_000),
            ("1kib", 1024),
            ("7b", 7),
        ] {
            assert_eq!(Bytes::parse(text), Some(Bytes(bytes)), "{text}");
        }
        for text in ["", "MiB", "1.5GiB", "-1", "x", "99999999999TiB"] {
            assert_eq!(Bytes::parse(text), None, "{text}");
        }
        for (ms, text) in [
            (10_000, "10s"),
            (90_000, "90s"),
            (120_000, "2m"),
            (5, "5ms"),
        ] {
            assert_eq!(Span(ms).to_string(), text);
            assert_eq!(Span::parse(text), Some(Span(ms)));
        }
        assert_eq!(Span::parse("soon"), None);
    }
}
