//! Brings a node into its cluster, then watches over the work of others while it leads.

use std::sync::Arc;
use std::time::Duration;

use tidegate_change::{Code, Error, Random, Result};
use tidegate_cluster::coordinator::Watch;
use tidegate_cluster::metadata::NodeId;
use tidegate_cluster::metadata::replicated::{GroupStatus, Member, Peer as MemberPeer};

use super::admission::Candidate;
use super::channels::Channels;
use super::pause::{pause, within};
use super::service::{Joined, identify, join};
use super::step::{Own, Peer, Step, next};
use crate::embedded::Embedded;

/// Time between two looks at the peers of a node that does not belong to its cluster yet.
const SETTLE_PAUSE: Duration = Duration::from_millis(100);
/// Time between two looks of a leader at unfinished work.
const WATCH_PAUSE: Duration = Duration::from_millis(500);
/// How long a peer may take to say who it is.
const IDENTIFY: Duration = Duration::from_millis(500);
/// How long the leader may take to take a node in.
const JOIN: Duration = Duration::from_secs(30);
/// Looks after which a node that does not lead asks the leader whether it still belongs to the cluster.
const CONFIRM_LOOKS: u32 = 4;
/// How long the leader may take to say so.
const CONFIRM: Duration = Duration::from_secs(2);

/// What a steward works with.
#[derive(Clone, Debug)]
pub(crate) struct StewardParts {
    pub(crate) embedded: Arc<Embedded>,
    pub(crate) channels: Channels,
    pub(crate) random: Arc<dyn Random>,
    /// How this node is reached.
    pub(crate) endpoint: String,
    /// All peers of the configuration.
    pub(crate) peers: Vec<String>,
    /// Silence after which a node's work is taken over.
    pub(crate) gone_after: Duration,
}

/// Brings a node into its cluster and watches.
#[derive(Debug)]
pub(crate) struct Steward {
    parts: StewardParts,
    watch: Watch,
}

impl Steward {
    pub(crate) fn new(parts: StewardParts) -> Self {
        Self {
            parts,
            watch: Watch::default(),
        }
    }

    /// Brings the node into its cluster, tells when it is there, and watches for ever.
    ///
    /// Returns why the node must stop: it was removed, or belongs to another cluster.
    pub(crate) async fn run(mut self, settled: impl AsyncFnOnce()) -> Error {
        if let Err(error) = self.settle().await {
            return error;
        }
        settled().await;
        let (mut looks, mut leading_looks) = (0_u32, 0);
        loop {
            pause(WATCH_PAUSE).await;
            let status = self.member().status();
            leading_looks = match status.leads() {
                true => leading_looks + 1,
                false => 0,
            };
            if leading_looks > 0 {
                self.take_over(&status, WATCH_PAUSE * leading_looks).await;
            }
            looks = looks.wrapping_add(1);
            if !status.leads()
                && looks.is_multiple_of(CONFIRM_LOOKS)
                && let Some(Err(error)) = within(CONFIRM, self.member().confirm()).await
                && error.code() == Code::Fenced
            {
                return error;
            }
            if !is_settled(&status, &self.parts)
                && let Err(error) = self.settle().await
            {
                return error;
            }
        }
    }

    fn member(&self) -> &Arc<Member> {
        self.parts.embedded.member()
    }

    /// Founds or joins the cluster; returns when this node is a voter and has caught up.
    async fn settle(&self) -> Result<()> {
        loop {
            let own = self.own();
            let peers = self.ask_peers().await;
            match next(&own, &peers) {
                Step::Stay => {
                    let has_leader = self.member().status().leader.is_some();
                    if has_leader && self.member().ready(SETTLE_PAUSE).await.is_ok() {
                        return Ok(());
                    }
                    self.require_membership(&own, &peers).await?;
                }
                Step::Found => {
                    let peer = MemberPeer {
                        endpoint: own.endpoint.clone(),
                    };
                    let random = self.parts.random.as_ref();
                    if let Err(error) = self.member().found(&peer, random).await {
                        tracing::warn!(%error, "the cluster was not founded");
                    }
                }
                Step::Ask(members) => self.ask_to_join(&own, members).await?,
                Step::Wait => {}
                Step::Refuse(why) => {
                    return Err(Error::new(Code::InvalidArgument, why)
                        .with_hint("cluster.peers names the nodes of one cluster"));
                }
            }
            pause(SETTLE_PAUSE).await;
        }
    }

    fn own(&self) -> Own {
        let member = self.member();
        Own {
            node: member.node(),
            cluster: member.cluster(),
            is_about_to_found: member.is_about_to_found(),
            is_settled: is_settled(&member.status(), &self.parts),
            endpoint: self.parts.endpoint.clone(),
        }
    }

    /// Asks all other peers at once who they are.
    async fn ask_peers(&self) -> Vec<Peer> {
        let others = self.parts.peers.iter();
        let others = others.filter(|peer| **peer != self.parts.endpoint);
        let asked = others.map(|endpoint| async move {
            let answer = match self.parts.channels.to(endpoint) {
                Ok(channel) => within(IDENTIFY, identify(channel)).await,
                Err(error) => Some(Err(error)),
            };
            Peer {
                endpoint: endpoint.clone(),
                answer: answer.and_then(Result::ok).map(|(answer, _)| answer),
            }
        });
        futures::future::join_all(asked).await
    }

    /// Where the node cannot catch up, its members tell whether they still know it.
    async fn require_membership(&self, own: &Own, peers: &[Peer]) -> Result<()> {
        if self.member().status().leader.is_some() {
            return Ok(());
        }
        let known = peers.iter().filter(|peer| peer.answer.is_some());
        let known: Vec<String> = known.map(|peer| peer.endpoint.clone()).collect();
        match known.is_empty() {
            true => Ok(()),
            false => self.ask_to_join(own, known).await,
        }
    }

    /// Asks members until one takes the node in; those that are no leaders tell who is.
    async fn ask_to_join(&self, own: &Own, mut members: Vec<String>) -> Result<()> {
        let candidate = Candidate {
            node: own.node,
            cluster: own.cluster,
            endpoint: own.endpoint.clone(),
        };
        let mut tries_left = members.len() + 2;
        members.reverse();
        while let Some(endpoint) = members.pop().filter(|_| tries_left > 0) {
            tries_left -= 1;
            let channel = self.parts.channels.to(&endpoint)?;
            match within(JOIN, join(channel, &candidate)).await {
                Some(Joined::Yes) => return Ok(()),
                Some(Joined::Leader(leader)) => members.push(leader),
                Some(Joined::No(error)) => match error.code() {
                    // It will never be otherwise.
                    Code::Fenced | Code::InvalidArgument => return Err(error),
                    _ => tracing::debug!(endpoint, %error, "the node was not taken in"),
                },
                None => tracing::warn!(endpoint, "no answer to the wish to join"),
            }
        }
        Ok(())
    }

    /// Looks after work whose coordinator is gone.
    async fn take_over(&mut self, status: &GroupStatus, leads_for: Duration) {
        let gone_after = self.parts.gone_after;
        let gone = |node: NodeId| match status.member(node) {
            // One that never answered this leader has been silent since it leads.
            Some(member) => member.silence.unwrap_or(leads_for) >= gone_after,
            None => true,
        };
        let coordinator = &self.parts.embedded.coordinator;
        if let Err(error) = coordinator.take_over(&mut self.watch, &gone).await {
            tracing::debug!(%error, "unfinished work was not looked after");
        }
    }
}

/// Whether the group has this node as a voter at its address.
fn is_settled(status: &GroupStatus, parts: &StewardParts) -> bool {
    let own = status.member(status.node);
    own.is_some_and(|own| own.is_voter && own.peer.endpoint == parts.endpoint)
}
