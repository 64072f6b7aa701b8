//! Instants with several events: one key, one sequence (R-T1 to R-T3, R-U1).

use std::cmp::Ordering;

use crate::group::authored::EventLeaves;
use crate::sequences::{Pool, handle, position};
use crate::values::Comparable;
use crate::{Error, EventKind, Events, MergeMode, MergeRules, Result};

use super::order::Order;

/// An instant of several events of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instant {
    pub(crate) group: u32,
    /// An event of it.
    pub(crate) row: u32,
    /// First of its upserts among [`Instants::rows`], and their number.
    pub(super) first: u32,
    pub(super) upserts: u32,
    pub(super) deletes: u32,
    /// Different contents among its upserts.
    pub(super) contents: u32,
}

impl Instant {
    /// Events equal to another one: of both kinds, or of deletes alone.
    pub(crate) fn duplicates(&self, with_upserts: bool) -> u64 {
        let deletes = u64::from(self.deletes.saturating_sub(1));
        let upserts = u64::from(self.upserts - self.contents);
        if with_upserts {
            deletes + upserts
        } else {
            deletes
        }
    }

    /// Losers: all different contents but one. The delete is one of them where deletes mean anything.
    pub(crate) fn ties(&self, with_deletes: bool) -> u64 {
        let delete = u64::from(with_deletes && self.deletes > 0);
        (u64::from(self.contents) + delete).saturating_sub(1)
    }
}

/// All instants of several events, by group, and the values of their upserts.
#[derive(Debug, Default)]
pub(crate) struct Instants {
    pub(crate) list: Vec<Instant>,
    /// Upserts of the instants.
    rows: Vec<u32>,
    /// By leaf; None where no event carries it.
    values: Vec<Option<Comparable>>,
    /// By event: whether it is equal to another event that stands for both.
    copies: Vec<bool>,
}

impl Instants {
    pub(super) fn find(
        rules: &MergeRules,
        events: &Events,
        leaves: &EventLeaves,
        pool: &Pool,
        order: &Order,
    ) -> Result<Self> {
        let mut found = Self::default();
        for (group, bounds) in order.starts.windows(2).enumerate() {
            let (start, end) = (bound(bounds.first()), bound(bounds.last()));
            if end - start > 1 {
                let rows = order.rows.get(start..end).unwrap_or_default();
                found.find_in_group(rules, events, pool, handle(group), rows);
            }
        }
        if found.list.is_empty() {
            return Ok(found);
        }
        found.copies = vec![false; events.len()];
        for leaf in 0..leaves.len() {
            let values = leaves.authored_values(leaf, &found.rows)?;
            found
                .values
                .push(values.as_ref().map(Comparable::new).transpose()?);
        }
        found.mark_copies(rules, events, leaves, order)?;
        Ok(found)
    }

    fn find_in_group(
        &mut self,
        rules: &MergeRules,
        events: &Events,
        pool: &Pool,
        group: u32,
        rows: &[u32],
    ) {
        for instant in rows.chunk_by(|a, b| pool.is_equal(*a, *b)) {
            let [row, _, ..] = instant else { continue };
            let first = self.rows.len();
            self.rows
                .extend(instant.iter().filter(|row| is_upsert(rules, events, **row)));
            let upserts = self.rows.len() - first;
            self.list.push(Instant {
                group,
                row: *row,
                first: handle(first),
                upserts: handle(upserts),
                deletes: handle(instant.len() - upserts),
                contents: 0,
            });
        }
    }

    /// Finds equal events; of each set the first one stands for all.
    fn mark_copies(
        &mut self,
        rules: &MergeRules,
        events: &Events,
        leaves: &EventLeaves,
        order: &Order,
    ) -> Result<()> {
        let mut list = std::mem::take(&mut self.list);
        for instant in &mut list {
            let first = position(instant.first);
            let mut places: Vec<usize> = (first..first + position(instant.upserts)).collect();
            places.sort_by(|a, b| self.compare_contents(leaves, *a, *b));
            let mut copies = Vec::new();
            for same in places.chunk_by(|a, b| self.compare_contents(leaves, *a, *b).is_eq()) {
                instant.contents += 1;
                copies.extend(
                    same.iter()
                        .skip(1)
                        .filter_map(|place| self.rows.get(*place)),
                );
            }
            for row in copies {
                self.mark(row)?;
            }
            if instant.deletes > 1 {
                let deletes = instant_deletes(rules, events, order, instant);
                for row in deletes.into_iter().skip(1) {
                    self.mark(row)?;
                }
            }
        }
        self.list = list;
        Ok(())
    }

    fn mark(&mut self, row: u32) -> Result<()> {
        let copy = self.copies.get_mut(position(row));
        *copy.ok_or_else(|| Error::internal("an instant names an event that is not there"))? = true;
        Ok(())
    }

    /// Whether another equal event stands for this one (R-U1).
    pub(crate) fn is_copy(&self, row: u32) -> bool {
        self.copies.get(position(row)).copied().unwrap_or_default()
    }

    /// The upserts of an instant that stand for themselves, as (place, row).
    pub(super) fn upserts(&self, instant: &Instant) -> impl Iterator<Item = (usize, u32)> {
        let first = position(instant.first);
        let places = first..first + position(instant.upserts);
        places
            .filter_map(|place| self.rows.get(place).map(|row| (place, *row)))
            .filter(|(_, row)| !self.is_copy(*row))
    }

    /// Compares one leaf of two upserts.
    pub(super) fn compare_leaf(&self, leaf: usize, a: usize, b: usize) -> Ordering {
        match self.values.get(leaf) {
            Some(Some(values)) => values.compare(a, values, b),
            Some(None) | None => Ordering::Equal,
        }
    }

    /// Compares whole payloads (R-T2).
    pub(super) fn compare_payload(&self, a: usize, b: usize) -> Ordering {
        (0..self.values.len())
            .map(|leaf| self.compare_leaf(leaf, a, b))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    /// Equal only when values and authorship are; the order itself means nothing.
    fn compare_contents(&self, leaves: &EventLeaves, a: usize, b: usize) -> Ordering {
        let authors = |place: usize, leaf| {
            self.rows
                .get(place)
                .is_some_and(|row| leaves.authors(leaf, *row))
        };
        self.compare_payload(a, b).then_with(|| {
            (0..leaves.len())
                .map(|leaf| authors(a, leaf).cmp(&authors(b, leaf)))
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        })
    }
}

/// Whether an event counts as an upsert; insert-only tables interpret no operation (R-I1).
pub(crate) fn is_upsert(rules: &MergeRules, events: &Events, row: u32) -> bool {
    rules.mode == MergeMode::Once
        || events
            .kinds
            .get(position(row))
            .is_some_and(|kind| *kind == EventKind::Upsert)
}

/// The deletes of an instant: they stand right before its first upsert or at `row`, in order.
fn instant_deletes(
    rules: &MergeRules,
    events: &Events,
    order: &Order,
    instant: &Instant,
) -> Vec<u32> {
    let group = position(instant.group);
    let start = bound(order.starts.get(group));
    let end = bound(order.starts.get(group + 1));
    let rows = order.rows.get(start..end).unwrap_or_default();
    rows.iter()
        .copied()
        .skip_while(|row| *row != instant.row)
        .take(position(instant.deletes))
        .filter(|row| !is_upsert(rules, events, *row))
        .collect()
}

pub(super) fn bound(value: Option<&u32>) -> usize {
    value.map_or(0, |value| position(*value))
}
