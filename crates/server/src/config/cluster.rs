//! The section `cluster`: with whom a node forms a group, and how patient it is.

use serde::{Deserialize, Serialize};
use tidegate_change::{Code, Error, Result};
use tidegate_cluster::remote::OWNER_BYTES_DEFAULT;

use super::{Bytes, Config, NodeRole, Span, invalid};

/// Heartbeats that fit into the silence before an election: fewer, and one that is late is taken for a death.
const HEARTBEATS_MIN: u64 = 6;

/// The cluster that a node belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    /// How the metadata nodes of the cluster are reached, this one included, `http://host:port`: the same
    /// list on every node. A node without peers is a cluster of its own.
    pub peers: Vec<String>,
    /// Time between two heartbeats of the leader.
    pub heartbeat: Span,
    /// Silence of the leader after which another is elected, at the earliest; at the latest a third later.
    pub election: Span,
    /// Silence of a node after which its unfinished work is taken over.
    pub gone_after: Span,
    /// Bytes of a batch's sources for which one more worker is used.
    pub bytes_per_worker: Bytes,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            peers: Vec::new(),
            heartbeat: Span::from_ms(100),
            election: Span::from_ms(900),
            gone_after: Span::from_ms(3_000),
            bytes_per_worker: Bytes(OWNER_BYTES_DEFAULT),
        }
    }
}

impl Config {
    /// Whether the node has a role.
    #[must_use]
    pub fn has_role(&self, role: NodeRole) -> bool {
        self.roles.contains(&role)
    }

    /// Whether the node is one of a cluster of several.
    #[must_use]
    pub fn is_clustered(&self) -> bool {
        !self.cluster.peers.is_empty()
    }

    pub(super) fn check_roles(&self) -> Result<()> {
        if self.roles.is_empty() {
            return Err(invalid("roles", "names none"));
        }
        let [meta, coordinator] = [NodeRole::Meta, NodeRole::Coordinator].map(|r| self.has_role(r));
        if meta != coordinator {
            let message = "roles: a node votes on the log and drives batches, or does neither";
            return Err(Error::new(Code::Unsupported, message)
                .with_hint("name meta and coordinator together, or worker alone"));
        }
        if !meta && !self.is_clustered() {
            return Err(invalid(
                "roles",
                "a worker alone needs cluster.peers, the nodes that it works for",
            ));
        }
        Ok(())
    }

    pub(super) fn check_cluster(&self) -> Result<()> {
        let cluster = &self.cluster;
        let is_address = |peer: &String| {
            let rest = peer
                .strip_prefix("http://")
                .or_else(|| peer.strip_prefix("https://"));
            rest.is_some_and(|rest| rest.contains(':') && !rest.contains('/'))
        };
        if let Some(wrong) = cluster.peers.iter().find(|peer| !is_address(peer)) {
            return Err(invalid(
                "cluster.peers",
                &format!("{wrong:?} is no http://host:port"),
            ));
        }
        if cluster.heartbeat.ms() == 0
            || cluster.election.ms() < HEARTBEATS_MIN * cluster.heartbeat.ms()
        {
            let why = "must be at least six times cluster.heartbeat, which is above zero";
            return Err(invalid("cluster.election", why));
        }
        if cluster.gone_after.ms() < 2 * cluster.election.ms() {
            return Err(invalid(
                "cluster.gone_after",
                "must be at least twice cluster.election",
            ));
        }
        if !self.is_clustered() {
            return Ok(());
        }
        if self.lake.is_none() {
            return Err(invalid(
                "lake",
                "the nodes of a cluster share their tables; say where they lie",
            ));
        }
        if self.advertise.is_none() && self.listen.ip().is_unspecified() {
            return Err(invalid(
                "advertise",
                "other nodes cannot call the node at the address that it listens on",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(change: impl FnOnce(&mut Config)) -> Result<()> {
        let mut config = Config {
            lake: Some("/lake".into()),
            ..Config::default()
        };
        config.cluster.peers = vec!["http://127.0.0.1:7421".into(), "http://[::1]:7422".into()];
        change(&mut config);
        config.validate()
    }

    #[test]
    fn a_node_of_a_cluster_is_valid_with_and_without_the_log() {
        config(|_| {}).unwrap();
        config(|config| config.roles = vec![NodeRole::Worker]).unwrap();
        config(|config| config.roles = vec![NodeRole::Coordinator, NodeRole::Meta]).unwrap();
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let refused: [fn(&mut Config); 7] = [
            |config| config.lake = None,
            |config| config.cluster.peers = vec!["127.0.0.1:7421".into()],
            |config| config.cluster.peers = vec!["http://host".into()],
            |config| config.cluster.election = Span::from_ms(200),
            |config| config.cluster.gone_after = Span::from_ms(1_700),
            |config| config.cluster.heartbeat = Span::from_ms(0),
            |config| {
                config.listen = "0.0.0.0:7420".parse().unwrap();
                config.insecure_dev = true;
            },
        ];
        for (n, change) in refused.into_iter().enumerate() {
            let error = config(change).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{n}");
        }
        let apart = config(|config| config.roles = vec![NodeRole::Meta]);
        assert_eq!(apart.unwrap_err().code(), Code::Unsupported);
        let alone = config(|config| {
            config.roles = vec![NodeRole::Worker];
            config.cluster.peers.clear();
        });
        assert_eq!(alone.unwrap_err().code(), Code::InvalidArgument);
    }
}
