//! Records that arrive damaged: on a real broker, and on the embedded one. What is wrong on one link alone ends
//! delivered, what is wrong in the log ends as a `CorruptBatch`.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod both;
mod group;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_consumer::{PollError, ShareConsumer};
use sharegroup_wire::CorrelationId;
use sharegroup_wire::compress::Compression;
use sharegroup_wire::frame::{decode_response, encode_response};
use sharegroup_wire::message::share_fetch::ShareFetchRequest;
use sharegroup_wire::net::{Address, BoxStream, ConnectFuture, Connector, TcpConnector};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use both::{Cluster, on_both};
use group::set_group;

const SECOND: Duration = Duration::from_secs(1);

/// What a link does to the records of a ShareFetch answer.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Flip,
    Cut,
}

impl Damage {
    fn apply(self, records: &Bytes) -> Bytes {
        match self {
            Self::Flip => {
                // Among what the first batch's checksum covers.
                let mut bytes = BytesMut::from(&records[..]);
                bytes[30] ^= 1;
                bytes.freeze()
            }
            Self::Cut => records.slice(..records.len() * 2 / 3),
        }
    }
}

/// TCP, where the first answers to ShareFetch that have records are damaged.
#[derive(Debug, Clone)]
struct BadLink {
    damage: Damage,
    left: Arc<AtomicUsize>,
    struck: Arc<AtomicUsize>,
}

impl BadLink {
    fn new(damage: Damage, answers: usize) -> Self {
        Self {
            damage,
            left: Arc::new(AtomicUsize::new(answers)),
            struck: Arc::default(),
        }
    }

    /// What becomes of an answer to ShareFetch.
    fn pass(&self, frame: Bytes, version: i16) -> Bytes {
        let mut response = decode_response::<ShareFetchRequest>(&frame, version).unwrap();
        let mut partitions = response
            .responses
            .iter_mut()
            .flat_map(|t| &mut t.partitions);
        let Some(partition) = partitions.find(|partition| !partition.records.is_empty()) else {
            return frame;
        };
        let strike = |left: usize| left.checked_sub(1);
        if (self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, strike))
        .is_err()
        {
            return frame;
        }
        self.struck.fetch_add(1, Ordering::Relaxed);
        partition.records = self.damage.apply(&partition.records);
        let id = i32::from_be_bytes(*frame.first_chunk().unwrap());
        encode_response::<ShareFetchRequest>(&response, version, CorrelationId(id)).slice(4..)
    }
}

impl Connector for BadLink {
    fn connect<'a>(&'a self, address: &'a Address) -> ConnectFuture<'a> {
        Box::pin(async move {
            let broker = TcpConnector::default().connect(address).await?;
            let (client, ours) = tokio::io::duplex(1 << 20);
            let (from_broker, to_broker) = tokio::io::split(broker);
            let (from_client, to_client) = tokio::io::split(ours);
            let asked: Arc<Mutex<HashMap<i32, i16>>> = Arc::default();
            let versions = Arc::clone(&asked);
            tokio::spawn(relay(from_client, to_broker, move |frame| {
                let number = |at: usize| i16::from_be_bytes([frame[at], frame[at + 1]]);
                if number(0) == ShareFetchRequest::API_KEY {
                    let id = i32::from_be_bytes(*frame[4..].first_chunk().unwrap());
                    versions.lock().unwrap().insert(id, number(2));
                }
                frame
            }));
            let link = self.clone();
            tokio::spawn(relay(from_broker, to_client, move |frame| {
                let id = i32::from_be_bytes(*frame.first_chunk().unwrap());
                let version = asked.lock().unwrap().remove(&id);
                match version {
                    Some(version) => link.pass(frame, version),
                    None => frame,
                }
            }));
            Ok(Box::new(client) as BoxStream)
        })
    }
}

/// Passes frames on until either end is closed.
async fn relay(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    pass: impl Fn(Bytes) -> Bytes,
) {
    while let Ok(size) = from.read_u32().await {
        let mut frame = vec![0; size as usize];
        if from.read_exact(&mut frame).await.is_err() {
            break;
        }
        let frame = pass(frame.into());
        let size = u32::try_from(frame.len()).unwrap();
        if to.write_u32(size).await.is_err() || to.write_all(&frame).await.is_err() {
            break;
        }
    }
    drop(to.shutdown().await);
}

/// A topic with so many batches of one record each, whose values tell their offsets, and a group that reads
/// it from its start.
async fn fill(cluster: &Cluster, topic: &str, batches: i64, compression: Compression) {
    let client = || ClientConfig::new(cluster.bootstrap_servers()).unwrap();
    let admin = Admin::new(client());
    admin.create_topic(topic, 1, -1, &[]).await.unwrap();
    set_group(&admin, topic, &[("share.auto.offset.reset", "earliest")]).await;
    let mut config = ProducerConfig::new(client());
    config.compression = compression;
    let producer = Producer::new(config);
    for offset in 0..batches {
        let record = ProducerRecord::new(topic).value(value(offset));
        producer.send(record).await.unwrap().await.unwrap();
    }
    producer.close(30 * SECOND).await.unwrap();
}

fn value(offset: i64) -> String {
    format!("the record at {offset:05}")
}

async fn open(cluster: &Cluster, topic: &str, connector: Arc<dyn Connector>) -> ShareConsumer {
    let mut config = ClientConfig::new(cluster.bootstrap_servers()).unwrap();
    config.connector = connector;
    let builder = ShareConsumer::builder_with(config).group_id(topic);
    builder.topics([topic]).build().await.unwrap()
}

/// Accepts what can be read and rejects the rest, until so many offsets were told.
async fn read(consumer: &mut ShareConsumer, count: usize) -> (Vec<i64>, Vec<(i64, i64)>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    while good.len() + bad.len() < count {
        match timeout(60 * SECOND, consumer.poll()).await.unwrap() {
            Ok(batch) => {
                let batch = batch.unwrap();
                for record in batch.records() {
                    assert_eq!(record.value, Some(value(record.offset).as_bytes()));
                    assert_eq!(record.delivery_count, 1);
                    good.push(record.offset);
                }
                batch.accept();
            }
            Err(PollError::CorruptBatch(corrupt)) => {
                assert!(!corrupt.error().bytes.is_empty());
                bad.push((corrupt.first_offset(), corrupt.last_offset()));
                corrupt.reject();
            }
            Err(error) => panic!("{error}"),
        }
    }
    good.sort_unstable();
    (good, bad)
}

/// Everything is settled: another member gets nothing.
async fn close(mut consumer: ShareConsumer, cluster: &Cluster, topic: &str) {
    let report = consumer.close(10 * SECOND).await.unwrap();
    assert!(report.is_ok(), "{report:?}");
    let mut other = open(cluster, topic, Arc::new(TcpConnector::default())).await;
    let polled = timeout(3 * SECOND, other.poll()).await;
    assert!(polled.is_err(), "{polled:?}");
    drop(other.close(10 * SECOND).await.unwrap());
}

async fn damaged_on_one_link(cluster: &Cluster, topic: &str, damage: Damage, codec: Compression) {
    fill(cluster, topic, 20, codec).await;
    let link = BadLink::new(damage, 3);
    let mut consumer = open(cluster, topic, Arc::new(link.clone())).await;
    let (good, bad) = read(&mut consumer, 20).await;
    assert_eq!((good, bad), ((0..20).collect(), vec![]), "{topic}");
    let metrics = consumer.metrics();
    assert!(link.struck.load(Ordering::Relaxed) > 0);
    assert!(metrics.batches_read_again > 0, "{metrics:?}");
    assert_eq!((metrics.corrupt_batches, metrics.gaps), (0, 0));
    close(consumer, cluster, topic).await;
}

async fn corrupt_in_the_log(cluster: &Cluster) {
    let topic = "corrupt";
    fill(cluster, topic, 50, Compression::None).await;
    cluster.spoil(topic, 2, &value(2));
    let mut consumer = open(cluster, topic, Arc::new(TcpConnector::default())).await;
    let (good, bad) = read(&mut consumer, 50).await;
    let rest: Vec<i64> = (0..50).filter(|offset| *offset != 2).collect();
    assert_eq!((good, bad), (rest, vec![(2, 2)]));
    let metrics = consumer.metrics();
    assert_eq!(
        (metrics.batches_read_again, metrics.corrupt_batches),
        (1, 1)
    );
    close(consumer, cluster, topic).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_018_flipped_bit_and_cut_batch_end_delivered_and_t1_corrupt_batch_is_set_apart() {
    on_both(&[], async |cluster| {
        use Compression::{None, Zstd};
        tokio::join!(
            Box::pin(damaged_on_one_link(cluster, "flipped", Damage::Flip, None)),
            Box::pin(damaged_on_one_link(
                cluster,
                "flipped-zstd",
                Damage::Flip,
                Zstd
            )),
            Box::pin(damaged_on_one_link(cluster, "cut", Damage::Cut, None)),
            Box::pin(damaged_on_one_link(cluster, "cut-zstd", Damage::Cut, Zstd)),
            Box::pin(corrupt_in_the_log(cluster)),
        );
    })
    .await;
}
