//! The configuration of a node: plain data, from a file, then the environment, then flags.
//!
//! Every value has a default that serves one machine; [`Config::validate`] checks what values say together.

mod cluster;
mod load;
mod quantity;
mod stores;

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tidegate_change::{Code, Error, Result};

use crate::stores::Address;
pub use cluster::Cluster;
pub use load::{Overrides, VARIABLE_PREFIX};
pub use quantity::{Bytes, Span};
pub use stores::{Azure, Gcs, S3, SecretPlace, Stores};

/// Longest drain; a supervisor that stops a node waits no longer than ten seconds.
const DRAIN_MS_MAX: u64 = 9_000;

/// The configuration of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where the node listens.
    pub listen: SocketAddr,
    /// How others reach the node, `http://host:port`; what it listens on where it is not given.
    pub advertise: Option<String>,
    /// Directory of metadata, spool and, unless it lies elsewhere, the lake; of this node alone.
    pub data: PathBuf,
    /// Root of the tables, a directory or an address, `s3://bucket/prefix`, shared by all nodes of a cluster;
    /// `lake` below `data` where it is not given.
    pub lake: Option<String>,
    /// What the node does.
    pub roles: Vec<NodeRole>,
    /// Listen beyond this machine without encryption.
    pub insecure_dev: bool,
    /// How long running batches may take to end when the node stops, at most 9 s.
    pub drain: Span,
    /// Memory of a batch; what exceeds it goes to temporary files. By default a quarter of the machine's, at
    /// most 1GiB.
    pub memory: Option<Bytes>,
    /// Bounds of what clients may send.
    pub limits: Limits,
    /// How dead connections are found.
    pub keep_alive: KeepAlive,
    /// Places whose files batches may name.
    pub sources: Sources,
    /// Encryption.
    pub tls: Tls,
    /// The cluster that the node belongs to.
    pub cluster: Cluster,
    /// How object stores are reached.
    pub stores: Stores,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7420)),
            advertise: None,
            data: "./tidegate-data".into(),
            lake: None,
            roles: NodeRole::ALL.to_vec(),
            insecure_dev: false,
            drain: Span::from_ms(8_000),
            memory: None,
            limits: Limits::default(),
            keep_alive: KeepAlive::default(),
            sources: Sources::default(),
            tls: Tls::default(),
            cluster: Cluster::default(),
            stores: Stores::default(),
        }
    }
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// It votes on the metadata log.
    Meta,
    /// It drives batches.
    Coordinator,
    /// It executes parts of batches.
    Worker,
}

impl NodeRole {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Meta, Self::Coordinator, Self::Worker];
}

/// Bounds of what clients may send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of a message, decompressed.
    pub message_bytes: Bytes,
    /// Bytes of a Flight message, decompressed.
    pub flight_message_bytes: Bytes,
    /// Bytes of all headers of a call.
    pub header_bytes: Bytes,
    /// Calls of a connection at one time.
    pub streams: u32,
    /// Connections at one time; others wait to be accepted.
    pub connections: usize,
    /// Bytes of one `DoPut`.
    pub put_bytes: Bytes,
    /// `DoPut`s that are received at one time; others wait.
    pub puts: usize,
    /// Bytes of all input on disk that came by stream.
    pub spool_bytes: Bytes,
    /// Files of one `DoPut`.
    pub put_files: usize,
    /// Columns of a `DoPut`, nested ones included.
    pub columns: usize,
    /// Batches that are executed at one time.
    pub batches: usize,
    /// Batches that wait.
    pub batches_queued: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: Bytes(4 << 20),
            flight_message_bytes: Bytes(16 << 20),
            header_bytes: Bytes(16 << 10),
            streams: 256,
            connections: 1024,
            put_bytes: Bytes(256 << 30),
            puts: 8,
            spool_bytes: Bytes(512 << 30),
            put_files: 100_000,
            columns: 10_000,
            batches: 2,
            batches_queued: 1024,
        }
    }
}

/// How dead connections are found: a ping after a silence, and a wait for its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeepAlive {
    /// Silence before a ping.
    pub interval: Span,
    /// Wait for its answer.
    pub timeout: Span,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self {
            interval: Span::from_ms(10_000),
            timeout: Span::from_ms(20_000),
        }
    }
}

/// Places whose files batches may name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sources {
    /// Directories below which `file://` addresses are opened.
    pub directories: Vec<PathBuf>,
    /// Addresses of buckets and prefixes, `s3://bucket/prefix`, below which objects are opened.
    pub prefixes: Vec<String>,
}

/// Encryption; off where no certificate is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// File with the certificate chain, PEM.
    pub certificate: Option<PathBuf>,
    /// File with its private key, PEM.
    pub key: Option<PathBuf>,
    /// File with the authority that client certificates must come from, PEM; without it clients need none.
    pub client_authority: Option<PathBuf>,
}

impl Config {
    /// Checks what the values say together.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` or `UNSUPPORTED`, with the name of the value.
    pub fn validate(&self) -> Result<()> {
        self.check_roles()?;
        self.check_exposure()?;
        self.check_cluster()?;
        let limits = &self.limits;
        let positive = [
            ("limits.message_bytes", limits.message_bytes.0),
            ("limits.flight_message_bytes", limits.flight_message_bytes.0),
            ("limits.header_bytes", limits.header_bytes.0),
            ("limits.streams", u64::from(limits.streams)),
            ("limits.connections", limits.connections as u64),
            ("limits.put_bytes", limits.put_bytes.0),
            ("limits.puts", limits.puts as u64),
            ("limits.put_files", limits.put_files as u64),
            ("limits.columns", limits.columns as u64),
            ("limits.batches", limits.batches as u64),
            ("keep_alive.interval", self.keep_alive.interval.ms()),
            ("keep_alive.timeout", self.keep_alive.timeout.ms()),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(invalid(name, "must be above zero"));
        }
        if u32::try_from(limits.header_bytes.0).is_err() {
            return Err(invalid("limits.header_bytes", "must be below 4GiB"));
        }
        if limits.put_bytes.0 > limits.spool_bytes.0 {
            return Err(invalid("limits.put_bytes", "is above limits.spool_bytes"));
        }
        if self.drain.ms() > DRAIN_MS_MAX {
            return Err(invalid("drain", "must be at most 9s"));
        }
        // Any other text is a directory.
        if let Some(lake) = self.lake.as_ref().filter(|lake| lake.contains("://")) {
            Address::parse(lake).map_err(|e| e.context("lake"))?;
        }
        for prefix in &self.sources.prefixes {
            Address::parse(prefix).map_err(|e| e.context("sources.prefixes"))?;
        }
        match &self.advertise {
            Some(text) if !text.starts_with("http://") && !text.starts_with("https://") => {
                Err(invalid("advertise", "is no http://host:port"))
            }
            _ => Ok(()),
        }
    }

    /// Whether connections are encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.tls.certificate.is_some()
    }

    fn check_exposure(&self) -> Result<()> {
        let tls = &self.tls;
        if tls.certificate.is_some() != tls.key.is_some() {
            return Err(invalid("tls", "certificate and key go together"));
        }
        if tls.client_authority.is_some() && tls.certificate.is_none() {
            return Err(invalid("tls.client_authority", "needs certificate and key"));
        }
        if !self.listen.ip().is_loopback() && !self.is_encrypted() && !self.insecure_dev {
            let message = format!(
                "listen {}: others could reach the node without encryption",
                self.listen
            );
            return Err(Error::new(Code::InvalidArgument, message).with_hint(
                "give tls.certificate and tls.key, or --insecure-dev on a network that you trust",
            ));
        }
        Ok(())
    }
}

fn invalid(name: &str, why: &str) -> Error {
    Error::new(Code::InvalidArgument, format!("{name}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(change: impl FnOnce(&mut Config)) -> Result<()> {
        let mut config = Config::default();
        change(&mut config);
        config.validate()
    }

    #[test]
    fn the_default_is_valid_and_stays_on_this_machine() {
        config(|_| {}).unwrap();
        assert!(Config::default().listen.ip().is_loopback());
    }

    #[test]
    fn nobody_else_is_let_in_without_encryption_unless_it_is_asked_for() {
        let open = "0.0.0.0:7420".parse().unwrap();
        let error = config(|config| config.listen = open).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        config(|config| {
            config.listen = open;
            config.insecure_dev = true;
        })
        .unwrap();
        config(|config| {
            config.listen = open;
            config.tls.certificate = Some("a".into());
            config.tls.key = Some("b".into());
        })
        .unwrap();
    }

    #[test]
    fn values_that_contradict_each_other_are_refused() {
        let refused: [fn(&mut Config); 7] = [
            |config| config.tls.certificate = Some("a".into()),
            |config| config.tls.client_authority = Some("a".into()),
            |config| config.limits.put_bytes = Bytes(u64::MAX),
            |config| config.limits.streams = 0,
            |config| config.drain = Span::from_ms(10_000),
            |config| config.advertise = Some("host:7420".into()),
            |config| config.roles.clear(),
        ];
        for change in refused {
            assert_eq!(config(change).unwrap_err().code(), Code::InvalidArgument);
        }
    }
}
