//! `Found`: the group gets its ids.

use serde::{Deserialize, Serialize};
use tidegate_change::WriterId;

use super::{ClusterId, Outcome, Refusal, State};

/// Names the group and its log, once: the first one counts, so that all replicas agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The group.
    pub cluster: ClusterId,
    /// The id that attempts of this log carry.
    pub writer: WriterId,
}

impl Found {
    pub(super) fn apply(&self, state: &mut State) -> Result<Outcome, Refusal> {
        if state.cluster.is_some() {
            return Err(Refusal::AlreadyFounded);
        }
        state.cluster = Some(self.cluster);
        state.writer = self.writer;
        Ok(Outcome::Done)
    }
}
