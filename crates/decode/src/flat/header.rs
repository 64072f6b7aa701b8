//! The header of a CSV file, and what it must name.

use std::collections::HashSet;
use std::sync::Arc;

use tidegate_change::spec::{PSEUDO_COLUMNS, ResolvedSpec, TableMode};
use tidegate_change::{Code, Error, Result};

use super::csv::CsvRecords;

/// Columns without which no row of a file can be an event, by the source's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Each of them.
    keys: Vec<String>,
    /// One of them, since a sequence is NULL only if all its members are (R-S3).
    sequence: Vec<String>,
}

impl Needs {
    /// What a spec needs; `source_name` says how the source calls a column.
    pub(crate) fn of(spec: &ResolvedSpec, source_name: impl Fn(&str) -> String) -> Self {
        let table = &spec.spec;
        let has_default = |name: &String| {
            let mut columns = spec.columns.iter();
            columns.any(|known| known.column.name == *name && known.column.default.is_some())
        };
        let keys = table.keys.iter().filter(|key| !has_default(key));
        let keys = keys.map(|key| source_name(key)).collect();
        let members = || table.sequence_by.iter().flat_map(|by| by.names());
        let is_filled =
            |name: &String| has_default(name) || PSEUDO_COLUMNS.contains(&name.as_str());
        let sequence = if members().any(is_filled) {
            Vec::new()
        } else {
            members().map(|name| source_name(name)).collect()
        };
        match table.mode {
            TableMode::Append => Self {
                keys: Vec::new(),
                sequence,
            },
            _ => Self { keys, sequence },
        }
    }

    /// Checks a header.
    ///
    /// # Errors
    /// `UNKNOWN_COLUMN` where it lacks a key column, or the sequence.
    pub(crate) fn check(&self, header: &[String]) -> Result<()> {
        let names = |name: &&String| header.contains(name);
        let lack = match self.keys.iter().find(|key| !names(key)) {
            Some(key) => format!("the key column {key}"),
            None if self.sequence.is_empty() || self.sequence.iter().any(|n| names(&n)) => {
                return Ok(());
            }
            None => format!("the sequence column {}", self.sequence.join(", ")),
        };
        let error = Error::new(Code::UnknownColumn, format!("the CSV header lacks {lack}"));
        // The header's text may be a row of a file that has no header, so it is not shown.
        let delimiter = match header {
            [only] => [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")]
                .into_iter()
                .find(|(delimiter, _)| only.contains(delimiter)),
            _ => None,
        };
        Err(match delimiter {
            Some((_, name)) => error.with_hint(format!(
                "its one cell has {name} inside: cells must be separated by commas"
            )),
            None => error.with_hint("the first line must name the columns"),
        })
    }
}

/// The names of a header.
///
/// # Errors
/// `INVALID_RECORD` for one that cannot be read or names a column twice.
pub(crate) fn parse_header(bytes: &[u8]) -> Result<Arc<[String]>> {
    let invalid = |what: &str| Error::new(Code::InvalidRecord, format!("the CSV header {what}"));
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("is no UTF-8"))?;
    let mut cells = Vec::new();
    if !matches!(CsvRecords::new(text).next(&mut cells), Some(Ok(_))) {
        return Err(invalid("is missing"));
    }
    let names: Vec<String> = cells
        .iter()
        .map(|cell| cell.text.trim().to_owned())
        .collect();
    let mut seen = HashSet::new();
    match names
        .iter()
        .zip(1..)
        .find(|(name, _)| name.is_empty() || !seen.insert(name.as_str()))
    {
        Some((name, nth)) if name.is_empty() => {
            Err(invalid(&format!("has no name for column {nth}")))
        }
        Some((name, _)) => Err(invalid(&format!("names {name} twice"))),
        None => Ok(names.into()),
    }
}
