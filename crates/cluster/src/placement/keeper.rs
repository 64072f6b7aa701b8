//! Keeps the placement true on the node that leads: hears workers, proposes what changes.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_change::clock::Clock;
use tidegate_change::{Code, Error, Result};

use super::{Beat, PlacedWorker, Placement, Registry};
use crate::consensus::Consensus;
use crate::metadata::{ClusterId, Drain, Entry, NodeId, Outcome, Place};

/// Who leads the metadata group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderAt {
    /// This node.
    Here,
    /// Another one, at this endpoint.
    Endpoint(String),
    /// Nobody, as far as this node knows.
    Nowhere,
}

/// What a node sees of the metadata without asking others.
pub trait MetadataView: Debug + Send + Sync {
    /// Who leads, as far as this node knows.
    fn leader(&self) -> LeaderAt;

    /// The placement as this node has it, which may lag behind.
    fn placement(&self) -> Placement;

    /// The group, once the node belongs to one.
    fn cluster(&self) -> Option<ClusterId>;
}

/// Keeps the placement.
#[derive(Debug)]
pub struct PlacementKeeper {
    consensus: Arc<dyn Consensus>,
    view: Arc<dyn MetadataView>,
    clock: Arc<dyn Clock>,
    registry: Mutex<Registry>,
}

impl PlacementKeeper {
    /// A keeper that takes workers for dead after that silence.
    #[must_use]
    pub fn new(
        consensus: Arc<dyn Consensus>,
        view: Arc<dyn MetadataView>,
        clock: Arc<dyn Clock>,
        dead_after_ns: u64,
    ) -> Self {
        Self {
            consensus,
            view,
            clock,
            registry: Mutex::new(Registry::new(dead_after_ns)),
        }
    }

    /// Who leads, and should be told.
    #[must_use]
    pub fn leader(&self) -> LeaderAt {
        self.view.leader()
    }

    /// The group, once this node belongs to one.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.view.cluster()
    }

    /// Hears a worker; returns the placement's epoch, which the worker must know before it works.
    ///
    /// # Errors
    /// `NOT_LEADER`, or what keeps a new worker from being placed.
    pub async fn hear(&self, beat: Beat) -> Result<u64> {
        if self.view.leader() != LeaderAt::Here {
            return Err(not_leader());
        }
        self.with_registry(|registry, now_ns| registry.hear(beat, now_ns));
        self.tick().await
    }

    /// Proposes what the placement should be, if this node leads; returns the epoch.
    ///
    /// # Errors
    /// What keeps the entry from being decided.
    pub async fn tick(&self) -> Result<u64> {
        if self.view.leader() != LeaderAt::Here {
            self.with_registry(|registry, _| registry.step_down());
            return Ok(self.view.placement().epoch);
        }
        let current = self.view.placement();
        let wanted = self.with_registry(|registry, now_ns| registry.wanted(&current, now_ns));
        match wanted {
            None => Ok(current.epoch),
            Some(workers) => self.propose(current.epoch, workers).await,
        }
    }

    async fn propose(&self, expected: u64, workers: BTreeMap<NodeId, PlacedWorker>) -> Result<u64> {
        let entry = Entry::Place(Place { expected, workers });
        match self.consensus.propose(entry).await?.outcome {
            // Somebody else changed it; the next tick sees that.
            Outcome::Done | Outcome::Refused(_) => Ok(self.view.placement().epoch),
            _ => Err(Error::internal("a placement was not decided")),
        }
    }

    /// Gives a worker no more work; what it does may end.
    ///
    /// # Errors
    /// `NOT_FOUND` for a node that is no worker, or what keeps the entry from being decided.
    pub async fn drain(&self, node: NodeId) -> Result<()> {
        drain(self.consensus.as_ref(), node).await
    }

    fn with_registry<T>(&self, act: impl FnOnce(&mut Registry, u64) -> T) -> T {
        let now_ns = self.clock.monotonic_ns();
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut registry, now_ns)
    }
}

/// Gives a worker no more work.
async fn drain(consensus: &dyn Consensus, node: NodeId) -> Result<()> {
    match consensus
        .propose(Entry::Drain(Drain { node }))
        .await?
        .outcome
    {
        Outcome::Done => Ok(()),
        Outcome::Refused(_) => Err(Error::new(
            Code::NotFound,
            format!("node {node}: is no worker of the cluster"),
        )),
        _ => Err(Error::internal("a drain was not decided")),
    }
}

fn not_leader() -> Error {
    Error::new(Code::NotLeader, "this node does not lead the cluster")
}
