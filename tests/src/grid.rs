//! Workers on ports of this machine, each with threads of its own, and what may happen to them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use async_trait::async_trait;
use futures::StreamExt;
use tidegate_apply::phases::{PartialManifest, ReadSummary};
use tidegate_apply::work::SourceInput;
use tidegate_apply::{Limits, Manifest, Work};
use tidegate_change::Result as ChangeResult;
use tidegate_change::clock::{SystemClock, SystemRandom};
use tidegate_cluster::metadata::NodeId;
use tidegate_cluster::metadata::replicated::transport::grpc::GrpcOptions;
use tidegate_cluster::placement::{PlacedWorker, Placement, Placements, Seat};
use tidegate_cluster::remote::RemoteParts;
use tidegate_cluster::worker::grpc::{GrpcLinks, work_flight, work_service};
use tidegate_cluster::worker::{
    Called, Fetch, Fetched, FinishOrder, MergeOrder, MergeOutcome, ReadOrder, Rows, Watcher,
    WorkToken, Worker, WorkerLink, WorkerLinks, WorkerParts,
};
use tidegate_cluster::{RemoteWorkers, Workers};
use tidegate_server::Lake;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;

/// Node of the coordinator, which is no worker.
pub const COORDINATOR: NodeId = NodeId(1_000);

/// A call of one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// Sources are read.
    Read,
    /// Buckets are merged.
    Merge,
    /// Events are fetched by an owner.
    FetchEvents,
    /// Rows that readers set apart are fetched.
    FetchRejects,
    /// Rows of an owner are fetched.
    FetchMerged,
    /// A merge is finished.
    Finish,
}

impl Moment {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Read,
        Self::Merge,
        Self::FetchEvents,
        Self::FetchRejects,
        Self::FetchMerged,
        Self::Finish,
    ];
}

/// Who calls whom.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Who calls.
    pub caller: NodeId,
    /// Who is called.
    pub callee: NodeId,
    /// For what.
    pub moment: Moment,
}

/// Sees all calls between nodes, and may act before and after them.
#[async_trait]
pub trait CallHook: fmt::Debug + Send + Sync {
    /// Before a call is made.
    async fn before(&self, call: Call) {
        let _ = call;
    }

    /// When it was answered; for rows, when the first of them are there.
    async fn after(&self, call: Call) {
        let _ = call;
    }

    /// When rows have come, before they are taken.
    async fn rows(&self, call: Call, rows: u64) {
        let _ = (call, rows);
    }
}

/// What a grid is made of.
#[derive(Debug)]
pub struct GridOptions {
    /// Workers.
    pub workers: u32,
    /// Memory of a batch on each, bytes.
    pub memory_bytes: u64,
    /// Who sees the calls.
    pub hook: Option<Arc<dyn CallHook>>,
}

/// Workers, and a coordinator's own.
#[derive(Debug)]
pub struct Grid {
    hands: Mutex<BTreeMap<NodeId, Hand>>,
    placements: Arc<SetPlacements>,
    links: Arc<dyn WorkerLinks>,
    here: Arc<Worker>,
    endpoint: String,
}

/// A worker with its threads.
#[derive(Debug)]
struct Hand {
    worker: Arc<Worker>,
    // Taken when it is killed.
    runtime: Option<Runtime>,
}

impl Drop for Hand {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Grid {
    /// Workers for the tables of a directory.
    ///
    /// # Errors
    /// When there is no port or no thread.
    pub fn start(data: &Path, options: &GridOptions) -> Result<Arc<Self>> {
        let links_of = |caller| -> Arc<dyn WorkerLinks> {
            Arc::new(HookedLinks {
                inner: GrpcLinks::new(GrpcOptions::default()),
                hook: options.hook.clone(),
                caller,
            })
        };
        let mut hands = BTreeMap::new();
        let mut placement = Placement {
            epoch: 1,
            ..Placement::default()
        };
        let own = |node| hand(node, data, links_of(node), options.memory_bytes);
        for node in (1..=u64::from(options.workers)).map(NodeId) {
            let (hand, address) = own(node)?;
            let placed = PlacedWorker {
                endpoint: format!("http://{address}"),
                incarnation: hand.worker.incarnation(),
                is_draining: false,
            };
            placement.workers.insert(node, placed);
            hands.insert(node, hand);
        }
        let (here, address) = own(COORDINATOR)?;
        let grid = Self {
            here: Arc::clone(&here.worker),
            endpoint: format!("http://{address}"),
            placements: Arc::new(SetPlacements(watch::Sender::new(placement))),
            links: links_of(COORDINATOR),
            hands: Mutex::new(hands),
        };
        grid.with_hands(|hands| hands.insert(COORDINATOR, here));
        Ok(Arc::new(grid))
    }

    /// What executes batches on the workers; the grid lives as long as it.
    #[must_use]
    pub fn workers(self: &Arc<Self>) -> Arc<dyn Workers> {
        let parts = RemoteParts {
            placements: Arc::clone(&self.placements) as Arc<dyn Placements>,
            links: Arc::clone(&self.links),
            local: Arc::clone(&self.here),
            endpoint: self.endpoint.clone(),
            random: Arc::new(SystemRandom),
            owner_bytes: 1,
        };
        Arc::new(SharingWorkers {
            workers: RemoteWorkers::new(parts),
            _grid: Arc::clone(self),
        })
    }

    fn with_hands<T>(&self, act: impl FnOnce(&mut BTreeMap<NodeId, Hand>) -> T) -> T {
        let mut hands = self.hands.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut hands)
    }

    /// A worker.
    ///
    /// # Errors
    /// When there is none of that node.
    pub fn worker(&self, node: NodeId) -> Result<Arc<Worker>> {
        let found = self.with_hands(|hands| hands.get(&node).map(|hand| Arc::clone(&hand.worker)));
        found.context("no worker of that node")
    }

    /// Ends the threads of a worker, as a kill of its process does: its connections break.
    pub fn kill(&self, node: NodeId) {
        let runtime = self.with_hands(|hands| hands.get_mut(&node).and_then(|h| h.runtime.take()));
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }

    /// Takes a worker out of the placement.
    pub fn displace(&self, node: NodeId) {
        self.placements.0.send_modify(|placement| {
            placement.workers.remove(&node);
            placement.epoch += 1;
        });
    }

    /// The placement.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.placements.0.borrow().clone()
    }

    /// Rows that workers have sent to others so far.
    #[must_use]
    pub fn rows_sent(&self) -> u64 {
        self.with_hands(|hands| hands.values().map(|hand| hand.worker.rows_sent()).sum())
    }

    /// Attempts that workers hold something for.
    #[must_use]
    pub fn sessions_count(&self) -> usize {
        self.with_hands(|hands| {
            hands
                .values()
                .map(|hand| hand.worker.sessions_count())
                .sum()
        })
    }
}

fn hand(
    node: NodeId,
    data: &Path,
    links: Arc<dyn WorkerLinks>,
    memory_bytes: u64,
) -> Result<(Hand, SocketAddr)> {
    let worker = Worker::new(WorkerParts {
        stores: Arc::new(Lake::new(data, None)?),
        links,
        clock: Arc::new(SystemClock),
        limits: Limits {
            memory_bytes,
            spill_directory: Some(data.join(format!("spill-{node}"))),
        },
        node,
        incarnation: node.0,
    });
    let worker = Arc::new(worker);
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    let router = tonic::transport::Server::builder()
        .initial_stream_window_size(1 << 20)
        .add_service(work_service(Arc::clone(&worker), runtime.handle().clone()))
        .add_service(work_flight(
            Arc::clone(&worker),
            runtime.handle().clone(),
            // There is no other node to ask.
            Arc::new(|| Box::pin(async { tonic::Status::unimplemented("it only works") })),
        ));
    runtime.spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
    let hand = Hand {
        worker,
        runtime: Some(runtime),
    };
    Ok((hand, address))
}

/// A placement that a test sets.
#[derive(Debug)]
struct SetPlacements(watch::Sender<Placement>);

#[async_trait]
impl Placements for SetPlacements {
    async fn current(&self) -> ChangeResult<Placement> {
        Ok(self.0.borrow().clone())
    }

    async fn newer(&self, epoch: u64) -> Placement {
        let mut placements = self.0.subscribe();
        let newer = placements
            .wait_for(|placement| placement.epoch > epoch)
            .await
            .map(|placement| placement.clone());
        match newer {
            Ok(placement) => placement,
            Err(_) => std::future::pending().await,
        }
    }
}

/// Says that all nodes reach the files of a batch: they are on this machine.
#[derive(Debug)]
struct SharingWorkers {
    workers: RemoteWorkers,
    _grid: Arc<Grid>,
}

#[async_trait]
impl Workers for SharingWorkers {
    async fn execute(&self, mut work: Work) -> ChangeResult<Manifest> {
        for source in &mut work.sources {
            if let SourceInput::Path(path) = &source.input {
                source.input = SourceInput::Shared(path.clone());
            }
        }
        self.workers.execute(work).await
    }
}

/// Links that tell a hook of every call.
#[derive(Debug)]
struct HookedLinks {
    inner: GrpcLinks,
    hook: Option<Arc<dyn CallHook>>,
    caller: NodeId,
}

impl WorkerLinks for HookedLinks {
    fn link(&self, seat: &Seat) -> Called<Arc<dyn WorkerLink>> {
        let inner = self.inner.link(seat)?;
        Ok(match &self.hook {
            None => inner,
            Some(hook) => Arc::new(HookedLink {
                inner,
                hook: Arc::clone(hook),
                caller: self.caller,
                callee: seat.node,
            }),
        })
    }
}

#[derive(Debug)]
struct HookedLink {
    inner: Arc<dyn WorkerLink>,
    hook: Arc<dyn CallHook>,
    caller: NodeId,
    callee: NodeId,
}

impl HookedLink {
    fn call(&self, moment: Moment) -> Call {
        Call {
            caller: self.caller,
            callee: self.callee,
            moment,
        }
    }

    async fn around<T>(&self, moment: Moment, answer: impl Future<Output = T>) -> T {
        self.hook.before(self.call(moment)).await;
        let answer = answer.await;
        self.hook.after(self.call(moment)).await;
        answer
    }
}

#[async_trait]
impl WorkerLink for HookedLink {
    async fn read(&self, order: ReadOrder, watcher: Watcher) -> Called<Vec<ReadSummary>> {
        self.around(Moment::Read, self.inner.read(order, watcher))
            .await
    }

    async fn merge(&self, order: MergeOrder, watcher: Watcher) -> Called<MergeOutcome> {
        self.around(Moment::Merge, self.inner.merge(order, watcher))
            .await
    }

    async fn fetch(&self, fetch: Fetch) -> Called<Rows> {
        let moment = match &fetch.what {
            Fetched::Events { .. } => Moment::FetchEvents,
            Fetched::Rejects { .. } => Moment::FetchRejects,
            Fetched::Merged { .. } => Moment::FetchMerged,
        };
        let rows = self.around(moment, self.inner.fetch(fetch)).await?;
        let (hook, call) = (Arc::clone(&self.hook), self.call(moment));
        let rows = rows.then(move |rows| {
            let hook = Arc::clone(&hook);
            async move {
                if let Ok(rows) = &rows {
                    hook.rows(call, rows.num_rows() as u64).await;
                }
                rows
            }
        });
        Ok(rows.boxed())
    }

    async fn finish(&self, order: FinishOrder) -> Called<PartialManifest> {
        self.around(Moment::Finish, self.inner.finish(order)).await
    }

    async fn abandon(&self, token: WorkToken) -> Called<()> {
        self.inner.abandon(token).await
    }
}
