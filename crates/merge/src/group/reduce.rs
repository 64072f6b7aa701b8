//! The join of the events of each key: its deciding upsert and delete, and the author of each leaf.

use crate::group::authored::EventLeaves;
use crate::sequences::{NONE, Pool, handle, position};
use crate::{Events, MergeMode, MergeRules};

use super::instants::{Instant, Instants, bound, is_upsert};
use super::order::Order;

/// What the events of each key come to. Everything is a row of the events, or [`NONE`].
#[derive(Debug, Default)]
pub(crate) struct Reduced {
    /// An event of the deciding upsert's sequence: the greatest, or the least in SCD 0 and insert-only.
    pub(crate) upsert: Vec<u32>,
    /// The greatest delete; not looked for below what it could clear.
    pub(crate) delete: Vec<u32>,
    /// The one event that supplies every leaf, at the deciding sequence.
    pub(crate) whole: Vec<u32>,
    /// Where there is none: the place of the key's leaf rows. Empty when no key has one.
    slots: Vec<u32>,
    leaf_rows: Vec<u32>,
    leaves: usize,
}

impl Reduced {
    /// Groups without events, for rows that only truncates reach.
    pub(crate) fn empty(groups: usize, leaves: usize) -> Self {
        let none = vec![NONE; groups];
        Self {
            upsert: none.clone(),
            delete: none.clone(),
            whole: none,
            leaves,
            ..Self::default()
        }
    }

    /// The event that supplies a leaf.
    pub(crate) fn leaf_row(&self, group: usize, leaf: usize) -> u32 {
        match self.slots.get(group) {
            Some(slot) if *slot != NONE => self
                .leaf_rows
                .get(position(*slot) + leaf)
                .copied()
                .unwrap_or(NONE),
            Some(_) | None => self.whole.get(group).copied().unwrap_or(NONE),
        }
    }

    /// Whether the events supply every leaf.
    pub(crate) fn supplies_all(&self, group: usize) -> bool {
        (0..self.leaves).all(|leaf| self.leaf_row(group, leaf) != NONE)
            && self.upsert.get(group).is_some_and(|row| *row != NONE)
    }
}

/// Everything that reducing one group looks at.
pub(super) struct Reducer<'a> {
    pub(super) rules: &'a MergeRules,
    pub(super) events: &'a Events,
    pub(super) leaves: &'a EventLeaves,
    pub(super) pool: &'a Pool,
    pub(super) instants: &'a Instants,
}

/// The state of one group while its instants are visited.
struct Partial {
    upsert: u32,
    delete: u32,
    rows: Vec<u32>,
    missing: usize,
}

impl Reducer<'_> {
    pub(super) fn reduce(&self, order: &Order) -> Reduced {
        let groups = order.starts.len().saturating_sub(1);
        let leaves = self.leaves.len();
        let mut reduced = Reduced::empty(groups, leaves);
        let mut partial = Partial {
            upsert: NONE,
            delete: NONE,
            rows: vec![NONE; leaves],
            missing: leaves,
        };
        let mut instants = self.instants.list.as_slice();
        for (group, bounds) in order.starts.windows(2).enumerate() {
            let rows = order
                .rows
                .get(bound(bounds.first())..bound(bounds.last()))
                .unwrap_or_default();
            let own = instants
                .iter()
                .take_while(|i| position(i.group) == group)
                .count();
            let (own, rest) = instants.split_at(own);
            instants = rest;
            if let [row] = rows
                && self.reduce_single(&mut reduced, group, *row)
            {
                continue;
            }
            partial.upsert = NONE;
            partial.delete = NONE;
            partial.rows.fill(NONE);
            partial.missing = leaves;
            self.reduce_group(&mut partial, rows, own);
            partial.store(&mut reduced, group, self);
        }
        reduced
    }

    /// A key with one event, unless its leaves must be told apart.
    fn reduce_single(&self, reduced: &mut Reduced, group: usize, row: u32) -> bool {
        if !is_upsert(self.rules, self.events, row) {
            set(&mut reduced.delete, group, row);
            return true;
        }
        if !self.leaves.is_full(row) {
            return false;
        }
        set(&mut reduced.upsert, group, row);
        set(&mut reduced.whole, group, row);
        true
    }

    fn reduce_group(&self, partial: &mut Partial, rows: &[u32], instants: &[Instant]) {
        let newest_first = self.rules.takes_deletes();
        let (mut rows, mut instants) = (rows, instants);
        while let Some(row) = next(rows, newest_first) {
            let instant =
                next(instants, newest_first).filter(|instant| self.pool.is_equal(instant.row, row));
            let len = match instant {
                Some(instant) => {
                    instants = without(instants, newest_first, 1);
                    position(instant.upserts) + position(instant.deletes)
                }
                None => 1,
            };
            let own = ends(rows, newest_first, len);
            rows = without(rows, newest_first, len);
            if self.visit(partial, own, instant) {
                return;
            }
        }
    }

    /// Takes one instant in; true when no further one can matter.
    fn visit(&self, partial: &mut Partial, rows: &[u32], instant: Option<Instant>) -> bool {
        let upsert = rows
            .iter()
            .copied()
            .find(|row| is_upsert(self.rules, self.events, *row));
        if let Some(row) = upsert {
            if partial.upsert == NONE {
                partial.upsert = row;
            }
            match instant {
                Some(instant) if instant.upserts > 1 => self.fill_from_several(partial, &instant),
                Some(_) | None => self.fill(partial, row),
            }
            if !self.rules.takes_deletes() {
                return true;
            }
        }
        let delete = rows
            .iter()
            .copied()
            .find(|row| !is_upsert(self.rules, self.events, *row));
        if let Some(row) = delete
            && self.rules.takes_deletes()
        {
            if partial.delete == NONE {
                partial.delete = row;
            }
            // Hard: nothing below a delete is ever shown. Soft: nothing below one that is below the upsert.
            return self.rules.mode == MergeMode::Last || partial.upsert != NONE;
        }
        false
    }

    fn fill(&self, partial: &mut Partial, row: u32) {
        if partial.missing == 0 {
            return;
        }
        for (leaf, filled) in partial.rows.iter_mut().enumerate() {
            if *filled == NONE && self.leaves.authors(leaf, row) {
                *filled = row;
                partial.missing -= 1;
            }
        }
    }

    /// Several upserts at one sequence: whole payloads compete first where they do (R-T2, R-I1), the rest
    /// leaf by leaf (R-T3, R-T3b).
    fn fill_from_several(&self, partial: &mut Partial, instant: &Instant) {
        let instants = self.instants;
        if self.rules.mode == MergeMode::Once {
            let least = instants
                .upserts(instant)
                .min_by(|a, b| instants.compare_payload(a.0, b.0));
            if let Some((_, row)) = least {
                partial.upsert = row;
                self.fill(partial, row);
            }
            return;
        }
        let mut candidates: Vec<(usize, u32)> = instants.upserts(instant).collect();
        if self.rules.row_mode {
            let full = |candidate: &&(usize, u32)| self.leaves.is_full(candidate.1);
            let best = candidates
                .iter()
                .filter(full)
                .max_by(|a, b| instants.compare_payload(a.0, b.0))
                .copied();
            candidates.retain(|own| !self.leaves.is_full(own.1) || Some(*own) == best);
        }
        if let [(_, row)] = candidates.as_slice() {
            self.fill(partial, *row);
            return;
        }
        for (leaf, filled) in partial.rows.iter_mut().enumerate() {
            if *filled != NONE {
                continue;
            }
            let authors = candidates
                .iter()
                .filter(|own| self.leaves.authors(leaf, own.1));
            // Of equal values the first author stands: `max_by` keeps the last one it meets.
            let best = authors
                .rev()
                .max_by(|a, b| instants.compare_leaf(leaf, a.0, b.0));
            if let Some((_, row)) = best {
                *filled = *row;
                partial.missing -= 1;
            }
        }
    }
}

impl Partial {
    fn store(&self, reduced: &mut Reduced, group: usize, reducer: &Reducer<'_>) {
        set(&mut reduced.delete, group, self.delete);
        set(&mut reduced.upsert, group, self.upsert);
        if self.upsert == NONE {
            return;
        }
        let author = self.rows.first().copied().unwrap_or(self.upsert);
        let whole = self.missing == 0
            && self.rows.iter().all(|row| *row == author)
            && reducer.pool.is_equal(author, self.upsert);
        if whole {
            set(&mut reduced.whole, group, author);
            return;
        }
        if reduced.slots.is_empty() {
            reduced.slots = vec![NONE; reduced.whole.len()];
        }
        set(&mut reduced.slots, group, handle(reduced.leaf_rows.len()));
        reduced.leaf_rows.extend_from_slice(&self.rows);
    }
}

fn set(values: &mut [u32], group: usize, value: u32) {
    if let Some(slot) = values.get_mut(group) {
        *slot = value;
    }
}

fn next<T: Copy>(items: &[T], from_end: bool) -> Option<T> {
    if from_end {
        items.last().copied()
    } else {
        items.first().copied()
    }
}

fn ends<T>(items: &[T], from_end: bool, len: usize) -> &[T] {
    let at = if from_end {
        items.len().saturating_sub(len)
    } else {
        0
    };
    items
        .get(at..)
        .map_or(&[], |rest| rest.get(..len).unwrap_or(rest))
}

fn without<T>(items: &[T], from_end: bool, len: usize) -> &[T] {
    if from_end {
        items
            .get(..items.len().saturating_sub(len))
            .unwrap_or_default()
    } else {
        items.get(len..).unwrap_or_default()
    }
}
