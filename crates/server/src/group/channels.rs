//! Connections to other nodes, one each, opened when they are first used and again when they broke.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_change::{Code, Error, Result};
use tidegate_cluster::metadata::replicated::transport::grpc::GrpcOptions;
use tidegate_rpc::encryption::choose_provider;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::config::Tls;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_millis(500);
/// How often an open connection is probed: without probes a channel does not notice that a partition healed.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// How long a probe may go unanswered.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Connections to other nodes. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Channels {
    tls: Option<ClientTlsConfig>,
    open: Arc<Mutex<BTreeMap<String, Channel>>>,
}

impl Channels {
    /// Connections with the identity of this node, where it has one.
    ///
    /// # Errors
    /// When a file of the identity cannot be read.
    pub(crate) fn new(tls: &Tls) -> Result<Self> {
        Ok(Self {
            tls: client_tls(tls)?,
            open: Arc::default(),
        })
    }

    /// The same settings for messages of the log.
    pub(crate) fn transport_options(&self) -> GrpcOptions {
        GrpcOptions {
            tls: self.tls.clone(),
            connect_timeout: CONNECT,
            keep_alive: KEEP_ALIVE,
            keep_alive_timeout: KEEP_ALIVE_TIMEOUT,
        }
    }

    /// The connection to an address.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for what is no address.
    pub(crate) fn to(&self, endpoint: &str) -> Result<Channel> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = open.get(endpoint) {
            return Ok(channel.clone());
        }
        let invalid = |e: tonic::transport::Error| {
            let message = format!("endpoint {endpoint}: cannot be used");
            Error::new(Code::InvalidArgument, message).with_source(e)
        };
        let mut made = Endpoint::from_shared(endpoint.to_owned())
            .map_err(invalid)?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        if let Some(tls) = self
            .tls
            .as_ref()
            .filter(|_| endpoint.starts_with("https://"))
        {
            made = made.tls_config(tls.clone()).map_err(invalid)?;
        }
        let channel = made.connect_lazy();
        open.insert(endpoint.to_owned(), channel.clone());
        Ok(channel)
    }
}

/// What a node shows to other nodes: its own certificate, and the authority that theirs must come from.
fn client_tls(tls: &Tls) -> Result<Option<ClientTlsConfig>> {
    let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) else {
        return Ok(None);
    };
    choose_provider();
    let read = |path: &Path| {
        std::fs::read(path).map_err(|e| Error::io(format!("tls file {}", path.display()), e))
    };
    let identity = Identity::from_pem(read(certificate)?, read(key)?);
    let config = ClientTlsConfig::new().identity(identity);
    Ok(Some(match &tls.client_authority {
        Some(authority) => config.ca_certificate(Certificate::from_pem(read(authority)?)),
        None => config,
    }))
}
