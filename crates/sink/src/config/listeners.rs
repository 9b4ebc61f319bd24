//! `listeners`: where the worker's HTTP listener is.

use super::problem::ConfigProblem;
use super::properties::Properties;
use super::read::items;

/// Where the worker's HTTP listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listeners {
    addresses: Vec<String>,
    is_default: bool,
}

impl Default for Listeners {
    fn default() -> Self {
        Self {
            addresses: vec![DEFAULT.to_owned()],
            is_default: true,
        }
    }
}

impl Listeners {
    /// `host:port` of each; none where the key is set to nothing.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.addresses.iter().map(String::as_str)
    }

    /// Whether the key isn't set: then an address that can't be had is no error.
    #[must_use]
    pub const fn is_default(&self) -> bool {
        self.is_default
    }

    pub(super) fn parse(file: &Properties, problems: &mut Vec<ConfigProblem>) -> Self {
        let Some(value) = file.get(LISTENERS) else {
            return Self::default();
        };
        let mut addresses = Vec::new();
        for item in items(value) {
            match address(item) {
                Ok(address) => addresses.push(address),
                Err(message) => {
                    // Somebody may think that a password belongs here.
                    let problem = file.problem(LISTENERS, message).without_value();
                    problems.push(problem.advice("for example http://0.0.0.0:8083"));
                }
            }
        }
        Self {
            addresses,
            is_default: false,
        }
    }
}

/// `host:port` of `http://host:port`; without a host it is every address of this machine, as in Connect.
fn address(url: &str) -> Result<String, &'static str> {
    let Some((scheme, place)) = url.split_once("://") else {
        return Err("must be http://host:port");
    };
    if scheme.eq_ignore_ascii_case("https") {
        return Err("is https, and the listener has no TLS");
    }
    let place = place.trim_end_matches('/');
    let (host, port) = place.rsplit_once(':').unwrap_or_default();
    let is_port = port.parse::<u16>().is_ok();
    if !scheme.eq_ignore_ascii_case("http") || !is_port || host.contains(['/', '@']) {
        return Err("must be http://host:port");
    }
    Ok(match host {
        "" => format!("0.0.0.0:{port}"),
        host => format!("{host}:{port}"),
    })
}

const LISTENERS: &str = "listeners";
/// Connect's port, for this machine alone: there is nobody who asks for a password.
const DEFAULT: &str = "127.0.0.1:8083";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_a_url_of_http() {
        for (url, expected) in [
            ("http://h:1", Ok("h:1")),
            ("HTTP://[::1]:8083/", Ok("[::1]:8083")),
            ("http://:8083", Ok("0.0.0.0:8083")),
            ("https://h:1", Err("is https, and the listener has no TLS")),
            ("h:1", Err("must be http://host:port")),
            ("ftp://h:1", Err("must be http://host:port")),
            ("http://h", Err("must be http://host:port")),
            ("http://h:70000", Err("must be http://host:port")),
            ("http://me:secret@h:1", Err("must be http://host:port")),
        ] {
            assert_eq!(address(url).as_deref(), expected.as_ref().copied(), "{url}");
        }
    }

    #[test]
    fn unset_is_port_8083_of_this_machine_and_empty_is_none() {
        let mut file = Properties::new("worker.properties");
        let listeners = Listeners::parse(&file, &mut Vec::new());
        assert!(listeners.is_default());
        assert!(listeners.addresses().eq(["127.0.0.1:8083"]));
        file.set(LISTENERS, " ");
        let listeners = Listeners::parse(&file, &mut Vec::new());
        assert!(!listeners.is_default());
        assert_eq!(listeners.addresses().count(), 0);
    }
}
