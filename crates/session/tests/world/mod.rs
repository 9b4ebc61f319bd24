//! Session cores against the model of a cluster, under virtual time: the network between them can
//! delay, lose and cut, and a ledger checks what must hold whatever happens.
// Each test binary uses a part of it.
#![allow(dead_code, unreachable_pub, unused_imports)]

mod client;
mod ledger;
mod network;
mod random;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sharegroup_session::{Acknowledgement, SessionConfig, SessionCore};
use sharegroup_testkit::model::{ModelCluster, Place};
use sharegroup_wire::BrokerId;

pub use client::{Client, Holding, Said};
pub use network::{Api, Fate, Network};
pub use random::Random;

use network::Happening;

pub const MS: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);

/// A cluster, its clients, and the network between them.
pub struct World {
    pub start: Instant,
    pub now: Instant,
    pub cluster: ModelCluster,
    pub clients: Vec<Client>,
    pub network: Network,
    queue: BTreeMap<(Instant, u64), Happening>,
    sequence: u64,
}

/// What an application does with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Settle(Acknowledgement),
    Drop,
}

impl World {
    pub fn new(brokers: i32) -> Self {
        // The only look at a clock: all other times are counted from this one.
        #[allow(clippy::disallowed_methods)]
        let start = Instant::now();
        Self {
            start,
            now: start,
            cluster: ModelCluster::new(brokers),
            clients: Vec::new(),
            network: Network::new(),
            queue: BTreeMap::new(),
            sequence: 0,
        }
    }

    /// A cluster with one topic `orders` and one client that has joined and has its session open.
    pub fn with_client(
        partitions: usize,
        configure: impl FnOnce(&mut SessionConfig),
    ) -> (Self, Place) {
        let mut world = Self::new(3);
        let id = world.cluster.create_topic("orders", partitions);
        world.add_client(configure);
        (world, (id, 0))
    }

    pub fn add_client(&mut self, configure: impl FnOnce(&mut SessionConfig)) -> usize {
        let member_id = format!("member-{}", self.clients.len());
        let mut config = SessionConfig::new("group", &member_id, vec!["orders".to_owned()]);
        // Scenarios count on fetches of a known size.
        config.credit_adapts = false;
        configure(&mut config);
        self.clients
            .push(Client::new(SessionCore::new(config, self.now), member_id));
        self.clients.len() - 1
    }

    pub fn schedule(&mut self, after: Duration, happening: Happening) {
        self.sequence += 1;
        self.queue
            .insert((self.now + after, self.sequence), happening);
    }

    /// Lets an application do something later.
    pub fn act_later(
        &mut self,
        after: Duration,
        client: usize,
        holding: usize,
        range: (i64, i64),
        act: Act,
    ) {
        self.schedule(
            after,
            Happening::Act {
                client,
                holding,
                range,
                act,
            },
        );
    }

    // ---- time

    /// Lets everything that is due now happen, then time pass to what is due next, but not beyond
    /// `until`. Returns whether anything is left to happen before it.
    fn step(&mut self, until: Instant) -> bool {
        self.settle_now();
        let next = self.next_time().filter(|at| *at <= until);
        self.now = self.now.max(next.unwrap_or(until));
        next.is_some()
    }

    fn settle_now(&mut self) {
        for _ in 0..10_000 {
            let mut busy = false;
            for (link, fetched) in
                std::iter::from_fn(|| self.cluster.poll_parked(self.now)).collect::<Vec<_>>()
            {
                self.answer_parked(link, fetched);
                busy = true;
            }
            while let Some(entry) = self
                .queue
                .first_entry()
                .filter(|entry| entry.key().0 <= self.now)
            {
                let happening = entry.remove();
                self.happen(happening);
                busy = true;
            }
            for client in 0..self.clients.len() {
                busy |= self.pump(client);
            }
            if !busy {
                return;
            }
        }
        panic!("clients spin at {:?}", self.now - self.start);
    }

    fn next_time(&self) -> Option<Instant> {
        let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
        let clients = self
            .clients
            .iter()
            .filter_map(|client| client.core.poll_timeout(self.now));
        let cluster = self.cluster.next_time();
        let next = clients.chain(queued).chain(cluster).min()?;
        assert!(next > self.now, "something due now was not done");
        Some(next)
    }

    pub fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
        self.settle_now();
    }

    /// Runs until `done`; fails when it isn't in the given time.
    pub fn run_until(&mut self, within: Duration, what: &str, done: impl Fn(&Self) -> bool) {
        let until = self.now + within;
        self.settle_now();
        while !done(self) {
            let more = self.step(until);
            self.settle_now();
            assert!(
                more || done(self),
                "{what} did not happen within {within:?}"
            );
        }
    }

    /// Carries the core's requests out and takes its events. Returns whether there were any.
    fn pump(&mut self, client: usize) -> bool {
        let now = self.now;
        let mut busy = false;
        self.clients[client].core.handle_timeout(now);
        if self.clients[client].polls {
            self.clients[client].core.application_alive();
        }
        while let Some(request) = self.clients[client].core.poll_request(now) {
            self.send(client, request);
            busy = true;
        }
        busy | self.clients[client].take_events(now, &[])
    }

    // ---- what tests do and look at

    pub fn client(&mut self) -> &mut Client {
        &mut self.clients[0]
    }

    /// Runs until the first client holds `count` offsets.
    pub fn run_until_held(&mut self, count: u64) {
        self.run_until(60 * SECOND, "holding", |world| {
            world.clients[0].core.records_held() >= count
        });
    }

    pub fn settle(&mut self, holding: usize, range: (i64, i64), how: Acknowledgement) {
        let now = self.now;
        self.clients[0].settle(now, holding, range, how);
    }

    /// Settles all that the first client holds.
    pub fn settle_all(&mut self, how: Acknowledgement) {
        let now = self.now;
        for holding in 0..self.clients[0].holdings.len() {
            self.clients[0].settle(now, holding, (i64::MIN, i64::MAX), how);
        }
    }

    /// Closes a client and runs until it is closed.
    pub fn close(&mut self, client: usize) {
        let now = self.now;
        self.clients[client].close(now);
        self.run_until(60 * SECOND, "closing", |world| world.clients[client].closed);
    }

    pub fn leader(&self, place: Place) -> BrokerId {
        self.cluster.leader(place).expect("partition exists")
    }
}
