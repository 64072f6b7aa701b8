//! Distinct keys of a batch and the reduced state of each.
//!
//! [`order`] sorts the events by (bucket, key, sequence), [`instants`] finds the ties, [`reduce`] names the
//! events that supply each key's state. Values are only looked at where events tie.

pub(crate) mod authored;
pub(crate) mod instants;
pub(crate) mod order;
pub(crate) mod reduce;

use arrow::array::{ArrayRef, UInt32Array};
use tidegate_change::KeyBucket;
use tidegate_change::sequence::SequenceBytes;

use crate::sequences::{NONE, Pool, position};
use crate::{Error, Events, FileBounds, MergeMode, MergeRules, Result};

use authored::EventLeaves;
use instants::{Instants, bound};
use order::Order;
use reduce::{Reduced, Reducer};

/// The distinct keys of a batch in (bucket, key) order, each with its events and their join.
#[derive(Debug)]
pub struct Grouped {
    pub(crate) events: Events,
    pub(crate) leaves: EventLeaves,
    pub(crate) instants: Instants,
    pub(crate) reduced: Reduced,
    pub(crate) keys: Vec<ArrayRef>,
    order: Order,
    pool: Pool,
    buckets: Vec<KeyBucket>,
}

impl Grouped {
    /// Number of distinct keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buckets.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Distinct keys in key column order, one row per group.
    #[must_use]
    pub fn key_columns(&self) -> &[ArrayRef] {
        &self.keys
    }

    /// The bucket of each group, ascending.
    #[must_use]
    pub fn buckets(&self) -> &[KeyBucket] {
        &self.buckets
    }

    /// The events that were grouped.
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// The events of a group, by sequence.
    pub fn event_rows(&self, group: usize) -> impl Iterator<Item = u32> + '_ {
        self.rows(group).iter().copied()
    }

    pub(crate) fn rows(&self, group: usize) -> &[u32] {
        let start = bound(self.order.starts.get(group));
        let end = bound(self.order.starts.get(group + 1));
        self.order.rows.get(start..end).unwrap_or_default()
    }

    /// The greatest sequence of all events (R-W1).
    ///
    /// # Errors
    /// `INTERNAL` when a sequence cannot be encoded.
    pub fn max_sequence(&self, rules: &MergeRules) -> Result<Option<SequenceBytes>> {
        let greatest = self
            .order
            .rows
            .iter()
            .fold(NONE, |best, row| self.pool.greater(best, *row));
        self.pool.bytes(&rules.encoder, greatest)
    }

    /// Whether the stored row of a group must be read, given what is known of its file.
    ///
    /// It need not when everything that the batch says of the key is newer than the file and leaves
    /// nothing of the stored row: neither a value nor hidden state, and no pre-image is wanted.
    #[must_use]
    pub fn needs_stored(&self, rules: &MergeRules, group: usize, bounds: &FileBounds) -> bool {
        let Some(newest) = &bounds.max_sequence else {
            return true;
        };
        let Some(oldest) = self.rows(group).first() else {
            return true;
        };
        if self.pool.compare_bytes(*oldest, newest).is_le() {
            return true;
        }
        match rules.mode {
            MergeMode::First | MergeMode::Once => false,
            MergeMode::Flagged => true,
            MergeMode::Last if rules.feed => true,
            MergeMode::Last => {
                let deletes = self
                    .reduced
                    .delete
                    .get(group)
                    .is_some_and(|row| *row != NONE);
                let truncates = || rules.truncates().any(|truncate| truncate > newest);
                let supplied = || self.reduced.supplies_all(group) || truncates();
                !deletes && (bounds.has_sparse_hidden || !supplied())
            }
        }
    }

    /// Groups of given keys that no event names.
    pub(crate) fn without_events(
        rules: &MergeRules,
        keys: Vec<ArrayRef>,
        groups: usize,
    ) -> Result<Self> {
        let events = Events {
            keys: keys.iter().map(|key| key.slice(0, 0)).collect(),
            sequence: arrow::array::new_empty_array(&rules.sequence_type),
            kinds: Vec::new(),
            payload: vec![crate::PayloadColumn::default(); rules.payload.len()],
            buckets: Vec::new(),
        };
        Ok(Self {
            leaves: EventLeaves::new(rules, &events)?,
            instants: Instants::default(),
            reduced: Reduced::empty(groups, rules.leaves.len()),
            order: Order {
                rows: Vec::new(),
                starts: vec![0; groups + 1],
            },
            pool: Pool::new(&rules.encoder, &[])?,
            buckets: vec![KeyBucket(0); groups],
            keys,
            events,
        })
    }
}

/// Groups events by key and reduces each group.
///
/// # Errors
/// `INTERNAL` when the events disagree with the layout.
pub fn group(rules: &MergeRules, events: Events) -> Result<Grouped> {
    events.check(rules)?;
    let pool = Pool::new(&rules.encoder, std::slice::from_ref(&events.sequence))?;
    let leaves = EventLeaves::new(rules, &events)?;
    let order = order::order(&events, &pool)?;
    let instants = Instants::find(rules, &events, &leaves, &pool, &order)?;
    let reducer = Reducer {
        rules,
        events: &events,
        leaves: &leaves,
        pool: &pool,
        instants: &instants,
    };
    let reduced = reducer.reduce(&order);
    let groups = order.starts.len().saturating_sub(1);
    let firsts: Vec<u32> = order
        .starts
        .iter()
        .take(groups)
        .filter_map(|start| order.rows.get(position(*start)).copied())
        .collect();
    let buckets = firsts
        .iter()
        .filter_map(|row| events.buckets.get(position(*row)).copied())
        .collect();
    let firsts = UInt32Array::from(firsts);
    let keys = events
        .keys
        .iter()
        .map(|column| arrow::compute::take(column, &firsts, None))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| Error::internal("keys cannot be gathered").with_source(e))?;
    Ok(Grouped {
        leaves,
        instants,
        reduced,
        keys,
        order,
        pool,
        buckets,
        events,
    })
}
