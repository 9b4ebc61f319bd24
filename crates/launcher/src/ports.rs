//! Choosing ports that stay free for a broker, also while it is down.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

use crate::LaunchError;

/// Below the range from which systems take the local ports of outgoing connections (32768 on Linux, 49152 elsewhere):
/// otherwise a client could be given the port of a killed broker, which then couldn't start again.
const FIRST: u16 = 15_000;
const LAST: u16 = 31_999;

/// `count` different ports nobody listens on at the moment, none of them in `taken`.
pub(crate) fn choose(count: usize, taken: &[u16]) -> Result<Vec<u16>, LaunchError> {
    let span = u64::from(LAST - FIRST) + 1;
    // A random start, so that processes that choose at the same moment rarely choose the same.
    let start = RandomState::new().hash_one(std::process::id()) % span;
    let mut chosen = BTreeSet::new();
    for step in 0..span {
        if chosen.len() == count {
            break;
        }
        // A prime step visits each port once and spreads neighbours.
        let port = FIRST + u16::try_from((start + step * 257) % span).unwrap_or(0);
        if !taken.contains(&port) && is_free(port) {
            chosen.insert(port);
        }
    }
    if chosen.len() < count {
        return Err(LaunchError::Invalid {
            setting: "port",
            reason: format!("no free port from {FIRST} to {LAST}"),
        });
    }
    Ok(chosen.into_iter().collect())
}

/// Whether a listener can be opened on the port of 127.0.0.1.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_ports_are_free_and_different() {
        let ports = choose(6, &[]).unwrap();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 6);
        assert!(ports.iter().all(|&port| (FIRST..=LAST).contains(&port)));
    }

    #[test]
    fn port_in_use_is_not_free() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!is_free(listener.local_addr().unwrap().port()));
    }
}
