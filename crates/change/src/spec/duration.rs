//! Durations as specs write them: `forever`, `100s`, `7d`.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How long something is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Retention {
    /// Without end.
    #[default]
    Forever,
    /// For a time.
    For {
        /// Milliseconds.
        ms: i64,
    },
}

impl Retention {
    /// The time in milliseconds, if there is an end.
    #[must_use]
    pub fn ms(self) -> Option<i64> {
        match self {
            Self::Forever => None,
            Self::For { ms } => Some(ms),
        }
    }
}

const UNITS: [(&str, i64); 6] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 604_800_000),
];

/// Milliseconds of a duration such as `90s` or `7d`; None when it is not one.
#[must_use]
pub fn parse_duration_ms(text: &str) -> Option<i64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let scale = UNITS.iter().find(|(name, _)| *name == unit.trim())?.1;
    number.parse::<i64>().ok()?.checked_mul(scale)
}

impl Serialize for Retention {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.ms() {
            None => serializer.serialize_str("forever"),
            Some(ms) => {
                let (unit, scale) = UNITS
                    .iter()
                    .rev()
                    .find(|(_, scale)| ms % scale == 0)
                    .unwrap_or(&UNITS[0]);
                serializer.serialize_str(&format!("{}{unit}", ms / scale))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Retention {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "forever" {
            return Ok(Self::Forever);
        }
        parse_duration_ms(&text)
            .map(|ms| Self::For { ms })
            .ok_or_else(|| {
                D::Error::custom("a duration is forever or a number with ms, s, m, h, d or w")
            })
    }
}
