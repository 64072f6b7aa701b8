//! Leaf values of the events, and which events author them (R-N2, R-N5, R-N6, R-K6).

use arrow::array::{Array, ArrayRef};
use arrow::buffer::BooleanBuffer;

use crate::sequences::position;
use crate::{Events, MergeRules, Result};

/// Which events author one leaf.
#[derive(Clone, Debug)]
pub(crate) enum Authors {
    All,
    Nobody,
    Some(BooleanBuffer),
}

/// The leaves of the events.
#[derive(Debug)]
pub(crate) struct EventLeaves {
    /// Values by leaf; None where the batch does not carry the column.
    pub(crate) values: Vec<Option<ArrayRef>>,
    authors: Vec<Authors>,
    /// Events that author every leaf; None = all.
    full: Option<BooleanBuffer>,
}

impl EventLeaves {
    pub(crate) fn new(rules: &MergeRules, events: &Events) -> Result<Self> {
        let mut values = Vec::with_capacity(rules.leaves.len());
        let mut authors = Vec::with_capacity(rules.leaves.len());
        for leaf in rules.leaves.iter() {
            let column = events.payload.get(leaf.column);
            let Some((column, whole)) = column.and_then(|c| c.values.as_ref().map(|v| (c, v)))
            else {
                values.push(None);
                authors.push(Authors::Nobody);
                continue;
            };
            let own = leaf.values(whole)?;
            let non_null = own
                .logical_nulls()
                .filter(|nulls| leaf.ignore_null && nulls.null_count() > 0);
            authors.push(match (&column.authored, non_null) {
                (None, None) => Authors::All,
                (Some(bits), None) => Authors::Some(bits.clone()),
                (None, Some(nulls)) => Authors::Some(nulls.inner().clone()),
                (Some(bits), Some(nulls)) => Authors::Some(bits & nulls.inner()),
            });
            values.push(Some(own));
        }
        let mut full = None;
        for own in &authors {
            let bits = match own {
                Authors::All => continue,
                Authors::Nobody => BooleanBuffer::new_unset(events.len()),
                Authors::Some(bits) => bits.clone(),
            };
            full = Some(match full {
                Some(full) => &full & &bits,
                None => bits,
            });
        }
        let full = full.filter(|full: &BooleanBuffer| full.count_set_bits() < full.len());
        Ok(Self {
            values,
            authors,
            full,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.authors.len()
    }

    /// Whether the event authors the leaf.
    pub(crate) fn authors(&self, leaf: usize, row: u32) -> bool {
        match self.authors.get(leaf) {
            Some(Authors::All) => true,
            Some(Authors::Nobody) | None => false,
            Some(Authors::Some(bits)) => bits.value(position(row)),
        }
    }

    /// Whether the event authors every leaf.
    pub(crate) fn is_full(&self, row: u32) -> bool {
        self.full
            .as_ref()
            .is_none_or(|full| full.value(position(row)))
    }

    /// The leaf's values of some events, NULL where an event does not author it; None where none does.
    pub(crate) fn authored_values(&self, leaf: usize, rows: &[u32]) -> Result<Option<ArrayRef>> {
        let Some(Some(values)) = self.values.get(leaf) else {
            return Ok(None);
        };
        let positions: arrow::array::UInt32Array = rows
            .iter()
            .map(|row| self.authors(leaf, *row).then_some(*row))
            .collect();
        arrow::compute::take(values, &positions, None)
            .map(Some)
            .map_err(|e| crate::Error::internal("leaf values cannot be gathered").with_source(e))
    }
}
