//! One HTTP/1.1 request over a connector's stream, for tokens.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::{Request, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinSet;

use crate::limits::TOKEN_ANSWER_HEAD_BYTES_MAX;
use crate::net::connector::BoxStream;

/// Sends a request and reads its answer, whose body has at most `body_bytes_max` bytes. The caller
/// sets the deadline by dropping the future.
pub(super) async fn exchange(
    stream: BoxStream,
    request: Request<Full<Bytes>>,
    body_bytes_max: usize,
) -> io::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(TOKEN_ANSWER_HEAD_BYTES_MAX)
        .handshake(HttpStream(stream))
        .await
        .map_err(io::Error::other)?;
    // Runs beside until this future ends.
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    let answer = sender
        .send_request(request)
        .await
        .map_err(io::Error::other)?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), body_bytes_max);
    let body = body.collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            io::Error::other(format!(
                "an answer of more than {body_bytes_max} bytes (limits::TOKEN_ANSWER_BYTES_MAX)"
            ))
        } else {
            io::Error::other(error)
        }
    })?;
    Ok((status, body.to_bytes()))
}

/// A stream as hyper wants it.
struct HttpStream(BoxStream);

impl Read for HttpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // Copied once: answers are small, and hyper's cursor takes no other bytes without `unsafe`.
        let mut bytes = [0; 4096];
        let mut bytes = ReadBuf::new(&mut bytes);
        let mut chunk = bytes.take(buffer.remaining());
        ready!(Pin::new(&mut self.0).poll_read(context, &mut chunk))?;
        buffer.put_slice(chunk.filled());
        Poll::Ready(Ok(()))
    }
}

impl Write for HttpStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
