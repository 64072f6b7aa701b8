//! Members of one process: messages without a network, and the faults that a network has.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use openraft::type_config::TypeConfigExt;
use tidegate_change::Result;

use super::{Address, CallError, Inbox, Request, Response, Transport};
use crate::metadata::NodeId;
use crate::metadata::replicated::types::{Peer, Types};

/// What happens to messages from one member to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFault {
    /// They vanish.
    Cut,
    /// They arrive and are acted on; their answers vanish.
    LoseAnswers,
    /// They arrive late.
    Delay(Duration),
}

/// A network in memory; its transports are clones of one handle.
#[derive(Debug, Default)]
pub struct MemoryNetwork {
    wiring: Mutex<Wiring>,
}

#[derive(Debug, Default)]
struct Wiring {
    inboxes: BTreeMap<NodeId, Arc<Inbox>>,
    faults: BTreeMap<(NodeId, NodeId), LinkFault>,
    /// Messages that a fault has met.
    hits: u64,
}

impl MemoryNetwork {
    /// A network without members.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Lets messages reach a member.
    pub fn attach(&self, inbox: Arc<Inbox>) {
        self.wiring().inboxes.insert(inbox.node(), inbox);
    }

    /// Nobody listens at that member any more, as after the end of its process.
    pub fn detach(&self, node: NodeId) {
        self.wiring().inboxes.remove(&node);
    }

    /// Brings a fault on messages in one direction, or takes it away.
    pub fn set_fault(&self, from: NodeId, to: NodeId, fault: Option<LinkFault>) {
        let mut wiring = self.wiring();
        match fault {
            Some(fault) => wiring.faults.insert((from, to), fault),
            None => wiring.faults.remove(&(from, to)),
        };
    }

    /// Cuts a member off from all others, in both directions.
    pub fn isolate(&self, node: NodeId) {
        let mut wiring = self.wiring();
        let others: Vec<_> = wiring.inboxes.keys().copied().collect();
        for other in others.into_iter().filter(|other| *other != node) {
            wiring.faults.insert((node, other), LinkFault::Cut);
            wiring.faults.insert((other, node), LinkFault::Cut);
        }
    }

    /// Takes all faults away.
    pub fn heal(&self) {
        self.wiring().faults.clear();
    }

    /// Number of messages that a fault has met.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.wiring().hits
    }

    fn wiring(&self) -> MutexGuard<'_, Wiring> {
        self.wiring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault of a link; counts the message that meets it.
    fn fault(&self, address: Address) -> Option<LinkFault> {
        let mut wiring = self.wiring();
        let fault = wiring.faults.get(&(address.from, address.to)).copied();
        wiring.hits += u64::from(fault.is_some());
        fault
    }

    /// The receiver, once the message has got through.
    async fn reach(&self, address: Address) -> Result<(Arc<Inbox>, bool), CallError> {
        let fault = self.fault(address);
        match fault {
            Some(LinkFault::Cut) => std::future::pending().await,
            Some(LinkFault::Delay(delay)) => Types::sleep(delay).await,
            Some(LinkFault::LoseAnswers) | None => {}
        }
        let inbox = self.wiring().inboxes.get(&address.to).map(Arc::clone);
        let inbox = inbox
            .ok_or_else(|| CallError::NotSent(format!("nobody listens at node {}", address.to)))?;
        Ok((inbox, fault == Some(LinkFault::LoseAnswers)))
    }
}

fn ended(address: Address) -> CallError {
    CallError::NoAnswer(format!("node {} ended while it answered", address.to))
}

#[async_trait]
impl Transport for MemoryNetwork {
    async fn call(
        &self,
        address: Address,
        _: &Peer,
        request: Request,
    ) -> Result<Response, CallError> {
        let (inbox, is_lost) = self.reach(address).await?;
        // As between processes, a caller that goes away does not undo what it asked for.
        let answer = Types::spawn(async move { inbox.answer(address, request).await }).await;
        if is_lost {
            std::future::pending::<()>().await;
        }
        answer
            .map_err(|_| ended(address))?
            .map_err(CallError::Refused)
    }

    async fn install_snapshot(
        &self,
        address: Address,
        _: &Peer,
        header: Bytes,
        chunks: BoxStream<'static, Result<Bytes>>,
    ) -> Result<Bytes, CallError> {
        let (inbox, is_lost) = self.reach(address).await?;
        let taken =
            Types::spawn(async move { inbox.install_snapshot(address, header, chunks).await });
        let answer = taken.await;
        if is_lost {
            std::future::pending::<()>().await;
        }
        answer
            .map_err(|_| ended(address))?
            .map_err(CallError::Refused)
    }
}
