//! Messages between members: what is carried, and who carries it.
//!
//! - [`Transport`]: carries a message to a member and its answer back.
//! - [`Inbox`]: takes messages that came for this member, whoever carried them.
//! - `link`: openraft's network on a transport; `snapshot_stream`: a state as bounded chunks.
//! - [`memory`]: between members of one process, with faults; [`grpc`]: between processes.
//!
//! Every message says from which member of which group to which member it goes; the receiver refuses what
//! is not for it, so that an address that changed hands does no harm.

pub mod grpc;
mod inbox;
pub(crate) mod link;
pub mod memory;
mod snapshot_stream;

use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_change::{Code, Error, Result};

use super::types::Peer;
use crate::metadata::{ClusterId, NodeId};

pub use self::inbox::Inbox;

/// Bytes of a message beyond which it is refused unread.
pub const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// From whom to whom a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The group of both.
    pub cluster: ClusterId,
    /// The sender.
    pub from: NodeId,
    /// Whom the sender believes to call.
    pub to: NodeId,
}

/// A message that wants an answer.
#[derive(Clone, Debug)]
pub enum Request {
    /// Log entries, or a heartbeat.
    AppendEntries(Bytes),
    /// A candidate asks for a vote.
    Vote(Bytes),
    /// A node asks whether it would get a vote.
    PreVote(Bytes),
    /// The leader hands leadership over.
    TransferLeader(Bytes),
    /// An entry for the leader to propose.
    Propose(Bytes),
    /// The index that a linearizable read must have applied; only the leader answers.
    ReadIndex,
}

/// An answer.
#[derive(Clone, Debug)]
pub enum Response {
    /// In the log's own encoding.
    Payload(Bytes),
    /// A proposed entry was applied.
    Applied {
        /// Its log index.
        index: u64,
        /// Its outcome, in the log's own encoding.
        outcome: Bytes,
    },
    /// The index of a linearizable read.
    ReadIndex(u64),
}

/// Why there is no answer.
#[derive(Debug)]
pub enum CallError {
    /// The message never left.
    NotSent(String),
    /// It may have arrived, and even been acted on.
    NoAnswer(String),
    /// The receiver refused it; nothing was done.
    Refused(Refused),
}

/// A receiver's refusal.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub error: Error,
    /// The leader as the receiver knows it, where it refused because it is none.
    pub leader: Option<(NodeId, Peer)>,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self {
            error,
            leader: None,
        }
    }
}

/// Carries messages to members.
#[async_trait]
pub trait Transport: Debug + Send + Sync {
    /// Sends a message and waits for the answer; the caller bounds the wait.
    async fn call(
        &self,
        address: Address,
        peer: &Peer,
        request: Request,
    ) -> Result<Response, CallError>;

    /// Sends a snapshot: its header, then its chunks in order; returns the answer's payload.
    async fn install_snapshot(
        &self,
        address: Address,
        peer: &Peer,
        header: Bytes,
        chunks: BoxStream<'static, Result<Bytes>>,
    ) -> Result<Bytes, CallError>;
}

/// The transport of a member that is alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTransport;

#[async_trait]
impl Transport for NoTransport {
    async fn call(&self, address: Address, _: &Peer, _: Request) -> Result<Response, CallError> {
        Err(nowhere(address))
    }

    async fn install_snapshot(
        &self,
        address: Address,
        _: &Peer,
        _: Bytes,
        _: BoxStream<'static, Result<Bytes>>,
    ) -> Result<Bytes, CallError> {
        Err(nowhere(address))
    }
}

fn nowhere(address: Address) -> CallError {
    CallError::NotSent(format!("node {} cannot be reached from here", address.to))
}

/// A value in the log's own encoding.
pub(crate) fn to_bytes<T: Serialize>(what: &str, value: &T) -> Result<Bytes> {
    serde_json::to_vec(value)
        .map(Bytes::from)
        .map_err(|e| Error::internal(format!("{what} cannot be written")).with_source(e))
}

/// The value of an encoding that came from another member.
pub(crate) fn from_bytes<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|e| {
        Error::new(Code::InvalidArgument, format!("{what} cannot be read")).with_source(e)
    })
}
