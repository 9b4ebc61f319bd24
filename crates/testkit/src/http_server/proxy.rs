//! A proxy: tunnels (CONNECT), and plain requests that it answers itself.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A proxy on a port of its own. It ends when it is dropped, and its tunnels with it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy that wants this value of `Proxy-Authorization`, where there is one. It opens tunnels, and
    /// passes plain requests on to `target`.
    ///
    /// # Panics
    /// There is no port to be had, or no runtime.
    ///
    /// # Cancel safety
    /// Safe: nothing is started.
    pub async fn start(target: SocketAddr, credentials: Option<&str>) -> Self {
        let (listener, address) = super::listen(0).await;
        let heads = Arc::new(Mutex::default());
        let credentials = credentials.map(str::to_owned);
        let site = Site {
            target,
            credentials,
            heads: Arc::clone(&heads),
        };
        Self {
            address,
            heads,
            accepting: tokio::spawn(accept(listener, site)),
        }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The heads of the first requests of its connections.
    #[must_use]
    pub fn heads(&self) -> Vec<String> {
        let heads = self.heads.lock();
        heads.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

#[derive(Clone)]
struct Site {
    target: SocketAddr,
    credentials: Option<String>,
    heads: Arc<Mutex<Vec<String>>>,
}

async fn accept(listener: TcpListener, site: Site) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(stream, site.clone()));
    }
}

/// A connection; what ends it is no matter of the proxy's.
async fn serve(mut stream: TcpStream, site: Site) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
        head.push(stream.read_u8().await?);
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let push = |mut heads: MutexGuard<'_, Vec<String>>| heads.push(text.clone());
    push(site.heads.lock().unwrap_or_else(PoisonError::into_inner));
    let has_credentials = site.credentials.is_none_or(|wanted| {
        let mut lines = text.lines();
        lines.any(|line| line.eq_ignore_ascii_case(&format!("proxy-authorization: {wanted}")))
    });
    if !has_credentials {
        let answer = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
        return stream.write_all(answer).await;
    }
    let mut target = TcpStream::connect(site.target).await?;
    if text.starts_with("CONNECT ") {
        let answer = b"HTTP/1.1 200 Connection established\r\n\r\n";
        stream.write_all(answer).await?;
    } else {
        target.write_all(&head).await?;
    }
    copy_bidirectional(&mut stream, &mut target).await.map(drop)
}

const HEAD_BYTES_MAX: usize = 64 << 10;
