//! Opening TLS streams.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, ClientConnection, InconsistentKeys, RootCertStore, SupportedProtocolVersion,
};

use super::error::{StoreError, TlsError};
use super::options::{TlsOptions, TlsVersion, suite_name};
use super::store::{self, Files};
use super::stream::{FirstByte, Party, TlsStream};
use super::text::plain;
use super::verifier::{AnyHostName, OwnAuthority};
use crate::net::address::Address;
use crate::net::connector::{BoxStream, ConnectFuture, Connector};
use crate::net::probe::answers_plaintext;

/// Secures the streams of another connector.
///
/// The files of the options are read again for each connection; when they can't be used any more,
/// the ones used last stay in use and a warning says so. Sessions are resumed while the files stay
/// the same.
pub struct TlsConnector {
    inner: Arc<dyn Connector>,
    options: TlsOptions,
    /// Protocols above TLS that are offered (RFC 7301), the best first; none for Kafka.
    protocols: &'static [&'static [u8]],
    loaded: Mutex<Option<Loaded>>,
}

/// What became of the files.
#[derive(Clone)]
struct Loaded {
    files: Files,
    config: Arc<ClientConfig>,
    has_identity: bool,
}

impl TlsConnector {
    /// Over the streams of `inner`. The files are read at the first connection:
    /// [`TlsOptions::check`] reads them before.
    #[must_use]
    pub fn new(inner: Arc<dyn Connector>, options: TlsOptions) -> Self {
        if !options.verify_host_name {
            tracing::warn!(
                "The host names in TLS certificates are not checked (ssl.endpoint.identification.algorithm is empty): whoever has any certificate of a trusted authority can pose as a broker."
            );
        }
        Self {
            inner,
            options,
            protocols: &[],
            loaded: Mutex::default(),
        }
    }

    /// The same, with protocols above TLS to choose from (ALPN, RFC 7301), the best first: for peers that
    /// aren't brokers.
    #[must_use]
    pub const fn offering(mut self, protocols: &'static [&'static [u8]]) -> Self {
        self.protocols = protocols;
        self
    }

    /// Opens a stream as [`Connector::connect`]. Beside it: which of the [offered](Self::offering) protocols the
    /// peer has chosen, if it has chosen one.
    ///
    /// # Errors
    /// As [`Connector::connect`]; [`TlsError::of`] finds what TLS says of it.
    ///
    /// # Cancel safety
    /// A stream that isn't open yet is closed.
    pub async fn connect_choosing(
        &self,
        address: &Address,
    ) -> io::Result<(BoxStream, Option<Vec<u8>>)> {
        let (stream, party) = self.open_tls(address, &AtomicBool::new(false)).await?;
        let chosen = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        Ok((Box::new(TlsStream::new(stream, party)), chosen))
    }

    fn load(&self) -> Result<Loaded, TlsError> {
        let mut slot = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let files = store::read_files(&self.options);
        let loaded = match (files, &*slot) {
            (Ok(files), Some(loaded)) if loaded.files == files => Ok(loaded.clone()),
            (Ok(files), _) => load(&self.options, self.protocols, files),
            (Err(error), _) => Err(error.into()),
        };
        match (loaded, &*slot) {
            (Ok(loaded), _) => {
                *slot = Some(loaded.clone());
                Ok(loaded)
            }
            (Err(error), Some(last)) => {
                tracing::warn!(%error, "The changed TLS files cannot be used; those read before stay in use.");
                Ok(last.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    async fn open(&self, address: &Address, is_securing: &AtomicBool) -> io::Result<BoxStream> {
        let (stream, party) = self.open_tls(address, is_securing).await?;
        Ok(Box::new(TlsStream::new(stream, party)))
    }

    async fn open_tls(
        &self,
        address: &Address,
        is_securing: &AtomicBool,
    ) -> io::Result<(tokio_rustls::client::TlsStream<FirstByte>, Party)> {
        let loaded = self.load()?;
        let party = Party {
            host: address.host.clone(),
            trusted: store::trusted_name(&self.options),
            has_identity: loaded.has_identity,
        };
        let host = address.host.trim_end_matches('.');
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| TlsError::InvalidHostName {
                host: address.host.clone(),
            })?;
        let stream = self.inner.connect(address).await?;
        is_securing.store(true, Ordering::Relaxed);
        let connector = tokio_rustls::TlsConnector::from(loaded.config);
        let (stream, speaks_tls) = FirstByte::new(stream);
        match connector.connect(name, stream).await {
            Ok(stream) => Ok((stream, party)),
            Err(error) => Err(party.handshake_error(error, speaks_tls.load(Ordering::Relaxed))),
        }
    }

    /// As [`open`](Self::open). Where the peer ends the handshake without a word, it is asked whether
    /// it is a broker without TLS: that is certain then, and no try again will help.
    async fn open_to_broker(
        &self,
        address: &Address,
        is_securing: &AtomicBool,
    ) -> io::Result<BoxStream> {
        let opened = self.open(address, is_securing).await;
        if let Err(error) = &opened
            && TlsError::of(error) == Some(&TlsError::ClosedInHandshake)
            && answers_plaintext(&*self.inner, address).await
        {
            return Err(TlsError::PlaintextPort.into());
        }
        opened
    }
}

impl Connector for TlsConnector {
    fn connect<'a>(&'a self, address: &'a Address) -> ConnectFuture<'a> {
        Box::pin(async move { self.open(address, &AtomicBool::new(false)).await })
    }

    fn connect_to_broker<'a>(
        &'a self,
        address: &'a Address,
        is_securing: &'a AtomicBool,
    ) -> ConnectFuture<'a> {
        Box::pin(self.open_to_broker(address, is_securing))
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConnector")
            .field("inner", &self.inner)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl TlsOptions {
    /// Reads the files and tries everything in them, so that an error in the configuration shows
    /// before the first connection.
    ///
    /// # Errors
    /// [`TlsError::Store`], and [`TlsError::Protocol`] when the system's truststore can't be read.
    pub fn check(&self) -> Result<(), TlsError> {
        load(self, &[], store::read_files(self)?).map(drop)
    }
}

/// What a client says first; `None` for a host name that can't be in it.
pub(in crate::net) fn client_hello(host: &str) -> Option<Vec<u8>> {
    let name = ServerName::try_from(host.trim_end_matches('.').to_owned()).ok()?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), name).ok()?;
    let mut hello = Vec::new();
    client.write_tls(&mut hello).ok()?;
    Some(hello)
}

fn load(options: &TlsOptions, protocols: &[&[u8]], files: Files) -> Result<Loaded, TlsError> {
    let mut provider = rustls::crypto::ring::default_provider();
    if let Some(names) = &options.cipher_suites {
        let suites = &mut provider.cipher_suites;
        suites.retain(|suite| names.contains(&suite_name(*suite)));
    }
    let provider = Arc::new(provider);
    let verifier = verifier(options, &files, &provider)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(options))
        .map_err(protocol)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let identity = store::identity(options, &files)?;
    let has_identity = identity.is_some();
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder
            .with_client_auth_cert(identity.chain, identity.key)
            .map_err(|error| bad_identity(identity.place, &error))?,
    };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(Loaded {
        files,
        config: Arc::new(config),
        has_identity,
    })
}

fn verifier(
    options: &TlsOptions,
    files: &Files,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let verifier: Arc<dyn ServerCertVerifier> = match store::trusted(options, files)? {
        Some(certificates) => {
            let mut roots = RootCertStore::empty();
            for certificate in &certificates {
                roots
                    .add(certificate.clone())
                    .map_err(|error| StoreError::Malformed {
                        place: store::trusted_name(options),
                        what: format!("a certificate in it cannot be read: {}", plain(&error)),
                    })?;
            }
            let verifier =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                    .build()
                    .map_err(|error| TlsError::Protocol {
                        text: error.to_string(),
                    })?;
            Arc::new(OwnAuthority {
                inner: verifier,
                trusted: certificates,
            })
        }
        None if !options.verify_host_name
            && cfg!(any(windows, target_vendor = "apple", target_os = "android")) =>
        {
            // The verifiers of these systems tell one fault only, and that may be the name.
            return Err(StoreError::Keys {
                text: "an empty ssl.endpoint.identification.algorithm needs ssl.truststore.location or ssl.truststore.certificates on this system".to_owned(),
            }
            .into());
        }
        None => Arc::new(
            rustls_platform_verifier::Verifier::new(Arc::clone(provider)).map_err(|error| {
                TlsError::Protocol {
                    text: format!(
                        "the system's truststore cannot be used ({}); set ssl.truststore.location",
                        plain(&error)
                    ),
                }
            })?,
        ),
    };
    Ok(if options.verify_host_name {
        verifier
    } else {
        Arc::new(AnyHostName(verifier))
    })
}

fn versions(options: &TlsOptions) -> Vec<&'static SupportedProtocolVersion> {
    [
        (TlsVersion::Tls13, &rustls::version::TLS13),
        (TlsVersion::Tls12, &rustls::version::TLS12),
    ]
    .into_iter()
    .filter(|(version, _)| options.enabled_protocols.contains(version))
    .map(|(_, version)| version)
    .collect()
}

fn bad_identity(place: String, error: &rustls::Error) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            StoreError::KeyMismatch { place }
        }
        // Never more than the kind of fault: the text of the library is about the key's form.
        other => StoreError::Malformed {
            place,
            what: format!(
                "the private key or certificate cannot be used: {}",
                plain(other)
            ),
        },
    }
    .into()
}

fn protocol(error: rustls::Error) -> TlsError {
    TlsError::Protocol {
        text: plain(&error),
    }
}
