//! The node that is talked to, which changes when it says that another one leads.

use std::sync::{Mutex, PoisonError};

use tidegate_change::Result;
use tonic::transport::{Channel, Endpoint};

use crate::options::ClientOptions;

/// A connection that is opened when it is first used, and again when it broke.
#[derive(Debug)]
pub(crate) struct Connection(Mutex<Node>);

#[derive(Debug)]
struct Node {
    address: String,
    endpoint: Endpoint,
    /// Made inside a runtime, which there need not be where a client is made.
    channel: Option<Channel>,
}

impl Connection {
    pub(crate) fn new(options: &ClientOptions) -> Result<Self> {
        let node = Node::new(options, &options.endpoint)?;
        Ok(Self(Mutex::new(node)))
    }

    pub(crate) fn channel(&self) -> Channel {
        let mut node = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let endpoint = node.endpoint.clone();
        let channel = node.channel.get_or_insert_with(|| endpoint.connect_lazy());
        channel.clone()
    }

    pub(crate) fn address(&self) -> String {
        let node = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        node.address.clone()
    }

    /// Talks to another node from now on.
    pub(crate) fn redirect(&self, options: &ClientOptions, address: &str) -> Result<()> {
        let node = Node::new(options, address)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = node;
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
