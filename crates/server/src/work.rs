//! What a node does for batches, its own and those of others, and how the cluster hears of it.
//!
//! A node with role `worker` tells the leader that it lives; the leader places it. A node with the log hears
//! workers while it leads, and gives its own batches to those that are placed. A node that only works has an
//! id in its directory, as one with the log has.

use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidegate_apply::{Limits, Manifest, Work};
use tidegate_change::{Code, Error, Random, Result};
use tidegate_cluster::metadata::NodeId;
use tidegate_cluster::metadata::replicated::Member;
use tidegate_cluster::placement::{MetadataView, PlacementKeeper, Placements, Seat};
use tidegate_cluster::remote::RemoteParts;
use tidegate_cluster::worker::grpc::{BeatClient, GrpcLinks};
use tidegate_cluster::worker::{Worker, WorkerLinks, WorkerParts};
use tidegate_cluster::{Consensus, RemoteWorkers, Stores, Workers};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::config::{Config, NodeRole};
use crate::embedded::OpenOptions;
use crate::group::{Channels, pause, within};
use crate::threads::WorkThreads;

/// Directory of what the memory of work for others does not hold.
const SPILL_DIRECTORY: &str = "work-spill";
/// File with the id of a node without the log.
const NODE_FILE: &str = "worker.json";
/// Signs of life in the time after which a silent node is gone.
const BEATS: u32 = 6;
/// Time between two looks at what was held for a node that stops.
const DRAIN_PAUSE: Duration = Duration::from_millis(50);

/// What a node does for batches. Clones are one and the same.
#[derive(Clone, Debug)]
pub(crate) struct NodeWork {
    pub(crate) worker: Arc<Worker>,
    links: Arc<GrpcLinks>,
    threads: Arc<WorkThreads>,
    endpoint: String,
    random: Arc<dyn Random>,
    bytes_per_worker: u64,
}

/// Who a node without the log is.
#[derive(Debug, Serialize, Deserialize)]
struct NodeFile {
    node_id: u64,
}

impl NodeWork {
    /// The work of a node.
    pub(crate) fn new(
        config: &Config,
        options: &OpenOptions,
        (stores, channels): (Arc<dyn Stores>, &Channels),
        (node, endpoint): (NodeId, String),
        threads: Arc<WorkThreads>,
    ) -> Self {
        let links = Arc::new(GrpcLinks::new(channels.transport_options()));
        let spill = config.data.join(SPILL_DIRECTORY);
        clear(&spill);
        let worker = Worker::new(WorkerParts {
            stores,
            links: Arc::clone(&links) as Arc<dyn WorkerLinks>,
            clock: Arc::clone(&options.clock),
            limits: Limits {
                memory_bytes: options.memory_bytes,
                spill_directory: Some(spill),
            },
            node,
            incarnation: options.random.next_u64(),
        });
        Self {
            worker: Arc::new(worker),
            links,
            threads,
            endpoint,
            random: Arc::clone(&options.random),
            bytes_per_worker: config.cluster.bytes_per_worker.0,
        }
    }

    /// The threads that work runs on.
    pub(crate) fn handle(&self) -> Handle {
        self.threads.handle()
    }

    /// What executes the batches of this node.
    pub(crate) fn workers(&self, member: &Arc<Member>) -> RemoteWorkers {
        RemoteWorkers::new(RemoteParts {
            placements: Arc::clone(member) as Arc<dyn Placements>,
            links: Arc::clone(&self.links) as Arc<dyn WorkerLinks>,
            local: Arc::clone(&self.worker),
            endpoint: self.endpoint.clone(),
            random: Arc::clone(&self.random),
            owner_bytes: self.bytes_per_worker,
        })
    }

    /// Tells the leader for ever that this node works, unless it does not.
    pub(crate) fn start_beats(&self, config: &Config) -> Option<JoinHandle<()>> {
        if !config.has_role(NodeRole::Worker) || !config.is_clustered() {
            return None;
        }
        let beats = Beats {
            client: self.beat_client(config),
            worker: Arc::clone(&self.worker),
            pause: config.cluster.gone_after.duration() / BEATS,
        };
        Some(tokio::spawn(beats.run()))
    }

    fn beat_client(&self, config: &Config) -> BeatClient {
        let seat = Seat {
            node: self.worker.node(),
            incarnation: self.worker.incarnation(),
            endpoint: self.endpoint.clone(),
        };
        BeatClient::new(Arc::clone(&self.links), config.cluster.peers.clone(), seat)
    }

    /// Takes no more work and waits until what was begun has ended, no longer than the drain.
    pub(crate) async fn drain(&self, config: &Config) {
        let limit = config.drain.duration();
        if !config.has_role(NodeRole::Worker) || !config.is_clustered() {
            return;
        }
        let mut client = self.beat_client(config);
        let told = async {
            while client.beat(true).await.is_err() {
                pause(DRAIN_PAUSE).await;
            }
            while self.worker.sessions_count() > 0 {
                pause(DRAIN_PAUSE).await;
            }
        };
        if within(limit, told).await.is_none() {
            tracing::warn!("parts of batches are dropped, the drain is over");
        }
    }
}

struct Beats {
    client: BeatClient,
    worker: Arc<Worker>,
    pause: Duration,
}

impl Beats {
    async fn run(mut self) {
        loop {
            match within(self.pause, self.client.beat(false)).await {
                Some(Ok(epoch)) => self.worker.learn_epoch(epoch),
                Some(Err(error)) => tracing::debug!(%error, "the leader was not told"),
                None => self.client.give_up(),
            }
            pause(self.pause).await;
        }
    }
}

/// What hears workers on a node with the log, and keeps the placement while the node leads.
pub(crate) fn keeper_of(
    member: &Arc<Member>,
    options: &OpenOptions,
    config: &Config,
) -> Arc<PlacementKeeper> {
    let gone_after = config.cluster.gone_after.duration();
    Arc::new(PlacementKeeper::new(
        Arc::clone(member) as Arc<dyn Consensus>,
        Arc::clone(member) as Arc<dyn MetadataView>,
        Arc::clone(&options.clock),
        u64::try_from(gone_after.as_nanos()).unwrap_or(u64::MAX),
    ))
}

/// Keeps the placement for ever.
pub(crate) fn start_keeping(keeper: Arc<PlacementKeeper>, config: &Config) -> JoinHandle<()> {
    let every = config.cluster.gone_after.duration() / BEATS;
    tokio::spawn(async move {
        loop {
            if let Err(error) = keeper.tick().await {
                tracing::debug!(%error, "the placement was not kept");
            }
            pause(every).await;
        }
    })
}

/// The id of a node without the log, issued once for its directory.
///
/// # Errors
/// What the disk says; `CORRUPT` for a file that holds no id.
pub(crate) fn node_without_log(data: &Path, random: &dyn Random) -> Result<NodeId> {
    let path = data.join(NODE_FILE);
    let failed = |e| Error::io(path.display(), e);
    match fs::read(&path) {
        Ok(bytes) => {
            let file: NodeFile = serde_json::from_slice(&bytes).map_err(|e| {
                Error::corrupt(format!("{}: holds no node id", path.display())).with_source(e)
            })?;
            return Ok(NodeId(file.node_id));
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed(e)),
    }
    let node = NodeFile {
        node_id: random.next_u64(),
    };
    let bytes = serde_json::to_vec(&node)
        .map_err(|e| Error::internal("a node id cannot be written").with_source(e))?;
    fs::create_dir_all(data).map_err(failed)?;
    let new = data.join(format!("{NODE_FILE}.new"));
    fs::write(&new, bytes).map_err(failed)?;
    let synced = fs::File::open(&new).and_then(|file| file.sync_all());
    synced.map_err(failed)?;
    fs::rename(&new, &path).map_err(failed)?;
    Ok(NodeId(node.node_id))
}

/// Temporary files of a dead process are of no use to anybody.
fn clear(directory: &Path) {
    if let Err(e) = fs::remove_dir_all(directory)
        && e.kind() != std::io::ErrorKind::NotFound
    {
        let error = Error::io(directory.display(), e);
        tracing::warn!(%error, "temporary files were not removed");
    }
}

/// The workers of a node that is being opened: they are known when its log is.
#[derive(Debug, Default)]
pub(crate) struct LateWorkers(OnceLock<RemoteWorkers>);

impl LateWorkers {
    pub(crate) fn set(&self, workers: RemoteWorkers) {
        // Set once, by who made it.
        let _ = self.0.set(workers);
    }
}

#[async_trait]
impl Workers for LateWorkers {
    async fn execute(&self, work: Work) -> Result<Manifest> {
        match self.0.get() {
            Some(workers) => workers.execute(work).await,
            None => Err(Error::new(Code::Unavailable, "the node is starting")),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_change::clock::SystemRandom;

    use super::*;

    #[test]
    fn a_directory_gives_a_node_its_id_once() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let first = node_without_log(&data, &SystemRandom).unwrap();
        assert_eq!(node_without_log(&data, &SystemRandom).unwrap(), first);
        fs::write(data.join(NODE_FILE), b"{").unwrap();
        let error = node_without_log(&data, &SystemRandom).unwrap_err();
        assert_eq!(error.code(), Code::Corrupt);
    }
}
