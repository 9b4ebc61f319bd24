//! Who the client is, and how it proves it.

use std::sync::Arc;

use super::error::SaslError;
use super::oauth::TokenSource;
use crate::net::secret::Secret;

/// A mechanism with what it needs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Credentials {
    /// PLAIN (RFC 4616): the password itself, which needs TLS below.
    Plain {
        /// The user.
        username: String,
        /// Its password.
        password: Secret,
    },
    /// SCRAM (RFC 5802, RFC 7677): both sides prove that they know the password.
    Scram {
        /// The hash.
        algorithm: ScramAlgorithm,
        /// The user.
        username: String,
        /// Its password.
        password: Secret,
        /// Whether they are the id and the HMAC of a delegation token (KIP-48).
        is_delegation_token: bool,
    },
    /// OAUTHBEARER (RFC 7628): a token that somebody else has issued.
    OauthBearer {
        /// Where tokens come from.
        source: Arc<dyn TokenSource>,
        /// SASL extensions (KIP-342), as names and values.
        extensions: Vec<(String, String)>,
    },
}

/// The hash of SCRAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScramAlgorithm {
    /// SCRAM-SHA-256.
    Sha256,
    /// SCRAM-SHA-512.
    Sha512,
}

impl Credentials {
    /// The mechanism's name.
    #[must_use]
    pub const fn mechanism(&self) -> &'static str {
        match self {
            Self::Plain { .. } => "PLAIN",
            Self::Scram { algorithm, .. } => algorithm.mechanism(),
            Self::OauthBearer { .. } => "OAUTHBEARER",
        }
    }
}

impl Credentials {
    /// Gets ready what may take a while, so that [`TokenSource::token`] answers at once afterwards.
    pub(in crate::net) async fn prepare(&self) -> Result<(), SaslError> {
        match self {
            Self::OauthBearer { source, .. } => source.token().await.map(drop),
            Self::Plain { .. } | Self::Scram { .. } => Ok(()),
        }
    }
}

impl ScramAlgorithm {
    /// The mechanism's name.
    #[must_use]
    pub const fn mechanism(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }
}

/// Token sources are the same when they are one object.
impl PartialEq for Credentials {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Plain { username, password },
                Self::Plain {
                    username: other_username,
                    password: other_password,
                },
            ) => username == other_username && password == other_password,
            (
                Self::Scram {
                    algorithm,
                    username,
                    password,
                    is_delegation_token,
                },
                Self::Scram {
                    algorithm: other_algorithm,
                    username: other_username,
                    password: other_password,
                    is_delegation_token: other_is_token,
                },
            ) => {
                algorithm == other_algorithm
                    && username == other_username
                    && password == other_password
                    && is_delegation_token == other_is_token
            }
            (
                Self::OauthBearer { source, extensions },
                Self::OauthBearer {
                    source: other_source,
                    extensions: other_extensions,
                },
            ) => Arc::ptr_eq(source, other_source) && extensions == other_extensions,
            _ => false,
        }
    }
}

impl Eq for Credentials {}
