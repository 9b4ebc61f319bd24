//! What goes wrong with TLS, told apart by who has to do something about it.

use std::io;
use std::time::Duration;

use thiserror::Error;

/// Why a connection could not be secured, or was refused for its certificates.
///
/// Travels inside the `io::Error` of a stream; [`ConnectError::Tls`](crate::net::ConnectError::Tls)
/// and [`CloseReason::Tls`](crate::net::CloseReason::Tls) hold it unwrapped.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The configuration: a file or text with certificates or keys. The caller's fault.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nobody who is trusted has signed the server's certificate.
    #[error(
        "unknown issuer: the server's certificate is signed by no authority in {trusted} (ssl.truststore.location)"
    )]
    UnknownIssuer {
        /// Which authorities were looked at: a file, the inline ones, or those of the system.
        trusted: String,
    },
    /// The server's certificate is for others.
    #[error(
        "the server's certificate is not for {host}, but for {}; only an empty ssl.endpoint.identification.algorithm turns this check off",
        names(.presented)
    )]
    WrongHostName {
        /// The host name or address that was connected to.
        host: String,
        /// The names in the certificate (`subjectAltName`; its CN doesn't count).
        presented: Vec<String>,
    },
    /// The server's certificate has run out.
    #[error("the server's certificate has expired{}", .ago.map_or_else(String::new, |ago| format!(" {} ago", age(ago))))]
    Expired {
        /// Since when, where that is known. Precise to the second.
        ago: Option<Duration>,
    },
    /// The server's certificate is not valid yet: also a sign of a wrong clock on this side.
    #[error("the server's certificate is not valid yet; check this machine's clock")]
    NotYetValid,
    /// Something else is wrong with the server's certificate.
    #[error("the server's certificate cannot be accepted: {text}")]
    BadCertificate {
        /// What is wrong.
        text: String,
    },
    /// The server refused our certificate, or the lack of one. In TLS 1.3 this comes after the
    /// handshake, with the first read.
    #[error(
        "the server refused {} (TLS alert {alert}); see ssl.keystore.location",
        if *.sent { "the client certificate" } else { "the connection without a client certificate" }
    )]
    ClientCertificateRefused {
        /// The alert's name in RFC 8446.
        alert: String,
        /// Whether a client certificate is configured.
        sent: bool,
    },
    /// The server ended the connection with another alert.
    #[error("the server ended the connection with the TLS alert {alert}")]
    Alert {
        /// The alert's name in RFC 8446.
        alert: String,
    },
    /// What the peer sent is not TLS.
    #[error(
        "the peer does not answer in TLS: its port is probably a plaintext one; use a TLS port or turn TLS off (security.protocol)"
    )]
    NotTls,
    /// The peer ended the connection before the handshake was done, as a plaintext port does;
    /// a broker that is stopping, too.
    #[error(
        "the peer ended the connection during the TLS handshake: is its port a plaintext one? Then use a TLS port or turn TLS off (security.protocol)"
    )]
    ClosedInHandshake,
    /// The peer answered in TLS and then ended the connection before the handshake was done.
    #[error("the peer ended the connection in the middle of the TLS handshake")]
    LostInHandshake,
    /// The peer ended the connection during the handshake, and a Kafka broker answers there in
    /// plaintext.
    #[error(
        "the broker's port is a plaintext one: use a TLS port, or turn TLS off (security.protocol)"
    )]
    PlaintextPort,
    /// A host name that no certificate can be for.
    #[error("`{host}` is not a host name that a certificate can be checked against")]
    InvalidHostName {
        /// The host name.
        host: String,
    },
    /// Both sides speak TLS, but can't agree, or one broke its rules.
    #[error("TLS: {text}")]
    Protocol {
        /// What is wrong.
        text: String,
    },
}

impl TlsError {
    /// Whether trying again later may help: only where the cause may pass by itself.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        matches!(
            self,
            Self::ClosedInHandshake | Self::LostInHandshake | Self::Protocol { .. }
        )
    }

    /// The error inside an I/O error of a stream, if it is one of TLS.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        let kind = match error {
            TlsError::Store(_) | TlsError::InvalidHostName { .. } => io::ErrorKind::InvalidInput,
            TlsError::ClosedInHandshake | TlsError::LostInHandshake => io::ErrorKind::UnexpectedEof,
            _ => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}

/// What is wrong with a truststore or keystore. The caller's fault. `place` names the key and, where
/// there is one, the file; passwords and keys are never shown.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file can't be read.
    #[error("{place}: {text}")]
    Read {
        /// The key and its file.
        place: String,
        /// Kind of the operating system's error.
        kind: io::ErrorKind,
        /// Its text.
        text: String,
    },
    /// No certificate in there.
    #[error("{place}: no certificate found")]
    NoCertificate {
        /// The key and its file.
        place: String,
    },
    /// No private key in there.
    #[error("{place}: no private key found")]
    NoKey {
        /// The key and its file.
        place: String,
    },
    /// More than one private key: it is not said which is meant.
    #[error("{place}: {count} private keys found where one is wanted")]
    SeveralKeys {
        /// The key and its file.
        place: String,
        /// How many.
        count: usize,
    },
    /// The contents are damaged.
    #[error("{place}: {what}")]
    Malformed {
        /// The key and its file.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// The contents are of another type than said.
    #[error("{place}: the type is said to be PEM, but there is no -----BEGIN in it{}", if *.der { "; for a certificate in DER: openssl x509 -inform der -in CERTIFICATE -out CERTIFICATE.pem" } else { "" })]
    NotPem {
        /// The key and its file.
        place: String,
        /// Whether it looks like DER.
        der: bool,
    },
    /// Java's old format.
    #[error(
        "{place}: a JKS store, which only Java can read; convert it: keytool -importkeystore -srckeystore {file} -destkeystore {file}.p12 -deststoretype PKCS12"
    )]
    Jks {
        /// The key and its file.
        place: String,
        /// The file.
        file: String,
    },
    /// A PKCS12 store with ciphers that aren't spoken here, such as RC2 and 3DES.
    #[error(
        "{place}: encrypted with {cipher}, only PBES2 with AES is read; convert it: openssl pkcs12 -legacy -nodes -in {file} -out {file}.pem, and set the type to PEM"
    )]
    Pkcs12Cipher {
        /// The key and its file.
        place: String,
        /// The file.
        file: String,
        /// The cipher or its object identifier.
        cipher: String,
    },
    /// A private key with an encryption that isn't spoken here.
    #[error(
        "{place}: the private key is encrypted with {cipher}, only PBES2 with AES is read; convert it: openssl pkcs8 -topk8 -v2 aes256 -in KEY -out KEY.pem"
    )]
    KeyCipher {
        /// The key and its file.
        place: String,
        /// The cipher or its object identifier.
        cipher: String,
    },
    /// The contents are encrypted and no password is configured.
    #[error("{place}: encrypted, and {key} is not set")]
    PasswordMissing {
        /// The key and its file.
        place: String,
        /// The key that sets the password.
        key: &'static str,
    },
    /// The password doesn't fit.
    #[error("{place}: {key} is not the password")]
    WrongPassword {
        /// The key and its file.
        place: String,
        /// The key that sets the password.
        key: &'static str,
    },
    /// The certificate is for another private key.
    #[error("{place}: the private key is not the certificate's")]
    KeyMismatch {
        /// The key and its file.
        place: String,
    },
    /// Keys that don't go together, or one without the other.
    #[error("{text}")]
    Keys {
        /// Which, and what to do.
        text: String,
    },
}

fn names(presented: &[String]) -> String {
    if presented.is_empty() {
        "nobody (it has no subjectAltName)".to_owned()
    } else {
        presented.join(", ")
    }
}

fn age(ago: Duration) -> String {
    const DAY: u64 = 24 * 60 * 60;
    match ago.as_secs() {
        seconds if seconds >= 2 * DAY => format!("{} days", seconds / DAY),
        seconds if seconds >= 2 * 3600 => format!("{} hours", seconds / 3600),
        seconds => format!("{} minutes", seconds / 60),
    }
}
