//! The change rows of a commit (R-C1 to R-C5).

/// Name of the column that says what a change row is.
pub const CHANGE_TYPE: &str = "_change_type";
