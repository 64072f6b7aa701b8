//! The order of the events: bucket, key, sequence, deletes before upserts (R-T1), position.

use std::cmp::Ordering;

use arrow::array::ArrayRef;
use arrow::row::{RowConverter, Rows, SortField};
use rayon::slice::ParallelSliceMut;

use crate::sequences::{NONE, Pool, handle, position, words};
use crate::{Error, Events, Result};

/// Below this many events one thread sorts as fast as several.
const PARALLEL_EVENTS_MIN: usize = 1 << 15;

/// Events in order, and where each key starts.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Event rows.
    pub(super) rows: Vec<u32>,
    /// Position in `rows` of the first event of each key, and the end.
    pub(super) starts: Vec<u32>,
}

/// What decides nearly every comparison, in one place.
#[derive(Clone, Copy)]
struct Entry<K> {
    key: K,
    sequence: u64,
    bucket: u32,
    row: u32,
}

/// Sorts the events and finds the distinct keys.
pub(super) fn order(events: &Events, pool: &Pool) -> Result<Order> {
    if let [column] = events.keys.as_slice()
        && let Some(keys) = words(column)
    {
        return Ok(sorted(events, pool, keys, |_, _| Ordering::Equal));
    }
    let rows = key_rows(&events.keys)?;
    let keys = prefixes(&rows);
    Ok(sorted(events, pool, keys, |a, b| {
        rows.row(position(a))
            .data()
            .cmp(rows.row(position(b)).data())
    }))
}

/// Key columns as comparable rows.
pub(crate) fn key_rows(keys: &[ArrayRef]) -> Result<Rows> {
    let failed = |e| Error::internal("key columns of a type without order").with_source(e);
    let fields = keys
        .iter()
        .map(|key| SortField::new(key.data_type().clone()))
        .collect();
    let converter = RowConverter::new(fields).map_err(failed)?;
    converter.convert_columns(keys).map_err(failed)
}

/// Sixteen bytes of each key behind the prefix that all keys share, so that keys such as
/// `customer-0000001` differ in them.
fn prefixes(rows: &Rows) -> Vec<u128> {
    let mut all = rows.iter();
    let Some(first) = all.next() else {
        return Vec::new();
    };
    let shared = all.fold(first.data().len(), |shared, row| {
        let own = first.data().iter().zip(row.data()).take(shared);
        own.take_while(|(a, b)| a == b).count()
    });
    let prefix = |bytes: &[u8]| {
        let mut first = [0; 16];
        for (to, from) in first
            .iter_mut()
            .zip(bytes.get(shared..).unwrap_or_default())
        {
            *to = *from;
        }
        u128::from_be_bytes(first)
    };
    rows.iter().map(|row| prefix(row.data())).collect()
}

fn sorted<K: Ord + Copy + Send + Sync>(
    events: &Events,
    pool: &Pool,
    keys: Vec<K>,
    rest_of_key: impl Fn(u32, u32) -> Ordering + Sync,
) -> Order {
    let (sequences, exact) = pool.prefixes();
    let mut entries: Vec<Entry<K>> = keys
        .into_iter()
        .zip(sequences)
        .zip(&events.buckets)
        .enumerate()
        .map(|(row, ((key, sequence), bucket))| Entry {
            key,
            sequence,
            bucket: bucket.0,
            row: handle(row),
        })
        .collect();
    let same_key = |a: &Entry<K>, b: &Entry<K>| {
        (a.bucket.cmp(&b.bucket))
            .then_with(|| a.key.cmp(&b.key))
            .then_with(|| rest_of_key(a.row, b.row))
    };
    let kind = |row: u32| events.kinds.get(position(row));
    let compare = |a: &Entry<K>, b: &Entry<K>| {
        same_key(a, b)
            .then_with(|| a.sequence.cmp(&b.sequence))
            .then_with(|| {
                if exact {
                    Ordering::Equal
                } else {
                    pool.compare(a.row, b.row)
                }
            })
            .then_with(|| kind(a.row).cmp(&kind(b.row)))
            .then_with(|| a.row.cmp(&b.row))
    };
    if entries.len() < PARALLEL_EVENTS_MIN {
        entries.sort_unstable_by(compare);
    } else {
        entries.par_sort_unstable_by(compare);
    }
    let mut starts = Vec::new();
    let mut before: Option<&Entry<K>> = None;
    for (place, entry) in entries.iter().enumerate() {
        if before.is_none_or(|before| same_key(before, entry).is_ne()) {
            starts.push(handle(place));
        }
        before = Some(entry);
    }
    starts.push(handle(entries.len()));
    debug_assert!(entries.iter().all(|entry| entry.row != NONE));
    Order {
        rows: entries.iter().map(|entry| entry.row).collect(),
        starts,
    }
}
