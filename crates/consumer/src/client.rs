//! What every client of a cluster is configured with.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tls")]
use sharegroup_wire::net::SecurityConfig;
use sharegroup_wire::net::{Address, ConnectionOptions, Connector, TcpConnector};

use crate::backoff::{Backoff, Jitter};
use crate::error::ConfigError;

/// Servers, time limits and pauses of a client; the same for consumer, producer and admin.
///
/// Defaults and key names are those of Kafka's Java clients.
///
/// ```
/// use sharegroup_consumer::client::ClientConfig;
///
/// let mut config = ClientConfig::new("localhost:9092").unwrap();
/// assert!(config.set("request.timeout.ms", "5000").unwrap());
/// assert!(!config.set("no.client.key", "1").unwrap());
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// First contacts (`bootstrap.servers`), never empty.
    pub bootstrap_servers: Vec<Address>,
    /// How host names become addresses (`client.dns.lookup`). Default all addresses of each name.
    pub dns_lookup: DnsLookup,
    /// Name of the client for the broker's logs and quotas (`client.id`). Default none.
    pub client_id: Option<String>,
    /// How streams are opened, below TLS. Default TCP.
    pub connector: Arc<dyn Connector>,
    /// Time for one request and its answer (`request.timeout.ms`). Default 30 s.
    pub request_timeout: Duration,
    /// Time for one operation with all its retries (`default.api.timeout.ms`). Default 60 s.
    pub default_api_timeout: Duration,
    /// Pause after a first failed try (`retry.backoff.ms`); it doubles with each one. Default 100 ms.
    pub retry_backoff: Duration,
    /// Longest such pause (`retry.backoff.max.ms`). Default 1 s.
    pub retry_backoff_max: Duration,
    /// Pause before a broker is connected to again (`reconnect.backoff.ms`). Default 50 ms.
    pub reconnect_backoff: Duration,
    /// Longest such pause (`reconnect.backoff.max.ms`). Default 1 s.
    pub reconnect_backoff_max: Duration,
    /// Time to open a connection (`socket.connection.setup.timeout.ms`); it doubles with each failed
    /// try at a broker. Default 10 s.
    pub connection_setup_timeout: Duration,
    /// Longest such time (`socket.connection.setup.timeout.max.ms`). Default 30 s.
    pub connection_setup_timeout_max: Duration,
    /// Time without a request after which a connection for metadata, coordinators and admin work is
    /// closed (`connections.max.idle.ms`); `None` = never. Those of share sessions stay open: closing
    /// one would give back what it holds. Default 9 min.
    pub connections_max_idle: Option<Duration>,
    /// Age at which metadata is asked for again (`metadata.max.age.ms`). Default 5 min.
    pub metadata_max_age: Duration,
    /// What to do when the brokers of the last metadata can't be reached any more
    /// (`metadata.recovery.strategy`). Default start again from the bootstrap servers.
    pub metadata_recovery: MetadataRecovery,
    /// Time without metadata after which known brokers are forgotten though they can be connected to
    /// (`metadata.recovery.rebootstrap.trigger.ms`, KIP-1102). Default 5 min.
    pub metadata_rebootstrap_trigger: Duration,
    /// Seed of the spread of pauses. Default random.
    pub seed: u64,
    /// TLS and SASL (`security.protocol`, `ssl.*`, `sasl.*`). Default neither.
    #[cfg(feature = "tls")]
    pub security: SecurityConfig,
}

impl ClientConfig {
    /// Of a list of servers: `host:port[,host:port…]`.
    ///
    /// # Errors
    /// [`ConfigError::Address`].
    pub fn new(bootstrap_servers: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            bootstrap_servers: servers(bootstrap_servers)?,
            dns_lookup: DnsLookup::default(),
            client_id: None,
            connector: Arc::new(TcpConnector::default()),
            request_timeout: Duration::from_secs(30),
            default_api_timeout: Duration::from_secs(60),
            retry_backoff: Duration::from_millis(100),
            retry_backoff_max: Duration::from_secs(1),
            reconnect_backoff: Duration::from_millis(50),
            reconnect_backoff_max: Duration::from_secs(1),
            connection_setup_timeout: Duration::from_secs(10),
            connection_setup_timeout_max: Duration::from_secs(30),
            connections_max_idle: Some(Duration::from_secs(540)),
            metadata_max_age: Duration::from_secs(300),
            metadata_recovery: MetadataRecovery::default(),
            metadata_rebootstrap_trigger: Duration::from_secs(300),
            seed: Jitter::random_seed(),
            #[cfg(feature = "tls")]
            security: SecurityConfig::default(),
        })
    }

    /// Sets the value of one of Kafka's keys. `false` = not a client key, nothing changed.
    ///
    /// # Errors
    /// [`ConfigError`] when the value is not one of the key's; [`ConfigError::NoTls`] for a
    /// `security.protocol` other than PLAINTEXT in a build without the feature `tls`.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, ConfigError> {
        if self.set_security(key, value)? {
            return Ok(true);
        }
        let slot = match key {
            BOOTSTRAP_SERVERS => {
                self.bootstrap_servers = servers(value)?;
                return Ok(true);
            }
            DNS_LOOKUP => {
                self.dns_lookup = value.parse()?;
                return Ok(true);
            }
            METADATA_RECOVERY => {
                self.metadata_recovery = value.parse()?;
                return Ok(true);
            }
            "client.id" => {
                self.client_id = Some(value.trim().to_owned()).filter(|id| !id.is_empty());
                return Ok(true);
            }
            "connections.max.idle.ms" => {
                self.connections_max_idle = match value.trim() {
                    "-1" => None,
                    _ => Some(milliseconds(key, value)?),
                };
                return Ok(true);
            }
            "request.timeout.ms" => &mut self.request_timeout,
            "default.api.timeout.ms" => &mut self.default_api_timeout,
            "retry.backoff.ms" => &mut self.retry_backoff,
            "retry.backoff.max.ms" => &mut self.retry_backoff_max,
            "reconnect.backoff.ms" => &mut self.reconnect_backoff,
            "reconnect.backoff.max.ms" => &mut self.reconnect_backoff_max,
            "socket.connection.setup.timeout.ms" => &mut self.connection_setup_timeout,
            "socket.connection.setup.timeout.max.ms" => &mut self.connection_setup_timeout_max,
            "metadata.max.age.ms" => &mut self.metadata_max_age,
            "metadata.recovery.rebootstrap.trigger.ms" => &mut self.metadata_rebootstrap_trigger,
            _ => return Ok(false),
        };
        *slot = milliseconds(key, value)?;
        Ok(true)
    }

    #[cfg(feature = "tls")]
    fn set_security(&mut self, key: &str, value: &str) -> Result<bool, ConfigError> {
        Ok(self.security.set(key, value)?)
    }

    /// Without TLS and SASL their keys have no effect, as with PLAINTEXT in a build that has them.
    #[cfg(not(feature = "tls"))]
    #[expect(
        clippy::unused_self,
        clippy::needless_pass_by_ref_mut,
        reason = "the same call in both builds"
    )]
    fn set_security(&mut self, key: &str, value: &str) -> Result<bool, ConfigError> {
        if key == "security.protocol" && !value.trim().eq_ignore_ascii_case("PLAINTEXT") {
            return Err(ConfigError::NoTls {
                protocol: value.trim().to_owned(),
            });
        }
        Ok(key == "security.protocol" || key.starts_with("ssl.") || key.starts_with("sasl."))
    }

    /// Checks that the keys of TLS and SASL work together, and reads the files that they name. What
    /// is wrong with them shows as an error of each connection otherwise.
    ///
    /// # Errors
    /// `ConfigError::Security`, which exists with the feature `tls` only.
    pub fn check(&self) -> Result<(), ConfigError> {
        #[cfg(feature = "tls")]
        self.security.check()?;
        Ok(())
    }

    /// The keys that [`set`](Self::set) knows; those of TLS and SASL with the feature `tls` only,
    /// since they have no effect without.
    #[must_use]
    pub const fn keys() -> &'static [&'static str] {
        KEYS
    }

    /// With a connector that does what the security keys say.
    pub(crate) fn secured(self) -> Self {
        #[cfg(feature = "tls")]
        let connector = self.security.connector(self.connector);
        #[cfg(not(feature = "tls"))]
        let connector = self.connector;
        Self { connector, ..self }
    }

    pub(crate) fn connection_options(&self) -> ConnectionOptions {
        ConnectionOptions {
            client_id: self.client_id.clone(),
            request_timeout: self.request_timeout,
            setup_timeout: self.connection_setup_timeout,
            // Where they can't be made of the keys, the connector refuses with the reason.
            #[cfg(feature = "tls")]
            sasl: self.security.credentials().ok().flatten(),
            ..ConnectionOptions::default()
        }
    }

    pub(crate) const fn retry_backoff(&self) -> Backoff {
        Backoff {
            first: self.retry_backoff,
            max: self.retry_backoff_max,
        }
    }

    /// The time to open a connection, as it grows with failures.
    pub(crate) const fn setup_timeout(&self) -> Backoff {
        Backoff {
            first: self.connection_setup_timeout,
            max: self.connection_setup_timeout_max,
        }
    }

    pub(crate) const fn reconnect_backoff(&self) -> Backoff {
        Backoff {
            first: self.reconnect_backoff,
            max: self.reconnect_backoff_max,
        }
    }
}

/// How host names become addresses (`client.dns.lookup`). They are looked up at each connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DnsLookup {
    /// All addresses of a name are tried in turn.
    #[default]
    UseAllDnsIps,
    /// Also, each bootstrap server is replaced by the names of its addresses: for an alias whose
    /// servers have certificates for their own names.
    ResolveCanonicalBootstrapServersOnly,
}

impl FromStr for DnsLookup {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match text.trim() {
            // `default` is its name in Kafka before 3.0.
            "use_all_dns_ips" | "default" => Ok(Self::UseAllDnsIps),
            "resolve_canonical_bootstrap_servers_only" => {
                Ok(Self::ResolveCanonicalBootstrapServersOnly)
            }
            _ => Err(ConfigError::InvalidValue {
                key: DNS_LOOKUP.to_owned(),
                value: text.to_owned(),
                expected: "use_all_dns_ips or resolve_canonical_bootstrap_servers_only",
            }),
        }
    }
}

/// What a client does when none of the brokers that it knows can be reached
/// (`metadata.recovery.strategy`, KIP-899).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetadataRecovery {
    /// It starts again from the bootstrap servers. Also where a broker tells it to
    /// (REBOOTSTRAP_REQUIRED), and where no metadata came for `metadata.recovery.rebootstrap.trigger.ms`
    /// (KIP-1102).
    #[default]
    Rebootstrap,
    /// It goes on trying the brokers that it knows.
    None,
}

impl FromStr for MetadataRecovery {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match text.trim().to_ascii_lowercase().as_str() {
            "rebootstrap" => Ok(Self::Rebootstrap),
            "none" => Ok(Self::None),
            _ => Err(ConfigError::InvalidValue {
                key: METADATA_RECOVERY.to_owned(),
                value: text.to_owned(),
                expected: "rebootstrap or none",
            }),
        }
    }
}

const METADATA_RECOVERY: &str = "metadata.recovery.strategy";
const DNS_LOOKUP: &str = "client.dns.lookup";
const BOOTSTRAP_SERVERS: &str = "bootstrap.servers";

const KEYS: &[&str] = &[
    BOOTSTRAP_SERVERS,
    DNS_LOOKUP,
    "client.id",
    "request.timeout.ms",
    "default.api.timeout.ms",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "socket.connection.setup.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    METADATA_RECOVERY,
    "metadata.recovery.rebootstrap.trigger.ms",
    #[cfg(feature = "tls")]
    "security.protocol",
    #[cfg(feature = "tls")]
    "ssl.truststore.location",
    #[cfg(feature = "tls")]
    "ssl.truststore.type",
    #[cfg(feature = "tls")]
    "ssl.truststore.password",
    #[cfg(feature = "tls")]
    "ssl.truststore.certificates",
    #[cfg(feature = "tls")]
    "ssl.keystore.location",
    #[cfg(feature = "tls")]
    "ssl.keystore.type",
    #[cfg(feature = "tls")]
    "ssl.keystore.password",
    #[cfg(feature = "tls")]
    "ssl.keystore.certificate.chain",
    #[cfg(feature = "tls")]
    "ssl.keystore.key",
    #[cfg(feature = "tls")]
    "ssl.key.password",
    #[cfg(feature = "tls")]
    "ssl.endpoint.identification.algorithm",
    #[cfg(feature = "tls")]
    "ssl.enabled.protocols",
    #[cfg(feature = "tls")]
    "ssl.protocol",
    #[cfg(feature = "tls")]
    "ssl.cipher.suites",
    #[cfg(feature = "tls")]
    "sasl.mechanism",
    #[cfg(feature = "tls")]
    "sasl.jaas.config",
    #[cfg(feature = "tls")]
    "sasl.oauthbearer.token.endpoint.url",
    #[cfg(feature = "tls")]
    "sasl.login.callback.handler.class",
    #[cfg(feature = "tls")]
    "sasl.oauthbearer.jwt.retriever.class",
    #[cfg(feature = "tls")]
    "sasl.oauthbearer.client.credentials.client.id",
    #[cfg(feature = "tls")]
    "sasl.oauthbearer.client.credentials.client.secret",
    #[cfg(feature = "tls")]
    "sasl.oauthbearer.scope",
    #[cfg(feature = "tls")]
    "sasl.oauthbearer.header.urlencode",
    #[cfg(feature = "tls")]
    "sasl.login.connect.timeout.ms",
    #[cfg(feature = "tls")]
    "sasl.login.read.timeout.ms",
    #[cfg(feature = "tls")]
    "sasl.login.retry.backoff.ms",
    #[cfg(feature = "tls")]
    "sasl.login.retry.backoff.max.ms",
    #[cfg(feature = "tls")]
    "sasl.login.refresh.window.factor",
    #[cfg(feature = "tls")]
    "sasl.login.refresh.window.jitter",
    #[cfg(feature = "tls")]
    "sasl.login.refresh.min.period.seconds",
    #[cfg(feature = "tls")]
    "sasl.login.refresh.buffer.seconds",
];

fn servers(list: &str) -> Result<Vec<Address>, ConfigError> {
    Address::parse_list(list).map_err(|source| ConfigError::Address {
        key: BOOTSTRAP_SERVERS,
        source,
    })
}

/// A duration in milliseconds, as Kafka writes it: an integer from 0 to 2³¹−1.
pub(crate) fn milliseconds(key: &str, value: &str) -> Result<Duration, ConfigError> {
    let number = value
        .trim()
        .parse::<u64>()
        .ok()
        .filter(|number| *number <= i32::MAX as u64);
    number
        .map(Duration::from_millis)
        .ok_or_else(|| ConfigError::InvalidValue {
            key: key.to_owned(),
            value: value.to_owned(),
            expected: "a number of milliseconds from 0 to 2147483647",
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_key_is_known_and_others_are_not() {
        let mut config = ClientConfig::new("a:1").unwrap();
        for key in ClientConfig::keys() {
            let value = match *key {
                BOOTSTRAP_SERVERS => "b:2",
                DNS_LOOKUP => "resolve_canonical_bootstrap_servers_only",
                METADATA_RECOVERY => "none",
                "security.protocol" => "PLAINTEXT",
                "ssl.truststore.type" | "ssl.keystore.type" => "PEM",
                "ssl.endpoint.identification.algorithm" => "https",
                "ssl.enabled.protocols" | "ssl.protocol" => "TLSv1.3",
                "ssl.cipher.suites" => "TLS_AES_128_GCM_SHA256",
                "sasl.jaas.config" => "PlainLoginModule required;",
                "sasl.oauthbearer.token.endpoint.url" => "file:/token",
                "sasl.oauthbearer.header.urlencode" => "true",
                "sasl.login.refresh.window.factor" => "0.9",
                "sasl.login.refresh.window.jitter" => "0.1",
                "sasl.login.refresh.min.period.seconds" => "1",
                key if key.ends_with(".class") => "",
                _ => "1234",
            };
            assert_eq!(config.set(key, value), Ok(true), "{key}");
        }
        assert_eq!(config.bootstrap_servers, [Address::new("b", 2)]);
        assert_eq!(config.request_timeout, Duration::from_millis(1234));
        assert_eq!(config.set("group.id", "g"), Ok(false));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn every_key_of_security_is_listed() {
        for key in SecurityConfig::keys() {
            assert!(ClientConfig::keys().contains(&key), "{key}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn security_keys_work_in_any_order_and_their_secrets_never_show() {
        let mut config = ClientConfig::new("a:1").unwrap();
        for (key, value) in [
            (
                "sasl.jaas.config",
                "ScramLoginModule required username=\"u\" password=\"hush\";",
            ),
            ("ssl.keystore.password", "hush"),
            ("sasl.mechanism", "SCRAM-SHA-256"),
            ("security.protocol", "SASL_SSL"),
        ] {
            assert_eq!(config.set(key, value), Ok(true), "{key}");
        }
        assert_eq!(config.check(), Ok(()));
        let options = config.connection_options();
        assert!(options.sasl.is_some());
        let config = config.secured();
        assert!(!format!("{config:?} {options:?}").contains("hush"));
        assert!(format!("{:?}", config.connector).contains("TlsConnector"));
        let mut config = ClientConfig::new("a:1").unwrap();
        config.set("security.protocol", "SASL_PLAINTEXT").unwrap();
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains("sasl.mechanism"), "{error}");
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn a_build_without_tls_says_so() {
        let mut config = ClientConfig::new("a:1").unwrap();
        assert_eq!(config.set("security.protocol", "plaintext"), Ok(true));
        assert_eq!(config.set("sasl.jaas.config", "x"), Ok(true));
        let error = config.set("security.protocol", "SASL_SSL").unwrap_err();
        assert!(error.to_string().contains("without TLS"), "{error}");
    }

    #[test]
    fn a_bad_value_names_its_key() {
        let mut config = ClientConfig::new("a:1").unwrap();
        let error = config.set(DNS_LOOKUP, "first").unwrap_err().to_string();
        assert!(error.contains(DNS_LOOKUP), "{error}");
        for value in ["", "-1", "1s", "2147483648"] {
            let error = config
                .set("request.timeout.ms", value)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("request.timeout.ms") && error.contains("milliseconds"),
                "{error}"
            );
        }
        assert!(
            config
                .set("bootstrap.servers", "a")
                .unwrap_err()
                .to_string()
                .contains("bootstrap.servers")
        );
        assert_eq!(config.request_timeout, Duration::from_secs(30));
    }
}
