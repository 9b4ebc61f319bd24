//! Keys of the OIDC client credentials grant.

use std::time::Duration;

use crate::limits::TOKEN_ENDPOINT_TIMEOUT;
use crate::net::secret::Secret;
use crate::net::security::KeyError;
use crate::net::tls::TlsOptions;

/// What tokens are asked for with. Names and defaults are Kafka's, except that both time limits have
/// a default.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OidcOptions {
    /// The provider's token endpoint: an `https:` or `http:` URL (`sasl.oauthbearer.token.endpoint.url`).
    pub token_endpoint: Option<String>,
    /// The client's id (`sasl.oauthbearer.client.credentials.client.id`).
    pub client_id: String,
    /// Its secret (`sasl.oauthbearer.client.credentials.client.secret`).
    pub client_secret: Secret,
    /// What is asked for (`sasl.oauthbearer.scope`). Default nothing.
    pub scope: Option<String>,
    /// Whether id and secret are URL-encoded, as RFC 6749 wants and many providers don't
    /// (`sasl.oauthbearer.header.urlencode`). Default no.
    pub urlencode_header: bool,
    /// Time to connect to the endpoint, TLS included (`sasl.login.connect.timeout.ms`). Default 10 s.
    pub connect_timeout: Duration,
    /// Time for its answer (`sasl.login.read.timeout.ms`). Default 10 s.
    pub read_timeout: Duration,
    /// Pause after a first failure that may pass (`sasl.login.retry.backoff.ms`); it doubles with each
    /// one. Default 100 ms.
    pub retry_backoff: Duration,
    /// How long it is tried (`sasl.login.retry.backoff.max.ms`). Default 10 s.
    pub retry_backoff_max: Duration,
    /// The part of a token's life after which a fresh one is asked for
    /// (`sasl.login.refresh.window.factor`, 0.5 to 1). Default 0.8.
    pub refresh_window_factor: f64,
    /// Most of a token's life that is added to that at random (`sasl.login.refresh.window.jitter`, 0
    /// to 0.25). Default 0.05.
    pub refresh_window_jitter: f64,
    /// Least time between two refreshes (`sasl.login.refresh.min.period.seconds`). Default 60 s.
    pub refresh_min_period: Duration,
    /// Life that is left at least at a refresh (`sasl.login.refresh.buffer.seconds`). Default 300 s.
    pub refresh_buffer: Duration,
    /// TLS to the endpoint, apart from that to the brokers: the `ssl.*` options in
    /// `sasl.jaas.config`. Default trusts what the system trusts.
    pub tls: TlsOptions,
}

impl Default for OidcOptions {
    fn default() -> Self {
        Self {
            token_endpoint: None,
            client_id: String::new(),
            client_secret: Secret::default(),
            scope: None,
            urlencode_header: false,
            connect_timeout: TOKEN_ENDPOINT_TIMEOUT,
            read_timeout: TOKEN_ENDPOINT_TIMEOUT,
            retry_backoff: Duration::from_millis(100),
            retry_backoff_max: Duration::from_secs(10),
            refresh_window_factor: 0.8,
            refresh_window_jitter: 0.05,
            refresh_min_period: Duration::from_secs(60),
            refresh_buffer: Duration::from_secs(300),
            tls: TlsOptions::default(),
        }
    }
}

impl OidcOptions {
    /// The keys that [`set`](Self::set) knows.
    pub const KEYS: &'static [&'static str] = &[
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.header.urlencode",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.buffer.seconds",
    ];

    /// Sets the value of one of Kafka's keys. `false` = not one of [`KEYS`](Self::KEYS).
    ///
    /// # Errors
    /// [`KeyError`] when the value is not one of the key's.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, KeyError> {
        let value = value.trim();
        match key {
            "sasl.oauthbearer.client.credentials.client.id" => {
                value.clone_into(&mut self.client_id)
            }
            "sasl.oauthbearer.client.credentials.client.secret" => {
                self.client_secret = value.into();
            }
            "sasl.oauthbearer.scope" => {
                self.scope = Some(value.to_owned()).filter(|scope| !scope.is_empty());
            }
            "sasl.oauthbearer.header.urlencode" => {
                self.urlencode_header = match value.to_ascii_lowercase().as_str() {
                    "true" => true,
                    "false" => false,
                    _ => return Err(wrong(key, value, "true or false")),
                }
            }
            "sasl.login.connect.timeout.ms" => self.connect_timeout = milliseconds(key, value)?,
            "sasl.login.read.timeout.ms" => self.read_timeout = milliseconds(key, value)?,
            "sasl.login.retry.backoff.ms" => self.retry_backoff = milliseconds(key, value)?,
            "sasl.login.retry.backoff.max.ms" => {
                self.retry_backoff_max = milliseconds(key, value)?;
            }
            "sasl.login.refresh.window.factor" => {
                self.refresh_window_factor = fraction(key, value, 0.5, 1.0)?;
            }
            "sasl.login.refresh.window.jitter" => {
                self.refresh_window_jitter = fraction(key, value, 0.0, 0.25)?;
            }
            "sasl.login.refresh.min.period.seconds" => {
                self.refresh_min_period = seconds(key, value, 900)?;
            }
            "sasl.login.refresh.buffer.seconds" => self.refresh_buffer = seconds(key, value, 3600)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// When to ask for a fresh token, in the life of one. `random` is from 0 to 1.
    ///
    /// As Java's clients: at a part of its life, not in the buffer at its end, not too soon; a short
    /// life has room for neither of the last two.
    pub(super) fn refresh_after(&self, lifetime: Duration, random: f64) -> Duration {
        let part = self.refresh_window_factor + self.refresh_window_jitter * random;
        let proposed = lifetime.mul_f64(part.min(1.0));
        if lifetime < self.refresh_min_period + self.refresh_buffer {
            return proposed;
        }
        proposed
            .min(lifetime.saturating_sub(self.refresh_buffer))
            .max(self.refresh_min_period)
    }
}

fn wrong(key: &str, value: &str, expected: &str) -> KeyError {
    KeyError::new(key, format!("is `{value}`, but must be {expected}"))
}

fn milliseconds(key: &str, value: &str) -> Result<Duration, KeyError> {
    let number = value.parse::<u64>().ok();
    let number = number.filter(|number| *number <= i32::MAX as u64);
    let number =
        number.ok_or_else(|| wrong(key, value, "a number of milliseconds from 0 to 2147483647"))?;
    Ok(Duration::from_millis(number))
}

fn seconds(key: &str, value: &str, max: u64) -> Result<Duration, KeyError> {
    let number = value.parse::<u64>().ok().filter(|number| *number <= max);
    let expected = || wrong(key, value, &format!("a number of seconds from 0 to {max}"));
    number.map(Duration::from_secs).ok_or_else(expected)
}

fn fraction(key: &str, value: &str, min: f64, max: f64) -> Result<f64, KeyError> {
    let number = value.parse::<f64>().ok();
    let number = number.filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| wrong(key, value, &format!("a number from {min} to {max}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_known_checks_its_value_and_shows_no_secret() {
        let mut options = OidcOptions::default();
        for key in OidcOptions::KEYS {
            let value = match *key {
                "sasl.oauthbearer.client.credentials.client.secret" => "hush",
                "sasl.oauthbearer.header.urlencode" => "true",
                "sasl.login.refresh.window.factor" => "0.9",
                "sasl.login.refresh.window.jitter" => "0.1",
                _ => "70",
            };
            assert_eq!(options.set(key, value), Ok(true), "{key}");
            if key.starts_with("sasl.login") || key.ends_with("urlencode") {
                let error = options.set(key, "-1").unwrap_err();
                assert_eq!(error.key, *key);
            }
        }
        assert_eq!(options.set("sasl.unknown", "x"), Ok(false));
        assert_eq!(options.refresh_min_period, Duration::from_secs(70));
        assert!(!format!("{options:?}").contains("hush"));
    }

    #[test]
    fn tokens_are_refreshed_in_the_last_part_of_their_life() {
        let options = OidcOptions::default();
        for (lifetime, random, expected) in [
            // 80 % of an hour, and 5 % more.
            (3600, 0.0, 2880),
            (3600, 1.0, 3060),
            // Not in the last 300 s.
            (600, 0.0, 300),
            // Not within 60 s.
            (361, 0.0, 61),
            // No room for both.
            (100, 0.0, 80),
            (0, 0.5, 0),
        ] {
            let after = options.refresh_after(Duration::from_secs(lifetime), random);
            assert_eq!(after.as_secs(), expected, "{lifetime} s");
        }
    }
}
