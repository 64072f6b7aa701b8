//! `Place` and `Drain`: who works, and with which epoch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::limits::{ENDPOINT_BYTES_MAX, NODES_MAX};
use super::{NodeId, Outcome, Refusal, State};
use crate::placement::PlacedWorker;

/// Replaces the workers of the cluster; the epoch rises where they differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The epoch that the proposer saw.
    pub expected: u64,
    /// The workers.
    pub workers: BTreeMap<NodeId, PlacedWorker>,
}

impl Place {
    pub(super) fn apply(&self, state: &mut State) -> Result<Outcome, Refusal> {
        if self.workers.len() > NODES_MAX {
            return Err(Refusal::Limit {
                what: "workers".into(),
            });
        }
        let mut endpoints = self.workers.values().map(|worker| worker.endpoint.len());
        if endpoints.any(|bytes| bytes > ENDPOINT_BYTES_MAX) {
            return Err(Refusal::Limit {
                what: "bytes in an endpoint".into(),
            });
        }
        let placement = &mut state.placement;
        if placement.epoch != self.expected {
            return Err(Refusal::PlacementMoved {
                epoch: placement.epoch,
            });
        }
        if placement.workers != self.workers {
            placement.workers.clone_from(&self.workers);
            placement.epoch += 1;
        }
        Ok(Outcome::Done)
    }
}

/// Gives a worker no more work until its process was replaced by another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// The worker.
    pub node: NodeId,
}

impl Drain {
    pub(super) fn apply(&self, state: &mut State) -> Result<Outcome, Refusal> {
        let placement = &mut state.placement;
        let worker = placement.workers.get_mut(&self.node);
        let worker = worker.ok_or(Refusal::WorkerUnknown)?;
        if !worker.is_draining {
            worker.is_draining = true;
            placement.epoch += 1;
        }
        Ok(Outcome::Done)
    }
}
