//! The index as its callers see it: against a map, and on damaged bytes.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod damage;
mod model;
mod support;
