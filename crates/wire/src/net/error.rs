//! Why a connection could not be opened, a call got no answer, a connection ended.

use std::fmt;
use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::duration::show;
use crate::error::DecodeError;
use crate::error_code::ErrorCode;
use crate::net::address::Address;
use crate::net::negotiation::ApiVersionRange;
use crate::net::sasl::SaslError;
use crate::net::tls::TlsError;

/// How far [`Connection::open`](crate::net::Connection::open) had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectPhase {
    /// Waiting for a token to authenticate with.
    Token,
    /// Resolving the host name and opening the stream.
    Connect,
    /// The stream is open; the TLS handshake.
    TlsHandshake,
    /// Waiting for the answer to ApiVersions.
    ApiVersions,
    /// Authenticating with SASL.
    Authentication,
}

impl fmt::Display for ConnectPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Token => "waiting for a token",
            Self::Connect => "connecting",
            Self::Authentication => "authenticating",
            Self::TlsHandshake => "waiting for its part of the TLS handshake; its port may be one without TLS (security.protocol)",
            Self::ApiVersions => "waiting for the answer to ApiVersions; its port may not be what security.protocol says",
        })
    }
}

/// Why [`Connection::open`](crate::net::Connection::open) failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The network: refused, unreachable, host name unknown.
    #[error("cannot connect to {address}: {text}")]
    Io {
        /// Where to.
        address: Address,
        /// Kind of the operating system's error.
        kind: io::ErrorKind,
        /// Its text.
        text: String,
    },
    /// Nothing within the setup time.
    #[error("{address} did not answer within {} while {phase}", show(*.after))]
    Timeout {
        /// Where to.
        address: Address,
        /// What was going on.
        phase: ConnectPhase,
        /// The setup time.
        after: Duration,
    },
    /// The stream was opened, then ended before versions were negotiated.
    #[error("connection to {address} ended before versions were negotiated: {reason}")]
    Closed {
        /// Where to.
        address: Address,
        /// Why it ended.
        reason: CloseReason,
    },
    /// The connection could not be secured, or was refused for its certificates.
    #[error("no secure connection to {address}: {source}")]
    Tls {
        /// Where to.
        address: Address,
        /// Why.
        r#source: Box<TlsError>,
    },
    /// The client could not authenticate.
    #[error("not authenticated at {address}: {source}")]
    Authentication {
        /// Where.
        address: Address,
        /// Why.
        r#source: Box<SaslError>,
    },
    /// The broker refused ApiVersions.
    #[error("{address} refused ApiVersions: {code}: {}", .code.sentence())]
    Broker {
        /// Where.
        address: Address,
        /// The broker's code.
        code: ErrorCode,
    },
    /// The broker knows no version of ApiVersions that this crate knows.
    #[error(
        "{address} speaks no version of ApiVersions that is known here: ours {ours}, the broker's {broker}"
    )]
    Unsupported {
        /// Where.
        address: Address,
        /// The versions known here.
        ours: ApiVersionRange,
        /// The versions that the broker knows.
        broker: ApiVersionRange,
    },
}

impl ConnectError {
    /// An error of a [`Connector`](crate::net::Connector), which may have one of TLS or SASL inside.
    pub(super) fn of_stream(address: &Address, error: &io::Error) -> Self {
        let address = address.clone();
        if let Some(source) = TlsError::of(error) {
            let source = Box::new(source.clone());
            Self::Tls { address, source }
        } else if let Some(source) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
            let source = Box::new(SaslError::clone(source));
            Self::Authentication { address, source }
        } else {
            Self::Io {
                address,
                kind: error.kind(),
                text: error.to_string(),
            }
        }
    }

    /// The end of a connection before it was ready for use.
    pub(super) fn closed(address: &Address, reason: CloseReason) -> Self {
        let address = address.clone();
        match reason {
            CloseReason::Tls(source) => Self::Tls { address, source },
            reason => Self::Closed { address, reason },
        }
    }

    /// Whether trying again later may help. A peer that speaks another protocol will go on doing so.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        match self {
            Self::Tls { source, .. } => source.is_retriable(),
            Self::Authentication { source, .. } => source.is_retriable(),
            Self::Io { kind, .. } => !matches!(
                kind,
                io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied
            ),
            Self::Timeout { .. } => true,
            Self::Closed { reason, .. } => reason.is_retriable(),
            Self::Broker { code, .. } => {
                code.is_retriable() || matches!(code, ErrorCode::RebootstrapRequired)
            }
            Self::Unsupported { .. } => false,
        }
    }

    /// The address that was tried.
    #[must_use]
    pub const fn address(&self) -> &Address {
        match self {
            Self::Io { address, .. }
            | Self::Timeout { address, .. }
            | Self::Closed { address, .. }
            | Self::Tls { address, .. }
            | Self::Authentication { address, .. }
            | Self::Broker { address, .. }
            | Self::Unsupported { address, .. } => address,
        }
    }
}

/// Why a call on a [`Connection`](crate::net::Connection) got no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CallError {
    /// No version of the API that both sides know. Nothing was sent.
    #[error(
        "{address} has no usable version of {api}: ours {ours}, the broker's {}",
        .broker.map_or_else(|| "none (it does not know the API)".to_owned(), |range| range.to_string())
    )]
    Unsupported {
        /// The broker.
        address: Address,
        /// The API's name.
        api: &'static str,
        /// The versions known here.
        ours: ApiVersionRange,
        /// The versions that the broker knows; `None` = it doesn't know the API.
        broker: Option<ApiVersionRange>,
    },
    /// As many requests as allowed wait on the connection already, and none was answered in time.
    /// Nothing was sent.
    #[error(
        "{api} to {address} found no free place among {in_flight_max} waiting requests within {}",
        show(*.after)
    )]
    Busy {
        /// The broker.
        address: Address,
        /// The API's name.
        api: &'static str,
        /// The limit ([`ConnectionOptions::in_flight_max`](crate::net::ConnectionOptions::in_flight_max)).
        in_flight_max: usize,
        /// How long the call waited.
        after: Duration,
    },
    /// The connection had ended before the call. Nothing was sent.
    #[error("{api} not sent, connection to {address} is closed: {reason}")]
    NotConnected {
        /// The broker.
        address: Address,
        /// The API's name.
        api: &'static str,
        /// Why it ended.
        reason: CloseReason,
    },
    /// The connection ended while the call waited. Whether the broker did the work is unknown.
    #[error("{api} to {address} got no answer, the connection ended: {reason}")]
    ConnectionLost {
        /// The broker.
        address: Address,
        /// The API's name.
        api: &'static str,
        /// Why it ended.
        reason: CloseReason,
    },
    /// No answer before the deadline; the connection was closed. Whether the broker did the work is
    /// unknown.
    #[error("{api} to {address} got no answer within {}", show(*.after))]
    Timeout {
        /// The broker.
        address: Address,
        /// The API's name.
        api: &'static str,
        /// The time allowed.
        after: Duration,
    },
    /// The answer is not a legal message; the connection was closed.
    #[error("answer of {address} to {api} version {version} cannot be decoded: {source}")]
    PeerMisbehaved {
        /// The broker.
        address: Address,
        /// The API's name.
        api: &'static str,
        /// The version asked for.
        version: i16,
        /// What is wrong.
        r#source: DecodeError,
    },
}

impl CallError {
    /// Whether the same call may succeed later, on another connection.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        match self {
            Self::Unsupported { .. } | Self::PeerMisbehaved { .. } => false,
            Self::Busy { .. } | Self::Timeout { .. } => true,
            Self::NotConnected { reason, .. } | Self::ConnectionLost { reason, .. } => {
                reason.is_retriable()
            }
        }
    }

    /// Whether the broker may have seen the request: `false` means that it certainly has not.
    #[must_use]
    pub const fn may_have_arrived(&self) -> bool {
        match self {
            Self::Unsupported { .. } | Self::Busy { .. } | Self::NotConnected { .. } => false,
            Self::ConnectionLost { .. } | Self::Timeout { .. } | Self::PeerMisbehaved { .. } => {
                true
            }
        }
    }

    /// The broker that was called.
    #[must_use]
    pub const fn address(&self) -> &Address {
        match self {
            Self::Unsupported { address, .. }
            | Self::Busy { address, .. }
            | Self::NotConnected { address, .. }
            | Self::ConnectionLost { address, .. }
            | Self::Timeout { address, .. }
            | Self::PeerMisbehaved { address, .. } => address,
        }
    }
}

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// Closed on this side, by [`close`](crate::net::Connection::close) or because the last handle
    /// or the runtime was dropped.
    #[error("closed on this side")]
    ByUs,
    /// Closed on this side, since nothing was asked for so long
    /// ([`ConnectionOptions::idle_max`](crate::net::ConnectionOptions::idle_max)).
    #[error("closed on this side after {} without a request", show(*.after))]
    Idle {
        /// The time allowed.
        after: Duration,
    },
    /// The broker closed it between two frames.
    #[error("closed by the broker")]
    ByPeer,
    /// The peer closed a connection in plaintext instead of answering ApiVersions.
    #[error(
        "closed by the peer at the first bytes: its port may expect TLS; then turn TLS on (security.protocol)"
    )]
    ByPeerAtApiVersions,
    /// The peer closed a connection in plaintext instead of answering ApiVersions, and answers there in
    /// TLS.
    #[error(
        "the peer's port is one with TLS: use a plaintext port, or turn TLS on (security.protocol)"
    )]
    TlsPort,
    /// The broker closed a connection without SASL instead of answering the first request.
    /// [`CallError::explain`] finds out whether SASL is the cause.
    #[error(
        "closed by the broker at the first request: its port may ask for SASL; then turn SASL on (security.protocol)"
    )]
    ByPeerAtFirstRequest,
    /// The broker closed it inside a frame.
    #[error("closed by the broker inside a frame, {missing} bytes before its end")]
    ByPeerInsideFrame {
        /// Bytes that were missing.
        missing: usize,
    },
    /// The network.
    #[error("{text}")]
    Io {
        /// Kind of the operating system's error.
        kind: io::ErrorKind,
        /// Its text.
        text: String,
    },
    /// TLS: most often a refusal of our certificate, which in TLS 1.3 comes after the handshake.
    #[error(transparent)]
    Tls(Box<TlsError>),
    /// The client could not authenticate again before its session ended (KIP-368).
    #[error("not authenticated again: {0}")]
    Authentication(Box<SaslError>),
    /// The peer answered with a TLS alert.
    #[error(
        "the peer answered with a TLS alert: its port expects TLS; use a plaintext port or turn TLS on (security.protocol)"
    )]
    TlsAlert,
    /// The peer answered with HTTP.
    #[error("the peer answered in HTTP: this is not a Kafka port")]
    Http,
    /// A frame that can't be one.
    #[error("illegal frame: {0}")]
    Frame(DecodeError),
    /// A frame whose size is negative or leaves no room for a correlation id.
    #[error("illegal frame size of {size} bytes")]
    FrameSize {
        /// The size.
        size: i32,
    },
    /// An answer that nobody is due.
    #[error("answer with correlation id {received} where {} is due", .expected.map_or_else(|| "none".to_owned(), |id| id.to_string()))]
    CorrelationId {
        /// The id that is due; `None` = nothing was asked.
        expected: Option<i32>,
        /// The id of the answer.
        received: i32,
    },
    /// A request got no answer before its deadline.
    #[error("{api} got no answer within {}", show(*.after))]
    Timeout {
        /// The API's name.
        api: &'static str,
        /// The time allowed.
        after: Duration,
    },
    /// An answer was not a legal message.
    #[error("answer to {api} cannot be decoded: {source}")]
    Decode {
        /// The API's name.
        api: &'static str,
        /// What is wrong.
        r#source: DecodeError,
    },
}

impl CloseReason {
    /// Whether a new connection to the same address may do better.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        match self {
            Self::Tls(error) => error.is_retriable(),
            Self::Authentication(error) => error.is_retriable(),
            Self::ByUs
            | Self::Idle { .. }
            | Self::ByPeer
            | Self::ByPeerAtApiVersions
            | Self::ByPeerAtFirstRequest
            | Self::ByPeerInsideFrame { .. }
            | Self::Io { .. }
            | Self::Timeout { .. } => true,
            Self::TlsPort
            | Self::TlsAlert
            | Self::Http
            | Self::Frame(_)
            | Self::FrameSize { .. }
            | Self::CorrelationId { .. }
            | Self::Decode { .. } => false,
        }
    }
}

impl CloseReason {
    /// Whether the peer is simply gone.
    pub(super) fn is_end(&self) -> bool {
        match self {
            Self::ByPeer => true,
            Self::Io { kind, .. } => is_end(*kind),
            _ => false,
        }
    }
}

/// The peer is gone.
pub(super) const fn is_end(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
    )
}

impl From<io::Error> for CloseReason {
    fn from(error: io::Error) -> Self {
        if let Some(tls) = TlsError::of(&error) {
            return Self::Tls(Box::new(tls.clone()));
        }
        Self::Io {
            kind: error.kind(),
            text: error.to_string(),
        }
    }
}
