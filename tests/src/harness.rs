//! What a test asks of Tidegate, whatever answers: the binary or the library in this process.

use std::fmt;

use serde_json::Value;

/// Why Tidegate refused or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The stable name (`NULL_KEY`), empty when something else went wrong.
    pub code: String,
    /// The sentence.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// A failure outside of Tidegate.
    pub fn outside(error: impl fmt::Display) -> Self {
        Self {
            code: String::new(),
            message: error.to_string(),
        }
    }
}

/// An answer or a refusal.
pub type Answer<T> = Result<T, Refusal>;

/// A file of change events.
#[derive(Clone, Debug)]
pub struct EventFile {
    /// Its name, which tells its kind by its end.
    pub name: String,
    /// Its contents.
    pub bytes: Vec<u8>,
}

impl EventFile {
    /// A file with one JSON value a line.
    #[must_use]
    pub fn json_lines<'a>(name: &str, lines: impl IntoIterator<Item = &'a str>) -> Self {
        let mut bytes = Vec::new();
        for line in lines {
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
        }
        Self {
            name: name.to_owned(),
            bytes,
        }
    }
}

/// Which changes are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedRequest {
    /// `--from N [--to M]`.
    Range {
        /// First version; None leaves the start out.
        from: Option<i64>,
        /// Last version; None is the latest.
        to: Option<i64>,
        /// Whether bounds past the latest version give what there is.
        allow_out_of_range: bool,
    },
    /// `--stream [--from N] [--after N]`.
    Stream {
        /// First version.
        from: Option<i64>,
        /// Last version that the reader has consumed; wins over `from`.
        after: Option<i64>,
    },
}

/// Tidegate on a directory of its own.
pub trait Harness {
    /// Creates a table from a spec (YAML or JSON).
    ///
    /// # Errors
    /// The refusal.
    fn create(&self, spec: &str) -> Answer<()>;
    /// Gives a table a whole new spec.
    ///
    /// # Errors
    /// The refusal.
    fn alter(&self, table: &str, spec: &str) -> Answer<()>;
    /// Applies files as one batch and returns the printed result.
    ///
    /// # Errors
    /// The refusal; nothing of the batch is applied then.
    fn apply(&self, table: &str, batch_id: &str, files: &[EventFile]) -> Answer<Value>;
    /// Rows at a version, or at the latest one.
    ///
    /// # Errors
    /// The refusal.
    fn read(&self, table: &str, version: Option<i64>) -> Answer<Vec<Value>>;
    /// The change feed.
    ///
    /// # Errors
    /// The refusal.
    fn changes(&self, table: &str, request: FeedRequest) -> Answer<Vec<Value>>;
    /// Quarantined events.
    ///
    /// # Errors
    /// The refusal.
    fn rejects(&self, table: &str) -> Answer<Vec<Value>>;
    /// Sets the clock that retention is measured by; None is the machine's.
    fn set_clock(&self, seconds: Option<i64>);
}

/// A harness whose tables have a number of buckets, whatever their specs say of it.
#[derive(Debug)]
pub struct WithBuckets<H> {
    /// The harness.
    pub harness: H,
    /// The number.
    pub buckets: u32,
}

impl<H> WithBuckets<H> {
    fn spec(&self, text: &str) -> Answer<String> {
        let Ok(mut spec) = serde_json::from_str::<serde_json::Map<_, _>>(text) else {
            return Ok(format!("{text}\nbuckets: {}\n", self.buckets));
        };
        spec.insert("buckets".into(), self.buckets.into());
        serde_json::to_string(&spec).map_err(Refusal::outside)
    }
}

impl<H: Harness> Harness for WithBuckets<H> {
    fn create(&self, spec: &str) -> Answer<()> {
        self.harness.create(&self.spec(spec)?)
    }

    fn alter(&self, table: &str, spec: &str) -> Answer<()> {
        self.harness.alter(table, &self.spec(spec)?)
    }

    fn apply(&self, table: &str, batch_id: &str, files: &[EventFile]) -> Answer<Value> {
        self.harness.apply(table, batch_id, files)
    }

    fn read(&self, table: &str, version: Option<i64>) -> Answer<Vec<Value>> {
        self.harness.read(table, version)
    }

    fn changes(&self, table: &str, request: FeedRequest) -> Answer<Vec<Value>> {
        self.harness.changes(table, request)
    }

    fn rejects(&self, table: &str) -> Answer<Vec<Value>> {
        self.harness.rejects(table)
    }

    fn set_clock(&self, seconds: Option<i64>) {
        self.harness.set_clock(seconds);
    }
}
