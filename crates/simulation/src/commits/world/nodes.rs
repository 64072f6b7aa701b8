//! Nodes: coordinators with the product's code, over the simulated store, log and clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use object_store::ObjectStore;
use tidegate_change::Result;
use tidegate_change::clock::{Clock, Random};
use tidegate_cluster::metadata::NodeId;
use tidegate_cluster::{Consensus, Coordinator, CoordinatorOptions, CoordinatorParts};

use super::clients::{Done, What};
use super::{Job, Running, World, drive, told};
use crate::commits::ledger::{LedgerWorkers, OneStore};

/// When the clock of a simulation starts, milliseconds.
const START_MS: i64 = 1_700_000_000_000;

/// A clock that events move.
#[derive(Debug)]
pub(crate) struct SimulatedClock {
    now_ms: AtomicI64,
    ticks: AtomicU64,
}

impl Default for SimulatedClock {
    fn default() -> Self {
        Self {
            now_ms: AtomicI64::new(START_MS),
            ticks: AtomicU64::new(0),
        }
    }
}

impl SimulatedClock {
    /// Moves the time, back or forth.
    pub(crate) fn jump(&self, ms: i64) {
        self.now_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Clock for SimulatedClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.fetch_add(3, Ordering::Relaxed)
    }

    fn monotonic_ns(&self) -> u64 {
        self.ticks.fetch_add(1_000, Ordering::Relaxed)
    }
}

/// A node; it is down without a coordinator.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) coordinator: Option<Arc<Coordinator>>,
}

impl World {
    fn parts(&self, node: usize) -> CoordinatorParts {
        parts_of(self, Arc::new(self.log.clone()), node)
    }

    /// The task that starts a node.
    pub(super) fn start(&self, node: usize) -> Running {
        let (parts, options) = (self.parts(node), self.options());
        Box::pin(async move { Done::Started(started(parts, options).await) })
    }

    pub(super) fn options(&self) -> CoordinatorOptions {
        CoordinatorOptions {
            inline_bytes_max: self.plan.inline_bytes_max,
            ..CoordinatorOptions::default()
        }
    }

    /// Starts a node while nothing else happens.
    pub(crate) fn start_now(&mut self, node: usize) -> Result<(), String> {
        let (parts, options) = (self.parts(node), self.options());
        let started = drive(started(parts, options))?.map_err(told)?;
        if let Some(node) = self.nodes.get_mut(node) {
            node.coordinator = Some(started);
        }
        Ok(())
    }

    /// Ends a node where it stands: nothing of it goes on, and nobody is told.
    pub(crate) fn crash(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.coordinator = None;
        }
        let (gone, left): (Vec<_>, Vec<_>) = self.jobs.drain(..).partition(|job| job.node == node);
        self.jobs = left;
        for job in gone {
            self.clients.abandon(&job.what);
        }
    }

    /// Whether a node is on its way up.
    pub(super) fn is_starting(&self, node: usize) -> bool {
        let mut jobs = self.jobs.iter();
        jobs.any(|job| job.node == node && matches!(job.what, What::Start))
    }

    pub(super) fn spawn(&mut self, node: usize, what: What, future: Running) {
        self.jobs.push(Job { node, what, future });
    }

    pub(crate) fn clock(&self) -> &SimulatedClock {
        &self.clock
    }
}

/// What a coordinator of the world works with, on a log.
pub(crate) fn parts_of(world: &World, log: Arc<dyn Consensus>, node: usize) -> CoordinatorParts {
    let store: Arc<dyn ObjectStore> = Arc::new(world.store.clone());
    CoordinatorParts {
        consensus: log,
        workers: Arc::new(LedgerWorkers),
        stores: Arc::new(OneStore::new(store)),
        clock: Arc::clone(&world.clock) as Arc<dyn Clock>,
        random: Arc::clone(&world.dice) as Arc<dyn Random>,
        node: NodeId(node as u64 + 1),
    }
}

async fn started(parts: CoordinatorParts, options: CoordinatorOptions) -> Result<Arc<Coordinator>> {
    let coordinator = Coordinator::start(parts, options).await?;
    coordinator.recover().await?;
    Ok(Arc::new(coordinator))
}
