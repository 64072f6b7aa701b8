//! Distinct keys of a batch and the reduced state of each.

use arrow::array::ArrayRef;
use tidegate_change::KeyBucket;

use crate::{Error, Events, FileBounds, MergeRules, Result};

/// The distinct keys of a batch in (bucket, key) order, each with its events and their join.
#[derive(Debug)]
pub struct Grouped {}

impl Grouped {
    /// Number of distinct keys.
    #[must_use]
    pub fn len(&self) -> usize {
        0
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Distinct keys in key column order, one row per group.
    #[must_use]
    pub fn key_columns(&self) -> &[ArrayRef] {
        &[]
    }

    /// The bucket of each group, ascending.
    #[must_use]
    pub fn buckets(&self) -> &[KeyBucket] {
        &[]
    }

    /// Whether the stored row of a group must be read, given what is known of its file.
    #[must_use]
    pub fn needs_stored(&self, rules: &MergeRules, group: usize, bounds: &FileBounds) -> bool {
        let _ = (rules, group, bounds);
        true
    }
}

/// Groups events by key and reduces each group.
///
/// # Errors
/// `INTERNAL` when the events disagree with the layout.
pub fn group(rules: &MergeRules, events: Events) -> Result<Grouped> {
    events.check(rules)?;
    Err(Error::internal("group is not written"))
}
