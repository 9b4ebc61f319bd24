//! Connections to the target: TCP, a proxy's tunnel, TLS.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue, PROXY_AUTHORIZATION};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use sharegroup_wire::net::tls::TlsConnector;
use sharegroup_wire::net::{Address, BoxStream, ConnectFuture, Connector, TcpConnector};
use tokio::time::timeout;
use tower_service::Service;

use super::auth::basic;
use super::config::{Origin, TargetConfig, Version};

/// Opens connections for the pool.
#[derive(Clone)]
pub(super) struct Transport(Arc<Roads>);

struct Roads {
    /// For URLs with `http:`.
    plain: Arc<dyn Connector>,
    /// For URLs with `https:`.
    secure: TlsConnector,
    /// Whether plain requests go to a proxy as such, with their whole URL.
    through_proxy: bool,
    timeout: Duration,
}

impl Transport {
    /// Whether a proxy passes on plain requests, as it can those of HTTP/1.1; anything else goes through a tunnel.
    pub(super) fn passes_on(config: &TargetConfig) -> bool {
        config.proxy.is_some() && config.version != Version::Http2
    }

    pub(super) fn new(config: &TargetConfig) -> Self {
        let tcp: Arc<dyn Connector> = Arc::new(TcpConnector::default());
        let through_proxy = Self::passes_on(config);
        let (plain, tunnel): (Arc<dyn Connector>, Arc<dyn Connector>) = match &config.proxy {
            None => (Arc::clone(&tcp), tcp),
            Some(proxy) => {
                let credentials = proxy.credentials.as_ref();
                let tunnel: Arc<dyn Connector> = Arc::new(Tunnel {
                    inner: Arc::clone(&tcp),
                    proxy: proxy.address.clone(),
                    credentials: credentials.map(|(user, password)| basic(user, password)),
                });
                let plain: Arc<dyn Connector> = if through_proxy {
                    Arc::new(Instead(tcp, proxy.address.clone()))
                } else {
                    Arc::clone(&tunnel)
                };
                (plain, tunnel)
            }
        };
        let protocols: &[&[u8]] = match config.version {
            Version::Auto => &[b"h2", b"http/1.1"],
            Version::Http1 => &[b"http/1.1"],
            Version::Http2 => &[b"h2"],
        };
        Self(Arc::new(Roads {
            plain,
            secure: TlsConnector::new(tunnel, config.tls.clone()).offering(protocols),
            through_proxy,
            timeout: config.connect_timeout,
        }))
    }
}

impl Roads {
    async fn open(&self, uri: &Uri) -> io::Result<Link> {
        let address = Origin::address(uri).ok_or(io::ErrorKind::InvalidInput)?;
        let is_https = uri.scheme_str() == Some("https");
        let open = async {
            if is_https {
                self.secure.connect_choosing(&address).await
            } else {
                let stream = self.plain.connect(&address).await?;
                Ok((stream, None))
            }
        };
        let opened = timeout(self.timeout, open).await;
        let (stream, chosen) = opened.map_err(|_| {
            let text = format!("no connection within {} ms", self.timeout.as_millis());
            io::Error::new(io::ErrorKind::TimedOut, text)
        })??;
        Ok(Link {
            io: TokioIo::new(stream),
            is_http2: chosen.as_deref() == Some(b"h2"),
            is_proxied: self.through_proxy && !is_https,
        })
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").finish_non_exhaustive()
    }
}

impl Service<Uri> for Transport {
    type Response = Link;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Link>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let roads = Arc::clone(&self.0);
        Box::pin(async move { roads.open(&uri).await })
    }
}

/// A connection, and what the pool must know of it.
pub(super) struct Link {
    io: TokioIo<BoxStream>,
    is_http2: bool,
    is_proxied: bool,
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        let connected = Connected::new().proxy(self.is_proxied);
        if self.is_http2 {
            connected.negotiated_h2()
        } else {
            connected
        }
    }
}

impl Read for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl Write for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, parts)
    }
}

/// Connects to one address whatever is asked for.
#[derive(Debug)]
struct Instead(Arc<dyn Connector>, Address);

impl Connector for Instead {
    fn connect<'a>(&'a self, _: &'a Address) -> ConnectFuture<'a> {
        Box::pin(async move { at_proxy(self.0.connect(&self.1).await) })
    }
}

/// Connects through a proxy (CONNECT; RFC 9110, section 9.3.6).
#[derive(Debug)]
struct Tunnel {
    inner: Arc<dyn Connector>,
    proxy: Address,
    credentials: Option<HeaderValue>,
}

impl Tunnel {
    async fn open(&self, address: &Address) -> io::Result<BoxStream> {
        let stream = at_proxy(self.inner.connect(&self.proxy).await)?;
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(PROXY_HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        // Ends with the tunnel, or with this future: its sender is gone then.
        tokio::spawn(connection.with_upgrades());
        let place = address.to_string();
        let mut request = Request::builder()
            .method(Method::CONNECT)
            .uri(&place)
            .header(HOST, &place)
            .body(Empty::<Bytes>::new())
            .map_err(io::Error::other)?;
        if let Some(credentials) = &self.credentials {
            let headers = request.headers_mut();
            headers.insert(PROXY_AUTHORIZATION, credentials.clone());
        }
        let answer = sender.send_request(request).await;
        let answer = at_proxy(answer.map_err(io::Error::other))?;
        if answer.status() != StatusCode::OK {
            let text = format!("the proxy answered {} to CONNECT", answer.status());
            return Err(io::Error::other(text));
        }
        let tunnel = hyper::upgrade::on(answer).await;
        Ok(Box::new(TokioIo::new(tunnel.map_err(io::Error::other)?)))
    }
}

impl Connector for Tunnel {
    fn connect<'a>(&'a self, address: &'a Address) -> ConnectFuture<'a> {
        Box::pin(self.open(address))
    }
}

fn at_proxy<T>(result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| io::Error::new(error.kind(), format!("at the proxy: {error}")))
}

/// Of a proxy's answer.
const PROXY_HEAD_BYTES_MAX: usize = 16 << 10;
