//! How a byte stream to a broker is opened.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};

use crate::net::address::Address;

/// A byte stream in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A byte stream whose kind doesn't matter.
pub type BoxStream = Box<dyn Stream>;

/// The future of [`Connector::connect`].
pub type ConnectFuture<'a> = Pin<Box<dyn Future<Output = io::Result<BoxStream>> + Send + 'a>>;

/// Opens byte streams: TCP, TLS over another one, or an in-memory pipe in tests.
pub trait Connector: Debug + Send + Sync {
    /// Opens a stream to `address`. The caller sets the deadline by dropping the future.
    fn connect<'a>(&'a self, address: &'a Address) -> ConnectFuture<'a>;
}

/// Plain TCP. Tries the addresses of a host name one after the other and turns Nagle's algorithm
/// off: a share session waits for each answer, so a delayed small write is pure latency.
#[derive(Debug, Clone, Copy)]
pub struct TcpConnector {
    /// Longest wait for one resolved address while others are left, so that one dead address
    /// doesn't use up the whole setup time. Default 3 s.
    pub address_timeout: Duration,
}

impl Default for TcpConnector {
    fn default() -> Self {
        Self {
            address_timeout: Duration::from_secs(3),
        }
    }
}

impl Connector for TcpConnector {
    fn connect<'a>(&'a self, address: &'a Address) -> ConnectFuture<'a> {
        Box::pin(async move {
            let resolved: Vec<_> = lookup_host((address.host.as_str(), address.port))
                .await
                .map_err(|error| {
                    io::Error::new(error.kind(), format!("host name not resolved: {error}"))
                })?
                .collect();
            let mut failure =
                io::Error::new(io::ErrorKind::NotFound, "the host name has no addresses");
            let count = resolved.len();
            for (index, socket_address) in resolved.into_iter().enumerate() {
                let connect = TcpStream::connect(socket_address);
                let outcome = if index + 1 < count {
                    tokio::time::timeout(self.address_timeout, connect)
                        .await
                        .unwrap_or_else(|_| {
                            Err(io::Error::new(
                                io::ErrorKind::TimedOut,
                                format!("no answer within {:?}", self.address_timeout),
                            ))
                        })
                } else {
                    connect.await
                };
                match outcome {
                    Ok(stream) => {
                        stream.set_nodelay(true)?;
                        return Ok(Box::new(stream) as BoxStream);
                    }
                    Err(error) => {
                        failure = io::Error::new(error.kind(), format!("{socket_address}: {error}"))
                    }
                }
            }
            Err(failure)
        })
    }
}
