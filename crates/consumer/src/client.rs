//! What every client of a cluster is configured with.

use std::sync::Arc;
use std::time::Duration;

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
    /// Name of the client for the broker's logs and quotas (`client.id`). Default none.
    pub client_id: Option<String>,
    /// How streams are opened. Default TCP.
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
    /// Time to open a connection (`socket.connection.setup.timeout.ms`). Default 10 s.
    pub connection_setup_timeout: Duration,
    /// Age at which metadata is asked for again (`metadata.max.age.ms`). Default 5 min.
    pub metadata_max_age: Duration,
    /// Seed of the spread of pauses. Default random.
    pub seed: u64,
}

impl ClientConfig {
    /// Of a list of servers: `host:port[,host:port…]`.
    ///
    /// # Errors
    /// [`ConfigError::Address`].
    pub fn new(bootstrap_servers: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            bootstrap_servers: servers(bootstrap_servers)?,
            client_id: None,
            connector: Arc::new(TcpConnector::default()),
            request_timeout: Duration::from_secs(30),
            default_api_timeout: Duration::from_secs(60),
            retry_backoff: Duration::from_millis(100),
            retry_backoff_max: Duration::from_secs(1),
            reconnect_backoff: Duration::from_millis(50),
            reconnect_backoff_max: Duration::from_secs(1),
            connection_setup_timeout: Duration::from_secs(10),
            metadata_max_age: Duration::from_secs(300),
            seed: Jitter::random_seed(),
        })
    }

    /// Sets the value of one of Kafka's keys. `false` = not a client key, nothing changed.
    ///
    /// # Errors
    /// [`ConfigError`] when the value is not one of the key's.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, ConfigError> {
        let slot = match key {
            BOOTSTRAP_SERVERS => {
                self.bootstrap_servers = servers(value)?;
                return Ok(true);
            }
            "client.id" => {
                self.client_id = Some(value.trim().to_owned()).filter(|id| !id.is_empty());
                return Ok(true);
            }
            "request.timeout.ms" => &mut self.request_timeout,
            "default.api.timeout.ms" => &mut self.default_api_timeout,
            "retry.backoff.ms" => &mut self.retry_backoff,
            "retry.backoff.max.ms" => &mut self.retry_backoff_max,
            "reconnect.backoff.ms" => &mut self.reconnect_backoff,
            "reconnect.backoff.max.ms" => &mut self.reconnect_backoff_max,
            "socket.connection.setup.timeout.ms" => &mut self.connection_setup_timeout,
            "metadata.max.age.ms" => &mut self.metadata_max_age,
            _ => return Ok(false),
        };
        *slot = milliseconds(key, value)?;
        Ok(true)
    }

    /// The keys that [`set`](Self::set) knows.
    #[must_use]
    pub const fn keys() -> &'static [&'static str] {
        &[
            BOOTSTRAP_SERVERS,
            "client.id",
            "request.timeout.ms",
            "default.api.timeout.ms",
            "retry.backoff.ms",
            "retry.backoff.max.ms",
            "reconnect.backoff.ms",
            "reconnect.backoff.max.ms",
            "socket.connection.setup.timeout.ms",
            "metadata.max.age.ms",
        ]
    }

    pub(crate) fn connection_options(&self) -> ConnectionOptions {
        ConnectionOptions {
            client_id: self.client_id.clone(),
            request_timeout: self.request_timeout,
            setup_timeout: self.connection_setup_timeout,
            ..ConnectionOptions::default()
        }
    }

    pub(crate) const fn retry_backoff(&self) -> Backoff {
        Backoff {
            first: self.retry_backoff,
            max: self.retry_backoff_max,
        }
    }

    pub(crate) const fn reconnect_backoff(&self) -> Backoff {
        Backoff {
            first: self.reconnect_backoff,
            max: self.reconnect_backoff_max,
        }
    }
}

const BOOTSTRAP_SERVERS: &str = "bootstrap.servers";

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
            let value = if *key == BOOTSTRAP_SERVERS {
                "b:2"
            } else {
                "1234"
            };
            assert_eq!(config.set(key, value), Ok(true), "{key}");
        }
        assert_eq!(config.bootstrap_servers, [Address::new("b", 2)]);
        assert_eq!(config.request_timeout, Duration::from_millis(1234));
        assert_eq!(config.set("group.id", "g"), Ok(false));
    }

    #[test]
    fn a_bad_value_names_its_key() {
        let mut config = ClientConfig::new("a:1").unwrap();
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
