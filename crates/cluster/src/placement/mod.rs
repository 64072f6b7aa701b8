//! Which worker owns which key buckets: a pure function of the workers, the table and its buckets.
//!
//! - [`Placement`]: the workers and their epoch, as the replicated log holds them.
//! - [`Placement::owners`]: who owns which ranges of buckets of a table. Its buckets are cut into slots, equal
//!   ranges of the key hash; every slot goes to the worker that ranks highest for it (rendezvous hashing) and
//!   is not full. So slots of one table are spread evenly, those of all tables nearly so, and a worker that
//!   comes or goes moves few of them; nothing but the workers has to be remembered.
//! - `registry`: what the leader hears from workers, and what the placement should be by it.
//!
//! Whatever changes the workers raises the epoch; work that names an older epoch than a worker knows is
//! refused there (commit protocol 2.4, 2.6 K17).

mod keeper;
mod member;
mod registry;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ops::Range;
use std::slice;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidegate_change::{Digest, Result};

use crate::metadata::{NodeId, TableId};

pub use keeper::{LeaderAt, MetadataView, PlacementKeeper};
pub use registry::{Beat, Registry};

/// Slots of a table at most.
pub const SLOTS_MAX: u32 = 64;

/// The workers of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Placement {
    /// Rises with every change.
    pub epoch: u64,
    /// Workers by node.
    pub workers: BTreeMap<NodeId, PlacedWorker>,
}

/// A worker of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PlacedWorker {
    /// Where it is reached.
    pub endpoint: String,
    /// Random id of its process: another one knows nothing of what this one did.
    pub incarnation: u64,
    /// Whether it gets no more work; what it does may end.
    #[serde(default)]
    pub is_draining: bool,
}

/// A process that works.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seat {
    /// Its node.
    pub node: NodeId,
    /// Its process.
    pub incarnation: u64,
    /// Where it is reached.
    pub endpoint: String,
}

/// Tells the newest placement.
#[async_trait]
pub trait Placements: Debug + Send + Sync {
    /// The placement, at least as new as any that was told to anybody before the call.
    ///
    /// # Errors
    /// When nobody can tell.
    async fn current(&self) -> Result<Placement>;

    /// Waits until the placement is newer than that epoch. May be cancelled.
    async fn newer(&self, epoch: u64) -> Placement;
}

impl Placement {
    /// The processes that take work, in order of their nodes.
    #[must_use]
    pub fn seats(&self) -> Vec<Seat> {
        let active = self.workers.iter().filter(|(_, own)| !own.is_draining);
        active
            .map(|(node, own)| Seat {
                node: *node,
                incarnation: own.incarnation,
                endpoint: own.endpoint.clone(),
            })
            .collect()
    }

    /// Whether a process is there, draining or not.
    #[must_use]
    pub fn holds(&self, seat: &Seat) -> bool {
        let own = self.workers.get(&seat.node);
        own.is_some_and(|own| own.incarnation == seat.incarnation)
    }

    /// The owners of all buckets of a table with so many.
    #[must_use]
    pub fn owners(&self, table: &TableId, buckets: u32) -> BTreeMap<NodeId, Vec<Range<u32>>> {
        let workers = self.seats().into_iter().map(|seat| seat.node).collect();
        owners(table, buckets, slice::from_ref(&(0..buckets)), &workers)
    }
}

/// Gives some buckets, of a table with so many, to some workers; neighbours of one owner are one range.
#[must_use]
pub fn owners(
    table: &TableId,
    buckets: u32,
    wanted: &[Range<u32>],
    workers: &BTreeSet<NodeId>,
) -> BTreeMap<NodeId, Vec<Range<u32>>> {
    let slots = slots_of(buckets);
    let range = |slot| first_bucket(slot, slots, buckets)..first_bucket(slot + 1, slots, buckets);
    let is_wanted = |slot: &u32| wanted.iter().any(|own| own.contains(&range(*slot).start));
    let wanted: Vec<u32> = (0..slots).filter(is_wanted).collect();
    let mut owned: BTreeMap<NodeId, Vec<Range<u32>>> = BTreeMap::new();
    let mut counts: BTreeMap<NodeId, usize> = BTreeMap::new();
    let full = wanted.len().div_ceil(workers.len().max(1));
    for slot in wanted {
        let free = workers
            .iter()
            .filter(|worker| counts.get(worker).is_none_or(|count| *count < full));
        let Some(owner) = free.max_by_key(|worker| rank(table, slot, **worker)) else {
            continue;
        };
        *counts.entry(*owner).or_default() += 1;
        let ranges = owned.entry(*owner).or_default();
        match ranges.last_mut() {
            Some(last) if last.end == range(slot).start => last.end = range(slot).end,
            _ => ranges.push(range(slot)),
        }
    }
    owned
}

/// How well a worker suits a slot: random, and the same on every node and for ever.
pub(crate) fn rank(table: &TableId, slot: u32, worker: NodeId) -> Digest {
    let mut text = table.0.clone().into_bytes();
    text.extend(slot.to_le_bytes());
    text.extend(worker.0.to_le_bytes());
    Digest::of(&text)
}

/// Slots of a table with that many buckets.
fn slots_of(buckets: u32) -> u32 {
    buckets.clamp(1, SLOTS_MAX)
}

/// The first bucket of a slot.
fn first_bucket(slot: u32, slots: u32, buckets: u32) -> u32 {
    let first = u64::from(slot) * u64::from(buckets.max(1)) / u64::from(slots.max(1));
    u32::try_from(first).unwrap_or(u32::MAX)
}
