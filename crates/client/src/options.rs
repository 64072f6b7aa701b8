//! How a client reaches a cluster.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_change::clock::SystemRandom;
use tidegate_change::{Code, Error, Random, Result};
use tidegate_rpc::encryption::choose_provider;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// Silence after which a connection is asked whether it lives. Without such pings a channel does not notice
/// that a partition healed.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How long the answer may take.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of a stream that a node may send ahead.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// Bytes of all streams that a node may send ahead.
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// How a client reaches a cluster.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Any node, `http://host:port` or `https://host:port`; several, with commas between them, are tried
    /// in turn when one does not answer.
    pub endpoint: String,
    /// How long one call may take until it is answered; without it as long as it needs.
    pub deadline: Option<Duration>,
    /// How long a call that may be repeated is repeated while no node answers.
    pub retry_for: Duration,
    /// Encryption, for `https`.
    pub tls: TlsOptions,
    /// Randomness of pauses.
    pub random: Arc<dyn Random>,
}

/// Files of encryption, PEM.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// The authority that the nodes' certificates come from.
    pub authority: Option<PathBuf>,
    /// The client's certificate chain.
    pub certificate: Option<PathBuf>,
    /// The key of that certificate.
    pub key: Option<PathBuf>,
}

impl ClientOptions {
    /// The usual options.
    #[must_use]
    pub fn new(endpoint: &str) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            deadline: None,
            retry_for: Duration::from_secs(5),
            tls: TlsOptions::default(),
            random: Arc::new(SystemRandom),
        }
    }

    /// The addresses that are named.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let named = self.endpoint.split(',').map(str::trim);
        named.map(str::to_owned).collect()
    }

    /// The endpoint of an address, not connected yet.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for what is no address, or for files that cannot be used.
    pub(crate) fn endpoint(&self, address: &str) -> Result<Endpoint> {
        let is_encrypted = address.starts_with("https://");
        if !is_encrypted && !address.starts_with("http://") {
            let message = format!("endpoint {address}: is no http://host:port");
            return Err(Error::new(Code::InvalidArgument, message));
        }
        let invalid = |e: tonic::transport::Error| {
            let message = format!("endpoint {address}: cannot be used");
            Error::new(Code::InvalidArgument, message).with_source(e)
        };
        let endpoint = Endpoint::from_shared(address.to_owned())
            .and_then(|endpoint| {
                endpoint.user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            })
            .map_err(invalid)?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .tcp_nodelay(true);
        match is_encrypted {
            true => endpoint.tls_config(self.tls.config()?).map_err(invalid),
            false => Ok(endpoint),
        }
    }
}

impl TlsOptions {
    fn config(&self) -> Result<ClientTlsConfig> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|e| Error::io(format!("tls file {}", path.display()), e))
        };
        choose_provider();
        let mut config = ClientTlsConfig::new();
        if let Some(authority) = &self.authority {
            config = config.ca_certificate(Certificate::from_pem(read(authority)?));
        }
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                Ok(config.identity(Identity::from_pem(read(certificate)?, read(key)?)))
            }
            (None, None) => Ok(config),
            _ => Err(Error::new(
                Code::InvalidArgument,
                "tls: certificate and key go together",
            )),
        }
    }
}
