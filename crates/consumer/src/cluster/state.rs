//! What is known of the cluster. Plain data under one lock.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use sharegroup_wire::BrokerId;
use sharegroup_wire::net::{Address, ConnectError, Connection};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::MetadataRecovery;

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
    /// When metadata was asked for first since it was last had.
    pub(super) unrefreshed_since: Option<Instant>,
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

    /// Forgets all brokers: the next call starts from the bootstrap servers.
    pub(super) fn rebootstrap(&mut self) {
        self.brokers.clear();
        self.pool.clear();
        self.reconnects.clear();
        self.coordinators.clear();
        self.unrefreshed_since = None;
    }

    pub(super) fn remember_coordinator(&mut self, group_id: &str, broker: BrokerId) {
        if self.coordinators.len() >= COORDINATORS_MAX {
            self.coordinators.clear();
        }
        self.coordinators.insert(group_id.to_owned(), broker);
    }

    /// Where to send what any broker can answer: live connections first, then the other brokers, the
    /// bootstrap servers, and what failed last. Where brokers are known and `recovery` is none, bootstrap
    /// servers are left out.
    pub(super) fn candidates(
        &mut self,
        bootstrap: &[Address],
        recovery: MetadataRecovery,
    ) -> Vec<Address> {
        let mut known: Vec<Address> = self.brokers.values().cloned().collect();
        known.dedup();
        if !known.is_empty() {
            self.next_start = (self.next_start + 1) % known.len();
            known.rotate_left(self.next_start);
        }
        if recovery == MetadataRecovery::Rebootstrap || known.is_empty() {
            for address in bootstrap {
                if !known.contains(address) {
                    known.push(address.clone());
                }
            }
        }
        known.sort_by_cached_key(|address| self.rank(address));
        known
    }

    /// Brokers that are gone must not keep a caller of little time from the bootstrap servers. Of those
    /// that failed, the one whose pause ends first comes first.
    fn rank(&self, address: &Address) -> (u8, Option<Instant>) {
        let is_live = |connection: &Connection| !connection.is_closed();
        if self.pool.get(address).is_some_and(is_live) {
            return (0, None);
        }
        match self.reconnects.get(address) {
            Some(failed) => (2, Some(failed.not_before)),
            None => (1, None),
        }
    }
}
