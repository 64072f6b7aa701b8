//! What truncates do to rows that no event of the batch names (R-X2).

use arrow::array::RecordBatch;

use crate::{Error, MergeRules, Merged, Result};

/// Applies the rules' truncates to stored rows, which are taken as the groups: group `i` is row `i`.
///
/// Rows of keys that the batch names must not be among them: [`crate::resolve`] truncates those.
///
/// # Errors
/// `INTERNAL` when the rows disagree with the layout.
pub fn truncate(rules: &MergeRules, rows: &RecordBatch) -> Result<Merged> {
    let _ = (rules, rows);
    Err(Error::internal("truncate is not written"))
}
