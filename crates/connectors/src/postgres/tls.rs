//! TLS as the connections to Kafka have it: the same checks, the same words.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use sharegroup_wire::net::tls::{TlsConnector, TlsOptions};
use sharegroup_wire::net::{Address, BoxStream, ConnectFuture, Connector, Secret, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

use super::url::{Target, Tls};

/// Secures the streams of the driver.
#[derive(Clone)]
pub(super) struct MakeTls {
    options: TlsOptions,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl MakeTls {
    pub(super) fn new(target: &Target) -> Self {
        let mut options = TlsOptions::default();
        options.verify_host_name = target.tls != Tls::VerifyAuthority;
        options
            .truststore_location
            .clone_from(&target.root_certificates);
        options.key_password = target.key_password.clone().map(Secret::from);
        Self {
            options,
            certificate: target.certificate.clone(),
            key: target.key.clone(),
        }
    }

    /// The files are read for each connection, so that renewed ones are taken up.
    fn options(&self) -> io::Result<TlsOptions> {
        let mut options = self.options.clone();
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })
        };
        options.keystore_certificate_chain = self.certificate.as_ref().map(read).transpose()?;
        options.keystore_key = self.key.as_ref().map(read).transpose()?.map(Secret::from);
        Ok(options)
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> MakeTlsConnect<S> for MakeTls {
    type Stream = Secured;
    type TlsConnect = Securing;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Securing> {
        let options = self.options()?;
        let host = host.to_owned();
        Ok(Securing { options, host })
    }
}

/// Secures one stream.
pub(super) struct Securing {
    options: TlsOptions,
    host: String,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> TlsConnect<S> for Securing {
    type Stream = Secured;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Secured>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let open = Arc::new(OpenStream(Mutex::new(Some(Box::new(stream)))));
            let connector = TlsConnector::new(open, self.options);
            let secured = connector.connect(&Address::new(self.host, 0)).await?;
            Ok(Secured(secured))
        })
    }
}

/// A stream that is open already, given out once.
struct OpenStream(Mutex<Option<BoxStream>>);

impl fmt::Debug for OpenStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenStream")
    }
}

impl Connector for OpenStream {
    fn connect<'a>(&'a self, _: &'a Address) -> ConnectFuture<'a> {
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = stream
            .take()
            .ok_or_else(|| io::Error::other("the stream was taken"));
        Box::pin(async move { stream })
    }
}

/// A stream under TLS.
pub(super) struct Secured(Box<dyn Stream>);

impl TlsStream for Secured {
    /// SCRAM goes without: the certificate is checked.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Secured {
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
