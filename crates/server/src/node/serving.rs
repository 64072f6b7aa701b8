//! What all services of a node work with.

use std::sync::Arc;

use tidegate_change::{Code, Error, Result};
use tokio::sync::{Semaphore, watch};

use crate::batches::Batches;
use crate::config::Config;
use crate::embedded::{Embedded, OpenOptions};
use crate::spool::Spool;
use crate::threads::WorkThreads;

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
    stops: Arc<watch::Sender<bool>>,
}

impl Serving {
    pub(super) async fn open(
        config: Config,
        options: OpenOptions,
        endpoint: String,
    ) -> Result<Self> {
        let embedded = Arc::new(Embedded::open(&config.data, options).await?);
        let threads = Arc::new(WorkThreads::start()?);
        Ok(Self {
            batches: Batches::new(Arc::clone(&embedded), Arc::clone(&threads), &config.limits),
            spool: Spool::new(embedded.spool(), config.limits.spool_bytes.0),
            puts: Arc::new(Semaphore::new(config.limits.puts)),
            embedded,
            threads,
            config: Arc::new(config),
            endpoint,
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
