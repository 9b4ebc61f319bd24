//! An HTTP server that answers by a script: HTTP/1.1 and HTTP/2, with or without TLS, slow, silent, cut off.
//!
//! ```no_run
//! use sharegroup_testkit::http_server::{HttpServer, Reply};
//!
//! # async fn run() {
//! let server = HttpServer::start(|request| match request.number {
//!     0 => Reply::status(503).header("retry-after", "2"),
//!     _ => Reply::status(200),
//! })
//! .await;
//! println!("{}", server.url("/orders"));
//! assert!(server.seen().is_empty());
//! # }
//! ```

mod proxy;
mod serve;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

pub use proxy::Proxy;

/// A request that the server has read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Seen {
    /// How many came before it.
    pub number: usize,
    /// The connection that it came on, counted from 0.
    pub connection: usize,
    /// For example `POST`.
    pub method: String,
    /// Path and query; the whole URL where it came that way.
    pub target: String,
    /// `HTTP/1.1` or `HTTP/2.0`.
    pub version: String,
    /// Names in small letters, and values.
    pub headers: Vec<(String, String)>,
    /// All of the body.
    pub body: Bytes,
}

impl Seen {
    /// The first value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let header = headers.find(|(key, _)| key == name)?;
        Some(&header.1)
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// What the server does with a request.
#[derive(Clone, Debug)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Bytes,
    delay: Duration,
    fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// No answer at all.
    Hang,
    /// The connection ends instead of an answer.
    Cut,
    /// The connection ends within the body.
    Truncate,
}

impl Reply {
    /// An empty answer.
    #[must_use]
    pub const fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Bytes::new(),
            delay: Duration::ZERO,
            fault: None,
        }
    }

    /// No answer, until the client gives up.
    #[must_use]
    pub fn hang() -> Self {
        Self {
            fault: Some(Fault::Hang),
            ..Self::status(200)
        }
    }

    /// The end of the connection instead of an answer.
    #[must_use]
    pub fn cut() -> Self {
        Self {
            fault: Some(Fault::Cut),
            ..Self::status(200)
        }
    }

    /// The same with a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// The same with a body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// The same after a while.
    #[must_use]
    pub const fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The same, but the connection ends before the last byte of the body.
    #[must_use]
    pub const fn truncated(mut self) -> Self {
        self.fault = Some(Fault::Truncate);
        self
    }
}

/// A server on a port of its own. It ends when it is dropped.
pub struct HttpServer {
    address: SocketAddr,
    is_tls: bool,
    shared: Arc<Shared>,
    doors: mpsc::Sender<Door>,
    accepting: JoinHandle<()>,
}

/// How a server is started, where that isn't as [`HttpServer::start`] does it.
#[derive(Clone, Debug, Default)]
pub struct HttpServerOptions {
    /// Where it listens; 0 for any port that is free.
    pub port: u16,
    /// Its TLS. Which versions of HTTP may be agreed on stands in `alpn_protocols`.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether it forgets requests once they are answered, so that [`HttpServer::seen`] has none: for very many of them.
    pub is_forgetful: bool,
}

impl fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

type Script = dyn Fn(&Seen) -> Reply + Send + Sync;

struct Shared {
    script: Box<Script>,
    is_forgetful: bool,
    log: Mutex<Log>,
    changed: Notify,
}

/// Whether new connections are taken; said back once that is so.
struct Door {
    is_open: bool,
    done: oneshot::Sender<()>,
}

#[derive(Default)]
struct Log {
    seen: Vec<Seen>,
    /// Requests so far.
    requests: usize,
    connections: usize,
    /// Requests that are being answered, and the most there were of them.
    at_work: usize,
    at_work_max: usize,
}

impl HttpServer {
    /// Starts a server on 127.0.0.1 that answers as `script` says.
    ///
    /// # Panics
    /// There is no port to be had, or no runtime.
    ///
    /// # Cancel safety
    /// Safe: nothing is started.
    pub async fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(HttpServerOptions::default(), script).await
    }

    /// The same with TLS. Which versions of HTTP may be agreed on stands in `config.alpn_protocols`.
    ///
    /// # Panics
    /// As [`HttpServer::start`].
    ///
    /// # Cancel safety
    /// Safe: nothing is started.
    pub async fn start_tls(
        config: ServerConfig,
        script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let options = HttpServerOptions {
            tls: Some(Arc::new(config)),
            ..HttpServerOptions::default()
        };
        Self::start_with(options, script).await
    }

    /// The same as these options say.
    ///
    /// # Panics
    /// As [`HttpServer::start`].
    ///
    /// # Cancel safety
    /// Safe: nothing is started.
    pub async fn start_with(
        options: HttpServerOptions,
        script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let (listener, address) = listen(options.port).await;
        let shared = Arc::new(Shared {
            script: Box::new(script),
            is_forgetful: options.is_forgetful,
            log: Mutex::default(),
            changed: Notify::new(),
        });
        let is_tls = options.tls.is_some();
        let tls = options.tls.map(TlsAcceptor::from);
        let (doors, opened) = mpsc::channel(1);
        let accepting = serve::accept(listener, opened, tls, Arc::clone(&shared));
        Self {
            address,
            is_tls,
            shared,
            doors,
            accepting: tokio::spawn(accepting),
        }
    }

    /// From now on new connections are refused, or taken again; those that are there go on.
    ///
    /// # Panics
    /// Somebody else has taken the port meanwhile.
    ///
    /// # Cancel safety
    /// It may happen all the same.
    pub async fn open_door(&self, is_open: bool) {
        let (done, is_done) = oneshot::channel();
        let sent = self.doors.send(Door { is_open, done }).await;
        let is_done = sent.is_ok() && is_done.await.is_ok();
        assert!(is_done, "the server is gone, or its port");
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL of it; with TLS its host is `localhost`.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        let port = self.address.port();
        if self.is_tls {
            format!("https://localhost:{port}{path}")
        } else {
            format!("http://127.0.0.1:{port}{path}")
        }
    }

    /// All requests so far.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.log().seen.clone()
    }

    /// Connections so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.log().connections
    }

    /// Most requests that were being answered at the same time.
    #[must_use]
    pub fn at_work_max(&self) -> usize {
        self.shared.log().at_work_max
    }

    /// Waits until there were so many requests.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn wait_for(&self, requests: usize) {
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            if self.shared.log().requests >= requests {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        // Each write under the lock is whole.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn listen(port: u16) -> (TcpListener, SocketAddr) {
    let bound = TcpListener::bind(("127.0.0.1", port)).await;
    let bound = bound.and_then(|listener| {
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    #[expect(clippy::panic, reason = "a test can't go on without")]
    match bound {
        Ok(bound) => bound,
        Err(error) => panic!("no port to listen on: {error}"),
    }
}
