//! Sequences of events and stored rows side by side, compared without their values.
//!
//! A sequence is named by its position in a [`Pool`]; [`NONE`] stands for no sequence and ranks below all.

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, UInt32Array, new_null_array};
use arrow::datatypes::{
    DataType, Date32Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType,
};
use arrow::row::Rows;
use tidegate_change::sequence::{SequenceBytes, SequenceEncoder};

use crate::{Error, Result};

/// No row, no sequence, no slot.
pub(crate) const NONE: u32 = u32::MAX;

/// The sequences of several columns, one after the other.
#[derive(Debug)]
pub(crate) struct Pool {
    values: ArrayRef,
    codes: Codes,
}

#[derive(Debug)]
enum Codes {
    /// Integer-like sequences: the value itself, see [`words`].
    Words(Vec<u64>),
    Rows(Rows),
}

impl Pool {
    /// Joins columns of the encoder's type; empty ones cost nothing.
    pub(crate) fn new(encoder: &SequenceEncoder, parts: &[ArrayRef]) -> Result<Self> {
        let filled: Vec<&dyn Array> = parts
            .iter()
            .filter(|part| !part.is_empty())
            .map(AsRef::as_ref)
            .collect();
        let values = match filled.as_slice() {
            [] => new_null_array(encoder.data_type(), 0),
            parts => arrow::compute::concat(parts)
                .map_err(|e| Error::internal("sequences of several types").with_source(e))?,
        };
        if values.len() >= position(NONE) {
            return Err(Error::internal("too many sequences in one batch"));
        }
        let codes = match words(&values) {
            Some(words) => Codes::Words(words),
            None => Codes::Rows(encoder.encode(&values)?),
        };
        Ok(Self { values, codes })
    }

    pub(crate) fn compare(&self, left: u32, right: u32) -> Ordering {
        match (left == NONE, right == NONE) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => match &self.codes {
                Codes::Words(words) => words[position(left)].cmp(&words[position(right)]),
                Codes::Rows(rows) => rows
                    .row(position(left))
                    .data()
                    .cmp(rows.row(position(right)).data()),
            },
        }
    }

    pub(crate) fn compare_bytes(&self, left: u32, right: &SequenceBytes) -> Ordering {
        match &self.codes {
            _ if left == NONE => Ordering::Less,
            Codes::Words(words) => words[position(left)].cmp(&word_of_bytes(right)),
            Codes::Rows(rows) => rows.row(position(left)).data().cmp(&right.0),
        }
    }

    /// The greater of two; the first when they are equal.
    pub(crate) fn greater(&self, left: u32, right: u32) -> u32 {
        if self.compare(left, right).is_lt() {
            right
        } else {
            left
        }
    }

    pub(crate) fn is_below(&self, left: u32, right: u32) -> bool {
        self.compare(left, right).is_lt()
    }

    pub(crate) fn is_equal(&self, left: u32, right: u32) -> bool {
        self.compare(left, right).is_eq()
    }

    /// First bytes of each sequence, for sorting; whether they are all of it.
    pub(crate) fn prefixes(&self) -> (Vec<u64>, bool) {
        match &self.codes {
            Codes::Words(words) => (words.clone(), true),
            Codes::Rows(rows) => (rows.iter().map(|row| prefix(row.data())).collect(), false),
        }
    }

    /// The values at these positions; NULL for [`NONE`].
    pub(crate) fn gather(&self, handles: &[u32]) -> Result<ArrayRef> {
        if handles.iter().all(|handle| *handle == NONE) {
            return Ok(new_null_array(self.values.data_type(), handles.len()));
        }
        let positions: UInt32Array = handles
            .iter()
            .map(|handle| (*handle != NONE).then_some(*handle))
            .collect();
        arrow::compute::take(&self.values, &positions, None)
            .map_err(|e| Error::internal("sequences cannot be gathered").with_source(e))
    }

    /// The bytes of one sequence.
    pub(crate) fn bytes(
        &self,
        encoder: &SequenceEncoder,
        handle: u32,
    ) -> Result<Option<SequenceBytes>> {
        if handle == NONE || position(handle) >= self.values.len() {
            return Ok(None);
        }
        let rows = encoder.encode(&self.values.slice(position(handle), 1))?;
        Ok(Some(SequenceBytes::from_row(rows.row(0))))
    }
}

/// A position as an index.
pub(crate) fn position(row: u32) -> usize {
    usize::try_from(row).unwrap_or(usize::MAX)
}

/// An index as a position; what does not fit was refused before.
pub(crate) fn handle(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NONE)
}

fn prefix(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    for (to, from) in first.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_be_bytes(first)
}

/// Integer-like values as unsigned words of the same order: the bytes that the row format writes behind
/// its marker. NULL, which only rows of a foreign origin have, is the least word.
pub(crate) fn words(array: &ArrayRef) -> Option<Vec<u64>> {
    fn map<T: ArrowPrimitiveType>(array: &ArrayRef, word: impl Fn(T::Native) -> u64) -> Vec<u64> {
        let values = array.as_primitive::<T>();
        if values.null_count() == 0 {
            return values.values().iter().map(|value| word(*value)).collect();
        }
        values.iter().map(|value| value.map_or(0, &word)).collect()
    }
    let word32 = |value: i32| u64::from(value.cast_unsigned() ^ (1 << 31));
    let word64 = |value: i64| value.cast_unsigned() ^ (1 << 63);
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the types of arrow are an open set"
    )]
    match array.data_type() {
        DataType::Int8 => Some(map::<Int8Type>(array, |value| {
            u64::from(value.cast_unsigned() ^ (1 << 7))
        })),
        DataType::Int16 => Some(map::<Int16Type>(array, |value| {
            u64::from(value.cast_unsigned() ^ (1 << 15))
        })),
        DataType::Int32 => Some(map::<Int32Type>(array, word32)),
        DataType::Date32 => Some(map::<Date32Type>(array, word32)),
        DataType::Int64 => Some(map::<Int64Type>(array, word64)),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Some(map::<TimestampMicrosecondType>(array, word64))
        }
        _ => None,
    }
}

fn word_of_bytes(bytes: &SequenceBytes) -> u64 {
    let value = bytes.0.get(1..).unwrap_or_default();
    value
        .iter()
        .fold(0, |word, byte| (word << 8) | u64::from(*byte))
}
