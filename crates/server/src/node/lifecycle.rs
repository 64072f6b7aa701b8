//! The life of a node: start, and a stop that lets running work end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_change::{Error, Result};
use tidegate_cluster::placement::PlacementKeeper;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::server::Router;
use tonic_health::server::HealthReporter;

use super::listener::connections;
use super::router::{outside_router, router, set_not_serving, set_serving};
use super::serving::Serving;
use crate::config::{Config, NodeRole};
use crate::embedded::{OpenOptions, lake_of};
use crate::group::{Channels, Outside, Steward, StewardParts};
use crate::stores::RemoteStores;
use crate::threads::WorkThreads;
use crate::work::{NodeWork, node_without_log, start_keeping};

/// What batches that were asked to stop may still take, and calls to be answered.
const LAST_CALL: Duration = Duration::from_millis(700);
/// How long another node may take to lead instead of one that stops.
const HAND_OVER: Duration = Duration::from_millis(1_500);

/// A process of the cluster: its services on one port. Dropping it stops it without a drain.
#[derive(Debug)]
pub struct Node {
    /// What a node with the metadata log serves; a worker alone has none.
    serving: Option<Serving>,
    address: SocketAddr,
    endpoint: String,
    health: HealthReporter,
    stop_listening: Option<oneshot::Sender<()>>,
    server: JoinHandle<Result<()>>,
    /// Brings the node into its cluster and watches; ends when the node must.
    steward: Option<JoinHandle<Error>>,
    work: Option<Working>,
}

/// What a node of several does for batches, and the tasks that tell others of it.
#[derive(Debug)]
struct Working {
    own: NodeWork,
    config: Arc<Config>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Working {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Working {
    fn new(own: NodeWork, config: Arc<Config>, keeper: Option<Arc<PlacementKeeper>>) -> Self {
        let mut tasks: Vec<_> = own.start_beats(&config).into_iter().collect();
        tasks.extend(keeper.map(|keeper| start_keeping(keeper, &config)));
        Self { own, config, tasks }
    }

    /// Takes no more work, and lets what was begun end.
    async fn drain(&self) {
        // A sign of life after the last one would bring work again.
        self.tasks.iter().for_each(JoinHandle::abort);
        self.own.drain(&self.config).await;
    }
}

/// Why a node that was not asked to stop cannot go on.
#[derive(Debug)]
pub enum NodeEnd {
    /// Its log failed, or a part of it: what is true then only a new start finds out.
    Failed(Error),
    /// It has no place in its cluster: it was removed, or belongs to another one.
    Refused(Error),
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.begin_stop();
        }
        self.server.abort();
        if let Some(steward) = &self.steward {
            steward.abort();
        }
    }
}

impl Node {
    /// Opens the directory of the configuration, listens and serves.
    ///
    /// A node of several answers from now on, but serves only when it belongs to its cluster: its health
    /// tells.
    ///
    /// # Errors
    /// As [`Config::validate`]; `DIRECTORY_HELD`; `IO` when the address cannot be listened on.
    pub async fn start(config: Config, options: OpenOptions) -> Result<Self> {
        config.validate()?;
        let memory_bytes = config.memory.map_or(options.memory_bytes, |bytes| bytes.0);
        let options = OpenOptions {
            memory_bytes,
            lake: config.lake.clone().or(options.lake),
            stores: RemoteStores::new(config.stores.clone()),
            probe_lake: true,
            ..options
        };
        let listen = config.listen;
        let failed = |e| Error::io(format!("listen {listen}"), e);
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let scheme = if config.is_encrypted() {
            "https"
        } else {
            "http"
        };
        let endpoint = match &config.advertise {
            Some(endpoint) => endpoint.clone(),
            None => format!("{scheme}://{address}"),
        };
        let channels = Channels::new(&config.tls)?;
        let connections_max = config.limits.connections;
        if !config.has_role(NodeRole::Meta) {
            let work = work_alone(&config, &options, &channels, endpoint.clone())?;
            let outside = Outside::new(config.cluster.peers.clone(), channels);
            let (router, health) = outside_router(&config, &outside, &work)?;
            let (stop_listening, server) = serve(router, listener, connections_max);
            return Ok(Self {
                serving: None,
                address,
                endpoint,
                health,
                stop_listening: Some(stop_listening),
                server,
                steward: None,
                work: Some(Working::new(work, Arc::new(config), None)),
            });
        }
        let random = Arc::clone(&options.random);
        let serving = Serving::open(config, options, endpoint.clone(), channels).await?;
        let (router, health) = router(&serving)?;
        let steward = match serving.config.is_clustered() {
            true => {
                set_not_serving(&health).await;
                Some(steward_of(&serving, random, health.clone()))
            }
            false => {
                set_serving(&health).await;
                None
            }
        };
        let (stop_listening, server) = serve(router, listener, connections_max);
        let work = serving.work.clone().map(|work| {
            let config = Arc::clone(&serving.config);
            Working::new(work.own, config, Some(work.keeper))
        });
        Ok(Self {
            work,
            serving: Some(serving),
            address,
            endpoint,
            health,
            stop_listening: Some(stop_listening),
            server,
            steward,
        })
    }

    /// How clients reach the node.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// What it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the node cannot go on, and says why. Its process must end then: nothing of a node stays
    /// half alive.
    pub async fn failed(&mut self) -> NodeEnd {
        let log = async {
            match &self.serving {
                Some(serving) => serving.embedded.member().stopped().await,
                None => std::future::pending().await,
            }
        };
        let steward = async {
            match &mut self.steward {
                Some(steward) => steward.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            error = log => NodeEnd::Failed(error),
            ended = steward => match ended {
                Ok(error) => NodeEnd::Refused(error),
                Err(panic) => {
                    let error = Error::internal("the node's watch over its cluster panicked");
                    NodeEnd::Failed(error.with_source(panic))
                }
            },
            ended = &mut self.server => NodeEnd::Failed(match ended {
                Ok(Err(error)) => error,
                Ok(Ok(())) => Error::internal("the listener ended"),
                Err(panic) => Error::internal("the server panicked").with_source(panic),
            }),
        }
    }

    /// Takes no new batches, lets another node lead, lets running batches end, cancels those that take longer
    /// than the drain, and closes all connections. Calls that wait for a batch are answered with how it
    /// stands.
    ///
    /// # Errors
    /// What the listener failed with.
    pub async fn stop(mut self) -> Result<()> {
        if let Some(steward) = &self.steward {
            steward.abort();
        }
        set_not_serving(&self.health).await;
        if let Some(serving) = &self.serving {
            serving.begin_stop();
            hand_over(serving).await;
            drain(serving).await;
        }
        if let Some(work) = &self.work {
            work.drain().await;
        }
        // A member hears of entries through the listener, so that its batches need it to the end.
        if let Some(stop) = self.stop_listening.take() {
            // The server may have failed; then there is nothing to stop.
            let _ = stop.send(());
        }
        let server = &mut self.server;
        let ended = match within(LAST_CALL, server).await {
            Some(Ok(ended)) => ended,
            Some(Err(error)) => Err(Error::internal("the server panicked").with_source(error)),
            // Connections that nobody closes end with the process.
            None => Ok(()),
        };
        if let Some(serving) = &self.serving {
            serving.embedded.member().stop().await;
        }
        ended
    }
}

/// The work of a node without the log.
fn work_alone(
    config: &Config,
    options: &OpenOptions,
    channels: &Channels,
    endpoint: String,
) -> Result<NodeWork> {
    let options = OpenOptions {
        lake: config.lake.clone().or_else(|| options.lake.clone()),
        ..options.clone()
    };
    let lake = lake_of(&config.data, &options)?.shared();
    let node = node_without_log(&config.data, options.random.as_ref())?;
    let threads = Arc::new(WorkThreads::start()?);
    let seat = (node, endpoint);
    Ok(NodeWork::new(
        config,
        &options,
        (Arc::new(lake), channels),
        seat,
        threads,
    ))
}

/// Takes connections until it is told to stop.
fn serve(
    router: Router,
    listener: TcpListener,
    connections_max: usize,
) -> (oneshot::Sender<()>, JoinHandle<Result<()>>) {
    let (stop_listening, stops) = oneshot::channel();
    let incoming = connections(listener, connections_max);
    let server = tokio::spawn(async move {
        let stopped = async {
            // A sender that is gone says the same as one that sends.
            let _ = stops.await;
        };
        router
            .serve_with_incoming_shutdown(incoming, stopped)
            .await
            .map_err(|e| {
                Error::new(tidegate_change::Code::Io, "the listener failed").with_source(e)
            })
    });
    (stop_listening, server)
}

fn steward_of(
    serving: &Serving,
    random: Arc<dyn tidegate_change::Random>,
    health: HealthReporter,
) -> JoinHandle<Error> {
    let cluster = &serving.config.cluster;
    let steward = Steward::new(StewardParts {
        embedded: Arc::clone(&serving.embedded),
        channels: serving.elsewhere.channels.clone(),
        random,
        endpoint: serving.endpoint.clone(),
        peers: cluster.peers.clone(),
        gone_after: cluster.gone_after.duration(),
    });
    tokio::spawn(steward.run(async move || set_serving(&health).await))
}

/// Another node leads sooner when it is asked to than when it misses this one.
async fn hand_over(serving: &Serving) {
    match within(HAND_OVER, serving.embedded.member().step_aside()).await {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::warn!(%error, "leadership was not handed over"),
        None => tracing::warn!("leadership was not handed over in time"),
    }
}

async fn drain(serving: &Serving) {
    let limit = serving.config.drain.duration();
    if within(limit, serving.threads.idle()).await.is_none() {
        tracing::warn!("batches are cancelled, the drain is over");
        serving.batches.cancel_all();
        if within(LAST_CALL, serving.threads.idle()).await.is_none() {
            tracing::warn!("a batch does not end; the next start takes it up");
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a supervisor waits only so long; what is not done then is taken up at the next start"
)]
async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}
