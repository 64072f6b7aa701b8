//! `Grant`: a node takes a role.

use serde::{Deserialize, Serialize};

use super::limits::NODES_MAX;
use super::{Epoch, NodeId, Outcome, Refusal, Role, State};

/// Gives a node a new epoch of a role and kills its older ones, of that node and role only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The node.
    pub node: NodeId,
    /// The role.
    pub role: Role,
}

impl Grant {
    pub(super) fn apply(&self, state: &mut State, index: u64) -> Result<Outcome, Refusal> {
        if state.epochs.len() >= NODES_MAX && !state.epochs.contains_key(&self.node) {
            return Err(Refusal::Limit {
                what: "nodes".into(),
            });
        }
        state
            .epochs
            .entry(self.node)
            .or_default()
            .insert(self.role, index);
        Ok(Outcome::Granted(Epoch {
            node: self.node,
            role: self.role,
            number: index,
        }))
    }
}
