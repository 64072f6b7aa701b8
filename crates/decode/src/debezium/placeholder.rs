//! The value that stands for one that the source could not tell, such as an unchanged TOAST column.

use tidegate_change::text::binary;

use crate::scan::{Kind, Raw};

/// Debezium's default.
const DEFAULT: &str = "__debezium_unavailable_value";

/// The placeholder in the forms that it takes by column type (event-formats document, 2.1).
#[derive(Debug)]
pub(crate) struct Placeholder {
    /// As a JSON string.
    plain: String,
    /// As a JSON string, of bytes.
    base64: String,
    hex: String,
    /// In an array of numbers: one element a byte.
    bytes: Vec<u8>,
    /// hstore as JSON text.
    hstore: String,
}

impl Placeholder {
    /// The forms of a text.
    pub(crate) fn new(text: Option<&str>) -> Self {
        let text = text.unwrap_or(DEFAULT);
        let mut base64 = Vec::new();
        binary::write_base64(text.as_bytes(), &mut base64);
        let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        let plain = serde_json::Value::from(text).to_string();
        Self {
            base64: format!("\"{}\"", String::from_utf8_lossy(&base64)),
            hex: format!("\"{hex}\""),
            bytes: text.bytes().collect(),
            hstore: serde_json::Value::from(format!("{{{plain}:{plain}}}")).to_string(),
            plain,
        }
    }

    /// Whether a value is the placeholder; `bytes` says whether it stands for bytes.
    pub(crate) fn matches(&self, raw: Raw<'_>, bytes: bool) -> bool {
        match raw.kind() {
            Kind::String => {
                raw.0 == self.plain
                    || raw.0 == self.hstore
                    || bytes && (raw.0 == self.base64 || raw.0.eq_ignore_ascii_case(&self.hex))
            }
            Kind::Array => self.fills(raw),
            Kind::Object => self.is_map(raw),
            Kind::Null | Kind::Boolean | Kind::Number => false,
        }
    }

    fn fills(&self, raw: Raw<'_>) -> bool {
        // One string, or as many numbers as the placeholder has bytes.
        if raw.0.len() > self.plain.len().saturating_mul(8) + 64 {
            return false;
        }
        let (mut strings, mut numbers, mut other) = (0, Vec::new(), false);
        let scanned = raw.elements(|item| {
            match item.kind() {
                Kind::String if item.0 == self.plain || item.0 == self.base64 => strings += 1,
                Kind::Number => numbers.push(item.0),
                _ => other = true,
            }
            Ok(())
        });
        if scanned.is_err() || other {
            return false;
        }
        let byte = |text: &&str| text.strip_suffix(".0").unwrap_or(text).parse::<u8>().ok();
        match (strings, numbers.len()) {
            (1, 0) => true,
            (0, count) if count == self.bytes.len() => numbers
                .iter()
                .map(byte)
                .eq(self.bytes.iter().map(|byte| Some(*byte))),
            _ => false,
        }
    }

    fn is_map(&self, raw: Raw<'_>) -> bool {
        let inner = raw
            .0
            .strip_prefix('{')
            .and_then(|text| text.strip_suffix('}'));
        inner
            .and_then(|text| text.split_once(':'))
            .is_some_and(|(name, value)| name.trim() == self.plain && value.trim() == self.plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_known_and_nothing_else() {
        let placeholder = Placeholder::new(None);
        let numbers: Vec<String> = DEFAULT.bytes().map(|b| b.to_string()).collect();
        for text in [
            "\"__debezium_unavailable_value\"".to_owned(),
            "[\"__debezium_unavailable_value\"]".to_owned(),
            format!("[{}]", numbers.join(", ")),
            "{\"__debezium_unavailable_value\":\"__debezium_unavailable_value\"}".to_owned(),
            "\"{\\\"__debezium_unavailable_value\\\":\\\"__debezium_unavailable_value\\\"}\""
                .to_owned(),
        ] {
            assert!(placeholder.matches(Raw(&text), false), "{text}");
        }
        let base64 = Raw("\"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==\"");
        assert!(placeholder.matches(base64, true));
        assert!(!placeholder.matches(base64, false));
        for text in [
            "null",
            "\"x\"",
            "[]",
            "[95,95]",
            "[\"a\",\"__debezium_unavailable_value\"]",
            "{}",
        ] {
            assert!(!placeholder.matches(Raw(text), true), "{text}");
        }
    }
}
