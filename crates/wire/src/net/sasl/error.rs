//! What goes wrong with SASL.

use thiserror::Error;

use crate::error::DecodeError;
use crate::error_code::ErrorCode;
use crate::net::tls::TlsError;

/// Why a client could not authenticate. No variant holds a secret.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SaslError {
    /// The configuration. The caller's fault.
    #[error("{text}")]
    Config {
        /// Which key, what is wrong, what to write.
        text: String,
    },
    /// The token can't be had: a file that can't be read, or what a token source says.
    #[error("no token for OAUTHBEARER: {text}")]
    Token {
        /// Why.
        text: String,
    },
    /// The token endpoint refused the client, or can't serve it: see `status`.
    #[error(
        "no token for OAUTHBEARER: {endpoint} answered with HTTP {status}{}",
        .message.as_ref().map_or_else(String::new, |message| format!(": {message}"))
    )]
    TokenRefused {
        /// The endpoint.
        endpoint: String,
        /// The status of HTTP; 400 or 401 for a wrong client id or secret.
        status: u16,
        /// What it says (RFC 6749, section 5.2), with our secret taken out.
        message: Option<String>,
    },
    /// The connection to the token endpoint could not be secured.
    #[error(
        "no token for OAUTHBEARER: no secure connection to {endpoint}: {source}; the ssl.* keys for this connection are options in sasl.jaas.config"
    )]
    TokenTls {
        /// The endpoint.
        endpoint: String,
        /// Why.
        r#source: Box<TlsError>,
    },
    /// The broker's port is one without SASL.
    #[error(
        "the broker does not ask for SASL on this port: use a SASL listener, or turn SASL off (security.protocol)"
    )]
    NotSasl,
    /// The broker's port is one with SASL, and this client has none
    /// ([`CallError::explain`](crate::net::CallError::explain) finds that out).
    #[error(
        "the broker asks for SASL on this port ({}): turn SASL on (security.protocol, sasl.mechanism), or use a listener without SASL",
        enabled_names(.enabled)
    )]
    Required {
        /// The mechanisms that are turned on.
        enabled: Vec<String>,
    },
    /// The broker knows no version of the SASL requests that is spoken here.
    #[error("the broker has no usable version of {api}")]
    Unsupported {
        /// The API's name.
        api: &'static str,
    },
    /// The broker has turned this mechanism off.
    #[error(
        "the broker does not take {mechanism}, {} (sasl.mechanism)",
        enabled_names(.enabled)
    )]
    MechanismNotEnabled {
        /// The mechanism asked for.
        mechanism: &'static str,
        /// The mechanisms that are turned on.
        enabled: Vec<String>,
    },
    /// The broker refused the credentials, or something else: see `code`.
    #[error(
        "{mechanism} authentication failed: {code}: {}{}",
        .message.as_deref().unwrap_or(.code.sentence()),
        .hint.map_or_else(String::new, |hint| format!("; {hint}"))
    )]
    Refused {
        /// The mechanism.
        mechanism: &'static str,
        /// The broker's code; SASL_AUTHENTICATION_FAILED for wrong credentials.
        code: ErrorCode,
        /// Its text, with our secrets taken out.
        message: Option<String>,
        /// What else may be the cause.
        hint: Option<&'static str>,
    },
    /// The server's nonce does not begin with ours and go on: the answer belongs to somebody else.
    #[error("{mechanism}: the server's nonce does not continue the client's")]
    ForeignNonce {
        /// The mechanism.
        mechanism: &'static str,
    },
    /// A number of iterations that is too small to protect the password or too large to compute.
    #[error(
        "{mechanism}: the server asks for {received} iterations, allowed are {min} to {max} (limits::SCRAM_ITERATIONS_MIN, SCRAM_ITERATIONS_MAX)"
    )]
    Iterations {
        /// The mechanism.
        mechanism: &'static str,
        /// What the server asks for, as it wrote it.
        received: String,
        /// [`SCRAM_ITERATIONS_MIN`](crate::limits::SCRAM_ITERATIONS_MIN).
        min: u32,
        /// [`SCRAM_ITERATIONS_MAX`](crate::limits::SCRAM_ITERATIONS_MAX).
        max: u32,
    },
    /// The server's signature is wrong: it doesn't know the password's verifier, so it is not the
    /// broker it claims to be.
    #[error("{mechanism}: the server's signature is wrong, it does not know the password either")]
    WrongServerSignature {
        /// The mechanism.
        mechanism: &'static str,
    },
    /// A message that the mechanism doesn't know.
    #[error("{mechanism}: illegal message of the server: {what}")]
    PeerMisbehaved {
        /// The mechanism.
        mechanism: &'static str,
        /// What is wrong.
        what: &'static str,
    },
    /// An answer that can't be decoded.
    #[error("answer to {api} cannot be decoded: {source}")]
    Decode {
        /// The API's name.
        api: &'static str,
        /// What is wrong.
        r#source: DecodeError,
    },
    /// The connection ended before the broker said yes or no.
    #[error("the connection ended during authentication: {reason}")]
    Closed {
        /// Why it ended.
        reason: String,
    },
}

impl SaslError {
    /// Whether trying again later with the same credentials may help.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        match self {
            Self::Refused { code, .. } => code.is_retriable(),
            Self::Closed { .. } | Self::Token { .. } => true,
            Self::TokenRefused { status, .. } => matches!(status, 408 | 425 | 429 | 500..=599),
            Self::TokenTls { source, .. } => source.is_retriable(),
            _ => false,
        }
    }
}

fn enabled_names(enabled: &[String]) -> String {
    match enabled {
        [] => "it takes none".to_owned(),
        names => format!("it takes {}", names.join(", ")),
    }
}

impl From<SaslError> for std::io::Error {
    fn from(error: SaslError) -> Self {
        Self::new(std::io::ErrorKind::InvalidInput, error)
    }
}
