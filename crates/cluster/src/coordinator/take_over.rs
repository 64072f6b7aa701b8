//! Who takes over from a coordinator that is gone: the leader of the metadata group.
//!
//! The rules, all of them functions of the replicated state and of who is gone:
//! - A coordinator works under the epoch that it was granted. A newer grant of the same node kills it: the
//!   node's own, when it starts again; or the leader's in its name, when the node is gone and left work.
//! - What is open under a dead epoch is aborted: `Prepare` refuses it for ever, so its files may go.
//! - What is prepared is published, whoever prepared it: only the slot decides. Its own coordinator does so
//!   at once; the leader where that one is gone, or where it stands still.
//! - A drop, and a table without a version, belong to the coordinator that stands as their owner, until its
//!   epoch is dead.
//!
//! Whether a node is gone is a matter of time and only decides who works, never what is decided: a node that
//! was taken for gone finds its epoch dead, asks for another, and runs its batches again.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_change::{Result, TableVersion};

use super::Coordinator;
use super::recover::is_settled;
use crate::metadata::{Entry, Epoch, Grant, NodeId, Role, State, TableId, TableState, TableStatus};

/// Looks in a row that find a table as it was, after which its work stands still.
const LOOKS_MAX: u32 = 4;

/// What a leader saw of unfinished work, so that it tells what stands still from what moves.
#[derive(Debug, Default)]
pub struct Watch {
    seen: BTreeMap<TableId, (Sight, u32)>,
}

/// What is prepared on a table, and which files wait to be collected.
type Sight = (Option<(TableVersion, u64)>, BTreeSet<u64>);

/// What there is to do.
#[derive(Debug, Default, PartialEq, Eq)]
struct Duties {
    /// Nodes whose epochs are to die.
    revoked: BTreeSet<NodeId>,
    /// Tables with work of dead epochs, or work that stands still.
    tables: BTreeSet<TableId>,
}

impl Watch {
    /// What a leader has to do when some nodes are gone.
    fn duties(&mut self, state: &State, gone: &dyn Fn(NodeId) -> bool) -> Duties {
        let mut duties = Duties::default();
        self.seen.retain(|id, _| state.tables.contains_key(id));
        for (id, table) in &state.tables {
            if is_settled(table) {
                self.seen.remove(id);
                continue;
            }
            let epochs = epochs_of(table);
            let lost = |epoch: &Epoch| state.is_current(epoch) && gone(epoch.node);
            let revoked = epochs.iter().filter(|epoch| lost(epoch));
            duties.revoked.extend(revoked.map(|epoch| epoch.node));
            let is_dead = |epoch: &Epoch| !state.is_current(epoch) || gone(epoch.node);
            let is_orphan = epochs.is_empty() && has_owner_work(table);
            if epochs.iter().any(is_dead) || is_orphan || self.stands_still(id, table) {
                duties.tables.insert(id.clone());
            }
        }
        duties
    }

    /// Whether what is to be published or collected is the same as at the last looks.
    fn stands_still(&mut self, id: &TableId, table: &TableState) -> bool {
        let pending = table.pending.as_ref();
        let sight = (
            pending.map(|pending| (pending.version, pending.opened.index)),
            table.uncollected.clone(),
        );
        if sight.0.is_none() && sight.1.is_empty() {
            self.seen.remove(id);
            return false;
        }
        let seen = self.seen.entry(id.clone()).or_default();
        if seen.0 == sight {
            seen.1 += 1;
        } else {
            *seen = (sight, 1);
        }
        seen.1 > LOOKS_MAX
    }
}

/// The epochs under which somebody works on a table.
fn epochs_of(table: &TableState) -> Vec<Epoch> {
    let attempts = table.attempts.values().map(|attempt| attempt.epoch);
    let pending = table.pending.iter().map(|p| p.opened.attempt.epoch);
    let owner = table.owner.filter(|_| has_owner_work(table));
    attempts.chain(pending).chain(owner).collect()
}

/// Whether the table is being created or dropped, which only its owner does.
fn has_owner_work(table: &TableState) -> bool {
    table.head.is_none() || matches!(table.status, TableStatus::Dropping { .. })
}

impl Coordinator {
    /// Ends what coordinators that are gone left behind, and what stands still. The leader of a group calls
    /// it again and again; anybody else may, without harm.
    ///
    /// A table that cannot be recovered now does not keep others from it.
    ///
    /// # Errors
    /// When the log cannot be read or written.
    pub async fn take_over(
        &self,
        watch: &mut Watch,
        gone: &(dyn Fn(NodeId) -> bool + Sync),
    ) -> Result<()> {
        let duties = {
            let state = self.state().await?;
            watch.duties(&state, &|node| node != self.parts.node && gone(node))
        };
        for node in duties.revoked {
            tracing::warn!(%node, "the work of a coordinator that is gone is taken over");
            let role = Role::Coordinator;
            self.propose(Entry::Grant(Grant { node, role })).await?;
        }
        for id in duties.tables {
            let Ok(table) = self.table(&id).await else {
                continue;
            };
            if let Err(error) = self.recover_table(&id, &table).await {
                tracing::warn!(table = table.name, %error, "a table could not be recovered");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_change::WriterId;

    use super::*;
    use crate::metadata::{Attempt, CommitKind};

    fn epoch(node: u64, number: u64) -> Epoch {
        Epoch {
            node: NodeId(node),
            role: Role::Coordinator,
            number,
        }
    }

    fn id() -> TableId {
        TableId("t".into())
    }

    /// A table with an open attempt of node 1, whose current epoch is 10.
    fn state(opened_under: u64) -> State {
        let mut state = State::new(WriterId(1));
        for node in [1, 2] {
            let roles = BTreeMap::from([(Role::Coordinator, 10)]);
            state.epochs.insert(NodeId(node), roles);
        }
        let mut table = TableState::unborn("t".into(), "t".into(), 1);
        table.head = Some(TableVersion(0));
        let attempt = Attempt {
            epoch: epoch(1, opened_under),
            kind: CommitKind::Batch,
            batches: Vec::new(),
            opened_ms: 0,
        };
        table.attempts.insert(20, attempt);
        state.tables.insert(id(), Arc::new(table));
        state
    }

    fn change(state: &mut State, change: impl FnOnce(&mut TableState)) {
        change(Arc::make_mut(state.tables.get_mut(&id()).unwrap()));
    }

    fn duties(state: &State, gone: &[u64]) -> Duties {
        Watch::default().duties(state, &|node| gone.contains(&node.0))
    }

    #[test]
    fn work_of_a_live_coordinator_stays_alone() {
        assert_eq!(duties(&state(10), &[2]), Duties::default());
    }

    #[test]
    fn work_of_an_older_epoch_is_ended_and_nobody_is_revoked() {
        let found = duties(&state(9), &[]);
        assert_eq!(found.tables, BTreeSet::from([id()]));
        assert!(found.revoked.is_empty());
    }

    #[test]
    fn a_node_that_is_gone_loses_its_epoch_only_where_it_left_work() {
        let found = duties(&state(10), &[1, 2]);
        assert_eq!(found.revoked, BTreeSet::from([NodeId(1)]));
        assert_eq!(found.tables, BTreeSet::from([id()]));
    }

    #[test]
    fn what_is_created_or_dropped_belongs_to_its_owner() {
        let mut state = state(10);
        change(&mut state, |table| {
            table.attempts.clear();
            table.head = None;
            table.owner = Some(epoch(2, 10));
        });
        assert_eq!(duties(&state, &[1]), Duties::default());
        assert_eq!(duties(&state, &[2]).revoked, BTreeSet::from([NodeId(2)]));
        change(&mut state, |table| table.owner = None);
        assert_eq!(duties(&state, &[]).tables, BTreeSet::from([id()]));
    }

    #[test]
    fn what_waits_to_be_collected_is_taken_up_when_nobody_does_it() {
        let mut state = state(10);
        change(&mut state, |table| {
            table.uncollected.insert(5);
        });
        let mut watch = Watch::default();
        for _ in 0..LOOKS_MAX {
            let found = watch.duties(&state, &|_| false);
            assert_eq!(found, Duties::default());
        }
        let found = watch.duties(&state, &|_| false);
        assert_eq!(found.tables, BTreeSet::from([id()]));
        change(&mut state, |table| {
            table.uncollected.insert(6);
        });
        assert_eq!(watch.duties(&state, &|_| false), Duties::default());
    }
}
