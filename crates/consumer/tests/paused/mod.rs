//! The real driver against the model in memory, under paused time.

// Each test binary uses a part of it.
#![allow(dead_code, unreachable_pub)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sharegroup_consumer::{
    ClientConfig, ShareBatch, ShareConsumer, ShareConsumerBuilder, ShareEvent, ShareObserver,
};
use sharegroup_testkit::memory::MemoryCluster;
use sharegroup_testkit::model::{Place, Slot};
use tokio::time::timeout;

pub const MS: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);

pub const FETCH: i16 = 78;
pub const ACKNOWLEDGE: i16 = 79;
pub const HEARTBEAT: i16 = 76;
pub const API_VERSIONS: i16 = 18;

/// A cluster of three brokers with a topic `orders`, and its first partition.
pub fn cluster(partitions: usize) -> (MemoryCluster, Place) {
    let cluster = MemoryCluster::new(3);
    let id = cluster.model(|model| model.create_topic("orders", partitions));
    (cluster, (id, 0))
}

pub fn config(cluster: &MemoryCluster) -> ClientConfig {
    let mut config = ClientConfig::new(&cluster.bootstrap_servers()).unwrap();
    config.connector = cluster.connector();
    config.seed = 7;
    config
}

pub fn builder(cluster: &MemoryCluster) -> ShareConsumerBuilder {
    ShareConsumer::builder_with(config(cluster))
        .group_id("group")
        .topics(["orders"])
        .driver_on_current()
}

pub async fn open(cluster: &MemoryCluster) -> ShareConsumer {
    builder(cluster).build().await.unwrap()
}

/// The next batch; it must come within a minute.
pub async fn next(consumer: &mut ShareConsumer) -> ShareBatch {
    timeout(60 * SECOND, consumer.poll())
        .await
        .expect("a batch in time")
        .unwrap()
        .expect("not closed")
}

pub fn offsets(batch: &ShareBatch) -> Vec<i64> {
    batch.records().map(|record| record.offset).collect()
}

pub fn up_to(end: i64) -> Vec<i64> {
    (0..end).collect()
}

/// Offsets of a partition that were accepted.
pub fn accepted(cluster: &MemoryCluster, place: Place) -> Vec<i64> {
    cluster.model(|model| model.offsets(place, |slot| *slot == Slot::Accepted))
}

pub fn available(cluster: &MemoryCluster, place: Place) -> Vec<i64> {
    cluster.model(|model| model.offsets(place, |slot| *slot == Slot::Available))
}

/// No client sent what none may send.
pub fn check_legal(cluster: &MemoryCluster) {
    cluster.model(|model| assert_eq!(model.history().illegal, Vec::<String>::new()));
}

/// Keeps every event.
#[derive(Debug, Default)]
pub struct Seen(Mutex<Vec<ShareEvent>>);

impl Seen {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn events(&self) -> Vec<ShareEvent> {
        self.0.lock().unwrap().clone()
    }
}

impl ShareObserver for Seen {
    fn event(&self, event: &ShareEvent) {
        self.0.lock().unwrap().push(event.clone());
    }
}
