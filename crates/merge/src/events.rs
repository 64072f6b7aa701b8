//! The valid events of a batch, as columns.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::BooleanBuffer;
use tidegate_change::KeyBucket;

use crate::{Error, MergeRules, Result};

/// What an event does to its key (R-D1, R-D2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// The row goes; in a tie it goes first (R-T1).
    Delete,
    /// The row takes the event's values.
    Upsert,
}

/// One payload column of the events.
#[derive(Clone, Debug, Default)]
pub struct PayloadColumn {
    /// The values; None where the batch does not carry the column (R-N5).
    pub values: Option<ArrayRef>,
    /// Which events author it; None = all. NULLs of `ignore_null` columns need not be cleared here (R-N2).
    pub authored: Option<BooleanBuffer>,
}

/// Valid events of one set of buckets. Every part has one entry per event.
#[derive(Clone, Debug)]
pub struct Events {
    /// Key columns in key order, NULL-free, floats normalised.
    pub keys: Vec<ArrayRef>,
    /// The sequence in the table's sequence type, NULL-free.
    pub sequence: ArrayRef,
    /// What each event does.
    pub kinds: Vec<EventKind>,
    /// One entry per payload column of the layout, in table order.
    pub payload: Vec<PayloadColumn>,
    /// The bucket of each key.
    pub buckets: Vec<KeyBucket>,
}

impl Events {
    /// Number of events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether there is no event.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Refuses parts whose lengths or types disagree with the layout, before any of them is indexed.
    pub(crate) fn check(&self, rules: &MergeRules) -> Result<()> {
        let len = self.len();
        let key_types = rules.layout.key_types();
        let keys = self.keys.len() == key_types.len()
            && self.keys.iter().zip(&key_types).all(|(array, expected)| {
                array.len() == len && array.data_type() == expected && array.null_count() == 0
            });
        let sequence = self.sequence.len() == len
            && self.sequence.data_type() == &rules.sequence_type
            && self.sequence.null_count() == 0;
        let payload = self.payload.len() == rules.payload.len()
            && self
                .payload
                .iter()
                .zip(&rules.payload)
                .all(|(column, expected)| {
                    column.values.as_ref().is_none_or(|values| {
                        values.len() == len && values.data_type() == &expected.data_type
                    }) && column
                        .authored
                        .as_ref()
                        .is_none_or(|bits| bits.len() == len)
                });
        let wrong = match (keys, sequence, payload) {
            (false, _, _) => "key columns",
            (true, false, _) => "the sequence",
            (true, true, false) => "payload columns",
            (true, true, true) if self.buckets.len() != len => "buckets",
            (true, true, true) if u32::try_from(len).is_err() => "the number of events",
            (true, true, true) => return Ok(()),
        };
        Err(Error::internal(format!(
            "events disagree with the table's layout in {wrong}"
        )))
    }
}
