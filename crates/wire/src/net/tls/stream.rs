//! A TLS stream whose errors say what went wrong.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::error::TlsError;
use super::text::{alert_name, certificate, plain};
use crate::net::connector::BoxStream;
use crate::net::error::is_end;
use crate::text::visible;

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
    /// An error of the handshake with a peer that has, or hasn't, answered in TLS.
    pub(super) fn handshake_error(&self, error: io::Error, speaks_tls: bool) -> io::Error {
        match self.explain(&error) {
            Some(tls) => tls.into(),
            None if is_end(error.kind()) && speaks_tls => TlsError::LostInHandshake.into(),
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
            other => TlsError::Protocol { text: plain(other) },
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
                text: certificate(other),
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
        // What a server says of a certificate can only be about the client's. Of a certificate that
        // isn't there it says `certificate_required` in TLS 1.3, and Java's and Go's `bad_certificate` in
        // TLS 1.2; the others (RFC 8446, section 6.2) speak of one that they have seen.
        let is_about_certificate = match alert {
            A::BadCertificate | A::CertificateRequired => true,
            A::UnsupportedCertificate
            | A::CertificateRevoked
            | A::CertificateExpired
            | A::CertificateUnknown
            | A::UnknownCA
            | A::AccessDenied => self.has_identity,
            _ => false,
        };
        let (alert, sent) = (alert_name(alert), self.has_identity);
        if is_about_certificate {
            TlsError::ClientCertificateRefused { alert, sent }
        } else {
            TlsError::Alert { alert }
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
    visible(inner.unwrap_or(name))
}

/// A stream that notes whether TLS came in: its first byte tells (RFC 8446, section 5.1).
pub(super) struct FirstByte {
    inner: BoxStream,
    is_unread: bool,
    is_tls: Arc<AtomicBool>,
}

impl FirstByte {
    pub(super) fn new(inner: BoxStream) -> (Self, Arc<AtomicBool>) {
        let is_tls = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&is_tls);
        (
            Self {
                inner,
                is_unread: true,
                is_tls,
            },
            noted,
        )
    }
}

impl AsyncRead for FirstByte {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let start = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if self.is_unread
            && let Some(content_type) = buffer.filled().get(start)
        {
            self.is_unread = false;
            let is_tls = matches!(content_type, 20..=24);
            self.is_tls.store(is_tls, Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for FirstByte {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

/// A TLS stream.
pub(super) struct TlsStream {
    inner: tokio_rustls::client::TlsStream<FirstByte>,
    party: Party,
}

impl TlsStream {
    pub(super) const fn new(
        inner: tokio_rustls::client::TlsStream<FirstByte>,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn party(has_identity: bool) -> Party {
        Party {
            host: "broker".to_owned(),
            trusted: "ca.pem".to_owned(),
            has_identity,
        }
    }

    #[test]
    fn an_alert_is_about_the_missing_certificate_only_where_it_means_that() {
        let about = |code: u8, has_identity| {
            let error = party(has_identity).alert(AlertDescription::from(code));
            matches!(error, TlsError::ClientCertificateRefused { sent, .. } if sent == has_identity)
        };
        let codes = |has_identity| {
            (0..=255)
                .filter(|code| about(*code, has_identity))
                .collect::<Vec<u8>>()
        };
        assert_eq!(codes(false), [42, 116]);
        assert_eq!(codes(true), [42, 43, 44, 45, 46, 48, 49, 116]);
        let text = party(false)
            .alert(AlertDescription::AccessDenied)
            .to_string();
        assert!(text.contains("TLS alert access_denied"), "{text}");
    }

    #[test]
    fn names_in_a_certificate_cannot_move_a_terminals_cursor() {
        let presented = [
            "DnsName(\"a\u{1b}[2J.example\")".to_owned(),
            "b\u{202e}\u{200b}".to_owned(),
        ];
        let error = party(false).wrong_host_name(&presented);
        assert!(
            error.to_string().contains("for a[2J.example, b;"),
            "{error}"
        );
    }
}
