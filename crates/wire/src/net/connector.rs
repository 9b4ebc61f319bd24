//! How a byte stream to a broker is opened.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use crate::limits::{CONNECT_HEAD_START, DNS_ANSWERS_MAX};
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

    /// As [`connect`](Self::connect) for a connection to a broker; sets `is_securing` when the stream
    /// is open and the TLS handshake begins, so that a deadline can be told with what was going on.
    /// A connector without TLS needs only [`connect`](Self::connect).
    fn connect_to_broker<'a>(
        &'a self,
        address: &'a Address,
        _is_securing: &'a AtomicBool,
    ) -> ConnectFuture<'a> {
        self.connect(address)
    }
}

/// Plain TCP, with Nagle's algorithm off: a share session waits for each answer, so a delayed small
/// write is pure latency.
///
/// The host name is looked up at each connection, and all of its addresses are tried in turn
/// (`client.dns.lookup=use_all_dns_ips`): the next one as soon as one fails, or beside it after a
/// head start (RFC 8305), so that dead addresses don't use up the setup time.
#[derive(Debug, Clone, Copy)]
pub struct TcpConnector {
    /// How long an address is tried before the next one is tried beside it. Default 250 ms.
    pub head_start: Duration,
}

impl Default for TcpConnector {
    fn default() -> Self {
        Self {
            head_start: CONNECT_HEAD_START,
        }
    }
}

impl Connector for TcpConnector {
    fn connect<'a>(&'a self, address: &'a Address) -> ConnectFuture<'a> {
        Box::pin(async move {
            let resolved = lookup_host((address.host.as_str(), address.port))
                .await
                .map_err(|error| {
                    io::Error::new(error.kind(), format!("host name not resolved: {error}"))
                })?
                .take(DNS_ANSWERS_MAX)
                .collect();
            let stream = first_of(resolved, self.head_start, TcpStream::connect).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxStream)
        })
    }
}

/// The servers behind addresses, by the names that their IP addresses have
/// (`client.dns.lookup=resolve_canonical_bootstrap_servers_only`): for an alias whose servers have
/// certificates for their own names. What can't be looked up stays as it is.
///
/// # Cancel safety
/// Dropping the future leaves a look-up running on its own thread, to no effect.
pub async fn canonical_servers(addresses: &[Address]) -> Vec<Address> {
    let mut servers = Vec::new();
    for address in addresses {
        let resolved = lookup_host((address.host.as_str(), address.port)).await;
        let resolved: Vec<_> = match resolved {
            Ok(resolved) => resolved.take(DNS_ANSWERS_MAX).collect(),
            Err(_) => Vec::new(),
        };
        let mut names = Vec::new();
        for server in resolved {
            let name = spawn_blocking(move || dns_lookup::lookup_addr(&server.ip())).await;
            let name = name.ok().and_then(Result::ok);
            names.push(name.unwrap_or_else(|| server.ip().to_string()));
        }
        if names.is_empty() {
            names.push(address.host.clone());
        }
        for name in names {
            let server = Address::new(name, address.port);
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
    }
    servers
}

/// The first stream that opens; the last failure where none does.
async fn first_of<S, F>(
    addresses: Vec<SocketAddr>,
    head_start: Duration,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<S>
where
    S: Send + 'static,
    F: Future<Output = io::Result<S>> + Send + 'static,
{
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host name has no addresses");
    let mut addresses = addresses.into_iter();
    let mut trying = JoinSet::new();
    loop {
        if let Some(address) = addresses.next() {
            let connecting = connect(address);
            trying.spawn(async move {
                let named =
                    |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
                connecting.await.map_err(named)
            });
        } else if trying.is_empty() {
            return Err(failure);
        }
        tokio::select! {
            Some(tried) = trying.join_next() => match tried {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => failure = error,
                Err(error) => failure = io::Error::other(error),
            },
            () = sleep(head_start), if addresses.len() > 0 => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::time::Instant;

    use super::*;

    fn addresses(count: u16) -> Vec<SocketAddr> {
        (1..=count)
            .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn dead_addresses_delay_by_their_head_starts_only() {
        let started = Instant::now();
        let stream = first_of(
            addresses(20),
            Duration::from_millis(250),
            |address| async move {
                match address.port() {
                    20 => Ok(20),
                    _ => std::future::pending().await,
                }
            },
        );
        assert_eq!(stream.await.unwrap(), 20);
        assert_eq!(started.elapsed(), Duration::from_millis(19 * 250));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_address_is_followed_by_the_next_at_once_and_in_turn() {
        let started = Instant::now();
        let tried = Mutex::new(Vec::new());
        let error = first_of(addresses(3), Duration::from_secs(1), |address| {
            tried.lock().unwrap().push(address.port());
            async { Err::<(), _>(io::ErrorKind::ConnectionRefused.into()) }
        });
        let error = error.await.unwrap_err();
        assert!(error.to_string().contains("127.0.0.1:3"), "{error}");
        assert_eq!(*tried.lock().unwrap(), [1, 2, 3]);
        assert_eq!(started.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_address_still_wins_when_those_behind_it_fail() {
        let stream = first_of(
            addresses(2),
            Duration::from_millis(250),
            |address| async move {
                match address.port() {
                    1 => {
                        sleep(Duration::from_secs(2)).await;
                        Ok(1)
                    }
                    _ => Err(io::ErrorKind::ConnectionRefused.into()),
                }
            },
        );
        assert_eq!(stream.await.unwrap(), 1);
    }
}
