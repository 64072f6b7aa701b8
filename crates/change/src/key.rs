//! Canonical keys, their hash and their bucket (key index document: "Key hash", binding, stable for ever).

use serde::{Deserialize, Serialize};

/// XXH3-64 of a canonical key; picks the bucket, nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

/// A slice of the key hash, owned by one worker at a time.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct KeyBucket(pub u32);

impl KeyHash {
    /// The bucket among a power-of-two number: the top bits.
    #[must_use]
    pub fn bucket(self, buckets: u32) -> KeyBucket {
        let bits = buckets.trailing_zeros();
        let bucket = if bits == 0 { 0 } else { self.0 >> (64 - bits) };
        KeyBucket(u32::try_from(bucket).unwrap_or(u32::MAX))
    }
}
