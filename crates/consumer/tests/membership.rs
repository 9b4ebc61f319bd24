//! Membership: what the group's coordinator is told of a member, and `max.poll.interval.ms`: a member whose
//! application doesn't poll leaves its group; one that runs handlers never does.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod both;
mod group;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sharegroup_broker::Broker;
use sharegroup_broker::model::share_partition::RecordState;
use sharegroup_consumer::admin::{Admin, ShareGroupMember};
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_consumer::{
    AckFailure, Delivery, MemberState, Outcome, ShareBatch, ShareConsumer, ShareConsumerBuilder,
    ShareEvent, ShareObserver, Warning,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use both::{Cluster, on_both};
use group::set_group;

const SECOND: Duration = Duration::from_secs(1);
const INTERVAL: Duration = SECOND;

/// Keeps warnings, and tells of each event.
#[derive(Debug, Default)]
struct Watch {
    events: Mutex<Vec<ShareEvent>>,
    changed: Notify,
}

impl Watch {
    fn limits(&self) -> Vec<Duration> {
        let events = self.events.lock().unwrap();
        let limits = events.iter().filter_map(|event| match event {
            ShareEvent::Warning(Warning::NotPolled { limit }) => Some(*limit),
            _ => None,
        });
        limits.collect()
    }

    async fn until(&self, what: impl Fn(&ShareEvent) -> bool) {
        loop {
            let changed = self.changed.notified();
            if self.events.lock().unwrap().iter().any(&what) {
                return;
            }
            changed.await;
        }
    }

    async fn left(&self) {
        self.until(|event| matches!(event, ShareEvent::Warning(Warning::NotPolled { .. })))
            .await;
    }
}

impl ShareObserver for Watch {
    fn event(&self, event: &ShareEvent) {
        self.events.lock().unwrap().push(event.clone());
        self.changed.notify_one();
    }
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    timeout(60 * SECOND, what).await.unwrap()
}

async fn next(consumer: &mut ShareConsumer) -> ShareBatch {
    in_time(consumer.poll()).await.unwrap().unwrap()
}

async fn out_of_the_group(consumer: &ShareConsumer) {
    let mut status = consumer.watch_status();
    let left = status.wait_for(|status| status.state == MemberState::Left);
    in_time(left).await.unwrap();
}

async fn produce(servers: &str, topic: &str, value: &'static str) {
    let producer = Producer::new(ProducerConfig::new(ClientConfig::new(servers).unwrap()));
    let sent = producer.send(ProducerRecord::new(topic).value(value)).await;
    sent.unwrap().await.unwrap();
    producer.close(30 * SECOND).await.unwrap();
}

/// A topic of one partition with one record, and a group that reads it from its start.
async fn fill(cluster: &Cluster, topic: &str) {
    let admin = Admin::new(ClientConfig::new(cluster.bootstrap_servers()).unwrap());
    admin.create_topic(topic, 1, -1, &[]).await.unwrap();
    set_group(&admin, topic, &[("share.auto.offset.reset", "earliest")]).await;
    produce(cluster.bootstrap_servers(), topic, "first").await;
}

fn builder(servers: &str, topic: &str) -> ShareConsumerBuilder {
    let builder = ShareConsumer::builder(servers).group_id(topic);
    builder.topics([topic]).max_poll_interval(Some(INTERVAL))
}

async fn described(cluster: &Cluster, group: &str) -> Vec<ShareGroupMember> {
    let admin = Admin::new(ClientConfig::new(cluster.bootstrap_servers()).unwrap());
    admin.describe_share_group(group).await.unwrap().members
}

async fn members(cluster: &Cluster, group: &str) -> Vec<String> {
    let members = described(cluster, group).await;
    let ids = members.into_iter().map(|member| member.member_id);
    ids.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn t7_a_member_stays_as_long_as_its_application_polls_or_handles() {
    on_both(&[], async |cluster| {
        in_time(the_coordinator_learns_the_rack(cluster)).await;
        in_time(an_application_that_does_not_poll_makes_room(cluster)).await;
        in_time(handlers_may_take_longer(cluster)).await;
    })
    .await;
}

async fn the_coordinator_learns_the_rack(cluster: &Cluster) {
    const TOPIC: &str = "racks";
    fill(cluster, TOPIC).await;
    let servers = cluster.bootstrap_servers();
    // Kafka's default of `client.rack` is the empty string; a broker refuses to be told that.
    for (told, seen) in [("rack-7", Some("rack-7")), ("", None)] {
        let builder = builder(servers, TOPIC).client_rack(told);
        let mut consumer = builder.build().await.unwrap();
        let members = described(cluster, TOPIC).await;
        let racks: Vec<_> = members
            .iter()
            .map(|member| member.rack.as_deref())
            .collect();
        assert_eq!(racks, [seen]);
        drop(consumer.close(10 * SECOND).await.unwrap());
    }
}

async fn an_application_that_does_not_poll_makes_room(cluster: &Cluster) {
    const TOPIC: &str = "silent";
    fill(cluster, TOPIC).await;
    let servers = cluster.bootstrap_servers();
    let watch = Arc::new(Watch::default());
    let silent = builder(servers, TOPIC).observer(Arc::clone(&watch) as _);
    let mut silent = silent.build().await.unwrap();
    let held = next(&mut silent).await;
    let other = builder(servers, TOPIC).max_poll_interval(None);
    let mut other = other.build().await.unwrap();

    watch.left().await;
    assert_eq!(watch.limits(), [INTERVAL]);
    out_of_the_group(&silent).await;
    assert!(silent.status().assignment.is_empty());
    assert_eq!(
        members(cluster, TOPIC).await,
        [other.status().member_id.clone()]
    );
    // What it held comes to the other; its own word for it doesn't count any more.
    let again = next(&mut other).await;
    assert_eq!(again.record(0).unwrap().delivery_count, 2);
    again.accept();
    assert!(other.commit().await.unwrap().is_ok());
    assert_eq!(held.lock().lost(), Some(AckFailure::SessionEnded));
    held.accept();
    drop(other.close(10 * SECOND).await.unwrap());

    // The next poll joins again.
    produce(servers, TOPIC, "second").await;
    let second = next(&mut silent).await;
    assert_eq!(second.record(0).unwrap().value, Some(&b"second"[..]));
    second.accept();
    let member = silent.status().member_id.clone();
    assert_eq!(members(cluster, TOPIC).await, [member]);
    let report = silent.close(10 * SECOND).await.unwrap();
    let failed = report
        .partitions
        .iter()
        .flat_map(|partition| &partition.failed);
    let failed: Vec<_> = failed
        .map(|range| (range.first_offset, range.why))
        .collect();
    assert_eq!(failed, [(0, AckFailure::SessionEnded)], "its late word");
    assert_eq!(silent.metrics().accepted, 1);
}

async fn handlers_may_take_longer(cluster: &Cluster) {
    const TOPIC: &str = "handled";
    fill(cluster, TOPIC).await;
    let watch = Arc::new(Watch::default());
    let builder = builder(cluster.bootstrap_servers(), TOPIC);
    let builder = builder.observer(Arc::clone(&watch) as _);
    let mut consumer = builder.build().await.unwrap();
    let done = Notify::new();
    consumer
        .concurrent(1)
        .until(done.notified())
        .for_each(async |_: &Delivery| {
            sleep(3 * INTERVAL).await;
            done.notify_one();
            Outcome::Accept
        })
        .await
        .unwrap();
    assert!(consumer.close(10 * SECOND).await.unwrap().is_ok());
    let metrics = consumer.metrics();
    assert_eq!((metrics.accepted, metrics.records_acquired), (1, 1));
    assert!(watch.limits().is_empty());
}

/// An embedded broker in memory with a topic of one record, and a consumer of it, on the paused clock.
async fn in_memory(
    configure: impl FnOnce(ShareConsumerBuilder) -> ShareConsumerBuilder,
) -> (Broker, ShareConsumer, Arc<Watch>) {
    let broker = Broker::builder()
        .in_memory()
        .topic("orders", 1)
        .set("group.share.min.record.lock.duration.ms", "1000")
        .group("orders", "share.record.lock.duration.ms", "5000")
        .group("orders", "share.auto.offset.reset", "earliest")
        .start()
        .await
        .unwrap();
    let mut config = ClientConfig::new(broker.bootstrap_servers()).unwrap();
    config.connector = broker.connector();
    let producer = Producer::new(ProducerConfig::new(config.clone()));
    let sent = producer.send(ProducerRecord::new("orders").value("first"));
    sent.await.unwrap().await.unwrap();
    let watch = Arc::new(Watch::default());
    let builder = ShareConsumer::builder_with(config)
        .group_id("orders")
        .topics(["orders"])
        .max_poll_interval(Some(INTERVAL))
        .observer(Arc::clone(&watch) as _)
        .driver_on_current();
    let consumer = configure(builder).build().await.unwrap();
    (broker, consumer, watch)
}

#[tokio::test(start_paused = true)]
async fn who_waits_in_a_poll_stays() {
    let (_broker, mut consumer, watch) = in_memory(|builder| builder).await;
    next(&mut consumer).await.accept();
    assert!(timeout(100 * INTERVAL, consumer.poll()).await.is_err());
    assert!(watch.limits().is_empty());
    // From here on it doesn't wait any more.
    let started = Instant::now();
    watch.left().await;
    assert!(started.elapsed() <= INTERVAL, "{:?}", started.elapsed());
    assert_eq!(watch.limits(), [INTERVAL]);
}

#[tokio::test(start_paused = true)]
async fn b_069_work_longer_than_the_poll_interval_is_done_once() {
    let (_broker, mut consumer, watch) =
        in_memory(|builder| builder.max_poll_interval(Some(10 * SECOND))).await;
    let done = Notify::new();
    let handled = consumer.concurrent(1).until(done.notified());
    handled
        .for_each(async |_: &Delivery| {
            sleep(12 * SECOND).await;
            done.notify_one();
            Outcome::Accept
        })
        .await
        .unwrap();
    assert!(consumer.commit().await.unwrap().is_ok());
    let metrics = consumer.metrics();
    assert_eq!((metrics.accepted, metrics.records_acquired), (1, 1));
    assert!(watch.limits().is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_a_member_stays_for_ever() {
    let (_broker, mut consumer, watch) =
        in_memory(|builder| builder.max_poll_interval(None).hold_max(None)).await;
    let held = next(&mut consumer).await;
    sleep(3600 * SECOND).await;
    assert!(watch.limits().is_empty());
    held.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    assert_eq!(consumer.metrics().accepted, 1);
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_made_before_the_member_leaves_is_sent() {
    let (_broker, mut consumer, watch) =
        in_memory(|builder| builder.acknowledge_linger(3600 * SECOND)).await;
    next(&mut consumer).await.accept();
    consumer.pause();
    watch.left().await;
    out_of_the_group(&consumer).await;
    assert_eq!(consumer.metrics().accepted, 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_fetched_ahead_is_released_when_the_member_leaves() {
    // The first assignment takes its time.
    let (broker, mut consumer, watch) =
        in_memory(|builder| builder.max_poll_interval(Some(10 * SECOND))).await;
    let polled = timeout(Duration::ZERO, consumer.poll()).await;
    assert!(polled.is_err(), "{polled:?}");
    watch.left().await;
    out_of_the_group(&consumer).await;
    let unseen = |event: &ShareEvent| matches!(event, ShareEvent::Released { .. });
    in_time(watch.until(unseen)).await;
    broker.model(|model| {
        let group = model.groups.get("orders").unwrap();
        let loaded = group.loaded.values().next().unwrap();
        let mut records = loaded.partition.records();
        assert!(records.all(|(_, record)| record.state == RecordState::Available));
    });
}

#[tokio::test(start_paused = true)]
async fn a_poll_while_the_member_leaves_joins_again_at_once() {
    let (_broker, mut consumer, watch) = in_memory(|builder| builder).await;
    let held = next(&mut consumer).await;
    watch.left().await;
    let again = next(&mut consumer).await;
    assert_eq!(again.record(0).unwrap().delivery_count, 2);
    assert!(held.lock().lost().is_some());
    again.accept();
    assert!(consumer.close(10 * SECOND).await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_consumer_out_of_its_group_closes_at_once() {
    let (_broker, mut consumer, watch) = in_memory(|builder| builder).await;
    watch.left().await;
    out_of_the_group(&consumer).await;
    let started = Instant::now();
    assert!(consumer.close(10 * SECOND).await.unwrap().is_ok());
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(consumer.poll().await.unwrap().is_none());
}
