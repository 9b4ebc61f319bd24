//! Records one by one and many at a time: on a real broker and on the embedded one, but for what only the
//! latter can be made to do.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod both;
mod group;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use sharegroup_broker::Broker;
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_consumer::{
    AckFailure, Delivery, Outcome, ShareConsumer, ShareEvent, ShareObserver,
};
use sharegroup_wire::ErrorCode;
use tokio::sync::{Barrier, Notify};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use both::{Cluster, on_both};
use group::set_group;

/// Short, and not so short that a busy machine makes it end.
const LOCK: Duration = Duration::from_secs(2);
const LOCK_MS: &str = "2000";

fn config(cluster: &Cluster) -> ClientConfig {
    ClientConfig::new(cluster.bootstrap_servers()).unwrap()
}

/// A topic of one partition with records `0..records`, of which those with a key have it of `key`; and a
/// group that reads it from its start under short locks, with these settings beside.
async fn fill(
    cluster: &Cluster,
    topic: &str,
    records: usize,
    key: fn(usize) -> Option<String>,
    group: &[(&str, &str)],
) {
    let admin = Admin::new(config(cluster));
    admin.create_topic(topic, 1, -1, &[]).await.unwrap();
    prepare(&admin, topic, group).await;
    produce(cluster.bootstrap_servers(), topic, records, key).await;
}

async fn prepare(admin: &Admin, topic: &str, group: &[(&str, &str)]) {
    let start = [
        ("share.auto.offset.reset", "earliest"),
        ("share.record.lock.duration.ms", LOCK_MS),
    ];
    let settings: Vec<_> = start.iter().chain(group).copied().collect();
    set_group(admin, topic, &settings).await;
}

async fn produce(servers: &str, topic: &str, records: usize, key: fn(usize) -> Option<String>) {
    let producer = Producer::new(ProducerConfig::new(ClientConfig::new(servers).unwrap()));
    for number in 0..records {
        let mut record = ProducerRecord::new(topic).value(number.to_string());
        if let Some(key) = key(number) {
            record = record.key(key);
        }
        drop(producer.send(record).await.unwrap());
    }
    producer.close(Duration::from_secs(30)).await.unwrap();
}

async fn open(cluster: &Cluster, topic: &str) -> ShareConsumer {
    let builder = ShareConsumer::builder_with(config(cluster)).group_id(topic);
    builder.topics([topic]).build().await.unwrap()
}

async fn close(mut consumer: ShareConsumer) {
    let report = consumer.close(Duration::from_secs(10)).await.unwrap();
    assert!(report.is_ok(), "{report:?}");
}

/// Nothing here takes so long.
async fn in_time<T>(what: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), what).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn records_one_by_one_and_many_at_a_time() {
    on_both(&[], async |cluster| {
        in_time(every_accept_gets_the_brokers_answer(cluster)).await;
        in_time(a_handler_of_three_locks_gets_each_record_once(cluster)).await;
        in_time(a_blocked_thread_of_three_locks_loses_nothing(cluster)).await;
        in_time(where_renewal_is_refused_a_late_accept_is_never_sent(
            cluster,
        ))
        .await;
        in_time(records_of_a_key_come_one_after_the_other(cluster)).await;
        in_time(as_many_handlers_run_as_were_asked_for(cluster)).await;
        in_time(a_handler_that_panics_gets_its_record_again(cluster)).await;
        in_time(a_shutdown_lets_running_handlers_end(cluster)).await;
    })
    .await;
}

/// How many records [`thousands_in_flight_cost_few_requests`] has. Default 10,000; `cargo xtask prove handlers`
/// sets 100,000.
const HANDLED: &str = "SHAREGROUP_HANDLED";

/// 2,000 handlers at a time, each of up to 200 ms.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_in_flight_cost_few_requests() {
    const TOPIC: &str = "in-flight";
    const IN_FLIGHT: usize = 2_000;
    let records = std::env::var(HANDLED).map_or(10_000, |records| records.parse().unwrap());
    on_both(&[], async |cluster| {
        let admin = Admin::new(config(cluster));
        admin.create_topic(TOPIC, 4, -1, &[]).await.unwrap();
        let lock = ("share.record.lock.duration.ms", "10000");
        prepare(&admin, TOPIC, &[lock]).await;
        let servers = cluster.bootstrap_servers();
        produce(servers, TOPIC, records, |number| Some(number.to_string())).await;
        let latencies = Arc::new(Latencies::default());
        let builder = ShareConsumer::builder_with(config(cluster)).group_id(TOPIC);
        let builder = builder.topics([TOPIC]).observer(Arc::clone(&latencies) as _);
        let mut consumer = builder.build().await.unwrap();
        let (seen, all) = (RefCell::new(BTreeSet::new()), Notify::new());
        let started = Instant::now();
        consumer
            .concurrent(IN_FLIGHT)
            .until(all.notified())
            .for_each(async |delivery| {
                let (partition, offset) = (delivery.partition(), delivery.record().offset);
                let twice = !seen.borrow_mut().insert((partition, offset));
                assert!(!twice, "{partition}-{offset} twice");
                sleep(handler_time(partition, offset)).await;
                if seen.borrow().len() == records {
                    all.notify_one();
                }
                latencies.settled(partition, offset);
                Outcome::Accept
            })
            .await
            .unwrap();
        assert!(consumer.commit().await.unwrap().is_ok());
        let took = started.elapsed();
        let metrics = consumer.metrics();
        let requests = metrics.fetches + metrics.acknowledge_requests;
        println!(
            "{records} records in {took:.1?}, {} ShareFetch, {} ShareAcknowledge: {:.2} requests per 1,000 records",
            metrics.fetches,
            metrics.acknowledge_requests,
            requests as f64 * 1000.0 / records as f64,
        );
        println!("from settled to accepted: {}", latencies.show());
        assert_eq!(metrics.accepted, records as u64, "{metrics:?}");
        came_again(&consumer, 0);
        assert!(requests * 100 <= records as u64, "{metrics:?}");
        close(consumer).await;
    })
    .await;
}

/// Times from a handler's end to the broker's answer.
#[derive(Debug, Default)]
struct Latencies {
    open: Mutex<BTreeMap<(i32, i64), Instant>>,
    taken: Mutex<Vec<Duration>>,
}

impl Latencies {
    fn settled(&self, partition: i32, offset: i64) {
        let mut open = self.open.lock().unwrap();
        open.insert((partition, offset), Instant::now());
    }

    fn show(&self) -> String {
        let mut taken = self.taken.lock().unwrap();
        taken.sort_unstable();
        let at = |share: f64| taken[(taken.len() as f64 * share) as usize];
        format!("p50 {:.1?}, p99 {:.1?}", at(0.5), at(0.99))
    }
}

impl ShareObserver for Latencies {
    fn event(&self, event: &ShareEvent) {
        let ShareEvent::Acknowledged { outcome, .. } = event else {
            return;
        };
        let (first, last) = (outcome.first_offset, outcome.last_offset);
        let partition = outcome.partition.partition;
        let mut open = self.open.lock().unwrap();
        let answered = open.extract_if((partition, first)..=(partition, last), |_, _| true);
        let mut taken = self.taken.lock().unwrap();
        taken.extend(answered.map(|(_, settled)| settled.elapsed()));
    }
}

/// 0 to 200 ms, the same in each run.
fn handler_time(partition: i32, offset: i64) -> Duration {
    let number = (offset as u64 * 4 + partition as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Duration::from_millis((number >> 32) % 201)
}

/// Every second of 1,000 records loses its lock at the broker, unseen: the acknowledgements of a partition
/// are all or nothing there, so one of them spoils the whole request.
#[tokio::test(flavor = "multi_thread")]
async fn stale_acknowledgements_spoil_no_other() {
    const TOPIC: &str = "stale";
    const RECORDS: usize = 1_000;
    let broker = Broker::builder().topic(TOPIC, 1).start().await.unwrap();
    let servers = broker.bootstrap_servers();
    let admin = Admin::new(ClientConfig::new(servers).unwrap());
    let earliest = admin.set_group_config(TOPIC, "share.auto.offset.reset", "earliest");
    earliest.await.unwrap();
    produce(servers, TOPIC, RECORDS, |_| None).await;
    let builder = ShareConsumer::builder(servers).group_id(TOPIC);
    let mut consumer = builder.topics([TOPIC]).build().await.unwrap();
    let held = consumer.deliveries().take(RECORDS);
    let held: Vec<Delivery> = in_time(held.try_collect()).await.unwrap();
    // What is available again stays so.
    consumer.pause();

    let is_stale = |offset: i64| (offset as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63 == 0;
    let stale = broker.model(|model| {
        let limits = model.configs.group(TOPIC).limits;
        let group = model.groups.get_mut(TOPIC).unwrap();
        let loaded = group.loaded.values_mut().next().unwrap();
        let stale = (0..RECORDS as i64).filter(|offset| is_stale(*offset));
        stale
            .map(|offset| loaded.partition.expire_offset(offset, &limits))
            .count()
    });
    assert!((450..550).contains(&stale), "{stale}");
    let (before, started) = (consumer.metrics(), Instant::now());
    let confirmations = held.into_iter().map(|delivery| {
        let offset = delivery.record().offset;
        (offset, delivery.accept())
    });
    for (offset, confirmation) in confirmations.collect::<Vec<_>>() {
        let expected = if is_stale(offset) {
            Err(AckFailure::Broker(ErrorCode::InvalidRecordState))
        } else {
            Ok(())
        };
        assert_eq!(in_time(confirmation).await, expected, "{offset}");
    }
    let requests = consumer.metrics().acknowledge_requests - before.acknowledge_requests;
    println!(
        "{} of {RECORDS} accepted, {stale} stale: {requests} ShareAcknowledge in {:.1?}",
        RECORDS - stale,
        started.elapsed()
    );
    let report = consumer.close(Duration::from_secs(10)).await.unwrap();
    let [partition] = &report.partitions[..] else {
        panic!("{report:?}")
    };
    assert_eq!(partition.failed_records, stale as u64);
}

/// A stream of deliveries, settled in an order of its own.
async fn every_accept_gets_the_brokers_answer(cluster: &Cluster) {
    const TOPIC: &str = "answers";
    const RECORDS: usize = 300;
    fill(cluster, TOPIC, RECORDS, |_| None, &[]).await;
    let mut consumer = open(cluster, TOPIC).await;
    let deliveries = consumer.deliveries().take(RECORDS);
    let mut deliveries: Vec<Delivery> = deliveries.try_collect().await.unwrap();
    deliveries.sort_by_key(|delivery| (delivery.record().offset * 7919) % 1000);
    let confirmations = deliveries.into_iter().map(|delivery| {
        if delivery.record().offset % 10 == 0 {
            delivery.reject()
        } else {
            delivery.accept()
        }
    });
    for confirmation in confirmations.collect::<Vec<_>>() {
        assert_eq!(confirmation.await, Ok(()));
    }
    let metrics = consumer.metrics();
    assert_eq!((metrics.accepted, metrics.rejected), (270, 30));
    close(consumer).await;
}

async fn a_handler_of_three_locks_gets_each_record_once(cluster: &Cluster) {
    const TOPIC: &str = "three-locks";
    const RECORDS: usize = 50;
    fill(cluster, TOPIC, RECORDS, |_| None, &[]).await;
    let mut consumer = open(cluster, TOPIC).await;
    let (seen, all) = (RefCell::new(BTreeSet::new()), Notify::new());
    consumer
        .concurrent(RECORDS)
        .until(all.notified())
        .for_each(async |delivery| {
            let record = delivery.record();
            assert!(seen.borrow_mut().insert(record.offset), "{record:?} twice");
            sleep(3 * LOCK).await;
            if seen.borrow().len() == RECORDS {
                all.notify_one();
            }
            Outcome::Accept
        })
        .await
        .unwrap();
    accepted_once(&mut consumer, RECORDS as u64).await;
    close(consumer).await;
}

/// So many records were delivered again. A handler's failed assertion is a panic, after which its record
/// comes again: it shows here.
fn came_again(consumer: &ShareConsumer, records: u64) {
    let metrics = consumer.metrics();
    assert_eq!(metrics.records_redelivered, records, "{metrics:?}");
}

/// Each of so many records was delivered once, and accepted once.
async fn accepted_once(consumer: &mut ShareConsumer, records: u64) {
    assert!(consumer.commit().await.unwrap().is_ok());
    let metrics = consumer.metrics();
    assert_eq!(metrics.accepted, records, "{metrics:?}");
    assert_eq!(metrics.records_acquired, records, "{metrics:?}");
    assert_eq!(metrics.locks_lost, 0, "{metrics:?}");
    assert!(metrics.records_renewed >= records, "{metrics:?}");
}

/// The runtime's thread is blocked for longer than the lock and the member's session.
async fn a_blocked_thread_of_three_locks_loses_nothing(cluster: &Cluster) {
    const TOPIC: &str = "blocked";
    let session = [
        ("share.heartbeat.interval.ms", "500"),
        ("share.session.timeout.ms", "2000"),
    ];
    fill(cluster, TOPIC, 1, |_| None, &session).await;
    let (joins, all) = (Arc::new(Joins::default()), Notify::new());
    let builder = ShareConsumer::builder_with(config(cluster)).group_id(TOPIC);
    let builder = builder.topics([TOPIC]).observer(Arc::clone(&joins) as _);
    let mut consumer = builder.build().await.unwrap();
    consumer
        .concurrent(1)
        .until(all.notified())
        .for_each(async |delivery| {
            assert_eq!(delivery.record().delivery_count, 1);
            std::thread::sleep(3 * LOCK);
            all.notify_one();
            Outcome::Accept
        })
        .await
        .unwrap();
    accepted_once(&mut consumer, 1).await;
    // A member that missed its session would have joined again.
    assert_eq!(joins.0.load(Ordering::Relaxed), 1);
    close(consumer).await;
}

#[derive(Debug, Default)]
struct Joins(AtomicUsize);

impl ShareObserver for Joins {
    fn event(&self, event: &ShareEvent) {
        if matches!(event, ShareEvent::Joined { .. }) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The lock ends while the record is in work: the accept is reported and never sent, the record comes
/// again, and the older handle can't touch it.
async fn where_renewal_is_refused_a_late_accept_is_never_sent(cluster: &Cluster) {
    const TOPIC: &str = "refused";
    let refused = [("share.renew.acknowledge.enable", "false")];
    fill(cluster, TOPIC, 1, |_| None, &refused).await;
    let mut consumer = open(cluster, TOPIC).await;
    let late = consumer.next().await.unwrap().unwrap();
    let lock = late.lock();
    lock.lost_or_refused().await;
    sleep_until(lock.deadline() + LOCK / 10).await;
    let again = consumer.next().await.unwrap().unwrap();
    assert_eq!(again.record().offset, late.record().offset);
    assert_eq!(again.record().delivery_count, 2);
    let failure = late.accept().await.unwrap_err();
    assert!(
        matches!(failure, AckFailure::LockExpired | AckFailure::Superseded),
        "{failure}"
    );
    assert_eq!(again.accept().await, Ok(()));
    // The late one stands in the report too.
    let report = consumer.commit().await.unwrap();
    let [partition] = &report.partitions[..] else {
        panic!("{report:?}")
    };
    assert_eq!((partition.accepted, partition.failed_records), (1, 1));
    close(consumer).await;
}

async fn records_of_a_key_come_one_after_the_other(cluster: &Cluster) {
    const TOPIC: &str = "keys";
    const RECORDS: usize = 200;
    // Five keys, and as many records without one.
    let key = |number: usize| {
        number
            .is_multiple_of(2)
            .then(|| format!("key-{}", number % 5))
    };
    fill(cluster, TOPIC, RECORDS, key, &[]).await;
    let mut consumer = open(cluster, TOPIC).await;
    let (seen, busy) = (RefCell::new(BTreeMap::new()), RefCell::new(BTreeSet::new()));
    let (done, most, all) = (Cell::new(0), Cell::new(0), Notify::new());
    consumer
        .concurrent(32)
        .in_key_order()
        .until(all.notified())
        .for_each(async |delivery| {
            let record = delivery.record();
            let key = record.key.map(<[u8]>::to_vec);
            // Only the first of a key is in work.
            let name = (key.clone(), key.is_none().then_some(record.offset));
            assert!(busy.borrow_mut().insert(name.clone()), "{name:?}");
            most.set(most.get().max(busy.borrow().len()));
            sleep(Duration::from_millis(record.offset as u64 * 7919 % 10)).await;
            let before = seen.borrow_mut().insert(key.clone(), record.offset);
            assert!(key.is_none() || before.is_none_or(|before| before < record.offset));
            busy.borrow_mut().remove(&name);
            done.set(done.get() + 1);
            if done.get() == RECORDS {
                all.notify_one();
            }
            Outcome::Accept
        })
        .await
        .unwrap();
    came_again(&consumer, 0);
    assert_eq!(seen.borrow().len(), 6);
    assert!(most.get() > 5, "at most {} at a time", most.get());
    close(consumer).await;
}

/// However long each takes: here until all are there.
async fn as_many_handlers_run_as_were_asked_for(cluster: &Cluster) {
    const TOPIC: &str = "barrier";
    const RECORDS: usize = 500;
    fill(cluster, TOPIC, RECORDS, |_| None, &[]).await;
    let mut consumer = open(cluster, TOPIC).await;
    let (all, met) = (Barrier::new(RECORDS), Notify::new());
    consumer
        .concurrent(RECORDS)
        .until(met.notified())
        .for_each(async |_| {
            if all.wait().await.is_leader() {
                met.notify_one();
            }
            Outcome::Accept
        })
        .await
        .unwrap();
    close(consumer).await;
}

async fn a_handler_that_panics_gets_its_record_again(cluster: &Cluster) {
    const TOPIC: &str = "panics";
    const RECORDS: usize = 20;
    fill(cluster, TOPIC, RECORDS, |_| None, &[]).await;
    let mut consumer = open(cluster, TOPIC).await;
    let (accepted, all, started) = (Cell::new(0), Notify::new(), Instant::now());
    consumer
        .concurrent(8)
        .until(all.notified())
        .for_each(async |delivery| {
            let record = delivery.record();
            let bad = record.offset == 7;
            if bad && record.delivery_count == 1 {
                panic!("as a handler with a fault does");
            }
            // Not released at once: that would burn its deliveries.
            assert!(!bad || started.elapsed() >= Duration::from_secs(1));
            assert_eq!(record.delivery_count, 1 + i16::from(bad));
            accepted.set(accepted.get() + 1);
            if accepted.get() == RECORDS {
                all.notify_one();
            }
            Outcome::Accept
        })
        .await
        .unwrap();
    came_again(&consumer, 1);
    close(consumer).await;
}

async fn a_shutdown_lets_running_handlers_end(cluster: &Cluster) {
    const TOPIC: &str = "shutdown";
    const RECORDS: usize = 100;
    fill(cluster, TOPIC, RECORDS, |_| None, &[]).await;
    let mut consumer = open(cluster, TOPIC).await;
    let (running, ended, stop) = (Cell::new(0), Cell::new(0), Notify::new());
    consumer
        .concurrent(10)
        .until(stop.notified())
        .for_each(async |_| {
            running.set(running.get() + 1);
            if running.get() == 10 {
                stop.notify_one();
            }
            sleep(LOCK / 2).await;
            ended.set(ended.get() + 1);
            Outcome::Accept
        })
        .await
        .unwrap();
    assert_eq!((running.get(), ended.get()), (10, 10));
    close(consumer).await;
    // The others are with the next member at once.
    let mut next = open(cluster, TOPIC).await;
    let mut rest = next.deliveries().take(RECORDS - 10);
    while let Some(delivery) = rest.next().await {
        drop(delivery.unwrap().accept());
    }
    close(next).await;
}
