//! The SQL expressions of a spec and of `--where`, compiled to run over Arrow batches.
//!
//! [`Compiled`] is an expression over batches, [`check_conditions`] checks those of a spec. On the way from
//! text to a physical expression:
//! - `parse` reads the text, bounded in size and depth;
//! - `names` finds the columns: exact names first, unquoted ones also without regard to case where
//!   that is unambiguous, and refuses what is no expression over one row;
//! - `catalog` knows the functions and the type names. Functions whose result is not a function of the
//!   row alone are refused, because a replay must decide as the first try did;
//! - `overflow` has arithmetic fail where it would wrap.
//!
//! DataFusion then coerces types, folds constants and plans. Only the columns that the expression uses
//! are planned, so that the width of a table costs nothing. Rules: R-D1 (a condition that is NULL is
//! false), R-CL1 (unknown names are refused).

mod catalog;
mod compiled;
mod names;
mod overflow;
mod parse;
mod spec;

pub use compiled::{Compiled, FailedRow, Verdicts};
pub use spec::check_conditions;
pub use tidegate_change::{Error, Result};
