//! The valid events of a batch, as columns.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, UInt32Array, new_null_array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{concat, take};
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

    /// Some of the events, in the order of these rows.
    ///
    /// # Errors
    /// `INTERNAL` for a row that is not there.
    pub fn take(&self, rows: &[u32]) -> Result<Self> {
        let at = UInt32Array::from(rows.to_vec());
        let gather = |array: &ArrayRef| take(array, &at, None).map_err(not_gathered);
        let picked = |row: &u32| usize::try_from(*row).unwrap_or(usize::MAX);
        let missing = || Error::internal("an event that is not there");
        Ok(Self {
            keys: self.keys.iter().map(gather).collect::<Result<_>>()?,
            sequence: gather(&self.sequence)?,
            kinds: rows
                .iter()
                .map(|row| self.kinds.get(picked(row)).copied().ok_or_else(missing))
                .collect::<Result<_>>()?,
            payload: self
                .payload
                .iter()
                .map(|column| {
                    Ok(PayloadColumn {
                        values: column.values.as_ref().map(gather).transpose()?,
                        authored: column.authored.as_ref().map(|bits| {
                            BooleanBuffer::collect_bool(rows.len(), |at| {
                                rows.get(at).is_some_and(|row| bits.value(picked(row)))
                            })
                        }),
                    })
                })
                .collect::<Result<_>>()?,
            buckets: rows
                .iter()
                .map(|row| self.buckets.get(picked(row)).copied().ok_or_else(missing))
                .collect::<Result<_>>()?,
        })
    }

    /// The events of several parts, one after the other.
    ///
    /// # Errors
    /// `INTERNAL` for no part, or for parts of different columns.
    pub fn concat(parts: &[Self]) -> Result<Self> {
        let differ = || Error::internal("parts of the events differ in their columns");
        let first = parts.first().ok_or_else(differ)?;
        let join = |of: &dyn Fn(&Self) -> Option<ArrayRef>| {
            let arrays: Vec<ArrayRef> = parts
                .iter()
                .map(|part| of(part).ok_or_else(differ))
                .collect::<Result<_>>()?;
            let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
            concat(&arrays).map_err(not_gathered)
        };
        let keys = (0..first.keys.len())
            .map(|key| join(&|part| part.keys.get(key).cloned()))
            .collect::<Result<_>>()?;
        let payload = (0..first.payload.len())
            .map(|column| Self::concat_payload(parts, column))
            .collect::<Result<_>>()?;
        Ok(Self {
            keys,
            sequence: join(&|part| Some(Arc::clone(&part.sequence)))?,
            kinds: parts.iter().flat_map(|part| part.kinds.clone()).collect(),
            payload,
            buckets: parts.iter().flat_map(|part| part.buckets.clone()).collect(),
        })
    }

    fn concat_payload(parts: &[Self], column: usize) -> Result<PayloadColumn> {
        let of = |part: &Self| part.payload.get(column).cloned().unwrap_or_default();
        let carried = parts.iter().find_map(|part| of(part).values);
        let Some(carried) = carried else {
            return Ok(PayloadColumn::default());
        };
        let arrays: Vec<ArrayRef> = parts
            .iter()
            .map(|part| {
                let nulls = || new_null_array(carried.data_type(), part.len());
                of(part).values.unwrap_or_else(nulls)
            })
            .collect();
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        let whole = |part: &Self| of(part).values.is_some() && of(part).authored.is_none();
        let authored = (!parts.iter().all(whole)).then(|| {
            let bits = parts.iter().map(|part| {
                let own = of(part);
                match (own.values, own.authored) {
                    (None, _) => BooleanBuffer::new_unset(part.len()),
                    (Some(_), None) => BooleanBuffer::new_set(part.len()),
                    (Some(_), Some(bits)) => bits,
                }
            });
            let bits: BooleanArray = bits
                .flat_map(|bits| bits.iter().collect::<Vec<_>>())
                .map(Some)
                .collect();
            bits.values().clone()
        });
        Ok(PayloadColumn {
            values: Some(concat(&arrays).map_err(not_gathered)?),
            authored,
        })
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

fn not_gathered(error: arrow::error::ArrowError) -> Error {
    Error::internal("events cannot be gathered").with_source(error)
}
