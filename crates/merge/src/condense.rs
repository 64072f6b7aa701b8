//! Events of a key that are too many for one merge, taken in pieces.
//!
//! A piece holds whole instants. Most of its events are below what others of the piece say and can matter
//! to nothing but the counts: those are counted here against the stored state, and the rest, the
//! [`Condensed::survivors`], join what other pieces leave. That the state is a join of its events makes
//! the merge of all survivors equal to the merge of all events.

use tidegate_change::{Code, Counters};

use crate::group::instants::is_upsert;
use crate::resolve::count::Counter;
use crate::resolve::state::State;
use crate::resolve::ties::StoredTies;
use crate::sequences::NONE;
use crate::{Grouped, MergeMode, MergeRules, Result, Stored};

/// What a piece of events comes to.
#[derive(Clone, Debug)]
pub struct Condensed {
    /// Rows of the events that supply the state of their keys, ascending.
    pub survivors: Vec<u32>,
    /// late, duplicates, ties and quarantined of the piece; the rest is zero.
    pub counters: Counters,
    /// A group in which a tie was met (R-T5).
    pub tie_example: Option<u32>,
    /// Events that are not taken: row of the events and why (R-G4), by row.
    pub rejects: Vec<(u32, Code)>,
}

/// Counts the events of a piece and finds those that the state of their keys needs.
///
/// `stored` is the state before the batch; rows must have been read for all groups. The merge of the
/// survivors of all pieces counts none of their events again: its late, duplicates, ties, quarantined and
/// rejects are to be replaced by the sums of these.
///
/// # Errors
/// `INTERNAL` when the stored parts disagree with the layout.
pub fn condense(rules: &MergeRules, grouped: &Grouped, stored: &Stored<'_>) -> Result<Condensed> {
    let state = State::new(rules, &grouped.events, grouped.len(), stored)?;
    let ties = StoredTies::find(rules, grouped, stored, &state)?;
    let counted = Counter {
        rules,
        grouped,
        stored,
        state: &state,
        ties: &ties,
        horizon: rules.rejecting_horizon(),
    }
    .count();
    Ok(Condensed {
        survivors: survivors(rules, grouped),
        counters: counted.counters,
        tie_example: counted.tie_example,
        rejects: counted.rejects,
    })
}

fn survivors(rules: &MergeRules, grouped: &Grouped) -> Vec<u32> {
    let reduced = &grouped.reduced;
    let mut rows = Vec::new();
    for group in 0..grouped.len() {
        rows.extend(reduced.upsert.get(group));
        rows.extend(reduced.delete.get(group));
        rows.extend((0..rules.leaves.len()).map(|leaf| reduced.leaf_row(group, leaf)));
        if rules.mode == MergeMode::Flagged {
            // Every delete is a floor of its own (R-L0).
            let own = grouped.rows(group).iter().copied();
            rows.extend(own.filter(|row| {
                !is_upsert(rules, &grouped.events, *row) && !grouped.instants.is_copy(*row)
            }));
        }
    }
    rows.retain(|row| *row != NONE);
    rows.sort_unstable();
    rows.dedup();
    rows
}
