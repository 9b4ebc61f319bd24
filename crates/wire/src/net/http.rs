//! One HTTP/1.1 request over a connector's stream, for tokens.

use std::io;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
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
        .handshake(TokioIo::new(stream))
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
