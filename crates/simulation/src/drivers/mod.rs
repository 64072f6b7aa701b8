//! Ways to run a history through the product, and the comparison with the model.
//!
//! - [`merge`]: the pure merge alone, its outputs fed back as stored state;
//! - [`embedded`]: the whole path in one process, from files to rows and feed;
//! - [`files`]: batches as JSON lines, CSV and Parquet;
//! - [`arrow_rows`]: values as Arrow arrays.

pub mod arrow_rows;
pub mod embedded;
pub mod files;
pub mod merge;

use std::fmt::Write;

use tidegate_change::Code;

use crate::oracle::{Change, Oracle, Outcome, Row};
use crate::scenario::{Batch, Scenario};
use crate::value::Value;

/// What a driver saw of one batch.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The change rows; None where the driver has no feed to look at.
    pub feed: Option<Vec<Change>>,
    /// Events read; None where the driver does not count them.
    pub events: Option<u64>,
    /// Rows that appeared.
    pub inserted: u64,
    /// Rows that changed; at least the true number where old rows are not read.
    pub updated: u64,
    /// Rows that disappeared.
    pub deleted: u64,
    /// Number of quarantined events.
    pub quarantined: u64,
    /// Their reasons; None where the driver cannot see them.
    pub rejects: Option<Vec<String>>,
}

/// A way to run batches through the product.
pub trait Driver {
    /// Applies a batch: what was seen of it, or the code that refused it.
    ///
    /// # Errors
    /// A sentence where the product failed in a way that no rule foresees.
    fn apply(&mut self, index: usize, batch: &Batch) -> Result<Result<Observed, Code>, String>;

    /// The visible rows after the newest batch.
    ///
    /// # Errors
    /// A sentence where they cannot be read.
    fn rows(&mut self) -> Result<Vec<Row>, String>;

    /// The watermark after the newest batch.
    ///
    /// # Errors
    /// A sentence where it cannot be read.
    fn watermark(&mut self) -> Result<Option<Value>, String>;
}

/// How much of a history model and product agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// All of it.
    Whole,
    /// What comes before a batch whose outcome the rules leave open.
    UpToOpenRules,
}

/// Runs a history through the model and a driver and compares them after every batch.
///
/// # Errors
/// The first difference, in words.
pub fn check(history: &Scenario, driver: &mut dyn Driver) -> Result<Agreement, String> {
    let mut oracle = Oracle::new(history).map_err(|code| format!("the model refuses: {code}"))?;
    let exact = history.spec.feed.is_none();
    for (index, batch) in history.batches.iter().enumerate() {
        let expected = oracle.apply(batch);
        // From here on nothing can be said; the generator leaves out what it sees coming.
        if !oracle.unsettled().is_empty() {
            return Ok(Agreement::UpToOpenRules);
        }
        let observed = driver
            .apply(index, batch)
            .map_err(|e| format!("batch {index}: {e}"))?;
        let problem = match (&expected, observed) {
            (Err(refusal), Err(code)) if refusal.0.contains(&code) => None,
            (Err(refusal), Err(code)) => Some(format!("refused with {code}, not {:?}", refusal.0)),
            (Err(refusal), Ok(_)) => Some(format!("taken, not refused with {:?}", refusal.0)),
            (Ok(_), Err(code)) => Some(format!("refused with {code}")),
            (Ok(expected), Ok(observed)) => differs(&oracle, expected, observed, exact),
        };
        if let Some(problem) = problem {
            return Err(format!("batch {index}: {problem}"));
        }
        let mut rows = driver
            .rows()
            .map_err(|e| format!("rows after batch {index}: {e}"))?;
        rows.sort();
        let mut expected = oracle.rows();
        expected.sort();
        if rows != expected {
            let both = side_by_side(&oracle, &expected, &rows);
            return Err(format!("rows after batch {index}:\n{both}"));
        }
        let (data_type, expected) = oracle.watermark();
        let watermark = driver.watermark().map_err(|e| format!("watermark: {e}"))?;
        if watermark != expected && history.spec.sequence_by.is_some() {
            return Err(format!(
                "watermark after batch {index} ({data_type}): {watermark:?}, not {expected:?}"
            ));
        }
    }
    Ok(Agreement::Whole)
}

fn differs(oracle: &Oracle, expected: &Outcome, observed: Observed, exact: bool) -> Option<String> {
    let counts = (observed.inserted, observed.updated, observed.deleted);
    let wanted = (expected.inserted, expected.updated, expected.deleted);
    let enough = counts.0 == wanted.0 && counts.1 >= wanted.1 && counts.2 == wanted.2;
    if counts != wanted && (exact || !enough) {
        return Some(format!(
            "(inserted, updated, deleted) {counts:?}, not {wanted:?}"
        ));
    }
    if let Some(events) = observed.events.filter(|events| *events != expected.events) {
        return Some(format!("events {events}, not {}", expected.events));
    }
    if observed.quarantined != expected.rejects.len() as u64 {
        return Some(format!(
            "quarantined {}, not {:?}",
            observed.quarantined, expected.rejects
        ));
    }
    if let Some(mut rejects) = observed.rejects {
        rejects.sort();
        if rejects != expected.rejects {
            return Some(format!("rejects {rejects:?}, not {:?}", expected.rejects));
        }
    }
    let mut feed = observed.feed?;
    feed.sort();
    if feed == expected.feed {
        return None;
    }
    let mut text = String::from("feed:");
    for (name, changes) in [("model", &expected.feed), ("product", &feed)] {
        for (kind, row) in changes {
            let row = serde_json::Value::Object(oracle.row_to_json(row));
            let _ = write!(text, "\n  {name:8}{:17}{row}", kind.as_str());
        }
    }
    Some(text)
}

fn side_by_side(oracle: &Oracle, expected: &[Row], rows: &[Row]) -> String {
    let mut text = String::new();
    for (name, rows, others) in [("model", expected, rows), ("product", rows, expected)] {
        for row in rows.iter().filter(|row| !others.contains(row)) {
            let row = serde_json::Value::Object(oracle.row_to_json(row));
            let _ = writeln!(text, "  only {name:8}{row}");
        }
    }
    if text.is_empty() {
        "  the same rows, some more than once".into()
    } else {
        text
    }
}
