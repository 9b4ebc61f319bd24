//! Records one by one and many at a time, on a real broker and on the embedded one.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod both;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_consumer::{
    AckFailure, Delivery, Outcome, ShareConsumer, ShareEvent, ShareObserver,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use both::{Cluster, on_both};

/// The shortest that the launched brokers allow.
const LOCK: Duration = Duration::from_secs(1);
const LOCK_MS: &str = "1000";

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
    let start = [
        ("share.auto.offset.reset", "earliest"),
        ("share.record.lock.duration.ms", LOCK_MS),
    ];
    for (name, value) in start.iter().chain(group) {
        admin.set_group_config(topic, name, value).await.unwrap();
    }
    let producer = Producer::new(ProducerConfig::new(config(cluster)));
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
        in_time(a_handler_that_panics_gets_its_record_again(cluster)).await;
        in_time(a_shutdown_lets_running_handlers_end(cluster)).await;
    })
    .await;
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
    close(consumer).await;
}

async fn records_of_a_key_come_one_after_the_other(cluster: &Cluster) {
    const TOPIC: &str = "keys";
    const RECORDS: usize = 200;
    // Five keys, and as many records without one.
    let key = |number: usize| number.is_multiple_of(2).then(|| format!("key-{}", number % 5));
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
    assert_eq!(seen.borrow().len(), 6);
    assert!(most.get() > 5, "at most {} at a time", most.get());
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
