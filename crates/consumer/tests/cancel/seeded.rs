//! Everything at once: random operations, dropped at random waits, by seed.

use std::collections::BTreeSet;
use std::time::Duration;

use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::producer::{Producer, ProducerRecord};
use sharegroup_consumer::{Delivery, Outcome, ShareBatch, ShareConsumer};
use tokio::time::{sleep, timeout};

use futures_util::StreamExt;

use super::{Cut, GROUP, IN_TIME, MS, PARTITIONS, SECOND, TOPIC, World, cut};

const SEEDS: u64 = 40;

/// Operations of a seed.
const OPERATIONS: usize = 60;

/// One consumer, one producer, one admin client, and what they left over.
struct Bench {
    state: u64,
    consumer: ShareConsumer,
    producer: Producer,
    admin: Admin,
    batches: Vec<ShareBatch>,
    deliveries: Vec<Delivery>,
    /// Values that the producer accepted.
    accepted: BTreeSet<String>,
    sent: usize,
}

impl Bench {
    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % end
    }

    fn cut(&mut self) -> Cut {
        let waits = usize::try_from(self.below(6)).unwrap();
        match self.below(2) {
            0 => Cut::Waiting(waits),
            _ => Cut::Woken(waits),
        }
    }

    async fn operate(&mut self) {
        let at = self.cut();
        match self.below(10) {
            0 | 1 => self.send(at).await,
            2 => drop(cut(at, self.producer.flush()).await),
            3 => {
                let polled = cut(at, timeout(100 * MS, self.consumer.poll())).await;
                let batch = polled.and_then(Result::ok).map(|polled| polled.unwrap());
                self.batches.extend(batch.flatten());
            }
            4 => {
                let next = cut(at, timeout(100 * MS, self.consumer.next())).await;
                let delivery = next.and_then(Result::ok).map(|next| next.unwrap());
                self.deliveries.extend(delivery.flatten());
            }
            5 => {
                let mut stream = self.consumer.deliveries();
                let next = cut(at, timeout(100 * MS, stream.next())).await;
                let delivery = next.and_then(Result::ok).map(|next| next.unwrap());
                self.deliveries.extend(delivery.transpose().unwrap());
            }
            6 => drop(cut(at, self.consumer.commit()).await),
            7 => {
                let handle = async |_: &Delivery| {
                    sleep(3 * MS).await;
                    Outcome::Accept
                };
                let running = self.consumer.concurrent(3).until(sleep(20 * MS));
                drop(cut(at, running.for_each(handle)).await);
            }
            8 => self.settle(at).await,
            _ => self.ask(at).await,
        }
    }

    async fn send(&mut self, at: Cut) {
        let value = self.sent.to_string();
        let partition = i32::try_from(self.sent).unwrap() % PARTITIONS;
        self.sent += 1;
        let record = ProducerRecord::new(TOPIC)
            .partition(partition)
            .value(value.clone());
        if let Some(delivery) = cut(at, self.producer.send(record)).await {
            self.accepted.insert(value);
            drop(cut(at, delivery.unwrap()).await);
        }
    }

    async fn settle(&mut self, at: Cut) {
        if !self.deliveries.is_empty() {
            let index = usize::try_from(self.below(self.deliveries.len() as u64)).unwrap();
            let delivery = self.deliveries.swap_remove(index);
            let lost = cut(at, timeout(10 * MS, delivery.lock().lost_or_refused())).await;
            assert!(lost.is_none_or(|lost| lost.is_err()));
            let answer = cut(at, delivery.accept()).await;
            assert!(answer.is_none_or(|answer| answer.is_ok()));
        }
        if let Some(batch) = self.batches.pop() {
            batch.accept();
        }
    }

    async fn ask(&mut self, at: Cut) {
        let admin = &self.admin;
        let asked = async {
            admin.describe_share_group(GROUP).await.unwrap();
            admin.find_topic(TOPIC).await.unwrap().unwrap();
        };
        let _ = cut(at, asked).await;
    }
}

#[tokio::test(start_paused = true)]
async fn t9_anything_dropped_anywhere_loses_nothing_and_doubles_nothing() {
    for seed in 0..SEEDS {
        let run = timeout(4 * IN_TIME, play(seed)).await;
        run.unwrap_or_else(|_| panic!("hangs with seed {seed}"));
    }
}

async fn play(seed: u64) {
    println!("seed {seed}");
    let mut world = World::new().await;
    let mut bench = Bench {
        state: seed,
        consumer: world.consumer().await,
        producer: world.producer(),
        admin: Admin::new(world.config()),
        batches: Vec::new(),
        deliveries: Vec::new(),
        accepted: BTreeSet::new(),
        sent: 0,
    };
    for _ in 0..OPERATIONS {
        bench.operate().await;
        let pause = Duration::from_millis(bench.below(30));
        sleep(pause).await;
    }
    bench.producer.close(10 * SECOND).await.unwrap();
    let written = (0..PARTITIONS).flat_map(|partition| world.values(partition));
    let written: Vec<String> = written.collect();
    assert_eq!(written.len(), bench.accepted.len(), "once each");
    assert_eq!(written.into_iter().collect::<BTreeSet<_>>(), bench.accepted);
    world.note_records();
    bench.batches.clear();
    bench.deliveries.clear();
    world.finish(bench.consumer).await;
}
