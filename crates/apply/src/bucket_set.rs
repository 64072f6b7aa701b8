//! The buckets of a table that one owner has.

use std::ops::Range;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::UInt64Type;
use tidegate_change::{Error, KeyHash, Result};

/// Some buckets of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSet {
    /// Whether each bucket of the table is held.
    held: Vec<bool>,
}

impl BucketSet {
    /// All buckets of a table.
    #[must_use]
    pub fn all() -> Self {
        Self { held: vec![true] }
    }

    /// The buckets in these ranges, of a table of so many.
    #[must_use]
    pub fn new(ranges: &[Range<u32>], of: u32) -> Self {
        let held = |bucket| ranges.iter().any(|range| range.contains(&bucket));
        Self {
            held: (0..of.max(1)).map(held).collect(),
        }
    }

    fn of(&self) -> u32 {
        u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }

    fn holds(&self, hash: KeyHash) -> bool {
        let bucket = hash.bucket(self.of()).0 as usize;
        self.held.get(bucket).copied().unwrap_or_default()
    }

    /// Whether some bucket lies in one of so many equal ranges of the key hash.
    pub(crate) fn meets_range(&self, range: usize, ranges: usize) -> bool {
        let (of, ranges) = (self.held.len(), ranges.max(1));
        let (first, end) = (range * of / ranges, ((range + 1) * of).div_ceil(ranges));
        let held = self.held.iter().skip(first).take(end - first);
        held.copied().any(|held| held)
    }

    /// The events whose key lies in the set, ascending.
    pub(crate) fn events(&self, hashes: &[KeyHash]) -> Vec<u32> {
        let all = (0u32..).zip(hashes);
        all.filter(|(_, hash)| self.holds(**hash))
            .map(|(event, _)| event)
            .collect()
    }

    /// The events of a record batch whose key lies in the set; None where there is none.
    ///
    /// # Errors
    /// `CORRUPT` when the record batch holds no events.
    pub(crate) fn pick(&self, batch: RecordBatch) -> Result<Option<RecordBatch>> {
        let wrong = || Error::corrupt("events without key hashes");
        let hashes = batch.column_by_name("hash").ok_or_else(wrong)?;
        let hashes = hashes
            .as_primitive_opt::<UInt64Type>()
            .ok_or_else(wrong)?
            .values()
            .iter();
        let own: BooleanArray = hashes
            .map(|hash| Some(self.holds(KeyHash(*hash))))
            .collect();
        match own.true_count() {
            0 => Ok(None),
            all if all == batch.num_rows() => Ok(Some(batch)),
            _ => filter_record_batch(&batch, &own)
                .map(Some)
                .map_err(|e| Error::internal("events cannot be filtered").with_source(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, UInt64Array};

    use super::*;

    fn one(first: u32, end: u32, of: u32) -> BucketSet {
        BucketSet::new(std::slice::from_ref(&(first..end)), of)
    }

    #[test]
    fn sets_of_ranges_part_the_events_of_a_table() {
        let hashes: Vec<KeyHash> = (0..64)
            .map(|i| KeyHash(u64::from(i as u32) << 58))
            .collect();
        for of in [1, 2, 8, 64] {
            let own = BucketSet::new(&[0..of / 4, of / 2..of], of);
            let other = one(of / 4, of / 2, of);
            let mut all = own.events(&hashes);
            all.extend(other.events(&hashes));
            all.sort_unstable();
            assert_eq!(all, (0..64).collect::<Vec<u32>>(), "of {of}");
            for (range, hash) in hashes.iter().enumerate() {
                assert_eq!(own.meets_range(range, 64), own.holds(*hash), "of {of}");
            }
        }
        // More buckets than ranges: a range is met where one of its buckets is.
        let few = one(5, 6, 256);
        assert!(few.meets_range(1, 64));
        assert!(!few.meets_range(2, 64));
    }

    #[test]
    fn a_record_batch_keeps_the_events_of_the_set() {
        let hashes: ArrayRef = Arc::new(UInt64Array::from(vec![0, 1 << 63, 7]));
        let batch = RecordBatch::try_from_iter([("hash", hashes)]).unwrap();
        let rows = |set: &BucketSet| set.pick(batch.clone()).unwrap().map(|own| own.num_rows());
        assert_eq!(rows(&BucketSet::all()), Some(3));
        assert_eq!(rows(&one(0, 1, 2)), Some(2));
        assert_eq!(rows(&one(2, 3, 4)), Some(1));
        assert_eq!(rows(&one(1, 2, 4)), None);
    }
}
