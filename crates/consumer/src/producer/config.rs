//! What a producer is configured with.

use std::time::Duration;

use sharegroup_wire::compress::Compression;

use crate::client::{ClientConfig, milliseconds};
use crate::error::ConfigError;

/// Limits and times of a producer. Defaults and key names are those of Kafka's Java producer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProducerConfig {
    /// Servers, time limits and pauses.
    pub client: ClientConfig,
    /// Largest batch of one partition in bytes before compression (`batch.size`); a larger record
    /// travels alone. Default 16 KiB.
    pub batch_bytes_max: usize,
    /// How long a batch waits for company (`linger.ms`). Default 5 ms.
    pub linger: Duration,
    /// Codec of batches (`compression.type`). Default none.
    pub compression: Compression,
    /// Bytes of records that wait to be sent or confirmed (`buffer.memory`). Default 32 MiB.
    pub buffer_bytes_max: usize,
    /// Largest request in bytes before compression, and so the largest record
    /// (`max.request.size`). Default 1 MiB.
    pub request_bytes_max: usize,
    /// Time from [`send`](super::Producer::send) to the confirmation, retries included
    /// (`delivery.timeout.ms`). Default 2 min.
    pub delivery_timeout: Duration,
    /// Longest wait of [`send`](super::Producer::send) for metadata and room (`max.block.ms`).
    /// Default 1 min.
    pub block_max: Duration,
}

impl ProducerConfig {
    /// Of the configuration of a client.
    #[must_use]
    pub const fn new(client: ClientConfig) -> Self {
        Self {
            client,
            batch_bytes_max: 16 * 1024,
            linger: Duration::from_millis(5),
            compression: Compression::None,
            buffer_bytes_max: 32 * 1024 * 1024,
            request_bytes_max: 1024 * 1024,
            delivery_timeout: Duration::from_secs(120),
            block_max: Duration::from_secs(60),
        }
    }

    /// Sets the value of one of Kafka's keys, those of [`ClientConfig`] included. `false` = not a
    /// producer key, nothing changed. `acks` and `enable.idempotence` may only have the values that
    /// this producer always works with: `all` and `true`.
    ///
    /// # Errors
    /// [`ConfigError`] when the value is not one of the key's.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, ConfigError> {
        match key {
            "batch.size" => self.batch_bytes_max = bytes(key, value, 0)?,
            "buffer.memory" => self.buffer_bytes_max = bytes(key, value, 1)?,
            "max.request.size" => self.request_bytes_max = bytes(key, value, 1)?,
            "linger.ms" => self.linger = milliseconds(key, value)?,
            "delivery.timeout.ms" => self.delivery_timeout = milliseconds(key, value)?,
            "max.block.ms" => self.block_max = milliseconds(key, value)?,
            "compression.type" => {
                let invalid = |_| invalid(key, value, "none, gzip, snappy, lz4 or zstd");
                self.compression = value.trim().parse().map_err(invalid)?;
            }
            "acks" if !matches!(value.trim(), "all" | "-1") => {
                return Err(invalid(key, value, "all"));
            }
            "enable.idempotence" if value.trim() != "true" => {
                return Err(invalid(key, value, "true"));
            }
            "acks" | "enable.idempotence" => {}
            _ => return self.client.set(key, value),
        }
        Ok(true)
    }

    /// The keys that [`set`](Self::set) knows, without those of [`ClientConfig::keys`].
    #[must_use]
    pub const fn keys() -> &'static [&'static str] {
        &[
            "batch.size",
            "buffer.memory",
            "max.request.size",
            "linger.ms",
            "delivery.timeout.ms",
            "max.block.ms",
            "compression.type",
            "acks",
            "enable.idempotence",
        ]
    }
}

fn invalid(key: &str, value: &str, expected: &'static str) -> ConfigError {
    ConfigError::InvalidValue {
        key: key.to_owned(),
        value: value.to_owned(),
        expected,
    }
}

/// A size in bytes. At most 1 GiB: far above any broker's limits, far below what overflows.
fn bytes(key: &str, value: &str, min: usize) -> Result<usize, ConfigError> {
    let number = value
        .trim()
        .parse::<usize>()
        .ok()
        .filter(|number| (min..=1 << 30).contains(number));
    number.ok_or_else(|| invalid(key, value, "a number of bytes of at most 1073741824"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_key_is_known_and_bad_values_name_it() {
        let mut config = ProducerConfig::new(ClientConfig::new("a:1").unwrap());
        for key in ProducerConfig::keys() {
            let good = match *key {
                "compression.type" => "zstd",
                "acks" => "all",
                "enable.idempotence" => "true",
                _ => "1000",
            };
            assert_eq!(config.set(key, good), Ok(true), "{key}");
            let error = config.set(key, "nonsense").unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
        assert_eq!(
            (config.batch_bytes_max, config.compression),
            (1000, Compression::Zstd)
        );
        assert_eq!(config.set("request.timeout.ms", "5"), Ok(true));
        assert_eq!(config.set("group.id", "5"), Ok(false));
        assert!(config.set("acks", "1").is_err());
    }
}
