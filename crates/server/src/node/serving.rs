//! What all services of a node work with.

use std::sync::Arc;

use tidegate_change::{Code, Error, Result};
use tidegate_cluster::Workers;
use tidegate_cluster::metadata::replicated::transport::grpc::GrpcTransport;
use tidegate_cluster::metadata::replicated::{MemberOptions, NewDirectory};
use tidegate_cluster::placement::PlacementKeeper;
use tokio::sync::{Semaphore, watch};

use crate::batches::Batches;
use crate::config::Config;
use crate::embedded::{Embedded, OpenOptions};
use crate::group::{Admission, Channels, Elsewhere};
use crate::spool::Spool;
use crate::threads::WorkThreads;
use crate::work::{LateWorkers, NodeWork, keeper_of};

/// What all services of a node work with. Clones are one and the same.
#[derive(Clone, Debug)]
pub(crate) struct Serving {
    pub(crate) embedded: Arc<Embedded>,
    pub(crate) batches: Batches,
    pub(crate) threads: Arc<WorkThreads>,
    pub(crate) spool: Spool,
    /// Turns of puts that are received.
    pub(crate) puts: Arc<Semaphore>,
    pub(crate) config: Arc<Config>,
    /// How others reach this node.
    pub(crate) endpoint: String,
    /// Who belongs to the cluster, and the way to them.
    pub(crate) elsewhere: Elsewhere,
    /// Parts of batches that it does, its own and those of others; none where no other node is.
    pub(crate) work: Option<ServedWork>,
    stops: Arc<watch::Sender<bool>>,
}

impl Serving {
    pub(super) async fn open(
        config: Config,
        options: OpenOptions,
        endpoint: String,
        channels: Channels,
    ) -> Result<Self> {
        let options = OpenOptions {
            lake: config.lake.clone().or(options.lake),
            ..options
        };
        let threads = Arc::new(WorkThreads::start()?);
        let (embedded, work) = match config.is_clustered() {
            false => (Embedded::open(&config.data, options).await?, None),
            true => {
                let own = (endpoint.clone(), Arc::clone(&threads));
                let (embedded, work) = open_among_others(&config, options, &channels, own).await?;
                (embedded, Some(work))
            }
        };
        let embedded = Arc::new(embedded);
        let admission = Admission::new(Arc::clone(embedded.member()));
        Ok(Self {
            batches: Batches::new(Arc::clone(&embedded), Arc::clone(&threads), &config.limits),
            spool: Spool::new(embedded.spool(), config.limits.spool_bytes.0),
            puts: Arc::new(Semaphore::new(config.limits.puts)),
            embedded,
            threads,
            config: Arc::new(config),
            endpoint,
            elsewhere: Elsewhere {
                admission,
                channels,
            },
            work,
            stops: Arc::default(),
        })
    }

    /// Ends what would go on without end: watches wait no more, batches are taken no more.
    pub(super) fn begin_stop(&self) {
        self.stops.send_replace(true);
        self.batches.close();
    }

    /// Waits until the node stops.
    pub(crate) async fn stopped(&self) {
        let mut stops = self.stops.subscribe();
        // The sender lives as long as this value: the wait cannot fail.
        let _ = stops.wait_for(|stops| *stops).await;
    }

    /// What those hear who wait while the node stops.
    pub(crate) fn stopping() -> Error {
        Error::new(Code::Unavailable, "the node stops")
    }
}

/// What a node with the log does for batches.
#[derive(Clone, Debug)]
pub(crate) struct ServedWork {
    pub(crate) own: NodeWork,
    /// Hears workers while the node leads.
    pub(crate) keeper: Arc<PlacementKeeper>,
}

/// Opens a member of a group whose batches go to the workers of the cluster.
async fn open_among_others(
    config: &Config,
    options: OpenOptions,
    channels: &Channels,
    (endpoint, threads): (String, Arc<WorkThreads>),
) -> Result<(Embedded, ServedWork)> {
    let member = member_options(config, &options, channels);
    let late = Arc::new(LateWorkers::default());
    let options = OpenOptions {
        workers: Arc::clone(&late) as Arc<dyn Workers>,
        ..options
    };
    let embedded = Embedded::open_member(&config.data, options.clone(), &member).await?;
    let member = embedded.member();
    let stores = Arc::new(embedded.lake().clone());
    let seat = (member.node(), endpoint);
    let own = NodeWork::new(config, &options, (stores, channels), seat, threads);
    late.set(own.workers(member));
    let keeper = keeper_of(member, &options, config);
    Ok((embedded, ServedWork { own, keeper }))
}

/// How the log of a node of several is opened: a new one waits until it is taken in, or founds.
fn member_options(config: &Config, options: &OpenOptions, channels: &Channels) -> MemberOptions {
    let transport = Arc::new(GrpcTransport::new(channels.transport_options()));
    let new = NewDirectory::Join { cluster: None };
    MemberOptions {
        wait_lock: options.wait_lock,
        step_hook: options.step_hook.clone(),
        heartbeat: config.cluster.heartbeat.duration(),
        election: config.cluster.election.duration(),
        ..MemberOptions::new(Arc::clone(&options.random), transport, new)
    }
}
