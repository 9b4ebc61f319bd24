//! What is known of the cluster. Plain data under one lock.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use sharegroup_wire::BrokerId;
use sharegroup_wire::net::{Address, ConnectError, Connection};
use tokio::sync::watch;
use tokio::time::Instant;

/// Groups whose coordinator is remembered at the same time.
const COORDINATORS_MAX: usize = 1024;

/// What a try to connect comes to.
pub(super) type Opening = watch::Receiver<Option<Result<Connection, ConnectError>>>;

#[derive(Debug, Default)]
pub(super) struct State {
    /// Brokers of the last metadata, and those learnt since.
    pub(super) brokers: BTreeMap<BrokerId, Address>,
    /// Connections for cold traffic.
    pub(super) pool: HashMap<Address, Connection>,
    /// Those that are being opened.
    pub(super) opening: HashMap<Address, Opening>,
    /// Pauses after failed tries to connect.
    pub(super) reconnects: HashMap<Address, Reconnect>,
    /// Brokers that were asked why they end connections.
    pub(super) asked_for_cause: HashSet<Address>,
    /// Coordinators by group id.
    pub(super) coordinators: HashMap<String, BrokerId>,
    /// Where the next round of calls to any broker starts.
    pub(super) next_start: usize,
}

/// Failed tries in a row to connect to one address.
#[derive(Debug)]
pub(super) struct Reconnect {
    pub(super) failures: u32,
    pub(super) not_before: Instant,
    /// Why the last one failed; `None` = no answer to a request.
    pub(super) last: Option<ConnectError>,
}

impl State {
    /// The pooled connection, unless it has ended.
    pub(super) fn live_connection(&mut self, address: &Address) -> Option<Connection> {
        let connection = self.pool.get(address)?;
        if connection.is_closed() {
            self.pool.remove(address);
            return None;
        }
        Some(connection.clone())
    }

    pub(super) fn connect_failed(
        &mut self,
        address: &Address,
        error: Option<&ConnectError>,
        delay: impl FnOnce(u32) -> Duration,
    ) {
        let now = Instant::now();
        let reconnect = self.reconnects.entry(address.clone()).or_insert(Reconnect {
            failures: 0,
            not_before: now,
            last: None,
        });
        reconnect.last = error.cloned();
        reconnect.failures = reconnect.failures.saturating_add(1);
        reconnect.not_before = now + delay(reconnect.failures);
    }

    /// Replaces the brokers; connections and pauses of addresses that are gone are dropped.
    pub(super) fn set_brokers(&mut self, brokers: impl Iterator<Item = (BrokerId, Address)>) {
        self.brokers = brokers.collect();
        let Self {
            brokers,
            pool,
            reconnects,
            ..
        } = self;
        let is_known = |address: &Address| brokers.values().any(|known| known == address);
        // A bootstrap address that no broker advertises is needed only where all others fail.
        pool.retain(|address, _| brokers.is_empty() || is_known(address));
        reconnects.retain(|address, _| is_known(address));
    }

    pub(super) fn remember_coordinator(&mut self, group_id: &str, broker: BrokerId) {
        if self.coordinators.len() >= COORDINATORS_MAX {
            self.coordinators.clear();
        }
        self.coordinators.insert(group_id.to_owned(), broker);
    }

    /// Where to send what any broker can answer: live connections first, then the other brokers,
    /// those in a pause last, then the bootstrap servers.
    pub(super) fn candidates(&mut self, bootstrap: &[Address]) -> Vec<Address> {
        let now = Instant::now();
        let mut known: Vec<Address> = self.brokers.values().cloned().collect();
        known.dedup();
        if !known.is_empty() {
            self.next_start = (self.next_start + 1) % known.len();
            known.rotate_left(self.next_start);
        }
        let rank = |address: &Address| {
            if self
                .pool
                .get(address)
                .is_some_and(|connection| !connection.is_closed())
            {
                0
            } else if self
                .reconnects
                .get(address)
                .is_none_or(|reconnect| reconnect.not_before <= now)
            {
                1
            } else {
                2
            }
        };
        known.sort_by_key(rank);
        for address in bootstrap {
            if !known.contains(address) {
                known.push(address.clone());
            }
        }
        known
    }
}
