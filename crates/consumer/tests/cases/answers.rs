//! What answers to fetches may hold: markers, holes, lies, and records of every kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerHeader, ProducerRecord};
use sharegroup_consumer::{ShareConsumer, TimestampType};
use sharegroup_wire::ErrorCode;
use sharegroup_wire::compress::Compression;
use sharegroup_wire::id::BrokerId;
use sharegroup_wire::message::share_fetch::{
    AcquiredRecords, FetchedPartition, LeaderIdAndEpoch, ShareFetchRequest, ShareFetchResponse,
};
use sharegroup_wire::record::RecordBatchBuilder;
use tokio::time::{Instant, timeout};

use crate::both::{Cluster, on_shared};
use crate::case::{Case, LONG, MS, SECOND, counted, deliveries, next, nothing_for, offsets, until};
use crate::transactions::Teller;

/// The partition of an answer that acquires something, if one does.
fn acquiring(answer: &mut ShareFetchResponse) -> Option<&mut FetchedPartition> {
    let topics = answer.responses.iter_mut();
    let mut partitions = topics.flat_map(|topic| &mut topic.partitions);
    partitions.find(|partition| !partition.acquired_records.is_empty())
}

/// Polls, and looks at nothing, until the group has settled all.
async fn drain(case: &Case<'_>, consumer: &mut ShareConsumer) {
    tokio::select! {
        polled = consumer.poll() => panic!("{polled:?}"),
        () = case.drained() => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t17_absent_leader_hint_moves_nothing() {
    on_shared(t17).await;
}

async fn t17(cluster: &Cluster) {
    let case = Case::new(cluster, "t17", 1, &[]).await;
    let mut consumer = case.open().await;
    nothing_for(&mut consumer, MS).await;
    for hint in [(-1, -1), (0, 0)] {
        let told = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&told);
        case.tap.answers::<ShareFetchRequest>(move |answer| {
            let topics = answer.responses.iter_mut();
            let Some(partition) = topics.flat_map(|topic| &mut topic.partitions).next() else {
                return false;
            };
            partition.error_code = ErrorCode::NotLeaderOrFollower;
            partition.current_leader = LeaderIdAndEpoch {
                leader_id: BrokerId(hint.0),
                leader_epoch: hint.1,
            };
            tell.store(true, Ordering::Relaxed);
            true
        });
        case.produce(0, 1).await;
        // What the answer held stays locked there: the client never learns of it.
        until("the lie", async || told.load(Ordering::Relaxed)).await;
        case.produce(0, 1).await;
        next(&mut consumer).await.accept();
        until("the leader is the one it was", async || {
            let assignment = consumer.status().assignment;
            assignment
                .first()
                .is_some_and(|view| view.leader == Some(BrokerId(1)))
        })
        .await;
    }
    let addresses = case.tap.sent().into_iter().map(|sent| sent.address);
    assert!(
        addresses
            .collect::<Vec<_>>()
            .iter()
            .all(|a| a == cluster.bootstrap_servers())
    );
    case.close(consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t18_offsets_without_a_record_are_acknowledged_as_gaps() {
    on_shared(async |cluster| {
        markers(cluster).await;
        holes(cluster).await;
        nothing_but_holes(cluster).await;
    })
    .await;
}

/// Transaction markers between acknowledged records.
async fn markers(cluster: &Cluster) {
    let case = Case::new(cluster, "t18-markers", 1, &[]).await;
    let mut teller = Teller::open(cluster.bootstrap_servers(), case.name).await;
    for (value, committed) in [("a", true), ("b", false), ("c", true)] {
        teller.transact(value, committed).await;
    }
    let mut consumer = case.open().await;
    for delivery in deliveries(&mut consumer, 3).await {
        assert_eq!(delivery.record().offset % 2, 0, "a marker");
        drop(delivery.accept());
    }
    drain(&case, &mut consumer).await;
    counted(&consumer, 3, 3).await;
    case.close(consumer).await;
}

/// A batch of ten as compaction leaves it.
async fn holes(cluster: &Cluster) {
    let case = Case::new(cluster, "t18-holes", 1, &[]).await;
    compact(&case, &[0, 1, 2, 4, 5, 6, 9]);
    case.produce(0, 10).await;
    let mut consumer = case.open().await;
    let batch = next(&mut consumer).await;
    assert_eq!(offsets(&batch), [0, 1, 2, 4, 5, 6, 9]);
    batch.accept();
    drain(&case, &mut consumer).await;
    counted(&consumer, 7, 3).await;
    case.close(consumer).await;
}

async fn nothing_but_holes(cluster: &Cluster) {
    let case = Case::new(cluster, "t18-only-holes", 1, &[]).await;
    compact(&case, &[]);
    case.produce(0, 10).await;
    let mut consumer = case.open().await;
    drain(&case, &mut consumer).await;
    counted(&consumer, 0, 10).await;
    nothing_for(&mut consumer, SECOND).await;
    assert_eq!(consumer.metrics().records_acquired, 10);
    case.close(consumer).await;
}

/// Takes all but these out of the first batch of ten that is fetched.
fn compact(case: &Case<'_>, left: &'static [i32]) {
    case.tap.answers::<ShareFetchRequest>(move |answer| {
        let Some(partition) = acquiring(answer) else {
            return false;
        };
        assert_eq!(partition.acquired_records[0].last_offset, 9);
        partition.records = if left.is_empty() {
            empty_batch()
        } else {
            let mut batch = RecordBatchBuilder::new(Compression::None);
            for delta in left {
                batch.push_at(*delta, 0, None, Some(b"v"), []).unwrap();
            }
            batch.build(0).unwrap()
        };
        true
    });
}

/// Offsets 0 to 9 without a record.
fn empty_batch() -> Bytes {
    let hex = "00000000000000000000003100000000024ccfdcb800000000000900000000000003e800000000000003e8\
               000000000000000900000000000000000000";
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect::<Vec<_>>().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn t19_hostile_ranges_cost_neither_time_nor_memory() {
    on_shared(t19).await;
}

async fn t19(cluster: &Cluster) {
    let range = |first_offset, last_offset| AcquiredRecords {
        first_offset,
        last_offset,
        delivery_count: 1,
    };
    let lies = [
        ("t19-endless", vec![range(0, i64::MAX)]),
        ("t19-more", vec![range(i64::MIN, i64::MAX), range(0, 4)]),
        ("t19-again", vec![range(0, 4), range(0, 4), range(2, 3)]),
        (
            "t19-inverted",
            vec![range(4, 0), range(7, 2), range(3, 4), range(0, 1)],
        ),
    ];
    join_all(lies.map(|(name, lie)| believe(cluster, name, lie))).await;
}

/// A client that was lied to about what it acquired: it goes on, and ends.
async fn believe(cluster: &Cluster, name: &'static str, lie: Vec<AcquiredRecords>) {
    let case = Case::new(cluster, name, 1, &[]).await;
    let told = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&told);
    case.tap.answers::<ShareFetchRequest>(move |answer| {
        let Some(partition) = acquiring(answer) else {
            return false;
        };
        partition.acquired_records = lie.clone();
        tell.store(true, Ordering::Relaxed);
        true
    });
    let mut consumer = case.open().await;
    nothing_for(&mut consumer, MS).await;
    case.produce(0, 5).await;
    until("the lie", async || told.load(Ordering::Relaxed)).await;
    let started = Instant::now();
    while let Ok(batch) = timeout(SECOND / 2, consumer.poll()).await {
        let batch = batch.unwrap().unwrap();
        let offsets = offsets(&batch);
        assert!(
            offsets.windows(2).all(|pair| pair[0] < pair[1]),
            "{offsets:?}"
        );
        batch.accept();
    }
    drop(consumer.commit().await.unwrap());
    assert!(started.elapsed() < 5 * SECOND, "{:?}", started.elapsed());
    // What the lie hid from the client is free again with its session.
    drop(consumer.close(10 * SECOND).await.unwrap());
    let mut consumer = case.other().build().await.unwrap();
    tokio::select! {
        () = case.drained() => {}
        () = accept_all(&mut consumer) => {}
    }
    drop(consumer.close(10 * SECOND).await.unwrap());
}

async fn accept_all(consumer: &mut ShareConsumer) {
    loop {
        consumer.poll().await.unwrap().unwrap().accept();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t20_records_of_every_kind_arrive_as_they_were_sent() {
    on_shared(t20).await;
}

async fn t20(cluster: &Cluster) {
    let case = Case::without_topic(cluster, "t20", &[]).await;
    let log_append = [("message.timestamp.type", "LogAppendTime")];
    let created = case.admin.create_topic(case.name, 1, 1, &log_append);
    created.await.unwrap();
    let header = |key: &[u8], value: Option<&'static [u8]>| ProducerHeader {
        key: Bytes::copy_from_slice(key),
        value: value.map(Bytes::from_static),
    };
    let headers = vec![
        header(b"a", Some(b"1")),
        header(b"a", Some(b"2")),
        header(b"null", None),
        header(b"\xff\xfe", Some(b"")),
    ];
    let mut full = ProducerRecord::new(case.name).timestamp_ms(1_000);
    full.headers = headers.clone();
    let bare = ProducerRecord::new(case.name).key("").value("");
    let producer = Producer::new(ProducerConfig::new(case.config()));
    for record in [full, bare] {
        producer.send(record).await.unwrap().await.unwrap();
    }
    producer.close(LONG).await.unwrap();
    let mut consumer = case.open().await;
    let found = deliveries(&mut consumer, 2).await;
    let record = found[0].record();
    assert_eq!((record.key, record.value), (None, None));
    assert_eq!(record.timestamp_type, TimestampType::LogAppendTime);
    assert!(record.timestamp > 1_000, "{}", record.timestamp);
    let read: Vec<_> = record
        .headers()
        .map(|header| (header.key, header.value))
        .collect();
    let sent: Vec<_> = headers
        .iter()
        .map(|header| (&*header.key, header.value.as_deref()))
        .collect();
    assert_eq!(read, sent);
    let record = found[1].record();
    assert_eq!((record.key, record.value), (Some(&b""[..]), Some(&b""[..])));
    for delivery in found {
        drop(delivery.accept());
    }
    assert!(case.closed(consumer).await.is_ok());
}
