//! What is handed out while little of its lock is left, and what becomes of a last delivery.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod both;
mod group;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use both::on_both;
use sharegroup_broker::Broker;
use sharegroup_broker::model::fault_script::FaultScript;
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_consumer::{
    ClientConfig, LastDelivery, ReleaseReason, ShareConsumer, ShareConsumerBuilder, ShareEvent,
    ShareObserver,
};
use tokio::time::{Instant, sleep, sleep_until, timeout};

const SECOND: Duration = Duration::from_secs(1);
const GROUP: &str = "workers";

/// Keeps every event.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<ShareEvent>>);

impl Seen {
    fn events(&self) -> Vec<ShareEvent> {
        self.0.lock().unwrap().clone()
    }

    /// Offsets that were released for a reason.
    fn released(&self, reason: ReleaseReason) -> Vec<i64> {
        let events = self.events();
        let released = events.iter().filter_map(|event| match event {
            ShareEvent::Released { release, .. } if release.why == reason => {
                Some(release.first_offset..=release.last_offset)
            }
            _ => None,
        });
        released.flatten().collect()
    }

    fn locks_lost(&self) -> usize {
        let events = self.events();
        let lost = |event: &&ShareEvent| matches!(event, ShareEvent::LockLost { .. });
        events.iter().filter(lost).count()
    }
}

impl ShareObserver for Seen {
    fn event(&self, event: &ShareEvent) {
        self.0.lock().unwrap().push(event.clone());
    }
}

fn member(client: &ClientConfig) -> ShareConsumerBuilder {
    ShareConsumer::builder_with(client.clone())
        .group_id(GROUP)
        .topics(["orders"])
}

/// Writes `0..count` as one producer batch.
async fn produce(client: &ClientConfig, count: i32) {
    let producer = Producer::new(ProducerConfig::new(client.clone()));
    for number in 0..count {
        let record = ProducerRecord::new("orders").value(number.to_string());
        drop(producer.send(record).await.unwrap());
    }
    producer.flush().await.unwrap();
    producer.close(5 * SECOND).await.unwrap();
}

async fn prepared(servers: &str, settings: &[(&str, &str)]) -> ClientConfig {
    let client = ClientConfig::new(servers).unwrap();
    let admin = Admin::new(client.clone());
    admin.create_topic("orders", 1, 1, &[]).await.unwrap();
    group::set_group(&admin, GROUP, settings).await;
    client
}

#[tokio::test(start_paused = true)]
async fn records_whose_renewal_is_overdue_are_handed_out_when_it_has_come() {
    let broker = Broker::builder()
        .in_memory()
        .topic("orders", 1)
        .group(GROUP, "share.auto.offset.reset", "earliest")
        .group(GROUP, "share.record.lock.duration.ms", "20000")
        // The renewal goes out at 10 s.
        .faults(FaultScript::parse("ShareAcknowledge first 1: delay 8s").unwrap())
        .start()
        .await
        .unwrap();
    let mut client = ClientConfig::new(broker.bootstrap_servers()).unwrap();
    client.connector = broker.connector();
    produce(&client, 10).await;
    let mut consumer = member(&client)
        .driver_on_current()
        .max_poll_records(5)
        .build()
        .await
        .unwrap();
    let first = consumer.poll().await.unwrap().unwrap();
    let acquired_at = first.lock().deadline() - 20 * SECOND;
    // Less than a quarter is left.
    sleep_until(acquired_at + 16 * SECOND).await;
    let second = consumer.poll().await.unwrap().unwrap();
    let waited_until = Instant::now();
    assert!(
        waited_until >= acquired_at + 18 * SECOND,
        "handed out {:?} after it was acquired",
        waited_until - acquired_at
    );
    assert!(second.lock().deadline() >= waited_until + 10 * SECOND);
    first.accept();
    second.accept();
    drop(consumer.commit().await.unwrap());
    assert_eq!(consumer.metrics().accepted, 10);
    drop(consumer.close(5 * SECOND).await);
}

#[tokio::test(start_paused = true)]
async fn who_holds_all_and_waits_for_more_gets_more() {
    const RECORDS: i32 = 900;
    let broker = Broker::builder()
        .in_memory()
        .topic("orders", 1)
        .group(GROUP, "share.auto.offset.reset", "earliest")
        .start()
        .await
        .unwrap();
    let mut client = ClientConfig::new(broker.bootstrap_servers()).unwrap();
    client.connector = broker.connector();
    // Small batches: none brings more than was asked for.
    for _ in 0..RECORDS / 10 {
        produce(&client, 10).await;
    }
    let consumer = member(&client).driver_on_current().build().await;
    let mut consumer = consumer.unwrap();
    let mut held = Vec::new();
    while held.len() < RECORDS as usize {
        let next = timeout(60 * SECOND, consumer.next()).await;
        held.push(next.expect("more records").unwrap().unwrap());
    }
    for delivery in held {
        drop(delivery.accept());
    }
    drop(consumer.close(5 * SECOND).await);
    assert_eq!(consumer.metrics().accepted, RECORDS as u64);
}

#[tokio::test]
async fn without_renewal_a_record_that_can_not_be_finished_is_given_back_once() {
    const RECORDS: i32 = 20;
    on_both(&[], async |cluster| {
        let settings = [
            ("share.auto.offset.reset", "earliest"),
            ("share.renew.acknowledge.enable", "false"),
            ("share.record.lock.duration.ms", "2000"),
        ];
        let client = prepared(cluster.bootstrap_servers(), &settings).await;
        produce(&client, RECORDS).await;
        let seen = Arc::new(Seen::default());
        let mut consumer = member(&client)
            .observer(seen.clone())
            .build()
            .await
            .unwrap();
        // Who takes many at once holds many.
        let polled = timeout(Duration::ZERO, consumer.poll()).await;
        assert!(polled.is_err(), "{polled:?}");
        let mut done: BTreeMap<i64, i16> = BTreeMap::new();
        while done.len() < RECORDS as usize {
            let next = timeout(30 * SECOND, consumer.next());
            let delivery = next.await.unwrap().unwrap().unwrap();
            let record = delivery.record();
            let (offset, count) = (record.offset, record.delivery_count);
            // The work.
            sleep(Duration::from_millis(300)).await;
            assert_eq!(done.insert(offset, count), None, "{offset} was done twice");
            drop(delivery.accept());
        }
        drop(consumer.close(5 * SECOND).await.unwrap());
        assert_eq!(seen.locks_lost(), 0, "{:?}", seen.events());
        let mut given_back = seen.released(ReleaseReason::TooLate);
        let times = given_back.len();
        given_back.dedup();
        assert!(times > 0, "nothing was ever too late");
        assert_eq!(given_back.len(), times, "given back twice");
        assert!(done.values().all(|count| *count <= 2), "{done:?}");
        let metrics = consumer.metrics();
        assert_eq!(metrics.accepted, RECORDS as u64);
    })
    .await;
}

#[tokio::test]
async fn implicit_mode_accepts_what_another_poll_or_a_commit_follows_and_nothing_else() {
    on_both(&[], async |cluster| {
        let settings = [("share.auto.offset.reset", "earliest")];
        let client = prepared(cluster.bootstrap_servers(), &settings).await;
        produce(&client, 15).await;
        let build = async || {
            let builder = member(&client).max_poll_records(5);
            builder.build().await.unwrap()
        };
        let mut consumer = build().await;
        for polls in [2, 1] {
            for _ in 0..polls {
                let polled = timeout(30 * SECOND, consumer.poll_implicit());
                assert_eq!(polled.await.unwrap().unwrap().unwrap().len(), 5);
            }
            if polls == 2 {
                assert!(consumer.commit().await.unwrap().is_ok());
                assert_eq!(consumer.metrics().accepted, 10);
            }
        }
        drop(consumer.close(5 * SECOND).await.unwrap());
        assert_eq!(consumer.metrics().accepted, 10);
        assert_eq!(consumer.metrics().released, 5);
        let mut next = build().await;
        let polled = timeout(30 * SECOND, next.poll_implicit());
        let again = polled.await.unwrap().unwrap().unwrap();
        let offsets: Vec<i64> = again.records().map(|record| record.offset).collect();
        assert_eq!(offsets, [10, 11, 12, 13, 14]);
        drop(next.close(5 * SECOND).await);
    })
    .await;
}

/// What is dropped on a last delivery goes where the observer says.
#[derive(Debug)]
struct Says(LastDelivery, Arc<Seen>);

impl ShareObserver for Says {
    fn event(&self, event: &ShareEvent) {
        self.1.event(event);
    }

    fn last_delivery(&self, _: &Arc<str>, _: &sharegroup_consumer::Release) -> LastDelivery {
        self.0
    }
}

#[tokio::test]
async fn b_054_record_that_is_dropped_on_its_last_allowed_delivery_is_settled_and_named() {
    on_both(&[], async |cluster| {
        let settings = [
            ("share.auto.offset.reset", "earliest"),
            ("share.delivery.count.limit", "2"),
        ];
        let client = prepared(cluster.bootstrap_servers(), &settings).await;
        produce(&client, 2).await;
        let seen = Arc::new(Seen::default());
        let observer = Arc::new(Says(LastDelivery::default(), seen.clone()));
        let mut consumer = member(&client).observer(observer).build().await.unwrap();
        let mut deliveries = 0;
        loop {
            let next = timeout(30 * SECOND, consumer.next());
            let delivery = next.await.unwrap().unwrap().unwrap();
            let (offset, count) = (delivery.record().offset, delivery.record().delivery_count);
            deliveries += 1;
            if offset == 0 {
                drop(delivery.accept());
                continue;
            }
            drop(delivery);
            if count == 2 {
                break;
            }
        }
        drop(consumer.close(5 * SECOND).await.unwrap());
        assert_eq!(deliveries, 3);
        let events = seen.events();
        let told: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                ShareEvent::LastDeliveryDropped {
                    topic,
                    release,
                    settled,
                } => Some((topic.as_ref(), release.first_offset, *settled)),
                _ => None,
            })
            .collect();
        assert_eq!(told, [("orders", 1, LastDelivery::Reject)]);
        assert_eq!(consumer.metrics().rejected, 1);
    })
    .await;
}
