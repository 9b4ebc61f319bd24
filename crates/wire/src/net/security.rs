//! `security.protocol` and what belongs to it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use crate::net::address::Address;
use crate::net::connector::{ConnectFuture, Connector};
use crate::net::sasl::{Credentials, SaslError, SaslOptions};
use crate::net::tls::{TlsConnector, TlsError, TlsOptions};

/// How connections are secured (`security.protocol`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SecurityProtocol {
    /// Neither TLS nor SASL.
    #[default]
    Plaintext,
    /// TLS.
    Ssl,
    /// SASL without TLS: the server is not checked, and PLAIN and OAUTHBEARER show their secret to
    /// whoever listens.
    SaslPlaintext,
    /// SASL over TLS.
    SaslSsl,
}

impl SecurityProtocol {
    /// Whether connections use TLS.
    #[must_use]
    pub const fn has_tls(self) -> bool {
        matches!(self, Self::Ssl | Self::SaslSsl)
    }

    /// Whether clients authenticate with SASL.
    #[must_use]
    pub const fn has_sasl(self) -> bool {
        matches!(self, Self::SaslPlaintext | Self::SaslSsl)
    }
}

impl fmt::Display for SecurityProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plaintext => "PLAINTEXT",
            Self::Ssl => "SSL",
            Self::SaslPlaintext => "SASL_PLAINTEXT",
            Self::SaslSsl => "SASL_SSL",
        })
    }
}

impl FromStr for SecurityProtocol {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let all = [
            Self::Plaintext,
            Self::Ssl,
            Self::SaslPlaintext,
            Self::SaslSsl,
        ];
        all.into_iter()
            .find(|protocol| text.trim().eq_ignore_ascii_case(&protocol.to_string()))
            .ok_or_else(|| {
                KeyError::new(
                    PROTOCOL,
                    format!("is `{text}`, but must be PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
                )
            })
    }
}

/// A value that its key can't have. Shows no value that may be secret. The caller's fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{key}` {problem}")]
pub struct KeyError {
    /// The key.
    pub key: String,
    /// What is wrong, and what is legal.
    pub problem: String,
}

impl KeyError {
    pub(super) fn new(key: &str, problem: String) -> Self {
        Self {
            key: key.to_owned(),
            problem,
        }
    }
}

/// Keys that are legal one by one, and don't work together or with the files they name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SecurityError {
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// SASL.
    #[error(transparent)]
    Sasl(#[from] SaslError),
}

/// Kafka's security keys, set one by one in any order.
///
/// ```
/// use std::sync::Arc;
/// use sharegroup_wire::net::{ConnectionOptions, SecurityConfig, TcpConnector};
///
/// let mut security = SecurityConfig::default();
/// for (key, value) in [
///     ("security.protocol", "SASL_SSL"),
///     ("sasl.mechanism", "SCRAM-SHA-512"),
///     ("sasl.jaas.config", r#"ScramLoginModule required username="alice" password="hush";"#),
/// ] {
///     assert!(security.set(key, value).unwrap());
/// }
/// let connector = security.connector(Arc::new(TcpConnector::default()));
/// let options = ConnectionOptions { sasl: security.credentials().unwrap(), ..Default::default() };
/// assert!(!format!("{connector:?} {options:?} {security:?}").contains("hush"));
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct SecurityConfig {
    /// What is used of the rest.
    pub protocol: SecurityProtocol,
    /// `ssl.*`.
    pub tls: TlsOptions,
    /// `sasl.*`.
    pub sasl: SaslOptions,
}

const PROTOCOL: &str = "security.protocol";

impl SecurityConfig {
    /// Sets the value of one of Kafka's keys. `false` = not a key of security, nothing changed.
    ///
    /// # Errors
    /// [`KeyError`] when the value is not one of the key's.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, KeyError> {
        if key == PROTOCOL {
            self.protocol = value.parse()?;
            return Ok(true);
        }
        Ok(self.tls.set(key, value)? || self.sasl.set(key, value)?)
    }

    /// The keys that [`set`](Self::set) knows.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        [PROTOCOL]
            .into_iter()
            .chain(TlsOptions::KEYS.iter().copied())
            .chain(SaslOptions::keys())
    }

    /// Checks that the keys work together, and reads the files that they name.
    ///
    /// # Errors
    /// [`SecurityError`].
    pub fn check(&self) -> Result<(), SecurityError> {
        self.credentials()?;
        if self.protocol.has_tls() {
            self.tls.check()?;
        }
        Ok(())
    }

    /// What clients authenticate with; `None` where the protocol has no SASL.
    ///
    /// # Errors
    /// [`SaslError::Config`].
    pub fn credentials(&self) -> Result<Option<Credentials>, SaslError> {
        if self.protocol.has_sasl() {
            self.sasl.credentials().map(Some)
        } else {
            Ok(None)
        }
    }

    /// Secures the streams of a connector as the protocol says. Where the keys don't work together
    /// (see [`check`](Self::check)), each connection fails with the reason.
    #[must_use]
    pub fn connector(&self, inner: Arc<dyn Connector>) -> Arc<dyn Connector> {
        if let Err(error) = self.credentials() {
            Arc::new(Refusing(error))
        } else if self.protocol.has_tls() {
            Arc::new(TlsConnector::new(inner, self.tls.clone()))
        } else {
            inner
        }
    }
}

/// Opens nothing, since the client could not authenticate.
#[derive(Debug)]
struct Refusing(SaslError);

impl Connector for Refusing {
    fn connect<'a>(&'a self, _: &'a Address) -> ConnectFuture<'a> {
        let error = self.0.clone();
        Box::pin(async move { Err(error.into()) })
    }
}
