//! The life of a node: start, and a stop that lets running work end.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_change::{Code, Error, Result};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic_health::server::HealthReporter;

use super::listener::connections;
use super::router::{router, set_stopping};
use super::serving::Serving;
use crate::config::Config;
use crate::embedded::OpenOptions;
use crate::stores::RemoteStores;

/// What batches that were asked to stop may still take, and calls to be answered.
const LAST_CALL: Duration = Duration::from_millis(700);

/// A process of the cluster: its services on one port. Dropping it stops it without a drain.
#[derive(Debug)]
pub struct Node {
    serving: Serving,
    address: SocketAddr,
    health: HealthReporter,
    stop_listening: Option<oneshot::Sender<()>>,
    server: JoinHandle<Result<()>>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.serving.begin_stop();
        self.server.abort();
    }
}

impl Node {
    /// Opens the directory of the configuration, listens and serves.
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
        let connections_max = config.limits.connections;
        let serving = Serving::open(config, options, endpoint).await?;
        let (router, health) = router(&serving).await?;
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
                .map_err(|e| Error::new(Code::Io, "the listener failed").with_source(e))
        });
        Ok(Self {
            serving,
            address,
            health,
            stop_listening: Some(stop_listening),
            server,
        })
    }

    /// How clients reach the node.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.serving.endpoint
    }

    /// What it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no new calls and no new batches, lets running batches end, cancels those that take longer than
    /// the drain, and closes all connections. Calls that wait for a batch are answered with how it stands.
    ///
    /// # Errors
    /// What the listener failed with.
    pub async fn stop(mut self) -> Result<()> {
        set_stopping(&self.health).await;
        self.serving.begin_stop();
        if let Some(stop) = self.stop_listening.take() {
            // The server may have failed; then there is nothing to stop.
            let _ = stop.send(());
        }
        let drain = self.serving.config.drain.duration();
        if within(drain, self.serving.threads.idle()).await.is_none() {
            tracing::warn!("batches are cancelled, the drain is over");
            self.serving.batches.cancel_all();
            if within(LAST_CALL, self.serving.threads.idle())
                .await
                .is_none()
            {
                tracing::warn!("a batch does not end; the next start takes it up");
            }
        }
        let server = &mut self.server;
        match within(LAST_CALL, server).await {
            Some(Ok(ended)) => ended,
            Some(Err(error)) => Err(Error::internal("the server panicked").with_source(error)),
            // Connections that nobody closes end with the process.
            None => Ok(()),
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
