//! Where a broker listens.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A broker's host and port.
///
/// Parses `host:port`, `[::1]:9092` and, as Kafka's own clients do, `PLAINTEXT://host:port`.
///
/// ```
/// use sharegroup_wire::net::Address;
///
/// let address: Address = "[::1]:9092".parse().unwrap();
/// assert_eq!((address.host.as_str(), address.port), ("::1", 9092));
/// assert_eq!(address.to_string(), "[::1]:9092");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Host name or IP address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl Address {
    /// Of a host (no brackets) and a port.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
        }
    }

    /// A list separated by commas, as in `bootstrap.servers`. Blanks around entries, empty entries
    /// and repeated addresses are dropped.
    ///
    /// # Errors
    /// [`AddressError`] of the first entry that is not an address; [`AddressError::EmptyList`]
    /// when nothing is left.
    pub fn parse_list(list: &str) -> Result<Vec<Self>, AddressError> {
        let mut addresses = Vec::new();
        for entry in list
            .split(',')
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
        {
            let address = entry.parse()?;
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            Err(AddressError::EmptyList)
        } else {
            Ok(addresses)
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let text = text.trim();
        let given = || text.to_owned();
        let rest = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("PLAINTEXT") => rest,
            Some((scheme, _)) => {
                return Err(AddressError::Scheme {
                    given: given(),
                    scheme: scheme.to_owned(),
                });
            }
            None => text,
        };
        let (host, port) = if let Some(rest) = rest.strip_prefix('[') {
            let (host, after) = rest
                .split_once(']')
                .ok_or_else(|| AddressError::UnclosedBracket { given: given() })?;
            (
                host,
                after
                    .strip_prefix(':')
                    .ok_or_else(|| AddressError::MissingPort { given: given() })?,
            )
        } else {
            let (host, port) = rest
                .rsplit_once(':')
                .ok_or_else(|| AddressError::MissingPort { given: given() })?;
            if host.contains(':') {
                return Err(AddressError::BareIpv6 { given: given() });
            }
            (host, port)
        };
        if host.is_empty() {
            return Err(AddressError::MissingHost { given: given() });
        }
        if let Some(character) = host
            .chars()
            .find(|c| c.is_whitespace() || matches!(c, '/' | '@' | '[' | ']'))
        {
            return Err(AddressError::InvalidHost {
                given: given(),
                character,
            });
        }
        match port.parse::<u16>() {
            Ok(port) if port > 0 => Ok(Self::new(host, port)),
            _ => Err(AddressError::InvalidPort {
                given: given(),
                port: port.to_owned(),
            }),
        }
    }
}

/// Why a text is not an address. The caller's fault; never retriable.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddressError {
    /// No `:port` at the end.
    #[error("`{given}` has no port; write host:port, for example {given}:9092")]
    MissingPort {
        /// The text.
        given: String,
    },
    /// Nothing before the port.
    #[error("`{given}` has no host; write host:port, for example localhost:9092")]
    MissingHost {
        /// The text.
        given: String,
    },
    /// A character that no host name has.
    #[error("`{given}` has the character {character:?} in its host name")]
    InvalidHost {
        /// The text.
        given: String,
        /// The character.
        character: char,
    },
    /// The port is not a number from 1 to 65535.
    #[error("`{given}` has the port `{port}`, which is not a number from 1 to 65535")]
    InvalidPort {
        /// The text.
        given: String,
        /// What stands for the port.
        port: String,
    },
    /// `[` without `]`.
    #[error("`{given}` has an opening bracket without a closing one")]
    UnclosedBracket {
        /// The text.
        given: String,
    },
    /// An IPv6 address without brackets: where its port starts is anybody's guess.
    #[error("`{given}` looks like an IPv6 address; write it in brackets: [address]:port")]
    BareIpv6 {
        /// The text.
        given: String,
    },
    /// A scheme other than `PLAINTEXT://`.
    #[error(
        "`{given}` starts with {scheme}://; write host:port, the protocol is set by security.protocol"
    )]
    Scheme {
        /// The text.
        given: String,
        /// The scheme.
        scheme: String,
    },
    /// A list without any address.
    #[error("the list of bootstrap servers is empty; write host:port[,host:port...]")]
    EmptyList,
}

impl AddressError {
    /// Whether the same text may be an address later. It never is.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_and_print() {
        for (text, host, port) in [
            ("localhost:9092", "localhost", 9092),
            ("[::1]:9092", "::1", 9092),
            ("127.0.0.1:1", "127.0.0.1", 1),
            (
                "plaintext://kafka_1.example:65535",
                "kafka_1.example",
                65535,
            ),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address, Address::new(host, port));
            assert_eq!(address.to_string().parse::<Address>().unwrap(), address);
        }
    }

    #[test]
    fn error_says_what_is_wrong() {
        for (text, expected) in [
            ("localhost", "has no port"),
            ("", "has no port"),
            (":9092", "has no host"),
            ("[]:9092", "has no host"),
            ("localhost:0", "not a number from 1 to 65535"),
            ("localhost:65536", "not a number from 1 to 65535"),
            ("localhost:http", "the port `http`"),
            ("localhost:-1", "the port `-1`"),
            ("::1:9092", "in brackets"),
            ("[::1:9092", "closing"),
            ("[::1]9092", "has no port"),
            ("SSL://localhost:9092", "security.protocol"),
            ("local host:9092", "' '"),
            ("kafka/x:9092", "'/'"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn lists_drop_blanks_and_repetitions() {
        let list = Address::parse_list(" a:1, b:2,,a:1 ,").unwrap();
        assert_eq!(list, [Address::new("a", 1), Address::new("b", 2)]);
        assert_eq!(Address::parse_list(" , "), Err(AddressError::EmptyList));
        assert!(Address::parse_list("a:1,b").is_err());
    }
}
