//! A topic, a group that reads it from its start, and a wire to its brokers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_consumer::{
    CommitReport, Delivery, ShareBatch, ShareConsumer, ShareConsumerBuilder, ShareEvent,
    ShareObserver,
};
use tokio::time::{Instant, sleep, timeout};

use crate::both::Cluster;
use crate::group::set_group;
use crate::tap::Tap;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// What nothing takes.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) const METADATA: i16 = 3;
pub(crate) const API_VERSIONS: i16 = 18;
pub(crate) const DESCRIBE_CONFIGS: i16 = 32;
pub(crate) const FETCH: i16 = 78;
pub(crate) const ACKNOWLEDGE: i16 = 79;

pub(crate) struct Case<'a> {
    pub(crate) cluster: &'a Cluster,
    /// The topic's name and the group's.
    pub(crate) name: &'static str,
    pub(crate) tap: Tap,
    pub(crate) admin: Admin,
}

impl<'a> Case<'a> {
    /// A topic of so many partitions, and the settings of its group.
    pub(crate) async fn new(
        cluster: &'a Cluster,
        name: &'static str,
        partitions: i32,
        group: &[(&str, &str)],
    ) -> Self {
        let case = Self::without_topic(cluster, name, group).await;
        case.create_topic(name, partitions).await;
        case
    }

    pub(crate) async fn without_topic(
        cluster: &'a Cluster,
        name: &'static str,
        group: &[(&str, &str)],
    ) -> Self {
        let case = Self {
            cluster,
            name,
            tap: Tap::new(),
            admin: Admin::new(plain(cluster)),
        };
        let always = [
            ("share.auto.offset.reset", "earliest"),
            ("share.heartbeat.interval.ms", "500"),
        ];
        let settings: Vec<_> = always.iter().chain(group).copied().collect();
        set_group(&case.admin, name, &settings).await;
        case
    }

    pub(crate) async fn create_topic(&self, name: &str, partitions: i32) {
        // A topic that was deleted just now may still be there.
        until("the topic is made", async || {
            self.admin
                .create_topic(name, partitions, 1, &[])
                .await
                .is_ok()
        })
        .await;
    }

    pub(crate) async fn set_group(&self, key: &str, value: &str) {
        set_group(&self.admin, self.name, &[(key, value)]).await;
    }

    /// Of a client whose requests go over the tap.
    pub(crate) fn config(&self) -> ClientConfig {
        let mut config = plain(self.cluster);
        config.connector = Arc::new(self.tap.clone());
        config
    }

    pub(crate) fn builder(&self) -> ShareConsumerBuilder {
        let builder = ShareConsumer::builder_with(self.config());
        builder.group_id(self.name).topics([self.name])
    }

    pub(crate) async fn open(&self) -> ShareConsumer {
        self.builder().build().await.unwrap()
    }

    /// Describes another member, whose requests nobody touches.
    pub(crate) fn other(&self) -> ShareConsumerBuilder {
        let builder = ShareConsumer::builder_with(plain(self.cluster));
        builder.group_id(self.name).topics([self.name])
    }

    /// Adds so many records to a partition, in one batch.
    pub(crate) async fn produce(&self, partition: i32, records: usize) {
        self.produce_to(self.name, partition, records).await;
    }

    pub(crate) async fn produce_to(&self, topic: &str, partition: i32, records: usize) {
        let mut config = ProducerConfig::new(plain(self.cluster));
        config.linger = LONG;
        config.batch_bytes_max = 1 << 20;
        let producer = Producer::new(config);
        let mut sent = Vec::new();
        for number in 0..records {
            let record = ProducerRecord::new(topic).partition(partition);
            let record = record.value(number.to_string());
            sent.push(producer.send(record).await.unwrap());
        }
        producer.flush().await.unwrap();
        for delivery in sent {
            delivery.await.unwrap();
        }
        producer.close(LONG).await.unwrap();
    }

    /// Waits until every record of the topic is settled for good.
    pub(crate) async fn drained(&self) {
        until("all is settled for good", async || {
            let offsets = self.admin.share_group_offsets(self.name, None).await;
            let mut offsets = offsets.unwrap();
            offsets.retain(|partition| partition.topic == self.name);
            !offsets.is_empty() && offsets.iter().all(|partition| partition.lag == Some(0))
        })
        .await;
    }

    /// Waits until so many members have an assignment.
    pub(crate) async fn members(&self, count: usize) {
        until("the members are there", async || {
            let group = self.admin.describe_share_group(self.name).await;
            let members = group.map_or(Vec::new(), |group| group.members);
            members.len() == count && members.iter().all(|m| !m.assignment.is_empty())
        })
        .await;
    }

    /// Closes a consumer, and looks at all it has sent.
    pub(crate) async fn close(&self, consumer: ShareConsumer) {
        drop(self.closed(consumer).await);
    }

    /// The same; what became of acknowledgements.
    pub(crate) async fn closed(&self, mut consumer: ShareConsumer) -> CommitReport {
        let report = consumer.close(10 * SECOND).await.unwrap();
        self.tap.check();
        report
    }
}

fn plain(cluster: &Cluster) -> ClientConfig {
    ClientConfig::new(cluster.bootstrap_servers()).unwrap()
}

/// Asks until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        sleep(10 * MS).await;
    }
}

/// Waits until so many records were accepted and so many gaps told: the broker knows it first.
pub(crate) async fn counted(consumer: &ShareConsumer, accepted: u64, gaps: u64) {
    until("all outcomes are counted", async || {
        let metrics = consumer.metrics();
        assert!(
            metrics.accepted <= accepted && metrics.gaps <= gaps,
            "{metrics:?}"
        );
        (metrics.accepted, metrics.gaps) == (accepted, gaps)
    })
    .await;
}

/// The next batch.
pub(crate) async fn next(consumer: &mut ShareConsumer) -> ShareBatch {
    let polled = timeout(LONG, consumer.poll()).await;
    let Ok(polled) = polled else {
        panic!(
            "no batch in time: {:?}, {:?}",
            consumer.status(),
            consumer.metrics()
        );
    };
    polled.unwrap().expect("not closed")
}

/// The next so many records, one by one.
pub(crate) async fn deliveries(consumer: &mut ShareConsumer, count: usize) -> Vec<Delivery> {
    let mut found = Vec::new();
    while found.len() < count {
        let next = timeout(LONG, consumer.next()).await;
        found.push(next.expect("a record in time").unwrap().unwrap());
    }
    found
}

/// Nothing comes for so long.
pub(crate) async fn nothing_for(consumer: &mut ShareConsumer, time: Duration) {
    let polled = timeout(time, consumer.poll()).await;
    assert!(polled.is_err(), "{polled:?}");
}

pub(crate) fn offsets(batch: &ShareBatch) -> Vec<i64> {
    batch.records().map(|record| record.offset).collect()
}

pub(crate) fn up_to(end: i64) -> Vec<i64> {
    (0..end).collect()
}

/// Keeps every event.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<Vec<ShareEvent>>);

impl Seen {
    pub(crate) fn count(&self, is_it: impl Fn(&ShareEvent) -> bool) -> usize {
        self.0
            .lock()
            .unwrap()
            .iter()
            .filter(|event| is_it(event))
            .count()
    }

    pub(crate) fn events(&self) -> Vec<ShareEvent> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn joins(&self) -> usize {
        self.count(|event| matches!(event, ShareEvent::Joined { .. }))
    }
}

impl ShareObserver for Seen {
    fn event(&self, event: &ShareEvent) {
        self.0.lock().unwrap().push(event.clone());
    }
}
