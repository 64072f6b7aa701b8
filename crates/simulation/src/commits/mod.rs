//! The whole commit path, simulated: the product's coordinators over a store that lies and a log that loses
//! answers, one step at a time, in an order that a seed gives.
//!
//! - [`log`]: the replicated log: the product's state machine, entries in one order, faults around it.
//! - [`ledger`]: the workload: batches that add one to counters, so that a lost or doubled one shows.
//! - [`plan`]: what a seed makes happen; [`world`]: nodes, clients, and the events between their steps.
//! - [`check`]: what must hold whatever happened.
//! - [`every_point`]: each point of a batch's way with each event, one after the other.
//!
//! Nothing runs by itself: a task is polled when the dice choose it, and gives way before and after each
//! operation of store and log ([`crate::toxic::Points`]). A crash drops a node's tasks where they stand. The
//! log is one seeded state and no group of `openraft`: its runtime takes its timers and wake-ups from tokio,
//! so that a seed would not name a history. What a group adds to it (answers that are lost, proposals that
//! land late, members without a leader, state that comes back from a snapshot) is drawn here; groups
//! themselves are tested in `cluster/metadata/replicated`.

pub mod check;
pub mod every_point;
pub mod ledger;
pub mod log;
pub mod plan;
pub mod world;

use std::collections::BTreeMap;
use std::fmt;

pub use world::World;

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Batches that were acknowledged.
    pub acked: u64,
    /// Batches whose outcome nobody knew when the faults ended.
    pub unknown: u64,
    /// Submissions that failed, and were repeated.
    pub failed: u64,
    /// Versions of the table.
    pub versions: u64,
    /// Reads that were checked.
    pub reads: u64,
    /// Steps.
    pub steps: u64,
    /// How often each fault struck.
    pub hits: BTreeMap<String, u64>,
}

impl Report {
    /// Adds another run.
    pub fn add(&mut self, other: &Self) {
        self.acked += other.acked;
        self.unknown += other.unknown;
        self.failed += other.failed;
        self.versions += other.versions;
        self.reads += other.reads;
        self.steps += other.steps;
        for (name, count) in &other.hits {
            *self.hits.entry(name.clone()).or_default() += count;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} batches acknowledged, {} open when the faults ended, {} submissions failed, {} versions, {} reads, {} steps",
            self.acked, self.unknown, self.failed, self.versions, self.reads, self.steps
        )?;
        for (name, count) in &self.hits {
            writeln!(f, "  {name}: {count}")?;
        }
        Ok(())
    }
}

/// What broke, and the command that shows it again.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The seed.
    pub seed: u64,
    /// What broke.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {}\nreplay: cargo run -p tidegate-simulation --example commits -- --seed {}",
            self.seed, self.what, self.seed
        )
    }
}

/// Runs the history that a seed names.
///
/// # Errors
/// The first thing that broke.
pub fn run(seed: u64) -> Result<Report, Violation> {
    let violation = |what| Violation { seed, what };
    let mut world = World::new(seed).map_err(violation)?;
    world.run().map_err(violation)
}
