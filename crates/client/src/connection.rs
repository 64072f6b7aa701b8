//! The node that is talked to: one of those that are named, or the one that another says leads.

use std::sync::{Mutex, PoisonError};

use tidegate_change::Result;
use tonic::transport::{Channel, Endpoint};

use crate::options::ClientOptions;

/// A connection that is opened when it is first used, and again when it broke.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The addresses that the user names, in order.
    named: Vec<String>,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    node: Node,
    /// Place in the list of what is tried when this node does not answer.
    next: usize,
}

#[derive(Debug)]
struct Node {
    address: String,
    endpoint: Endpoint,
    /// Made inside a runtime, which there need not be where a client is made.
    channel: Option<Channel>,
}

impl Connection {
    pub(crate) fn new(options: &ClientOptions) -> Result<Self> {
        let named = options.addresses();
        for address in &named {
            options.endpoint(address)?;
        }
        let first = named.first().map_or("", String::as_str);
        let node = Node::new(options, first)?;
        Ok(Self {
            named,
            current: Mutex::new(Current { node, next: 1 }),
        })
    }

    pub(crate) fn channel(&self) -> Channel {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let node = &mut current.node;
        let endpoint = node.endpoint.clone();
        let channel = node.channel.get_or_insert_with(|| endpoint.connect_lazy());
        channel.clone()
    }

    pub(crate) fn address(&self) -> String {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.node.address.clone()
    }

    /// Talks to another node from now on.
    pub(crate) fn redirect(&self, options: &ClientOptions, address: &str) -> Result<()> {
        let node = Node::new(options, address)?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.node = node;
        Ok(())
    }

    /// Talks to the next of the named nodes, unless another call has left that node already.
    pub(crate) fn leave(&self, options: &ClientOptions, address: &str) -> Result<()> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.node.address != address {
            return Ok(());
        }
        let next = current.next % self.named.len().max(1);
        let Some(named) = self.named.get(next).filter(|named| *named != address) else {
            current.next = next + 1;
            return Ok(());
        };
        *current = Current {
            node: Node::new(options, named)?,
            next: next + 1,
        };
        Ok(())
    }
}

impl Node {
    fn new(options: &ClientOptions, address: &str) -> Result<Self> {
        Ok(Self {
            address: address.to_owned(),
            endpoint: options.endpoint(address)?,
            channel: None,
        })
    }
}
