//! Values that a key change takes along (R-K6).

use arrow::array::StructArray;

use crate::{Error, Events, MergeRules, Result, Stored};

/// Events with the carried values filled in.
#[derive(Clone, Debug)]
pub struct Carried {
    /// The events.
    pub events: Events,
    /// Values that were filled in.
    pub carried: u64,
    /// Unavailable values whose origin is not known.
    pub unresolved: u64,
}

/// Fills in what key changes left unauthored, from the old key's state just below the change.
///
/// `old_keys` has one entry per event, NULL where the event changes no key. `stored.refs` has one entry per
/// event too: the stored state of its old key.
///
/// # Errors
/// `INTERNAL` when the parts disagree with the layout.
pub fn carry(
    rules: &MergeRules,
    events: Events,
    old_keys: &StructArray,
    stored: &Stored<'_>,
) -> Result<Carried> {
    let _ = (rules, events, old_keys, stored);
    Err(Error::internal("carry is not written"))
}
