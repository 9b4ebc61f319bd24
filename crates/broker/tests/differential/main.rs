//! The model against a real Apache Kafka 4.4: the same seeded history on both, step by step, legal and
//! illegal requests, every answer compared. Where they differ the real one is right.
//!
//! `SHAREGROUP_HISTORIES=500` runs more of them, `SHAREGROUP_SEEDS=7,9` some again; `cargo xtask prove
//! histories` runs 500.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "../raw/mod.rs"]
mod raw;

mod moves;
mod target;
mod wakes;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sharegroup_broker::Broker;
use sharegroup_launcher::Kafka;
use sharegroup_wire::message::share_fetch::AcknowledgementBatch;
use sharegroup_wire::{BrokerId, TopicId};

use target::{Fetch, Given, MAX_WAIT_MS, PARTITIONS, Target, own_partitions};

const LOCK: Duration = Duration::from_millis(3000);
/// No step comes so close to the end of a lock.
const MARGIN: Duration = Duration::from_millis(500);
const MEMBERS: usize = 4;
const STEPS: usize = 40;
/// Histories at a time, unless `SHAREGROUP_THREADS` says otherwise; they mostly wait.
const THREADS: u64 = 8;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }
}

struct History {
    seed: u64,
    random: Random,
    /// How long records are locked.
    lock: Duration,
    real: Target,
    ours: Target,
    /// What each member was given and hasn't let go, as far as it knows.
    held: Vec<Vec<Given>>,
    /// When locks end, of whatever a member once had.
    ends: Vec<Instant>,
    log: Vec<String>,
}

impl History {
    fn new(seed: u64, name: &str, lock: Duration, real: &str, ours: &Broker) -> Self {
        let real = Target::new(real, name, None, lock, MEMBERS);
        let id = real.topic_id();
        create_topic(ours, name, id);
        let ours = Target::new(ours.bootstrap_servers(), name, Some(id), lock, MEMBERS);
        Self {
            seed,
            random: Random(seed),
            lock,
            real,
            ours,
            held: vec![Vec::new(); MEMBERS],
            ends: Vec::new(),
            log: Vec::new(),
        }
    }

    /// Does a step to both; their lines must be the same.
    fn both(&mut self, step: impl Fn(&mut Target) -> String) -> Result<(), String> {
        let (real, ours) = (step(&mut self.real), step(&mut self.ours));
        if real == ours {
            self.log.push(real);
            return Ok(());
        }
        Err(self.difference(&real, &ours))
    }

    fn difference(&self, real: &str, ours: &str) -> String {
        let log = self.log.join("\n  ");
        format!("seed {}\n  {log}\nreal  {real}\nours  {ours}", self.seed)
    }

    fn run(&mut self) -> Result<(), String> {
        self.steps(STEPS)?;
        self.wait_for_locks(false);
        self.both(Target::offsets)
    }

    fn steps(&mut self, count: usize) -> Result<(), String> {
        for _ in 0..count {
            self.wait_for_locks(false);
            self.step()?;
        }
        Ok(())
    }

    /// Waits until all locks are over, where one is about to end.
    fn wait_for_locks(&mut self, at_once: bool) {
        let now = Instant::now();
        let is_near = self.ends.iter().any(|end| now + MARGIN > *end);
        if let Some(last) = self.ends.iter().max().filter(|_| is_near || at_once) {
            std::thread::sleep((*last + MARGIN).saturating_duration_since(now));
            self.log.push("locks end".to_owned());
            self.ends.clear();
            self.held = vec![Vec::new(); MEMBERS];
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let member = self.random.below(MEMBERS);
        match self.random.below(100) {
            0..20 => {
                let (partition, records) = (self.partition(), 1 + self.random.below(25));
                self.both(|target| target.produce(partition, records))
            }
            20..55 => self.fetch(member),
            55..82 => {
                let (partition, batches) = self.acks(member);
                let closes = self.random.chance(5);
                self.both(|target| {
                    target.acknowledge(member, partition, batches.clone(), false, closes)
                })?;
                if closes {
                    self.held[member].clear();
                }
                Ok(())
            }
            82..88 => self.renew(member),
            88..90 => {
                self.held[member].clear();
                self.both(|target| target.acknowledge(member, 0, Vec::new(), false, true))
            }
            90..92 => {
                self.held[member].clear();
                self.both(|target| target.cut(member))
            }
            92..95 if self.lock == LOCK => {
                self.wait_for_locks(true);
                Ok(())
            }
            95..98 => {
                let (key, value) = self.random.of(&[
                    ("share.delivery.count.limit", "2"),
                    ("share.delivery.count.limit", "3"),
                    ("share.delivery.count.limit", "5"),
                    ("share.delivery.count.limit", "10"),
                    ("share.partition.max.record.locks", "100"),
                    ("share.partition.max.record.locks", "2000"),
                    ("share.renew.acknowledge.enable", "false"),
                    ("share.renew.acknowledge.enable", "true"),
                ]);
                self.both(|target| target.configure(key, value))
            }
            _ => self.both(Target::offsets),
        }
    }

    fn partition(&mut self) -> i32 {
        self.random.below(PARTITIONS as usize) as i32
    }

    fn fetch(&mut self, member: usize) -> Result<(), String> {
        let mut fetch = Fetch {
            max_records: self.random.of(&[1, 3, 10, 40, 500]),
            // A real broker divides among its partitions, and gives what is left over to one by chance.
            max_bytes: self.random.of(&[6, 720, 1_200_000, 1_200_000]),
            min_bytes: self.random.of(&[1, 1, 1, 300]),
            batch_size: self.random.of(&[1, 5, 30, 500]),
            acquire_mode: self.random.of(&[0, 0, 1]),
            acks: Vec::new(),
            forgets: Vec::new(),
            epoch_off_by: i32::from(self.random.chance(2)),
            max_wait_ms: MAX_WAIT_MS,
        };
        if self.random.chance(1) {
            fetch.acquire_mode = 5;
        }
        for _ in 0..self.random.of(&[0, 0, 0, 1, 2]) {
            let (partition, batches) = self.acks(member);
            let is_new = fetch.acks.iter().all(|(known, _)| *known != partition);
            if is_new && own_partitions(member).contains(&partition) {
                fetch.acks.push((partition, batches));
            }
        }
        if self.random.chance(3) {
            fetch.forgets.push(self.partition());
        }
        let asked = Instant::now();
        let given = self.fetch_from_both(member, &fetch)?;
        if !given.is_empty() {
            self.ends
                .extend([asked + self.lock, Instant::now() + self.lock]);
        }
        self.held[member].extend(given);
        Ok(())
    }

    /// What both give a member.
    fn fetch_from_both(&mut self, member: usize, fetch: &Fetch) -> Result<Vec<Given>, String> {
        self.log.push(format!("{fetch:?}"));
        let (mut real, mut given) = self.real.fetch(member, fetch);
        let (ours, got) = self.ours.fetch(member, fetch);
        // Once in some hundred fetches a real broker under load finds nothing where there is
        // something, and finds it the next time.
        let mut tries = 1;
        while given.is_empty() && !got.is_empty() && fetch.acks.is_empty() && tries < 6 {
            (real, given) = self.real.fetch(member, fetch);
            tries += 1;
        }
        if tries > 1 {
            // Which of up to three partitions comes first depends on the epoch.
            let nothing = Fetch {
                max_records: 0,
                ..Fetch::default()
            };
            (tries..7).for_each(|_| drop(self.real.fetch(member, &nothing)));
        }
        if real != ours {
            return Err(self.difference(&real, &ours));
        }
        self.log.push(format!("  {real}"));
        Ok(given)
    }

    /// Acknowledgements of what a member holds; some of them wrong.
    fn acks(&mut self, member: usize) -> (i32, Vec<AcknowledgementBatch>) {
        let held = &mut self.held[member];
        if held.is_empty() || self.random.chance(5) {
            let first = self.random.below(60) as i64;
            let last = first + self.random.below(10) as i64;
            let kind = self.random.of(&[0, 1, 2, 3]);
            return (self.partition(), vec![batch(first, last, vec![kind])]);
        }
        let index = self.random.below(held.len());
        let keeps = self.random.chance(15);
        let given = if keeps {
            held[index].clone()
        } else {
            held.swap_remove(index)
        };
        let (mut first, mut last) = (given.first, given.last);
        if self.random.chance(30) {
            first += self.random.below((last - first + 1) as usize) as i64;
        }
        if self.random.chance(30) {
            last = first + self.random.below((last - first + 1) as usize) as i64;
        }
        let kinds = [1, 1, 1, 2, 2, 2, 2, 0, 3];
        let mut batches = vec![batch(first, last, vec![self.random.of(&kinds)])];
        match self.random.below(30) {
            0..8 => {
                let types = (first..=last).map(|_| self.random.of(&kinds)).collect();
                batches = vec![batch(first, last, types)];
            }
            8 => batches[0].last_offset += 100,
            9 => batches.push(batch(last, last, vec![1])),
            10 => batches[0].acknowledge_types = vec![],
            11 => batches[0].acknowledge_types = vec![4],
            12 => batches.push(batch(0, 0, vec![1])),
            13 => batches[0].acknowledge_types = vec![7],
            14 if first > 0 => batches[0].first_offset -= 1,
            _ => {}
        }
        (given.partition, batches)
    }

    fn renew(&mut self, member: usize) -> Result<(), String> {
        let Some(given) = self.held[member].first().cloned() else {
            return Ok(());
        };
        let batches = vec![batch(given.first, given.last, vec![4])];
        self.both(|target| {
            target.acknowledge(member, given.partition, batches.clone(), true, false)
        })?;
        self.ends.push(Instant::now() + self.lock);
        Ok(())
    }
}

/// Makes a topic with the id that it has at the real broker: ids decide in which order a fetch visits
/// partitions.
fn create_topic(broker: &Broker, name: &str, id: TopicId) {
    broker.model(|model| {
        let brokers: Vec<BrokerId> = model.brokers().collect();
        let made = model.create_topic(name, PARTITIONS, brokers.len());
        let mut topic = model.topics.remove(made).unwrap();
        topic.id = id;
        for partition in &mut topic.partitions {
            (partition.leader, partition.replicas) = (brokers[0], brokers.clone());
        }
        model.topics.insert(topic);
    });
}

fn batch(first_offset: i64, last_offset: i64, acknowledge_types: Vec<i8>) -> AcknowledgementBatch {
    AcknowledgementBatch {
        first_offset,
        last_offset,
        acknowledge_types,
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A real cluster and ours.
struct Both {
    kafka: Kafka,
    broker: Broker,
    _runtime: tokio::runtime::Runtime,
}

impl Both {
    /// `None` where a real one can't run.
    fn start(brokers: u16) -> Option<Self> {
        let setting = ("group.share.min.record.lock.duration.ms", "1000");
        let builder = Kafka::builder().brokers(brokers);
        let kafka = builder.set(setting.0, setting.1).start_or_skip().unwrap()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let builder = Broker::builder().brokers(brokers.into());
        let broker = builder.set(setting.0, setting.1).start();
        Some(Self {
            kafka,
            broker: runtime.block_on(broker).unwrap(),
            _runtime: runtime,
        })
    }
}

/// Runs histories on some threads; returns those that differ.
fn run_all(
    seeds: &[u64],
    threads: u64,
    run: impl Fn(u64) -> Result<(), String> + Sync,
) -> Vec<(u64, String)> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut failures = Vec::new();
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            failures.extend(run(*seed).err().map(|why| (*seed, why)));
        }
        failures
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let results = workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap());
        results.collect()
    })
}

#[test]
fn seeded_histories_agree_with_a_real_broker() {
    let Some(Both {
        kafka,
        broker,
        _runtime,
    }) = Both::start(1)
    else {
        return;
    };
    let real = kafka.bootstrap_servers();
    let seeds: Vec<u64> = match std::env::var("SHAREGROUP_SEEDS") {
        Ok(seeds) => seeds.split(',').map(|seed| seed.parse().unwrap()).collect(),
        Err(_) => (1..=number("SHAREGROUP_HISTORIES").unwrap_or(24)).collect(),
    };
    // A real broker with much to do finds nothing for a second now and then; with less to do it has
    // its say.
    let mut left = seeds.clone();
    let mut failures = Vec::new();
    let threads = number("SHAREGROUP_THREADS").unwrap_or(THREADS);
    for (round, threads) in [("history", threads), ("again", 4), ("alone", 1)] {
        failures = run_all(&left, threads, |seed| {
            History::new(seed, &format!("{round}-{seed}"), LOCK, &real, &broker).run()
        });
        left = failures.iter().map(|(seed, _)| *seed).collect();
        println!("{round}: {left:?} differ");
    }
    let failures: Vec<String> = failures.into_iter().map(|(_, why)| why).collect();
    println!(
        "histories that agree: {} of {}",
        seeds.len() - failures.len(),
        seeds.len()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
