//! Reading JSON text without building values: a cursor that validates as it goes and hands out spans.

use std::borrow::Cow;

/// Deepest nesting of a record.
const NESTING_MAX: usize = 128;

/// The text is no JSON, or nested beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Result of a scan.
pub(crate) type Scanned<T> = Result<T, Malformed>;

/// What a JSON value is, told by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    Boolean,
    Number,
    String,
    Array,
    Object,
}

/// The text of one JSON value, without space around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Raw<'a>(pub(crate) &'a str);

/// A JSON string as it is written, quotes included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quoted<'a> {
    text: &'a str,
    escaped: bool,
}

/// A cursor over one line.
#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Raw<'a> {
    pub(crate) const NULL: Self = Raw("null");

    pub(crate) fn kind(self) -> Kind {
        match self.0.as_bytes().first() {
            Some(b'"') => Kind::String,
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b't' | b'f') => Kind::Boolean,
            Some(b'n') | None => Kind::Null,
            Some(_) => Kind::Number,
        }
    }

    pub(crate) fn is_null(self) -> bool {
        self.kind() == Kind::Null
    }

    /// The text of a string, unescaped.
    pub(crate) fn string(self) -> Option<Cow<'a, str>> {
        if self.kind() != Kind::String {
            return None;
        }
        Quoted {
            text: self.0,
            escaped: self.0.contains('\\'),
        }
        .decode()
        .ok()
    }

    /// The members of an object, in order; nothing for other values.
    pub(crate) fn members(
        self,
        each: impl FnMut(Quoted<'a>, Raw<'a>) -> Scanned<()>,
    ) -> Scanned<()> {
        Scanner::new(self.0).object(each)
    }

    /// The elements of an array, in order.
    pub(crate) fn elements(self, each: impl FnMut(Raw<'a>) -> Scanned<()>) -> Scanned<()> {
        Scanner::new(self.0).array(each)
    }
}

impl<'a> Quoted<'a> {
    /// The text without escapes.
    pub(crate) fn decode(self) -> Scanned<Cow<'a, str>> {
        if self.escaped {
            serde_json::from_str::<String>(self.text)
                .map(Cow::Owned)
                .map_err(|_| Malformed)
        } else {
            let inner = self.text.get(1..self.text.len().saturating_sub(1));
            inner.map(Cow::Borrowed).ok_or(Malformed)
        }
    }

    /// The text between the quotes, when nothing in it is escaped.
    pub(crate) fn plain(self) -> Option<&'a str> {
        if self.escaped {
            None
        } else {
            self.text.get(1..self.text.len().saturating_sub(1))
        }
    }
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, position: 0 }
    }

    /// The one value that the text holds.
    pub(crate) fn document(text: &'a str) -> Scanned<Raw<'a>> {
        let mut scanner = Self::new(text);
        let value = scanner.value()?;
        if scanner.peek().is_none() {
            Ok(value)
        } else {
            Err(Malformed)
        }
    }

    /// Walks an object that starts here; each member's value is scanned before the callback sees it.
    pub(crate) fn object(
        &mut self,
        mut each: impl FnMut(Quoted<'a>, Raw<'a>) -> Scanned<()>,
    ) -> Scanned<()> {
        self.object_with(|name, scanner| {
            let value = scanner.value()?;
            each(name, value)
        })
    }

    /// Walks an object that starts here; the callback must consume each member's value.
    pub(crate) fn object_with(
        &mut self,
        mut each: impl FnMut(Quoted<'a>, &mut Self) -> Scanned<()>,
    ) -> Scanned<()> {
        self.expect(b'{')?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(Malformed);
            }
            let name = self.quoted()?;
            self.expect(b':')?;
            each(name, self)?;
            if !self.take(b',') {
                return self.expect(b'}');
            }
        }
    }

    /// Walks an array that starts here.
    pub(crate) fn array(&mut self, mut each: impl FnMut(Raw<'a>) -> Scanned<()>) -> Scanned<()> {
        self.expect(b'[')?;
        if self.take(b']') {
            return Ok(());
        }
        loop {
            let value = self.value()?;
            each(value)?;
            if !self.take(b',') {
                return self.expect(b']');
            }
        }
    }

    /// Scans one value.
    pub(crate) fn value(&mut self) -> Scanned<Raw<'a>> {
        self.peek();
        let start = self.position;
        self.skip(0)?;
        self.text
            .get(start..self.position)
            .map(Raw)
            .ok_or(Malformed)
    }

    /// Steps over a value that is known to stand here, without looking into it.
    pub(crate) fn skip_known(&mut self, known: &str) -> bool {
        self.peek();
        let stands = self
            .text
            .as_bytes()
            .get(self.position..)
            .is_some_and(|rest| rest.starts_with(known.as_bytes()));
        if stands {
            self.position += known.len();
        }
        stands
    }

    /// The next byte that is no space.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.as_bytes().get(self.position) {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.position += 1,
                other => return other.copied(),
            }
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.position += 1;
        }
        found
    }

    fn expect(&mut self, byte: u8) -> Scanned<()> {
        if self.take(byte) {
            Ok(())
        } else {
            Err(Malformed)
        }
    }

    fn skip(&mut self, depth: usize) -> Scanned<()> {
        if depth > NESTING_MAX {
            return Err(Malformed);
        }
        match self.peek().ok_or(Malformed)? {
            b'"' => self.quoted().map(|_| ()),
            b'{' => {
                self.position += 1;
                if self.take(b'}') {
                    return Ok(());
                }
                loop {
                    if self.peek() != Some(b'"') {
                        return Err(Malformed);
                    }
                    self.quoted()?;
                    self.expect(b':')?;
                    self.skip(depth + 1)?;
                    if !self.take(b',') {
                        return self.expect(b'}');
                    }
                }
            }
            b'[' => {
                self.position += 1;
                if self.take(b']') {
                    return Ok(());
                }
                loop {
                    self.skip(depth + 1)?;
                    if !self.take(b',') {
                        return self.expect(b']');
                    }
                }
            }
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            _ => self.number(),
        }
    }

    fn literal(&mut self, word: &str) -> Scanned<()> {
        if self.skip_known(word) {
            Ok(())
        } else {
            Err(Malformed)
        }
    }

    fn number(&mut self) -> Scanned<()> {
        let rest = self
            .text
            .as_bytes()
            .get(self.position..)
            .unwrap_or_default();
        let mut bytes = rest.iter().peekable();
        let mut length = usize::from(bytes.next_if_eq(&&b'-').is_some());
        let digits = |bytes: &mut std::iter::Peekable<std::slice::Iter<'_, u8>>| {
            let mut count = 0;
            while bytes.next_if(|b| b.is_ascii_digit()).is_some() {
                count += 1;
            }
            if count == 0 {
                Err(Malformed)
            } else {
                Ok(count)
            }
        };
        let leading_zero = bytes.peek() == Some(&&b'0');
        let whole = digits(&mut bytes)?;
        if leading_zero && whole > 1 {
            return Err(Malformed);
        }
        length += whole;
        if bytes.next_if_eq(&&b'.').is_some() {
            length += 1 + digits(&mut bytes)?;
        }
        if bytes.next_if(|b| matches!(b, b'e' | b'E')).is_some() {
            length += 1 + usize::from(bytes.next_if(|b| matches!(b, b'+' | b'-')).is_some());
            length += digits(&mut bytes)?;
        }
        self.position += length;
        Ok(())
    }

    /// Scans a string; the cursor stands on its first quote.
    pub(crate) fn quoted(&mut self) -> Scanned<Quoted<'a>> {
        let start = self.position;
        let bytes = self.text.as_bytes();
        let mut position = start + 1;
        let mut escaped = false;
        loop {
            let rest = bytes.get(position..).ok_or(Malformed)?;
            position += plain_length(rest);
            match bytes.get(position) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    position += escape_length(bytes.get(position..).unwrap_or_default())?;
                }
                _ => return Err(Malformed),
            }
        }
        self.position = position + 1;
        let text = self.text.get(start..self.position).ok_or(Malformed)?;
        Ok(Quoted { text, escaped })
    }
}

/// Number of bytes before the next quote, backslash or control character, eight at a time.
fn plain_length(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);
    let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let (words, _) = bytes.as_chunks::<8>();
    let mut length = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        let quotes = zero_bytes(word ^ u64::from_ne_bytes([b'"'; 8]));
        let slashes = zero_bytes(word ^ u64::from_ne_bytes([b'\\'; 8]));
        let controls = word.wrapping_sub(u64::from_ne_bytes([0x20; 8])) & !word & HIGHS;
        let found = quotes | slashes | controls;
        if found != 0 {
            // The lowest mark is true; borrows only make false ones above it.
            return length + usize::try_from(found.trailing_zeros() / 8).unwrap_or(0);
        }
        length += 8;
    }
    let tail = bytes.get(length..).unwrap_or_default();
    length
        + tail
            .iter()
            .position(|b| matches!(b, b'"' | b'\\' | 0..=0x1f))
            .unwrap_or(tail.len())
}

fn escape_length(bytes: &[u8]) -> Scanned<usize> {
    match bytes {
        [
            _,
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't',
            ..,
        ] => Ok(2),
        [_, b'u', digits @ ..] => match digits.get(..4) {
            Some(hex) if hex.iter().all(u8::is_ascii_hexdigit) => Ok(6),
            _ => Err(Malformed),
        },
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_documents_are_what_serde_takes_for_valid() {
        for text in [
            "null",
            " true ",
            "-0",
            "-0.5e+10",
            "[]",
            "[1, 2 ,3]",
            "{}",
            "{\"a\": {\"b\": [null]}}",
            "\"a\\u00e9\\n\"",
            "\"ä long string with more than eight bytes\"",
            "",
            "01",
            "1.",
            "-",
            "tru",
            "[1,]",
            "{\"a\"}",
            "{\"a\":1,}",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\n\"",
            "\"",
            "1 2",
            "{a:1}",
            "[",
            "{\"a\":1",
            "1e",
            "\"abcdefg\u{1}\"",
        ] {
            let expected = serde_json::from_str::<serde_json::Value>(text).is_ok();
            assert_eq!(Scanner::document(text).is_ok(), expected, "{text}");
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let text = "[".repeat(100_000);
        assert_eq!(Scanner::document(&text), Err(Malformed));
    }

    #[test]
    fn strings_are_unescaped() {
        assert_eq!(Raw("\"a\\\"\\ud83e\\udd9c\"").string().unwrap(), "a\"🦜");
        assert!(Raw("\"\\ud83e\"").string().is_none());
    }
}
