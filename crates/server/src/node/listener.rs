//! Connections, a bounded number of them at one time.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// Pause after a connection could not be accepted: the process is out of file descriptors, say.
const PAUSE: Duration = Duration::from_millis(100);

/// The connections of a listener. While too many are open no other is accepted.
pub(super) fn connections(
    listener: TcpListener,
    connections_max: usize,
) -> impl Stream<Item = io::Result<Connection>> {
    let permits = Arc::new(Semaphore::new(connections_max));
    futures::stream::unfold((listener, permits), |(listener, permits)| async move {
        let connection = accept(&listener, &permits).await?;
        Some((Ok(connection), (listener, permits)))
    })
}

async fn accept(listener: &TcpListener, permits: &Arc<Semaphore>) -> Option<Connection> {
    let permit = Arc::clone(permits).acquire_owned().await.ok()?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // A connection that is closed already says so when it is read.
                let _ = stream.set_nodelay(true);
                return Some(Connection {
                    stream,
                    _permit: permit,
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                pause().await;
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "keeps the process from spinning; no decision depends on the time"
)]
async fn pause() {
    tokio::time::sleep(PAUSE).await;
}

/// One connection, which is counted while it is open.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
