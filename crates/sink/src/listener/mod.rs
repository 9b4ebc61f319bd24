//! The worker's HTTP listener: `/metrics`, `/health/live`, `/health/ready`.
//!
//! HTTP/1.1 and 1.0, GET and HEAD alone, one request a connection. Whoever is slow is cut off; whoever comes
//! while all places are taken takes that of the oldest connection.

mod answer;
mod lag;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use self::answer::answer;
use self::lag::Lags;
use crate::config::Listeners;
use crate::worker::Worker;

/// Where a worker listens, if it does.
#[derive(Debug)]
pub struct Listener {
    sockets: Vec<TcpListener>,
}

/// A listener that could not be opened: its address is taken, or isn't this machine's.
#[derive(Debug, Error)]
#[error("listeners: can't listen on {address}: {source}")]
pub struct ListenError {
    /// `host:port`.
    pub address: String,
    /// What the system said.
    pub source: io::Error,
}

impl Listener {
    /// Listens where `listeners` says. Unless that is set it is 127.0.0.1:8083, and where that can't be had there is
    /// a warning and no listener.
    ///
    /// # Errors
    /// [`ListenError`]: an address that is set can't be had.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn bind(listeners: &Listeners) -> Result<Self, ListenError> {
        let mut sockets = Vec::new();
        for address in listeners.addresses() {
            match TcpListener::bind(address).await {
                Ok(socket) => sockets.push(socket),
                Err(error) if listeners.is_default() => tracing::warn!(
                    address,
                    %error,
                    "No metrics and no health are served: the address can't be had; set listeners, or leave it empty for none."
                ),
                Err(source) => {
                    let address = address.to_owned();
                    return Err(ListenError { address, source });
                }
            }
        }
        Ok(Self { sockets })
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let addresses = self.sockets.iter().map(TcpListener::local_addr);
        addresses.filter_map(Result::ok).collect()
    }

    /// Answers, for ever.
    ///
    /// # Cancel safety
    /// Dropping it closes the sockets and all connections.
    pub async fn serve(self, worker: &Arc<Worker>) -> Infallible {
        let lags = Arc::new(Lags::default());
        let mut sockets = JoinSet::new();
        for socket in self.sockets {
            tracing::info!(
                address = socket.local_addr().ok().map(tracing::field::display),
                "Serving /metrics, /health/live and /health/ready."
            );
            let site = Site {
                worker: Arc::downgrade(worker),
                lags: Arc::clone(&lags),
            };
            sockets.spawn(accept(socket, site));
        }
        if sockets.is_empty() {
            return std::future::pending().await;
        }
        lags.follow(worker).await
    }
}

/// What is asked about.
#[derive(Clone, Debug)]
struct Site {
    /// A connection must not keep a worker that is dropped.
    worker: Weak<Worker>,
    lags: Arc<Lags>,
}

/// Whoever comes is served at once: where all places are taken, the connection that has been there longest, and
/// so has asked for nothing, makes room. A probe of health must not wait for the silent.
async fn accept(socket: TcpListener, site: Site) -> Infallible {
    let mut connections = JoinSet::new();
    let mut by_age: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        match socket.accept().await {
            Ok((stream, _)) => {
                while connections.try_join_next().is_some() {}
                by_age.retain(|connection| !connection.is_finished());
                if by_age.len() >= CONNECTIONS_MAX
                    && let Some(oldest) = by_age.pop_front()
                {
                    oldest.abort();
                }
                by_age.push_back(connections.spawn(serve_one(stream, site.clone())));
            }
            Err(error) => {
                // Out of file descriptors, or gone before it was accepted.
                tracing::debug!(%error, "A connection could not be accepted.");
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

async fn serve_one(stream: TcpStream, site: Site) {
    let service = service_fn(move |request| {
        let answer = answer(&request, &site);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_WITHIN)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(false)
        .half_close(false)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(CONNECTION_WITHIN, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "A request was not answered."),
        Err(_) => tracing::debug!("A slow client was cut off."),
    }
}

/// Connections at one time, by address.
const CONNECTIONS_MAX: usize = 64;
/// Longest wait for a request's line and headers.
const HEADER_WITHIN: Duration = Duration::from_secs(5);
/// Most bytes of them; hyper's own least.
const HEADER_BYTES_MAX: usize = 8 * 1024;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;
/// Longest life of a connection.
const CONNECTION_WITHIN: Duration = Duration::from_secs(30);
/// Pause after a connection that could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
