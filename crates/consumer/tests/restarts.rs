//! Consumers that come and go: each delivery that nobody saw brings a record nearer to its last.
#![allow(missing_docs, clippy::unwrap_used)]

mod both;
mod group;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use both::{Cluster, on_both};
use group::set_group;
use sharegroup_broker::Broker;
use sharegroup_consumer::admin::{Admin, LogPosition};
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_consumer::{
    ClientConfig, Delivery, Outcome, ShareConsumer, ShareConsumerBuilder, ShareEvent, ShareObserver,
};
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
const RECORDS: usize = 150;

async fn fill(client: &ClientConfig, topic: &str) {
    let producer = Producer::new(ProducerConfig::new(client.clone()));
    for number in 0..RECORDS {
        let record = ProducerRecord::new(topic).value(number.to_string());
        drop(producer.send(record).await.unwrap());
    }
    producer.close(10 * SECOND).await.unwrap();
}

async fn prepared(cluster: &Cluster, topic: &str) -> (ClientConfig, Admin) {
    let client = ClientConfig::new(cluster.bootstrap_servers()).unwrap();
    let admin = Admin::new(client.clone());
    admin.create_topic(topic, 1, -1, &[]).await.unwrap();
    set_group(&admin, topic, &[("share.auto.offset.reset", "earliest")]).await;
    fill(&client, topic).await;
    (client, admin)
}

fn member(client: &ClientConfig, topic: &str) -> ShareConsumerBuilder {
    let builder = ShareConsumer::builder_with(client.clone());
    builder.group_id(topic).topics([topic])
}

async fn lag(admin: &Admin, group_id: &str) -> Option<i64> {
    let offsets = admin.share_group_offsets(group_id, None).await.unwrap();
    offsets.first().and_then(|partition| partition.lag)
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_that_end_after_ten_records_lose_none() {
    on_both(&[], async |cluster| {
        let (client, admin) = prepared(cluster, "ten").await;
        let mut seen = BTreeMap::new();
        while lag(&admin, "ten").await != Some(0) {
            let builder = member(&client, "ten").max_poll_records(1);
            let mut consumer = builder.build().await.unwrap();
            for _ in 0..10 {
                let Ok(polled) = timeout(3 * SECOND, consumer.poll()).await else {
                    break;
                };
                let batch = polled.unwrap().unwrap();
                *seen.entry(batch.first_offset()).or_insert(0) += batch.len();
                batch.accept();
            }
            assert!(consumer.close(5 * SECOND).await.unwrap().is_ok());
        }
        assert_eq!(seen.len(), RECORDS, "archived unseen: {seen:?}");
        assert!(seen.values().all(|times| *times == 1), "{seen:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_of_short_lives_lose_none() {
    on_both(&[], async |cluster| {
        let (client, admin) = prepared(cluster, "short").await;
        let seen = Arc::new(Mutex::new(BTreeMap::new()));
        while lag(&admin, "short").await != Some(0) {
            let mut consumer = member(&client, "short").build().await.unwrap();
            let seen = Arc::clone(&seen);
            let handler = async move |delivery: &Delivery| {
                sleep(SECOND / 10).await;
                let offset = delivery.record().offset;
                *seen.lock().unwrap().entry(offset).or_insert(0) += 1;
                Outcome::Accept
            };
            let handlers = consumer.concurrent(4).until(sleep(SECOND));
            handlers.for_each(handler).await.unwrap();
            assert!(consumer.close(5 * SECOND).await.unwrap().is_ok());
        }
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), RECORDS, "archived unseen: {seen:?}");
        assert!(seen.values().all(|times| *times == 1), "{seen:?}");
    })
    .await;
}

/// How often each record was acquired.
#[derive(Debug, Default)]
struct Acquired(Mutex<BTreeMap<i64, usize>>);

impl ShareObserver for Acquired {
    fn event(&self, event: &ShareEvent) {
        if let ShareEvent::Acquired { ranges, .. } = event {
            let offsets = ranges
                .iter()
                .flat_map(|range| range.first_offset..=range.last_offset);
            let mut acquired = self.0.lock().unwrap();
            offsets.for_each(|offset| *acquired.entry(offset).or_default() += 1);
        }
    }
}

/// The handler takes longer than the lock: each record uses up its deliveries, but none of them unseen.
#[tokio::test(start_paused = true)]
async fn where_each_lock_runs_out_no_delivery_is_unseen() {
    let broker = Broker::builder()
        .in_memory()
        .set("group.share.min.record.lock.duration.ms", "1000")
        .topic("late", 1)
        .group("late", "share.auto.offset.reset", "earliest")
        .group("late", "share.renew.acknowledge.enable", "false")
        .group("late", "share.record.lock.duration.ms", "1500")
        .start()
        .await
        .unwrap();
    let mut client = ClientConfig::new(broker.bootstrap_servers()).unwrap();
    client.connector = broker.connector();
    fill(&client, "late").await;
    let acquired = Arc::new(Acquired::default());
    let builder = member(&client, "late").observer(acquired.clone());
    let mut consumer = builder.driver_on_current().build().await.unwrap();
    let mut seen = BTreeMap::new();
    let ends_at = Instant::now() + 60 * SECOND;
    while Instant::now() < ends_at {
        let delivery = consumer.next().await.unwrap().unwrap();
        *seen.entry(delivery.record().offset).or_insert(0) += 1;
        sleep(2 * SECOND).await;
        drop(delivery.accept());
    }
    let acquired = acquired.0.lock().unwrap().clone();
    let unseen = acquired
        .iter()
        .filter(|(offset, times)| seen.get(*offset) != Some(*times));
    // Those of the start, when nothing was known of the handler.
    assert!(unseen.count() <= 3, "acquired {acquired:?}, seen {seen:?}");
}

/// Whoever means "without a bound" may say so.
#[tokio::test(start_paused = true)]
async fn durations_have_no_upper_bound() {
    let broker = Broker::builder().in_memory().topic("max", 1).start();
    let broker = broker.await.unwrap();
    let mut client = ClientConfig::new(broker.bootstrap_servers()).unwrap();
    client.connector = broker.connector();
    let builder = member(&client, "max")
        .begin_at(LogPosition::Earliest)
        .acknowledge_linger(Duration::MAX)
        .fetch_max_wait(Duration::MAX)
        .hold_max(Some(Duration::MAX))
        .max_poll_interval(Some(Duration::MAX))
        .startup_timeout(Duration::MAX);
    let mut consumer = builder.driver_on_current().build().await.unwrap();
    fill(&client, "max").await;
    let batch = consumer.poll().await.unwrap().unwrap();
    // Held for longer than a lock: it is renewed.
    sleep(60 * SECOND).await;
    batch.accept();
    sleep(60 * SECOND).await;
    assert!(consumer.metrics().accepted > 0, "the linger is bounded");
    assert!(consumer.close(Duration::MAX).await.unwrap().is_ok());
}
