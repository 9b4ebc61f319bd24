//! A TLS stream whose errors say what went wrong.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::error::TlsError;
use crate::net::connector::BoxStream;
use crate::net::error::is_end;

/// What an error is told with.
#[derive(Debug, Clone)]
pub(super) struct Party {
    /// The host that was connected to.
    pub(super) host: String,
    /// Which authorities are trusted.
    pub(super) trusted: String,
    /// Whether there is a client certificate.
    pub(super) has_identity: bool,
}

impl Party {
    /// An error of the handshake.
    pub(super) fn handshake_error(&self, error: io::Error) -> io::Error {
        match self.explain(&error) {
            Some(tls) => tls.into(),
            None if is_end(error.kind()) => TlsError::ClosedInHandshake.into(),
            None => io::Error::new(error.kind(), format!("in the TLS handshake: {error}")),
        }
    }

    /// An error of an open stream.
    fn stream_error(&self, error: io::Error) -> io::Error {
        self.explain(&error).map_or(error, Into::into)
    }

    /// What rustls says, if it says something.
    fn explain(&self, error: &io::Error) -> Option<TlsError> {
        let error = error.get_ref()?.downcast_ref::<Error>()?;
        Some(match error {
            Error::InvalidCertificate(error) => self.bad_certificate(error),
            Error::AlertReceived(alert) => self.alert(*alert),
            Error::InvalidMessage(_) => TlsError::NotTls,
            other => TlsError::Protocol {
                text: other.to_string(),
            },
        })
    }

    fn bad_certificate(&self, error: &CertificateError) -> TlsError {
        match error {
            CertificateError::UnknownIssuer => TlsError::UnknownIssuer {
                trusted: self.trusted.clone(),
            },
            CertificateError::NotValidForName => self.wrong_host_name(&[]),
            CertificateError::NotValidForNameContext { presented, .. } => {
                self.wrong_host_name(presented)
            }
            CertificateError::Expired => TlsError::Expired { ago: None },
            CertificateError::ExpiredContext { time, not_after } => TlsError::Expired {
                ago: Some(between(*not_after, *time)),
            },
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                TlsError::NotYetValid
            }
            other => TlsError::BadCertificate {
                text: other.to_string(),
            },
        }
    }

    fn wrong_host_name(&self, presented: &[String]) -> TlsError {
        TlsError::WrongHostName {
            host: self.host.clone(),
            presented: presented.iter().map(|name| plain_name(name)).collect(),
        }
    }

    fn alert(&self, alert: AlertDescription) -> TlsError {
        use AlertDescription as A;
        let name = snake_case(&format!("{alert:?}"));
        // What a server says of a certificate can only be about the client's.
        match alert {
            A::BadCertificate
            | A::UnsupportedCertificate
            | A::CertificateRevoked
            | A::CertificateExpired
            | A::CertificateUnknown
            | A::CertificateRequired
            | A::UnknownCA
            | A::AccessDenied => TlsError::ClientCertificateRefused {
                alert: name,
                sent: self.has_identity,
            },
            _ => TlsError::Alert { alert: name },
        }
    }
}

fn between(from: UnixTime, to: UnixTime) -> Duration {
    Duration::from_secs(to.as_secs().saturating_sub(from.as_secs()))
}

/// `DnsName("a.example")` as the library prints it, without the wrapping.
fn plain_name(name: &str) -> String {
    let inner = name
        .split_once("(\"")
        .and_then(|(_, rest)| rest.strip_suffix("\")"));
    inner.unwrap_or(name).to_owned()
}

/// `CertificateRequired` → `certificate_required`.
fn snake_case(name: &str) -> String {
    let mut out = String::new();
    let mut after_lower = false;
    for character in name.chars() {
        if character.is_ascii_uppercase() && after_lower {
            out.push('_');
        }
        after_lower = character.is_ascii_lowercase();
        out.push(character.to_ascii_lowercase());
    }
    out
}

/// A TLS stream.
pub(super) struct TlsStream {
    inner: tokio_rustls::client::TlsStream<BoxStream>,
    party: Party,
}

impl TlsStream {
    pub(super) const fn new(
        inner: tokio_rustls::client::TlsStream<BoxStream>,
        party: Party,
    ) -> Self {
        Self { inner, party }
    }

    /// A write fails when the peer has gone. What it said before, an alert, is still to be read and
    /// tells more.
    fn write_error(&mut self, error: io::Error, context: &mut Context<'_>) -> io::Error {
        if is_end(error.kind()) {
            let mut scratch = [0; 1];
            let mut buffer = ReadBuf::new(&mut scratch);
            if let Poll::Ready(Err(last)) =
                Pin::new(&mut self.inner).poll_read(context, &mut buffer)
                && let Some(tls) = self.party.explain(&last)
            {
                return tls.into();
            }
        }
        self.party.stream_error(error)
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.inner).poll_read(context, buffer) {
            // The end without close_notify. Frames know their sizes, so that a cut is noticed.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Poll::Ready(Ok(()))
            }
            other => other.map_err(|error| this.party.stream_error(error)),
        }
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write(context, bytes);
        written.map_err(|error| this.write_error(error, context))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.inner).poll_flush(context);
        flushed.map_err(|error| this.write_error(error, context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.inner).poll_shutdown(context);
        shut.map_err(|error| this.party.stream_error(error))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write_vectored(context, slices);
        written.map_err(|error| this.write_error(error, context))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
