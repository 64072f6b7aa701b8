//! Canonical keys, their hashes and their bucket (key index document: "Key hash", binding, stable for ever).
//!
//! The canonical form of a key is the concatenation of its columns in key order: integer-likes (byte, short,
//! integer, long, date, timestamps) as 8 little-endian bytes, decimals as 16 of the unscaled value, floats as
//! the 8 bytes of the canonical double (one zero, one NaN), booleans as 1 byte, strings and binaries as u32
//! little-endian length and bytes, structs member by member. Two keys of one table are equal (R-K4) exactly
//! when their canonical bytes are.
//!
//! A key column is never NULL (R-K2), a member of a struct in the key may be. A NULL member is written as the
//! zero of its type (0, false, empty), and a key that has one ends with a trailer: one bit per struct member
//! of the key in depth-first order, least significant first, set where the member is NULL and its parent is
//! not. The part before the trailer delimits itself, so no key with a trailer equals one without.

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, Int64Array,
    LargeBinaryArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type, TimeUnit};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

use crate::{Code, Error, Result};

/// Neighbouring integers that share a hash: `1 << 10`.
const BLOCK_BITS: u32 = 10;

/// XXH3-64 of a canonical key; picks the bucket, nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

/// A slice of the key hash, owned by one worker at a time.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct KeyBucket(pub u32);

/// XXH3-128 of a canonical key with the table's seed: identifies the key in the index.
///
/// The seed is random per table, so that nobody can choose keys that collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexHash(pub u128);

impl KeyHash {
    /// The bucket among a power-of-two number: the top bits.
    #[must_use]
    pub fn bucket(self, buckets: u32) -> KeyBucket {
        let bits = buckets.trailing_zeros();
        let bucket = if bits == 0 { 0 } else { self.0 >> (64 - bits) };
        KeyBucket(u32::try_from(bucket).unwrap_or(u32::MAX))
    }

    /// The hash of a key that is one integer-like column: neighbours share it.
    #[must_use]
    pub fn of_integer(key: i64) -> Self {
        Self(xxh3_64(&(key >> BLOCK_BITS).to_le_bytes()))
    }
}

impl IndexHash {
    /// The hash of canonical bytes.
    #[must_use]
    pub fn of(canonical: &[u8], seed: u64) -> Self {
        Self(xxh3_128_with_seed(canonical, seed))
    }
}

/// The canonical bytes of many keys, in one buffer.
#[derive(Clone, Debug)]
pub struct CanonicalKeys {
    bytes: Vec<u8>,
    rows: Rows,
    single_integer: bool,
}

#[derive(Clone, Debug)]
enum Rows {
    /// Every key has the same number of bytes.
    Fixed { width: usize, count: usize },
    /// Where each key ends.
    Ends(Vec<usize>),
}

impl CanonicalKeys {
    /// Encodes key columns, given in key order.
    ///
    /// # Errors
    /// `NULL_KEY` when a column has a NULL, `UNSUPPORTED` for a type that cannot be a key, `INTERNAL` when the
    /// columns differ in length or there is none.
    pub fn encode(columns: &[ArrayRef]) -> Result<Self> {
        let Some(first) = columns.first() else {
            return Err(Error::new(Code::EmptyKeys, "key without a column"));
        };
        let count = first.len();
        let mut parts = Parts::default();
        for (position, column) in columns.iter().enumerate() {
            if column.len() != count {
                return Err(Error::internal("key columns differ in length"));
            }
            if column.null_count() > 0 {
                return Err(Error::new(
                    Code::NullKey,
                    format!("key column {position} has a NULL"),
                ));
            }
            parts.add(column, None)?;
        }
        if let ([Leaf::Long(values)], true) = (parts.leaves.as_slice(), is_plain(first)) {
            return Ok(Self::of_integers(values.values()));
        }
        Ok(parts.encode(count))
    }

    /// Encodes keys that are one integer-like column.
    #[must_use]
    pub fn of_integers(keys: &[i64]) -> Self {
        let mut bytes = Vec::with_capacity(keys.len() * 8);
        for key in keys {
            bytes.extend_from_slice(&key.to_le_bytes());
        }
        Self {
            bytes,
            rows: Rows::Fixed {
                width: 8,
                count: keys.len(),
            },
            single_integer: true,
        }
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.rows {
            Rows::Fixed { count, .. } => *count,
            Rows::Ends(ends) => ends.len(),
        }
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of one key; empty beyond the last.
    #[must_use]
    pub fn get(&self, row: usize) -> &[u8] {
        let range = match &self.rows {
            Rows::Fixed { width, .. } => row * width..(row + 1) * width,
            Rows::Ends(ends) => {
                let start = row
                    .checked_sub(1)
                    .and_then(|before| ends.get(before))
                    .copied();
                start.unwrap_or(0)..ends.get(row).copied().unwrap_or(0)
            }
        };
        self.bytes.get(range).unwrap_or_default()
    }

    /// The bytes of all keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|row| self.get(row))
    }

    /// The hash of one key.
    #[must_use]
    pub fn key_hash(&self, row: usize) -> KeyHash {
        let bytes = self.get(row);
        match <[u8; 8]>::try_from(bytes) {
            Ok(integer) if self.single_integer => KeyHash::of_integer(i64::from_le_bytes(integer)),
            _ => KeyHash(xxh3_64(bytes)),
        }
    }

    /// The hashes that pick the buckets.
    #[must_use]
    pub fn key_hashes(&self) -> Vec<KeyHash> {
        (0..self.len()).map(|row| self.key_hash(row)).collect()
    }

    /// The buckets among a power-of-two number.
    #[must_use]
    pub fn buckets(&self, buckets: u32) -> Vec<KeyBucket> {
        (0..self.len())
            .map(|row| self.key_hash(row).bucket(buckets))
            .collect()
    }

    /// The hashes that the index knows the keys by.
    #[must_use]
    pub fn index_hashes(&self, seed: u64) -> Vec<IndexHash> {
        self.iter().map(|key| IndexHash::of(key, seed)).collect()
    }
}

fn is_plain(column: &ArrayRef) -> bool {
    !matches!(column.data_type(), DataType::Struct(_))
}

/// Values of one column or struct member, in the widest form of their kind.
enum Leaf {
    Long(Int64Array),
    Decimal(Decimal128Array),
    Double(Float64Array),
    Boolean(BooleanArray),
    Bytes(LargeBinaryArray),
}

impl Leaf {
    fn new(column: &ArrayRef) -> Result<Self> {
        let cast = |to: DataType| {
            arrow::compute::cast(column, &to)
                .map_err(|e| Error::internal("key column cannot be widened").with_source(e))
        };
        Ok(match column.data_type() {
            DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Date32
            | DataType::Timestamp(TimeUnit::Microsecond, _) => {
                Self::Long(cast(DataType::Int64)?.as_primitive::<Int64Type>().clone())
            }
            DataType::Decimal128(..) => {
                Self::Decimal(column.as_primitive::<Decimal128Type>().clone())
            }
            DataType::Float32 | DataType::Float64 => Self::Double(
                cast(DataType::Float64)?
                    .as_primitive::<Float64Type>()
                    .clone(),
            ),
            DataType::Boolean => Self::Boolean(column.as_boolean().clone()),
            DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView => {
                Self::Bytes(cast(DataType::LargeBinary)?.as_binary::<i64>().clone())
            }
            other => {
                let message = format!("values of type {other} cannot be a key");
                return Err(Error::new(Code::Unsupported, message));
            }
        })
    }

    /// Bytes of every value; None when they differ.
    fn width(&self) -> Option<usize> {
        match self {
            Self::Long(_) | Self::Double(_) => Some(8),
            Self::Decimal(_) => Some(16),
            Self::Boolean(_) => Some(1),
            Self::Bytes(_) => None,
        }
    }
}

/// The leaves of a key, with the NULLs of struct members.
#[derive(Default)]
struct Parts {
    leaves: Vec<Leaf>,
    /// By leaf: where it or a parent of it is NULL.
    nulls: Vec<Option<NullBuffer>>,
    /// By struct member, depth first: where it is NULL, and where its parent is.
    members: Vec<(Option<NullBuffer>, Option<NullBuffer>)>,
}

impl Parts {
    fn add(&mut self, column: &ArrayRef, parent: Option<&NullBuffer>) -> Result<()> {
        let nulls = NullBuffer::union(parent, column.nulls());
        if let DataType::Struct(_) = column.data_type() {
            for member in column.as_struct().columns() {
                self.members.push((member.nulls().cloned(), nulls.clone()));
                self.add(member, nulls.as_ref())?;
            }
            return Ok(());
        }
        self.leaves.push(Leaf::new(column)?);
        self.nulls.push(nulls);
        Ok(())
    }

    fn encode(&self, count: usize) -> CanonicalKeys {
        let trailers = self.trailers(count);
        let fixed: Option<usize> = self.leaves.iter().map(Leaf::width).sum();
        if let (Some(width), None) = (fixed, &trailers) {
            let mut starts: Vec<usize> = (0..count).map(|row| row * width).collect();
            let bytes = self.fill(vec![0; width * count], &mut starts);
            return CanonicalKeys {
                bytes,
                rows: Rows::Fixed { width, count },
                single_integer: false,
            };
        }
        let lengths = self.lengths(count, trailers.as_ref());
        let mut total = 0;
        let mut starts = Vec::with_capacity(count);
        let mut ends = Vec::with_capacity(count);
        for length in lengths {
            starts.push(total);
            total += length;
            ends.push(total);
        }
        let mut bytes = self.fill(vec![0; total], &mut starts);
        for (row, trailer) in trailers.iter().flatten() {
            put(&mut bytes, &mut starts, *row, trailer);
        }
        CanonicalKeys {
            bytes,
            rows: Rows::Ends(ends),
            single_integer: false,
        }
    }

    /// Rows with a NULL member and their trailers; None where there is no such row.
    fn trailers(&self, count: usize) -> Option<Vec<(usize, Vec<u8>)>> {
        let missing =
            |nulls: &Option<NullBuffer>, row| nulls.as_ref().is_some_and(|n| n.is_null(row));
        if self
            .members
            .iter()
            .all(|(own, _)| own.as_ref().is_none_or(|n| n.null_count() == 0))
        {
            return None;
        }
        let mut trailers = Vec::new();
        for row in 0..count {
            let mut trailer = vec![0u8; self.members.len().div_ceil(8)];
            let mut any = false;
            for (byte, members) in trailer.iter_mut().zip(self.members.chunks(8)) {
                for (bit, (own, parent)) in members.iter().enumerate() {
                    if missing(own, row) && !missing(parent, row) {
                        *byte |= 1 << bit;
                        any = true;
                    }
                }
            }
            if any {
                trailers.push((row, trailer));
            }
        }
        Some(trailers)
    }

    fn lengths(&self, count: usize, trailers: Option<&Vec<(usize, Vec<u8>)>>) -> Vec<usize> {
        let fixed: usize = self.leaves.iter().filter_map(Leaf::width).sum();
        let mut lengths = vec![fixed; count];
        for (leaf, nulls) in self.leaves.iter().zip(&self.nulls) {
            let Leaf::Bytes(values) = leaf else { continue };
            for (row, length) in lengths.iter_mut().enumerate() {
                let null = nulls.as_ref().is_some_and(|n| n.is_null(row));
                *length += 4 + if null { 0 } else { values.value(row).len() };
            }
        }
        for (row, trailer) in trailers.into_iter().flatten() {
            if let Some(length) = lengths.get_mut(*row) {
                *length += trailer.len();
            }
        }
        lengths
    }

    /// Writes leaf by leaf at the rows' cursors; `bytes` come as zeros, which is what a NULL leaves.
    fn fill(&self, mut bytes: Vec<u8>, cursors: &mut [usize]) -> Vec<u8> {
        for (leaf, nulls) in self.leaves.iter().zip(&self.nulls) {
            for row in 0..cursors.len() {
                if nulls.as_ref().is_some_and(|n| n.is_null(row)) {
                    if let Some(cursor) = cursors.get_mut(row) {
                        *cursor += leaf.width().unwrap_or(4);
                    }
                    continue;
                }
                match leaf {
                    Leaf::Long(v) => put(&mut bytes, cursors, row, &v.value(row).to_le_bytes()),
                    Leaf::Decimal(v) => put(&mut bytes, cursors, row, &v.value(row).to_le_bytes()),
                    Leaf::Double(v) => {
                        let double = canonical_double(v.value(row));
                        put(&mut bytes, cursors, row, &double.to_le_bytes());
                    }
                    Leaf::Boolean(v) => put(&mut bytes, cursors, row, &[u8::from(v.value(row))]),
                    Leaf::Bytes(v) => {
                        let value = v.value(row);
                        // Arrow batches of Tidegate hold values of less than 4 GiB.
                        let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
                        put(&mut bytes, cursors, row, &length.to_le_bytes());
                        put(&mut bytes, cursors, row, value);
                    }
                }
            }
        }
        bytes
    }
}

fn put(bytes: &mut [u8], cursors: &mut [usize], row: usize, value: &[u8]) {
    if let Some(cursor) = cursors.get_mut(row) {
        if let Some(slot) = bytes.get_mut(*cursor..*cursor + value.len()) {
            slot.copy_from_slice(value);
        }
        *cursor += value.len();
    }
}

fn canonical_double(value: f64) -> f64 {
    if value.is_nan() {
        f64::NAN
    } else {
        value + 0.0
    }
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
