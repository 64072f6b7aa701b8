//! The client: its connection, and calls that are made again.

use std::sync::Arc;

use tidegate_change::Result;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::connection::Connection;
use crate::options::ClientOptions;
use crate::pause::pause;
use crate::repeat::{Next, Repeat, Tries, error_at, is_lost};

/// Bytes of an answer that is taken: a wide row is one message.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 << 20;

/// A client of a cluster. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) options: Arc<ClientOptions>,
    connection: Arc<Connection>,
}

impl Client {
    /// A client that connects when it is first used.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an endpoint that is none, or for files that cannot be used.
    pub fn new(options: ClientOptions) -> Result<Self> {
        Ok(Self {
            connection: Arc::new(Connection::new(&options)?),
            options: Arc::new(options),
        })
    }

    /// The node that is talked to.
    #[must_use]
    pub fn address(&self) -> String {
        self.connection.address()
    }

    /// Makes a call until it is answered, refused, or patience is over.
    pub(crate) async fn call<T, F>(&self, repeat: Repeat, call: impl Fn(Channel) -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, Status>>,
    {
        let mut tries = Tries::new(repeat, self.options.retry_for, self.options.random.as_ref());
        loop {
            let address = self.address();
            let status = match call(self.connection.channel()).await {
                Ok(answer) => return Ok(answer),
                Err(status) => status,
            };
            match tries.next(&status) {
                Next::Redirect(leader) => self.connection.redirect(&self.options, &leader)?,
                Next::Again(duration) => {
                    if is_lost(&status) {
                        self.connection.leave(&self.options, &address)?;
                    }
                    pause(duration).await;
                }
                Next::GiveUp => return Err(error_at(&self.address(), &status)),
            }
        }
    }

    /// A request with the deadline of one call.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(deadline) = self.options.deadline {
            request.set_timeout(deadline);
        }
        request
    }

    /// The error of a stream that broke.
    pub(crate) fn broken(&self, status: &Status) -> tidegate_change::Error {
        error_at(&self.address(), status)
    }
}
