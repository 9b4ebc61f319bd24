//! Connections of the server.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::{Door, Fault, Reply, Seen, Shared};

/// Accepts connections while its door is open, for ever; they end with it.
pub(super) async fn accept(
    listener: TcpListener,
    mut doors: mpsc::Receiver<Door>,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
) {
    let Ok(address) = listener.local_addr() else {
        return;
    };
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(Door { is_open, done }) = doors.recv() => {
                // Closed first: to open it twice is no harm.
                drop(listener.take());
                if is_open {
                    listener = Some(super::listen(address.port()).await.0);
                }
                let _whoever_asked_may_have_gone = done.send(());
            }
            Ok((stream, _)) = accepted => {
                while connections.try_join_next().is_some() {}
                let (tls, shared) = (tls.clone(), Arc::clone(&shared));
                connections.spawn(connection(stream, tls, shared));
            }
            else => return,
        }
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    // Many small answers on one connection must not wait for each other.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let number = {
        let mut log = shared.log();
        log.connections += 1;
        log.connections - 1
    };
    match tls {
        None => serve(stream, number, shared).await,
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                serve(stream, number, shared).await;
            }
        }
    }
}

async fn serve<S>(stream: S, connection: usize, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { answer(request, connection, &shared).await }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    // A client that goes, or a cut on purpose, is no matter of the server's.
    drop(server.serve_connection(TokioIo::new(stream), service).await);
}

async fn answer(
    request: Request<Incoming>,
    connection: usize,
    shared: &Shared,
) -> io::Result<Response<Answer>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let headers = head.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes());
        (name.to_string(), value.into_owned())
    });
    let (seen, _at_work) = {
        let mut log = shared.log();
        let seen = Seen {
            number: log.requests,
            connection,
            method: head.method.to_string(),
            target: head.uri.to_string(),
            version: format!("{:?}", head.version),
            headers: headers.collect(),
            body,
        };
        log.requests += 1;
        if !shared.is_forgetful {
            log.seen.push(seen.clone());
        }
        log.at_work += 1;
        log.at_work_max = log.at_work_max.max(log.at_work);
        (seen, AtWork(shared))
    };
    shared.changed.notify_waiters();
    let reply = (shared.script)(&seen);
    if !reply.delay.is_zero() {
        tokio::time::sleep(reply.delay).await;
    }
    match reply.fault {
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Cut) => Err(io::ErrorKind::ConnectionAborted.into()),
        Some(Fault::Truncate) | None => response(reply),
    }
}

fn response(reply: Reply) -> io::Result<Response<Answer>> {
    let mut response = Response::builder().status(reply.status);
    for (name, value) in &reply.headers {
        response = response.header(name, value);
    }
    let answer = Answer {
        size: reply.body.len() as u64,
        rest: Some(reply.body),
        breaks_off: reply.fault == Some(Fault::Truncate),
        was_flushed: false,
    };
    response.body(answer).map_err(io::Error::other)
}

/// A request that is being answered.
struct AtWork<'a>(&'a Shared);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.log().at_work -= 1;
    }
}

/// A body that may break off before its end.
struct Answer {
    size: u64,
    rest: Option<Bytes>,
    breaks_off: bool,
    /// Whether what was said before it broke off has had time to be sent.
    was_flushed: bool,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.breaks_off && self.rest.is_none() && !self.was_flushed {
            self.was_flushed = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(match self.rest.take() {
            Some(bytes) if self.breaks_off => {
                let kept = bytes.len().saturating_sub(1);
                Some(Ok(Frame::data(bytes.slice(..kept))))
            }
            Some(bytes) if !bytes.is_empty() => Some(Ok(Frame::data(bytes))),
            None if self.breaks_off => {
                self.breaks_off = false;
                Some(Err(io::ErrorKind::ConnectionAborted.into()))
            }
            _ => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.size == 0 && !self.breaks_off
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.size)
    }
}
