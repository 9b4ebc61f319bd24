//! A client that sends what it is told: one request, one answer, on a blocking socket.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test uses its part, and stops at the first failure"
)]

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use sharegroup_wire::CorrelationId;
use sharegroup_wire::frame::{decode_response, encode_request, read_frame};
use sharegroup_wire::message::Request;

/// A connection.
#[derive(Debug)]
pub(crate) struct Raw {
    stream: TcpStream,
    correlation: i32,
}

impl Raw {
    pub(crate) fn connect(address: &str) -> Self {
        Self::on(TcpStream::connect(address).unwrap())
    }

    /// A connection, or `None` where the broker is gone.
    pub(crate) fn try_connect(address: &str) -> Option<Self> {
        TcpStream::connect(address).ok().map(Self::on)
    }

    fn on(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        Self {
            stream,
            correlation: 0,
        }
    }

    /// Sends without waiting.
    pub(crate) fn send<R: Request>(&mut self, request: &R, version: i16) {
        self.correlation += 1;
        let id = CorrelationId(self.correlation);
        let frame = encode_request(request, version, id, Some("raw"));
        self.stream.write_all(&frame).unwrap();
    }

    /// The answer to a request that was sent.
    pub(crate) fn receive<R: Request>(&mut self, version: i16) -> R::Response {
        let frame = read_frame(&mut self.stream).unwrap();
        decode_response::<R>(&frame, version).unwrap()
    }

    pub(crate) fn call<R: Request>(&mut self, request: &R, version: i16) -> R::Response {
        self.send(request, version);
        self.receive::<R>(version)
    }

    /// The answer, or `None` where the broker is gone.
    pub(crate) fn try_call<R: Request>(
        &mut self,
        request: &R,
        version: i16,
    ) -> Option<R::Response> {
        self.correlation += 1;
        let id = CorrelationId(self.correlation);
        let frame = encode_request(request, version, id, Some("raw"));
        self.stream.write_all(&frame).ok()?;
        let frame = read_frame(&mut self.stream).ok()?;
        Some(decode_response::<R>(&frame, version).unwrap())
    }
}
