//! What TLS is configured with.

use std::path::PathBuf;

use rustls::SupportedCipherSuite;
use rustls::crypto::ring::ALL_CIPHER_SUITES;

use crate::net::secret::Secret;
use crate::net::security::KeyError;

/// Certificates, keys and checks of TLS connections. The names are those of Kafka's keys; the
/// default trusts what the system trusts, checks the host name and has no client certificate.
///
/// Files are read again for each connection, so that renewed certificates are taken up without a
/// restart.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsOptions {
    /// File with the authorities that are trusted (`ssl.truststore.location`), instead of the
    /// system's.
    pub truststore_location: Option<PathBuf>,
    /// Its type (`ssl.truststore.type`). Default: told by its contents.
    pub truststore_type: Option<StoreType>,
    /// Its password (`ssl.truststore.password`).
    pub truststore_password: Option<Secret>,
    /// The authorities themselves, in PEM (`ssl.truststore.certificates`).
    pub truststore_certificates: Option<String>,
    /// File with the client's key and certificates (`ssl.keystore.location`).
    pub keystore_location: Option<PathBuf>,
    /// Its type (`ssl.keystore.type`). Default: told by its contents.
    pub keystore_type: Option<StoreType>,
    /// Its password (`ssl.keystore.password`).
    pub keystore_password: Option<Secret>,
    /// The client's certificate, then those that lead to its authority, in PEM
    /// (`ssl.keystore.certificate.chain`).
    pub keystore_certificate_chain: Option<String>,
    /// The client's key in PEM (`ssl.keystore.key`).
    pub keystore_key: Option<Secret>,
    /// Password of the key (`ssl.key.password`). Default: the keystore's.
    pub key_password: Option<Secret>,
    /// Whether the server's certificate must be for the host that is connected to; off where
    /// `ssl.endpoint.identification.algorithm` is empty. Default on.
    pub verify_host_name: bool,
    /// The versions of TLS that are offered (`ssl.enabled.protocols`). Default both.
    pub enabled_protocols: Vec<TlsVersion>,
    /// The cipher suites that are offered, by the names that Java and IANA give them
    /// (`ssl.cipher.suites`). Those that are not spoken here are left out. Default all.
    pub cipher_suites: Option<Vec<String>>,
}

impl Default for TlsOptions {
    fn default() -> Self {
        Self {
            truststore_location: None,
            truststore_type: None,
            truststore_password: None,
            truststore_certificates: None,
            keystore_location: None,
            keystore_type: None,
            keystore_password: None,
            keystore_certificate_chain: None,
            keystore_key: None,
            key_password: None,
            verify_host_name: true,
            enabled_protocols: vec![TlsVersion::Tls12, TlsVersion::Tls13],
            cipher_suites: None,
        }
    }
}

/// How a truststore or keystore is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreType {
    /// Text blocks (RFC 7468).
    Pem,
    /// RFC 7292.
    Pkcs12,
    /// Java's own format, which is only recognized. Java reads PKCS12 under this name too, and so
    /// does this crate.
    Jks,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsVersion {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

impl TlsOptions {
    /// The keys that [`set`](Self::set) knows.
    pub const KEYS: &'static [&'static str] = &[
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.keystore.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.key.password",
        ALGORITHM,
        "ssl.enabled.protocols",
        "ssl.protocol",
        CIPHER_SUITES,
    ];

    /// Sets the value of one of Kafka's keys; an empty value takes it back. `false` = not one of
    /// [`KEYS`](Self::KEYS). `ssl.protocol` is checked and has no effect: what is offered is
    /// `ssl.enabled.protocols`.
    ///
    /// # Errors
    /// [`KeyError`] when the value is not one of the key's. Files are not looked at.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, KeyError> {
        let value = value.trim();
        let text = || Some(value.to_owned()).filter(|value| !value.is_empty());
        let path = || text().map(PathBuf::from);
        let secret = || text().map(Secret::from);
        match key {
            "ssl.truststore.location" => self.truststore_location = path(),
            "ssl.truststore.type" => self.truststore_type = store_type(key, value)?,
            "ssl.truststore.password" => self.truststore_password = secret(),
            "ssl.truststore.certificates" => self.truststore_certificates = text(),
            "ssl.keystore.location" => self.keystore_location = path(),
            "ssl.keystore.type" => self.keystore_type = store_type(key, value)?,
            "ssl.keystore.password" => self.keystore_password = secret(),
            "ssl.keystore.certificate.chain" => self.keystore_certificate_chain = text(),
            "ssl.keystore.key" => self.keystore_key = secret(),
            "ssl.key.password" => self.key_password = secret(),
            ALGORITHM => self.verify_host_name = verify_host_name(value)?,
            "ssl.enabled.protocols" => self.enabled_protocols = versions(key, value)?,
            CIPHER_SUITES => self.cipher_suites = cipher_suites(value)?,
            "ssl.protocol" if value == "TLS" => {}
            "ssl.protocol" => drop(versions(key, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

const CIPHER_SUITES: &str = "ssl.cipher.suites";

/// The name that Java and IANA give a cipher suite.
pub(super) fn suite_name(suite: SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1)
}

fn cipher_suites(value: &str) -> Result<Option<Vec<String>>, KeyError> {
    let names = value.split(',').map(str::trim).filter(|n| !n.is_empty());
    let names: Vec<String> = names.map(str::to_owned).collect();
    let known: Vec<_> = ALL_CIPHER_SUITES.iter().copied().map(suite_name).collect();
    if !names.is_empty() && !names.iter().any(|name| known.contains(name)) {
        let problem = format!("has none of the suites spoken here: {}", known.join(", "));
        return Err(KeyError::new(CIPHER_SUITES, problem));
    }
    Ok(Some(names).filter(|names| !names.is_empty()))
}

const ALGORITHM: &str = "ssl.endpoint.identification.algorithm";

fn store_type(key: &str, value: &str) -> Result<Option<StoreType>, KeyError> {
    match value.to_ascii_uppercase().as_str() {
        "" => Ok(None),
        "PEM" => Ok(Some(StoreType::Pem)),
        "PKCS12" => Ok(Some(StoreType::Pkcs12)),
        "JKS" => Ok(Some(StoreType::Jks)),
        _ => Err(KeyError::new(
            key,
            format!("is `{value}`, but must be PEM, PKCS12 or JKS"),
        )),
    }
}

fn verify_host_name(value: &str) -> Result<bool, KeyError> {
    match value.to_ascii_lowercase().as_str() {
        "" => Ok(false),
        "https" => Ok(true),
        _ => Err(KeyError::new(
            ALGORITHM,
            format!("is `{value}`, but must be https, or empty for no check of the host name"),
        )),
    }
}

fn versions(key: &str, value: &str) -> Result<Vec<TlsVersion>, KeyError> {
    let mut versions = Vec::new();
    for name in value.split(',').map(str::trim).filter(|n| !n.is_empty()) {
        match name {
            "TLSv1.2" => versions.push(TlsVersion::Tls12),
            "TLSv1.3" => versions.push(TlsVersion::Tls13),
            // In old configurations beside newer ones; never offered.
            "TLSv1" | "TLSv1.1" => {}
            _ => {
                return Err(KeyError::new(
                    key,
                    format!("has `{name}`, but must have TLSv1.2 or TLSv1.3"),
                ));
            }
        }
    }
    if versions.is_empty() {
        return Err(KeyError::new(
            key,
            "has neither TLSv1.2 nor TLSv1.3; nothing older is spoken".to_owned(),
        ));
    }
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_known_and_shows_no_secret() {
        let mut options = TlsOptions::default();
        for key in TlsOptions::KEYS {
            let value = match *key {
                "ssl.truststore.type" | "ssl.keystore.type" => "PEM",
                ALGORITHM => "https",
                "ssl.enabled.protocols" | "ssl.protocol" => "TLSv1.3",
                CIPHER_SUITES => "TLS_AES_128_GCM_SHA256",
                key if key.contains("password") || key.ends_with("key") => "hush",
                _ => "x",
            };
            assert_eq!(options.set(key, value), Ok(true), "{key}");
        }
        assert_eq!(options.set("ssl.unknown", "x"), Ok(false));
        assert!(!format!("{options:?}").contains("hush"));
    }

    #[test]
    fn cipher_suites_have_javas_names_and_one_at_least_is_spoken() {
        let mut options = TlsOptions::default();
        let list = "TLS_AES_256_GCM_SHA384, TLS_RSA_WITH_AES_128_CBC_SHA";
        options.set(CIPHER_SUITES, list).unwrap();
        let names = options.cipher_suites.clone().unwrap();
        assert_eq!(names.first().unwrap(), "TLS_AES_256_GCM_SHA384");
        let error = options.set(CIPHER_SUITES, "TLS_RSA_WITH_AES_128_CBC_SHA");
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
                && error.contains("TLS_CHACHA20_POLY1305_SHA256"),
            "{error}"
        );
        options.set(CIPHER_SUITES, "").unwrap();
        assert_eq!(options, TlsOptions::default());
    }

    #[test]
    fn the_host_name_check_goes_off_with_an_empty_algorithm_only() {
        let mut options = TlsOptions::default();
        assert!(options.verify_host_name);
        options.set(ALGORITHM, "").unwrap();
        assert!(!options.verify_host_name);
        let error = options.set(ALGORITHM, "none").unwrap_err().to_string();
        assert!(
            error.contains(ALGORITHM) && error.contains("empty"),
            "{error}"
        );
    }
}
