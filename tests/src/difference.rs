//! Where a table may differ from its source: only where the source's stream truly lacks the value.
//!
//! Every difference stands in a file with its reason, one by one. One that is not there fails the test,
//! and so does one that does not occur.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tidegate_change::Digest;

use crate::csv;

/// Columns of the file.
const HEADER: [&str; 8] = [
    "set", "stage", "table", "key", "column", "source", "found", "reason",
];

/// The column of a difference that concerns a whole row.
pub const WHOLE_ROW: &str = "(row)";

/// One value (or row) that differs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The capture.
    pub set: String,
    /// The moment.
    pub stage: String,
    /// The table.
    pub table: String,
    /// Canonical key.
    pub key: String,
    /// The column, or [`WHOLE_ROW`].
    pub column: String,
    /// Canonical form at the source.
    pub source: String,
    /// Canonical form in the table.
    pub found: String,
}

impl Difference {
    fn fields(&self) -> [&str; 7] {
        [
            &self.set,
            &self.stage,
            &self.table,
            &self.key,
            &self.column,
            &self.source,
            &self.found,
        ]
    }

    /// The line of the file that expects this difference.
    #[must_use]
    pub fn line(&self, reason: &str) -> String {
        let quoted = |field: &str| format!("\"{}\"", field.replace('"', "\"\""));
        let cells: Vec<String> = self
            .fields()
            .into_iter()
            .chain([reason])
            .map(quoted)
            .collect();
        cells.join(",")
    }
}

/// A form as the file shows it: a long one by its beginning and the digest of the whole.
#[must_use]
pub fn shown(form: &str) -> String {
    const SHOWN: usize = 120;
    if form.chars().count() <= SHOWN {
        return form.to_owned();
    }
    let beginning: String = form.chars().take(SHOWN / 2).collect();
    format!("{beginning}… blake3 {}", Digest::of(form.as_bytes()))
}

/// The expected differences of a file, with their reasons.
///
/// # Errors
/// When the file is not of this form, an entry has no reason or stands twice.
pub fn expected(path: &Path) -> Result<BTreeMap<Difference, String>> {
    let bytes = std::fs::read(path).with_context(|| format!("{}", path.display()))?;
    let zipped = path.extension().is_some_and(|end| end == "zst");
    let bytes = if zipped {
        zstd::decode_all(bytes.as_slice())?
    } else {
        bytes
    };
    let (header, rows) = csv::parse(&String::from_utf8(bytes)?)?;
    ensure!(header == HEADER, "the columns are {header:?}");
    let mut entries = BTreeMap::new();
    for (number, row) in rows.into_iter().enumerate() {
        let cells: Vec<String> = row.into_iter().map(Option::unwrap_or_default).collect();
        let [set, stage, table, key, column, source, found, reason] =
            <[String; 8]>::try_from(cells).map_err(|_| anyhow::anyhow!("row {number}"))?;
        ensure!(!reason.is_empty(), "row {} has no reason", number + 1);
        let difference = Difference {
            set,
            stage,
            table,
            key,
            column,
            source,
            found,
        };
        let earlier = entries.insert(difference, reason);
        ensure!(earlier.is_none(), "row {} stands twice", number + 1);
    }
    Ok(entries)
}

/// Compares what differs with what may differ.
///
/// # Errors
/// The differences that are not expected, as lines of the file, and the expected ones that do not occur.
pub fn check(found: &[Difference], expected: &BTreeMap<Difference, String>) -> Result<()> {
    const SHOWN: usize = 60;
    let found: std::collections::BTreeSet<&Difference> = found.iter().collect();
    let new: Vec<String> = found
        .iter()
        .filter(|one| !expected.contains_key(**one))
        .map(|one| one.line(""))
        .collect();
    let gone: Vec<String> = expected
        .iter()
        .filter(|(one, _)| !found.contains(one))
        .map(|(one, why)| one.line(why))
        .collect();
    if let Some(path) = std::env::var_os("TIDEGATE_TEST_DIFFERENCES") {
        std::fs::write(path, new.join("\n"))?;
    }
    let shown = |lines: &[String]| {
        lines
            .iter()
            .take(SHOWN)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    };
    ensure!(
        new.is_empty() && gone.is_empty(),
        "{} differences are not expected:\n{}\n{} expected differences do not occur:\n{}",
        new.len(),
        shown(&new),
        gone.len(),
        shown(&gone)
    );
    Ok(())
}
