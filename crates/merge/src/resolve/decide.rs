//! The join of one key: where its state comes from after the batch. Nothing is gathered here.

use std::cmp::Ordering;
use std::ops::Range;

use tidegate_change::mutants::{Mutant, is_on};
use tidegate_change::sequence::SequenceBytes;

use crate::resolve::state::State;
use crate::resolve::ties::{StoredTies, stored_value};
use crate::sequences::{NONE, handle, position};
use crate::{EventKind, Grouped, MergeMode, MergeRules, Stored, StoredRef};

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// No row before and none after; its tombstone, if there is one, stays.
    Nothing,
    /// The stored row stays, whatever it is (R-0, R-I1).
    Stays,
    /// A row after the batch; the stored one may already be it.
    Live,
    /// No row after the batch.
    Dead,
}

/// The state of one key after the batch.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) fate: Fate,
    /// The row's upsert.
    pub(super) sequence: u32,
    /// The greatest own delete: the row's floor, or the tombstone.
    pub(super) delete: u32,
    /// The one supplier of all leaves: an event, or behind them a stored row.
    source: u32,
    /// Place in [`Plan::leaf_sources`] where there are several.
    pub(super) slot: u32,
    /// Soft delete: own deletes above the upsert, in [`Plan::deletes`].
    pub(super) deletes: Range<usize>,
    /// Soft delete: the greatest delete or truncate above the upsert.
    pub(super) deleted_at: u32,
    /// Whether hidden state differs from the stored one: the row or tombstone is written.
    pub(super) hidden_changed: bool,
    /// Whether values that another engine wrote stay.
    pub(super) is_foreign: bool,
}

impl Outcome {
    fn of(fate: Fate) -> Self {
        Self {
            fate,
            sequence: NONE,
            delete: NONE,
            source: NONE,
            slot: NONE,
            deletes: 0..0,
            deleted_at: NONE,
            hidden_changed: false,
            is_foreign: false,
        }
    }
}

/// The outcomes of all keys.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) outcomes: Vec<Outcome>,
    /// Suppliers and sequences by leaf, for the keys that have several.
    leaf_sources: Vec<u32>,
    leaf_sequences: Vec<u32>,
    pub(super) deletes: Vec<u32>,
}

impl Plan {
    pub(super) fn leaf_source(&self, outcome: &Outcome, leaf: usize) -> u32 {
        match outcome.slot {
            NONE => outcome.source,
            slot => self
                .leaf_sources
                .get(position(slot) + leaf)
                .copied()
                .unwrap_or(NONE),
        }
    }

    pub(super) fn leaf_sequence(&self, outcome: &Outcome, leaf: usize) -> u32 {
        match outcome.slot {
            NONE => outcome.sequence,
            slot => self
                .leaf_sequences
                .get(position(slot) + leaf)
                .copied()
                .unwrap_or(NONE),
        }
    }

    pub(super) fn deletes(&self, outcome: &Outcome) -> &[u32] {
        self.deletes
            .get(outcome.deletes.clone())
            .unwrap_or_default()
    }
}

/// Everything that deciding one key looks at.
pub(super) struct Decider<'a> {
    pub(super) rules: &'a MergeRules,
    pub(super) grouped: &'a Grouped,
    pub(super) stored: &'a Stored<'a>,
    pub(super) state: &'a State,
    pub(super) ties: &'a StoredTies,
    pub(super) horizon: Option<&'a SequenceBytes>,
}

/// What the two sides say of one key.
#[derive(Clone, Copy)]
struct Sides {
    group: usize,
    own: StoredRef,
    /// The stored row.
    row: Option<u32>,
    stored_upsert: u32,
    upsert: u32,
}

impl Decider<'_> {
    pub(super) fn plan(&self) -> Plan {
        let groups = self.grouped.len();
        let mut plan = Plan {
            outcomes: Vec::with_capacity(groups),
            leaf_sources: Vec::new(),
            leaf_sequences: Vec::new(),
            deletes: Vec::new(),
        };
        let mut deletes = Vec::new();
        for (group, own) in self.stored.refs.iter().enumerate() {
            let outcome = self.decide(&mut plan, &mut deletes, group, *own);
            plan.outcomes.push(outcome);
        }
        plan
    }

    fn decide(
        &self,
        plan: &mut Plan,
        deletes: &mut Vec<u32>,
        group: usize,
        own: StoredRef,
    ) -> Outcome {
        let row = match own {
            StoredRef::Row(row) => Some(row),
            StoredRef::Absent | StoredRef::Unread | StoredRef::Tombstone(_) => None,
        };
        let upsert = self
            .grouped
            .reduced
            .upsert
            .get(group)
            .copied()
            .unwrap_or(NONE);
        let sides = Sides {
            group,
            own,
            row,
            stored_upsert: row.map_or(NONE, |row| self.state.rows.sequence(row)),
            upsert: self.taken(own, upsert),
        };
        match self.rules.mode {
            MergeMode::Last => self.decide_last(plan, sides),
            MergeMode::Flagged => self.decide_flagged(plan, deletes, sides),
            MergeMode::First => self.decide_first(plan, sides),
            MergeMode::Once => match own {
                StoredRef::Row(_) | StoredRef::Unread => Outcome::of(Fate::Stays),
                StoredRef::Absent | StoredRef::Tombstone(_) => self.decide_first(plan, sides),
            },
        }
    }

    /// The event, unless it is rejected: an unknown key's upsert at or below the horizon (R-G4).
    fn taken(&self, own: StoredRef, event: u32) -> u32 {
        match self.horizon {
            Some(horizon) if own == StoredRef::Absent && event != NONE => {
                let order = self.state.pool.compare_bytes(event, horizon);
                if order.is_lt() || (order.is_eq() && !is_on(Mutant::HorizonIsOpen)) {
                    NONE
                } else {
                    event
                }
            }
            Some(_) | None => event,
        }
    }

    /// The least upsert stays.
    fn decide_first(&self, plan: &mut Plan, sides: Sides) -> Outcome {
        let stays = matches!(sides.own, StoredRef::Row(_) | StoredRef::Unread);
        if sides.upsert == NONE || sides.own == StoredRef::Unread {
            return Outcome::of(if stays { Fate::Stays } else { Fate::Nothing });
        }
        match (
            sides.row,
            self.state.pool.compare(sides.upsert, sides.stored_upsert),
        ) {
            (Some(_), Ordering::Greater) => Outcome::of(Fate::Stays),
            (Some(_), Ordering::Equal) => self.live(plan, sides, NONE, NONE),
            (Some(_), Ordering::Less) | (None, _) => {
                let sides = Sides {
                    row: None,
                    stored_upsert: NONE,
                    ..sides
                };
                self.live(plan, sides, NONE, NONE)
            }
        }
    }

    /// The greatest upsert lives unless a delete or truncate is above it (R-D3 to R-D6, R-X2).
    fn decide_last(&self, plan: &mut Plan, sides: Sides) -> Outcome {
        let pool = &self.state.pool;
        let stored_delete = match sides.own {
            StoredRef::Row(row) => self.state.rows.floor(row),
            StoredRef::Tombstone(row) => self.state.tombstones.sequence(row),
            StoredRef::Absent | StoredRef::Unread => NONE,
        };
        let delete = self
            .grouped
            .reduced
            .delete
            .get(sides.group)
            .copied()
            .unwrap_or(NONE);
        let delete = pool.greater(stored_delete, delete);
        let cut = pool.greater(delete, self.state.truncated());
        let upsert = pool.greater(sides.stored_upsert, sides.upsert);
        let spoiled = is_on(Mutant::DeleteWinsTie) && pool.is_equal(upsert, cut);
        if upsert != NONE && !pool.is_below(upsert, cut) && !spoiled {
            return self.live(plan, sides, delete, cut);
        }
        let hidden_changed = match sides.own {
            StoredRef::Tombstone(_) => !pool.is_equal(delete, stored_delete),
            StoredRef::Absent | StoredRef::Unread | StoredRef::Row(_) => delete != NONE,
        };
        let had_row = matches!(sides.own, StoredRef::Row(_) | StoredRef::Unread);
        let fate = if had_row || hidden_changed {
            Fate::Dead
        } else {
            Fate::Nothing
        };
        Outcome {
            delete,
            hidden_changed,
            ..Outcome::of(fate)
        }
    }

    /// The greatest upsert shows, flagged by what is above it (R-L0, R-L1).
    fn decide_flagged(&self, plan: &mut Plan, deletes: &mut Vec<u32>, sides: Sides) -> Outcome {
        let pool = &self.state.pool;
        self.collect_deletes(deletes, sides);
        let upsert = pool.greater(sides.stored_upsert, sides.upsert);
        let start = plan.deletes.len();
        if upsert == NONE {
            let Some(greatest) = deletes.last().copied() else {
                return Outcome::of(Fate::Nothing);
            };
            let hidden_changed = match sides.own {
                // The stored deletes are among these.
                StoredRef::Tombstone(row) => {
                    self.state.tombstones.deletes(row).len() < deletes.len()
                }
                StoredRef::Absent | StoredRef::Unread | StoredRef::Row(_) => true,
            };
            plan.deletes.append(deletes);
            let fate = if hidden_changed {
                Fate::Dead
            } else {
                Fate::Nothing
            };
            let deletes = start..plan.deletes.len();
            return Outcome {
                delete: greatest,
                deletes,
                hidden_changed,
                ..Outcome::of(fate)
            };
        }
        let at_or_below = |own: &[u32]| own.partition_point(|own| !pool.is_below(upsert, *own));
        let floors = at_or_below(deletes);
        let floor = floors
            .checked_sub(1)
            .and_then(|at| deletes.get(at))
            .copied()
            .unwrap_or(NONE);
        let truncates = &self.state.truncates;
        let truncated = at_or_below(truncates)
            .checked_sub(1)
            .and_then(|at| truncates.get(at));
        let cut = pool.greater(floor, truncated.copied().unwrap_or(NONE));
        plan.deletes.extend(deletes.iter().skip(floors));
        let own = start..plan.deletes.len();
        let greatest = deletes.last().copied().unwrap_or(NONE);
        let greatest = pool.greater(greatest, self.state.truncated());
        let stored = sides
            .row
            .map_or(0, |row| self.state.rows.deletes(row).len());
        let mut outcome = self.live(plan, sides, floor, cut);
        // With an equal upsert the stored deletes are among these.
        outcome.hidden_changed |= own.len() != stored;
        outcome.deleted_at = if pool.is_below(upsert, greatest) {
            greatest
        } else {
            NONE
        };
        outcome.deletes = own;
        outcome
    }

    /// Every delete that the key has seen, ascending, each once.
    fn collect_deletes(&self, deletes: &mut Vec<u32>, sides: Sides) {
        deletes.clear();
        match sides.own {
            StoredRef::Row(row) => {
                deletes.push(self.state.rows.floor(row));
                deletes.extend(self.state.rows.deletes(row));
            }
            StoredRef::Tombstone(row) => {
                deletes.extend(self.state.tombstones.deletes(row));
                deletes.push(self.state.tombstones.sequence(row));
            }
            StoredRef::Absent | StoredRef::Unread => {}
        }
        let kinds = &self.grouped.events.kinds;
        let is_delete = |row: &&u32| kinds.get(position(**row)) == Some(&EventKind::Delete);
        deletes.extend(self.grouped.rows(sides.group).iter().filter(is_delete));
        deletes.retain(|own| *own != NONE);
        deletes.sort_by(|a, b| self.state.pool.compare(*a, *b));
        deletes.dedup_by(|a, b| self.state.pool.is_equal(*a, *b));
    }

    /// A row that lives, with the suppliers of its leaves; leaves below `cut` are cleared (R-N4).
    fn live(&self, plan: &mut Plan, sides: Sides, delete: u32, cut: u32) -> Outcome {
        let mut outcome = self.supplied(plan, sides, delete, cut);
        let foreign = sides.row.filter(|row| self.state.rows.is_foreign(*row));
        outcome.is_foreign = foreign.is_some_and(|row| {
            let own = stored_value(self.grouped, row);
            (0..self.rules.leaves.len()).any(|leaf| plan.leaf_source(&outcome, leaf) == own)
        });
        outcome
    }

    fn supplied(&self, plan: &mut Plan, sides: Sides, delete: u32, cut: u32) -> Outcome {
        let pool = &self.state.pool;
        let sequence = pool.greater(sides.stored_upsert, sides.upsert);
        let mut outcome = Outcome {
            sequence,
            delete,
            ..Outcome::of(Fate::Live)
        };
        let whole = self
            .grouped
            .reduced
            .whole
            .get(sides.group)
            .copied()
            .unwrap_or(NONE);
        let Some(row) = sides.row else {
            outcome.hidden_changed = true;
            outcome.source = whole;
            if whole == NONE {
                self.mix(plan, &mut outcome, sides, cut);
            }
            return outcome;
        };
        outcome.hidden_changed = !pool.is_equal(sequence, sides.stored_upsert)
            || !pool.is_equal(delete, self.state.rows.floor(row));
        let own = stored_value(self.grouped, row);
        let full = self.state.rows.is_full(row);
        match pool.compare(sides.upsert, sides.stored_upsert) {
            Ordering::Less if full => outcome.source = own,
            Ordering::Greater if whole != NONE => outcome.source = whole,
            Ordering::Equal if self.rules.row_mode && whole != NONE && full => {
                let wins = self.ties.compare_payload(whole).is_gt()
                    && !self.state.rows.is_foreign(row)
                    && !is_on(Mutant::StoredWinsTie);
                outcome.source = if wins { whole } else { own };
            }
            Ordering::Less | Ordering::Equal | Ordering::Greater => {
                self.mix(plan, &mut outcome, sides, cut);
            }
        }
        outcome
    }

    /// Takes each leaf from its greatest author (R-N3, R-T3).
    fn mix(&self, plan: &mut Plan, outcome: &mut Outcome, sides: Sides, cut: u32) {
        let pool = &self.state.pool;
        let start = plan.leaf_sources.len();
        for leaf in 0..self.rules.leaves.len() {
            let event = self.taken(sides.own, self.grouped.reduced.leaf_row(sides.group, leaf));
            let stored = sides
                .row
                .map_or(NONE, |row| self.state.rows.leaf_sequence(row, leaf));
            let foreign = sides.row.is_some_and(|row| self.state.rows.is_foreign(row));
            let order = pool.compare(event, stored).then_with(|| match event {
                NONE => Ordering::Equal,
                _ if foreign => Ordering::Less,
                event => self.ties.compare_leaf(event, leaf),
            });
            let (source, sequence) = match (order, sides.row) {
                (Ordering::Greater, _) => (event, event),
                (Ordering::Less | Ordering::Equal, Some(row)) if stored != NONE => {
                    (stored_value(self.grouped, row), stored)
                }
                (Ordering::Less | Ordering::Equal, _) => (NONE, NONE),
            };
            let cleared = pool.is_below(sequence, cut) && !is_on(Mutant::LeavesOutliveDeletes);
            let (source, sequence) = if cleared {
                (NONE, NONE)
            } else {
                (source, sequence)
            };
            outcome.hidden_changed |= sides.row.is_some() && !pool.is_equal(sequence, stored);
            plan.leaf_sources.push(source);
            plan.leaf_sequences.push(sequence);
        }
        let sources = plan.leaf_sources.get(start..).unwrap_or_default();
        let sequences = plan.leaf_sequences.get(start..).unwrap_or_default();
        let first = sources.first().copied().unwrap_or(NONE);
        let one = sources.iter().all(|source| *source == first)
            && sequences
                .iter()
                .all(|own| pool.is_equal(*own, outcome.sequence));
        if one {
            plan.leaf_sources.truncate(start);
            plan.leaf_sequences.truncate(start);
            outcome.source = first;
        } else {
            outcome.slot = handle(start);
        }
    }
}
