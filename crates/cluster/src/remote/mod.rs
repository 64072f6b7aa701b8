//! A batch over several workers: the other implementation of [`Workers`], by the same phases
//! as the one process of embedded mode.
//!
//! - `attempt`: what one attempt knows: the placement, who was lost, how calls are made and repeated.
//! - `reading`: sources to readers, until the columns are known; `merging`: buckets to owners;
//!   `composing`: this node stages what owners hand out and composes the commit.
//! - `sharing`: which reader reads what, as a pure function; `board`: the progress of all as one.
//!
//! A worker that is lost costs what it held: its sources are read again by others, its buckets go to other
//! owners under other file numbers. Who was taken for dead and is not writes files that no commit names: a
//! manifest is taken only as the answer to the call that is waited for (commit protocol K17).

mod attempt;
mod board;
mod composing;
mod merging;
mod reading;
mod sharing;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tidegate_apply::{Manifest, Work};
use tidegate_change::clock::Random;
use tidegate_change::{Code, Error, Result};

use crate::placement::{Placement, Placements};
use crate::worker::{Worker, WorkerLinks};
use crate::workers::Workers;
use attempt::{Attempt, workers_worth};

/// Bytes of sources for which it pays to have one more owner, where nobody says otherwise.
pub const OWNER_BYTES_DEFAULT: u64 = 8 << 20;

/// How long a batch waits for a first worker: those of a cluster that starts are heard of a moment later.
const WORKER_WAIT: Duration = Duration::from_secs(10);

/// What batches over several workers need.
#[derive(Clone, Debug)]
pub struct RemoteParts {
    /// Who works.
    pub placements: Arc<dyn Placements>,
    /// The way to them.
    pub links: Arc<dyn WorkerLinks>,
    /// This node: it reads what no other node reaches, and composes.
    pub local: Arc<Worker>,
    /// Where others reach this node.
    pub endpoint: String,
    /// Where secrets of attempts come from.
    pub random: Arc<dyn Random>,
    /// Bytes of sources for which it pays to have one more owner.
    pub owner_bytes: u64,
}

/// Executes batches on the workers of the cluster.
#[derive(Clone, Debug)]
pub struct RemoteWorkers {
    parts: RemoteParts,
}

impl RemoteWorkers {
    /// Workers that are found by their placement.
    #[must_use]
    pub fn new(parts: RemoteParts) -> Self {
        Self { parts }
    }

    /// The placement, once it holds a worker.
    async fn placement(&self) -> Result<Placement> {
        let mut placement = self.parts.placements.current().await?;
        let found = within(WORKER_WAIT, async {
            while placement.seats().is_empty() {
                placement = self.parts.placements.newer(placement.epoch).await;
            }
            placement
        });
        found.await.ok_or_else(|| {
            Error::new(Code::Unavailable, "the cluster has no worker")
                .with_hint("start a node with role worker, or end the drain of one")
        })
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long to wait for somebody decides nothing about the batch"
)]
async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}

#[async_trait]
impl Workers for RemoteWorkers {
    async fn execute(&self, work: Work) -> Result<Manifest> {
        let placement = self.placement().await?;
        let seats = placement.seats();
        let own = self.parts.local.node();
        let is_small = workers_worth(&work, self.parts.owner_bytes, seats.len()) == 1;
        let works = seats.iter().any(|seat| seat.node == own);
        if works && (is_small || seats.len() == 1) {
            // The same phases, without a way between them.
            return tidegate_apply::execute(&work).await;
        }
        let attempt = Attempt::new(&self.parts, &work, placement);
        let manifest = Box::pin(attempt.run()).await;
        attempt.end().await;
        manifest
    }
}
