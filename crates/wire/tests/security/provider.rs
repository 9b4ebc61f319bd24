//! The token endpoint of an OIDC provider.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test's own failures")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::security::Pair;

/// What the endpoint answers with.
#[derive(Clone)]
pub(crate) struct Reply {
    delay: Duration,
    bytes: String,
}

impl Reply {
    pub(crate) fn raw(bytes: impl Into<String>) -> Self {
        Self {
            delay: Duration::ZERO,
            bytes: bytes.into(),
        }
    }

    pub(crate) fn status(status: u16, body: &str) -> Self {
        Self::raw(format!(
            "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ))
    }

    pub(crate) fn ok(body: impl Into<String>) -> Self {
        Self::status(200, &body.into())
    }

    /// Ends the connection.
    pub(crate) fn cut() -> Self {
        Self::raw("")
    }

    pub(crate) fn never() -> Self {
        Self::cut().after(Duration::from_secs(3600))
    }

    pub(crate) fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

/// Answers with one reply after the other, then with the last one again, for as long as the test
/// runs.
pub(crate) struct Provider {
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    pub(crate) async fn start(pair: &Pair, replies: Vec<Reply>) -> Self {
        let acceptor = acceptor(pair);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&asked);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, all, replies) =
                    (acceptor.clone(), Arc::clone(&all), replies.clone());
                tokio::spawn(async move {
                    // A client that refuses the certificate is gone.
                    let Ok(mut stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let request = request(&mut stream).await;
                    let number = {
                        let mut all = all.lock().unwrap();
                        all.push(request);
                        all.len() - 1
                    };
                    let reply = &replies[number.min(replies.len() - 1)];
                    tokio::time::sleep(reply.delay).await;
                    // The client may have seen enough.
                    drop(stream.write_all(reply.bytes.as_bytes()).await);
                    drop(stream.shutdown().await);
                });
            }
        });
        Self { port, asked }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}/token?tenant=1", self.port)
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn acceptor(pair: &Pair) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            chain.map(Result::unwrap).collect(),
            PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap(),
        );
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

/// A request with its body.
async fn request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                let is_length = name.eq_ignore_ascii_case("content-length");
                is_length.then(|| value.parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return text;
        }
    }
}
