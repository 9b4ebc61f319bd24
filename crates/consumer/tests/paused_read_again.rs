//! Records that arrive damaged, or not at all: the real driver against the embedded broker in memory, under
//! paused time. What is wrong on one link alone ends delivered; what is wrong in the log ends as a
//! `CorruptBatch`, its neighbours delivered once.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use sharegroup_broker::Broker;
use sharegroup_broker::model::fault_script::FaultScript;
use sharegroup_broker::model::history::Event;
use sharegroup_broker::model::topics::Place;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::{
    CorruptBatch, PollError, ReleaseReason, ShareBatch, ShareConsumer, ShareConsumerBuilder,
    ShareEvent, ShareMetrics, ShareObserver,
};
use sharegroup_wire::compress::{Compression, compress};
use sharegroup_wire::record::{RecordBatch, RecordBatchBuilder};
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
const LOCK: Duration = Duration::from_secs(30);

const FETCH: i16 = 1;
const SHARE_FETCH: i16 = 78;

const GAP: i8 = 0;
const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;
const REJECT: i8 = 3;

/// A broker with an empty topic `orders` of one partition, where this goes wrong.
async fn broker(faults: &str) -> (Broker, Place) {
    let broker = Broker::builder()
        .in_memory()
        .seed(1)
        .topic("orders", 1)
        .group("group", "share.auto.offset.reset", "earliest")
        .faults(FaultScript::parse(faults).unwrap())
        .start()
        .await
        .unwrap();
    let place = broker.model(|model| {
        model.record_history();
        (model.topics.named("orders").unwrap().id, 0)
    });
    (broker, place)
}

/// So many records; the value of each is that of its offset, and `padding` more bytes.
fn batch(base_offset: i64, count: i64, compression: Compression, padding: usize) -> Bytes {
    let mut builder = RecordBatchBuilder::new(compression);
    for offset in base_offset..base_offset + count {
        let value = value(offset, padding);
        let none = std::iter::empty();
        builder.push(1000, None, Some(&value), none).unwrap();
    }
    builder.build(0).unwrap()
}

fn value(offset: i64, padding: usize) -> Vec<u8> {
    let mut value = offset.to_string().into_bytes();
    value.resize(value.len() + padding, b'.');
    value
}

/// Appends so many batches of so many records each.
fn fill(broker: &Broker, place: Place, batches: i64, count: i64, compression: Compression) {
    broker.model(|model| {
        let log = &mut model.topics.partition_mut(place).unwrap().log;
        for index in 0..batches {
            let batch = batch(index * count, count, compression, 0);
            log.append(&RecordBatch::read(batch).unwrap(), 0, None);
        }
    });
}

/// Changes a batch in the log for good.
fn rewrite(broker: &Broker, place: Place, offset: i64, change: impl FnOnce(&mut [u8])) {
    broker.model(|model| {
        let partition = model.topics.partition_mut(place).unwrap();
        partition.log.rewrite(offset, change);
    });
}

fn builder(broker: &Broker) -> ShareConsumerBuilder {
    let mut config = ClientConfig::new(broker.bootstrap_servers()).unwrap();
    config.connector = broker.connector();
    config.seed = 7;
    ShareConsumer::builder_with(config)
        .group_id("group")
        .topics(["orders"])
        .driver_on_current()
}

async fn open(broker: &Broker) -> ShareConsumer {
    builder(broker).build().await.unwrap()
}

type Polled = Result<ShareBatch, Box<CorruptBatch>>;

/// The next poll's batch, good or bad; it must come within a minute.
async fn next(consumer: &mut ShareConsumer) -> Polled {
    let polled = timeout(60 * SECOND, consumer.poll()).await.unwrap();
    match polled {
        Ok(batch) => Ok(batch.unwrap()),
        Err(PollError::CorruptBatch(corrupt)) => Err(corrupt),
        Err(error) => panic!("{error}"),
    }
}

fn offsets(batch: &ShareBatch) -> Vec<i64> {
    batch.records().map(|record| record.offset).collect()
}

/// Accepts what can be read and rejects the rest, until nothing comes any more. Gives the offsets of both
/// as they came; each record is what it was when it was produced, and comes for the first time.
async fn drain(consumer: &mut ShareConsumer) -> (Vec<i64>, Vec<(i64, i64)>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    while let Ok(polled) = timeout(10 * SECOND, next(consumer)).await {
        match polled {
            Ok(batch) => {
                for record in batch.records() {
                    let value = record.value.unwrap();
                    let padding = value.len() - record.offset.to_string().len();
                    assert_eq!(value, self::value(record.offset, padding));
                    assert_eq!(record.delivery_count, 1, "{}", record.offset);
                }
                good.extend(offsets(&batch));
                batch.accept();
            }
            Err(corrupt) => {
                bad.push((corrupt.first_offset(), corrupt.last_offset()));
                corrupt.reject();
            }
        }
    }
    (good, bad)
}

/// How each offset was settled, in order.
fn settled(broker: &Broker) -> BTreeMap<i64, Vec<i8>> {
    let mut settled: BTreeMap<i64, Vec<i8>> = BTreeMap::new();
    broker.model(|model| {
        for (_, event) in model.history.events() {
            let Event::Acknowledged { applied, .. } = event else {
                continue;
            };
            for (first, last, how) in applied.iter().filter(|(_, _, how)| *how <= REJECT) {
                for offset in *first..=*last {
                    settled.entry(offset).or_default().push(*how);
                }
            }
        }
    });
    settled
}

/// The connections on which an API was asked, one entry per request.
fn asked(broker: &Broker, api: i16) -> Vec<u64> {
    broker.model(|model| {
        let events = model.history.events().iter();
        let links = events.filter_map(|(_, event)| match event {
            Event::Request { link, api_key, .. } if *api_key == api => Some(link.0),
            _ => None,
        });
        links.collect()
    })
}

fn all(offsets: impl IntoIterator<Item = i64>, how: i8) -> BTreeMap<i64, Vec<i8>> {
    offsets
        .into_iter()
        .map(|offset| (offset, vec![how]))
        .collect()
}

/// Reads a topic of 20 batches of 5 records with these faults: every record comes once, and is accepted.
async fn all_arrive(faults: &str, compression: Compression) -> ShareMetrics {
    let (broker, place) = broker(faults).await;
    fill(&broker, place, 20, 5, compression);
    let mut consumer = open(&broker).await;
    let (mut good, bad) = drain(&mut consumer).await;
    good.sort_unstable();
    assert_eq!(
        good,
        (0..100).collect::<Vec<_>>(),
        "{faults} {compression:?}"
    );
    assert_eq!(bad, []);
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    assert_eq!(settled(&broker), all(0..100, ACCEPT));
    let share_fetches: BTreeSet<u64> = asked(&broker, SHARE_FETCH).into_iter().collect();
    let fetches = asked(&broker, FETCH);
    assert!(fetches.iter().all(|link| !share_fetches.contains(link)));
    let metrics = consumer.metrics();
    assert_eq!(metrics.batches_read_again, fetches.len() as u64);
    assert_eq!((metrics.corrupt_batches, metrics.gaps), (0, 0));
    metrics
}

const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

#[tokio::test(start_paused = true)]
async fn b_018_a_bit_that_flipped_on_one_link_ends_delivered_once() {
    for compression in CODECS {
        let once = "ShareFetch orders-0 first 1: flip bit";
        let metrics = all_arrive(once, compression).await;
        assert_eq!(metrics.batches_read_again, 1);
        for seed in 0..10 {
            let always = format!("seed {seed}\nShareFetch orders-0: flip bit");
            let metrics = all_arrive(&always, compression).await;
            assert!(metrics.batches_read_again >= 1, "{metrics:?}");
            // Several batches of one answer.
            let often = format!("seed {seed}\n{}", "ShareFetch: flip bit\n".repeat(4));
            all_arrive(&often, compression).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b_020_a_batch_that_was_cut_on_one_link_ends_delivered_once() {
    for compression in CODECS {
        let once = "ShareFetch orders-0 first 1: cut batch";
        assert_eq!(all_arrive(once, compression).await.batches_read_again, 1);
        let metrics = all_arrive("ShareFetch: cut batch", compression).await;
        assert!(metrics.batches_read_again >= 1, "{metrics:?}");
        all_arrive("ShareFetch: cut batch\nShareFetch: flip bit", compression).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_larger_than_a_second_read_comes_whole() {
    for fault in ["flip bit", "cut batch"] {
        let (broker, place) = broker(&format!("ShareFetch orders-0: {fault}")).await;
        broker.model(|model| {
            let log = &mut model.topics.partition_mut(place).unwrap().log;
            for base_offset in [0, 3] {
                let large = batch(base_offset, 3, Compression::None, 1_000_000);
                log.append(&RecordBatch::read(large).unwrap(), 0, None);
            }
        });
        let mut consumer = open(&broker).await;
        let (mut good, bad) = drain(&mut consumer).await;
        good.sort_unstable();
        assert_eq!((good, bad), ((0..6).collect(), vec![]));
        assert!(consumer.close(SECOND).await.unwrap().is_ok());
        assert_eq!(settled(&broker), all(0..6, ACCEPT));
    }
}

#[tokio::test(start_paused = true)]
async fn neighbours_of_what_is_read_again_wait_for_nothing() {
    let faults = "ShareFetch orders-0 first 1: cut batch\nFetch first 1: withhold";
    let (broker, place) = broker(faults).await;
    fill(&broker, place, 3, 2, Compression::None);
    let mut consumer = open(&broker).await;
    let first = next(&mut consumer).await.unwrap();
    assert_eq!(offsets(&first), [0, 1, 2, 3]);
    first.accept();
    assert!(consumer.commit().await.unwrap().is_ok());
    assert_eq!(settled(&broker), all(0..4, ACCEPT));
    // Its second read is never answered: it comes again.
    let last = next(&mut consumer).await.unwrap();
    assert_eq!(offsets(&last), [4, 5]);
    assert_eq!(last.record(0).unwrap().delivery_count, 2);
    last.accept();
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
}

/// Gives a batch another payload under this codec, with the right checksum and length.
fn with_payload(batch: &[u8], codec: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [&batch[..61], payload].concat();
    let length = i32::try_from(bytes.len() - 12).unwrap();
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[22] = bytes[22] & !7 | codec;
    checked(&mut bytes);
    bytes
}

fn checked(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// What can be wrong with a batch of 4 records for good.
fn spoiled(what: &str, batch: &[u8]) -> Vec<u8> {
    let mut bytes = batch.to_vec();
    match what {
        "record" => bytes[70] ^= 4,
        "last offset delta" => bytes[23..27].copy_from_slice(&[0x7f; 4]),
        "last offset delta, checked" => {
            bytes[23..27].copy_from_slice(&1_i32.to_be_bytes());
            checked(&mut bytes);
        }
        "magic" => bytes[16] = 9,
        "length too large" => bytes[8..12].copy_from_slice(&1_000_000_i32.to_be_bytes()),
        "length too small" => bytes[8..12].copy_from_slice(&60_i32.to_be_bytes()),
        "length negative" => bytes[8..12].copy_from_slice(&[0xff; 4]),
        "payload" => bytes = with_payload(batch, 1, b"this is not gzip"),
        "bomb" => {
            let bomb = compress(Compression::Gzip, &vec![0; 129 << 20]).unwrap();
            bytes = with_payload(batch, 1, &bomb);
        }
        other => panic!("{other}"),
    }
    bytes
}

#[tokio::test(start_paused = true)]
async fn t1_of_fifty_batches_the_third_is_corrupt_and_only_it_is_set_apart() {
    for what in [
        "record",
        "last offset delta",
        "last offset delta, checked",
        "magic",
        "length too large",
        "length too small",
        "length negative",
        "payload",
        "bomb",
    ] {
        let (broker, place) = broker("").await;
        let mut raw = Vec::new();
        broker.model(|model| {
            let log = &mut model.topics.partition_mut(place).unwrap().log;
            for index in 0..50 {
                let good = batch(index * 4, 4, Compression::None, 0);
                if index == 2 {
                    raw = spoiled(what, &good);
                    // The broker would have placed it.
                    raw[..8].copy_from_slice(&8_i64.to_be_bytes());
                    log.push_raw(4, raw.clone().into());
                } else {
                    log.append(&RecordBatch::read(good).unwrap(), 0, None);
                }
            }
        });
        let mut consumer = open(&broker).await;
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        while let Ok(polled) = timeout(10 * SECOND, next(&mut consumer)).await {
            match polled {
                Ok(batch) => {
                    good.extend(offsets(&batch));
                    batch.accept();
                }
                Err(corrupt) => {
                    assert_eq!(corrupt.error().bytes, raw, "{what}");
                    bad.push((corrupt.first_offset(), corrupt.last_offset()));
                    corrupt.reject();
                }
            }
        }
        good.sort_unstable();
        let rest: Vec<i64> = (0..8).chain(12..200).collect();
        assert_eq!((&good, bad), (&rest, vec![(8, 11)]), "{what}");
        assert!(consumer.close(SECOND).await.unwrap().is_ok());
        let mut expected = all(rest, ACCEPT);
        expected.extend(all(8..12, REJECT));
        assert_eq!(settled(&broker), expected, "{what}");
        let metrics = consumer.metrics();
        assert_eq!(metrics.corrupt_batches, 1, "{what}");
        assert_eq!((metrics.batches_read_again, metrics.gaps), (1, 0), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn several_corrupt_batches_are_set_apart_one_by_one() {
    let (broker, place) = broker("").await;
    fill(&broker, place, 20, 5, Compression::Lz4);
    let corrupt = [2, 3, 7, 11, 12, 13, 19];
    for index in corrupt {
        rewrite(&broker, place, index * 5, |bytes| bytes[80] ^= 1);
    }
    let mut consumer = open(&broker).await;
    let (mut good, mut bad) = drain(&mut consumer).await;
    good.sort_unstable();
    bad.sort_unstable();
    let is_good = |offset: &i64| !corrupt.contains(&(offset / 5));
    let rest: Vec<i64> = (0..100).filter(is_good).collect();
    assert_eq!(good, rest);
    assert_eq!(bad, corrupt.map(|index| (index * 5, index * 5 + 4)));
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    assert_eq!(consumer.metrics().corrupt_batches, 7);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_cannot_be_read_again_is_told_as_it_came() {
    for (refusal, fetches_max) in [
        // For good: asked once.
        ("Fetch: error TOPIC_AUTHORIZATION_FAILED", 1),
        ("Fetch orders-0: error TOPIC_AUTHORIZATION_FAILED", 1),
        ("Fetch orders-0: error NOT_LEADER_OR_FOLLOWER", 40),
        ("Fetch: cut before", 40),
        ("Fetch: withhold", 1),
    ] {
        let faults = format!("ShareFetch orders-0 first 1: flip bit\n{refusal}");
        let (broker, place) = broker(&faults).await;
        fill(&broker, place, 1, 5, Compression::None);
        let mut consumer = open(&broker).await;
        let corrupt = next(&mut consumer).await.unwrap_err();
        assert_eq!((corrupt.first_offset(), corrupt.last_offset()), (0, 4));
        assert!(!corrupt.error().bytes.is_empty());
        let fetches = asked(&broker, FETCH).len();
        assert!((1..=fetches_max).contains(&fetches), "{refusal}: {fetches}");
        corrupt.reject();
        assert!(consumer.close(SECOND).await.unwrap().is_ok());
        assert_eq!(settled(&broker), all(0..5, REJECT), "{refusal}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_read_that_fails_is_tried_again() {
    for trouble in [
        "Fetch orders-0 first 3: error NOT_LEADER_OR_FOLLOWER",
        "Fetch first 2: cut after",
        "Fetch first 1: delay 2s",
    ] {
        let faults = format!("ShareFetch orders-0 first 1: flip bit\n{trouble}");
        let (broker, place) = broker(&faults).await;
        fill(&broker, place, 1, 5, Compression::None);
        let mut consumer = open(&broker).await;
        assert_eq!(drain(&mut consumer).await, ((0..5).collect(), vec![]));
        assert!(consumer.close(SECOND).await.unwrap().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_cut_and_cannot_be_read_again_is_released_later_and_comes_again() {
    let faults = "ShareFetch orders-0 first 1: cut batch\n\
                  Fetch: error TOPIC_AUTHORIZATION_FAILED";
    let (broker, place) = broker(faults).await;
    fill(&broker, place, 1, 5, Compression::None);
    let mut consumer = open(&broker).await;
    let batch = next(&mut consumer).await.unwrap();
    let counts: Vec<i16> = batch
        .records()
        .map(|record| record.delivery_count)
        .collect();
    assert_eq!((offsets(&batch), counts), ((0..5).collect(), vec![2; 5]));
    batch.accept();
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    let released = all(0..5, RELEASE).into_keys();
    let expected = released.map(|offset| (offset, vec![RELEASE, ACCEPT]));
    assert_eq!(settled(&broker), expected.collect());
}

#[tokio::test(start_paused = true)]
async fn locks_are_renewed_while_offsets_are_read_again() {
    let faults = "ShareFetch orders-0 first 1: flip bit\nFetch: delay 4s";
    let (broker, place) = broker(faults).await;
    fill(&broker, place, 1, 5, Compression::None);
    let mut consumer = open(&broker).await;
    let polled = timeout(SECOND, consumer.poll()).await;
    assert!(polled.is_err(), "{polled:?}");
    // It was read meanwhile, and is polled much later.
    sleep(3 * LOCK).await;
    assert_eq!(drain(&mut consumer).await, ((0..5).collect(), vec![]));
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    assert_eq!(settled(&broker), all(0..5, ACCEPT));
    assert_eq!(consumer.metrics().locks_lost, 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_handed_out_whose_lock_was_lost_while_it_was_read_again() {
    let faults = "ShareFetch orders-0 first 1: flip bit\nFetch first 1: delay 4s";
    let (broker, place) = broker(faults).await;
    fill(&broker, place, 1, 5, Compression::None);
    let mut consumer = open(&broker).await;
    let polled = timeout(SECOND, consumer.poll()).await;
    assert!(polled.is_err(), "{polled:?}");
    // The session ends, and with it what is held.
    broker.restart(sharegroup_wire::BrokerId(1));
    let (good, bad) = drain_again(&mut consumer).await;
    assert_eq!((good, bad), ((0..5).collect(), 0));
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    assert_eq!(settled(&broker), all(0..5, ACCEPT));
}

/// As [`drain`], for records that were delivered before.
async fn drain_again(consumer: &mut ShareConsumer) -> (Vec<i64>, usize) {
    let (mut good, mut bad) = (Vec::new(), 0);
    while let Ok(polled) = timeout(20 * SECOND, next(consumer)).await {
        match polled {
            Ok(batch) => {
                good.extend(offsets(&batch));
                batch.accept();
            }
            Err(_) => bad += 1,
        }
    }
    (good, bad)
}

#[tokio::test(start_paused = true)]
async fn where_locks_are_not_renewed_there_is_time_left_to_settle() {
    // Both kinds of trouble: a batch that is bad, and a leader that doesn't answer.
    for (what, fetch) in [("flip bit", "withhold"), ("flip bit", "delay 1s")] {
        let faults = format!("ShareFetch orders-0 first 1: {what}\nFetch: {fetch}");
        let (broker, place) = broker(&faults).await;
        broker.model(|model| {
            let values = [
                ("share.renew.acknowledge.enable", "false"),
                ("share.record.lock.duration.ms", "15000"),
            ];
            let group = model.configs.groups.entry("group".to_owned()).or_default();
            for (key, value) in values {
                group.insert(key.to_owned(), value.to_owned());
            }
        });
        fill(&broker, place, 1, 5, Compression::None);
        let mut consumer = open(&broker).await;
        match (fetch, next(&mut consumer).await) {
            ("withhold", Err(corrupt)) => {
                let left = corrupt.lock().deadline() - tokio::time::Instant::now();
                assert!(left > 5 * SECOND, "{left:?}");
                corrupt.reject();
            }
            (_, Ok(batch)) => {
                assert_eq!(offsets(&batch), [0, 1, 2, 3, 4]);
                batch.accept();
            }
            (_, Err(corrupt)) => panic!("{corrupt}"),
        }
        assert!(consumer.commit().await.unwrap().is_ok());
        assert_eq!(settled(&broker).len(), 5);
    }
}

/// Keeps why records were released.
#[derive(Debug, Default)]
struct Releases(Mutex<Vec<(i64, i64, ReleaseReason)>>);

impl ShareObserver for Releases {
    fn event(&self, event: &ShareEvent) {
        if let ShareEvent::Released { release, .. } = event {
            let range = (release.first_offset, release.last_offset, release.why);
            self.0.lock().unwrap().push(range);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_releases_unseen_what_is_being_read_again() {
    for drops in [false, true] {
        let faults = "ShareFetch orders-0 first 1: cut batch\nFetch: delay 3s";
        let (broker, place) = broker(faults).await;
        fill(&broker, place, 2, 3, Compression::None);
        let releases = Arc::new(Releases::default());
        let builder = builder(&broker).observer(Arc::clone(&releases) as Arc<dyn ShareObserver>);
        let mut consumer = builder.build().await.unwrap();
        next(&mut consumer).await.unwrap().accept();
        let polled = timeout(SECOND, consumer.poll()).await;
        assert!(polled.is_err(), "{polled:?}");
        if drops {
            drop(consumer);
            sleep(10 * SECOND).await;
        } else {
            assert!(consumer.close(10 * SECOND).await.unwrap().is_ok());
        }
        let unseen = vec![(3, 5, ReleaseReason::Unseen)];
        assert_eq!(*releases.0.lock().unwrap(), unseen);
        let mut expected = all(0..3, ACCEPT);
        expected.extend(all(3..6, RELEASE));
        assert_eq!(settled(&broker), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn polls_that_are_cut_off_lose_nothing_of_what_is_read_again() {
    let faults = "ShareFetch: flip bit\nShareFetch: cut batch\nFetch: delay 30ms";
    let (broker, place) = broker(faults).await;
    fill(&broker, place, 30, 5, Compression::Zstd);
    let mut consumer = open(&broker).await;
    let mut good = Vec::new();
    for _ in 0..3000 {
        if let Ok(polled) = timeout(Duration::from_millis(7), next(&mut consumer)).await {
            let batch = polled.unwrap();
            good.extend(offsets(&batch));
            batch.accept();
        }
    }
    good.sort_unstable();
    assert_eq!(good, (0..150).collect::<Vec<_>>());
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    assert_eq!(settled(&broker), all(0..150, ACCEPT));
}

#[tokio::test(start_paused = true)]
async fn a_hole_in_what_is_read_again_is_a_gap() {
    let (broker, place) = broker("ShareFetch orders-0 first 1: flip bit").await;
    broker.model(|model| {
        let log = &mut model.topics.partition_mut(place).unwrap().log;
        let mut builder = RecordBatchBuilder::new(Compression::None);
        // As compaction leaves it: 0 and 3 of five.
        for delta in [0, 3] {
            let value = value(i64::from(delta), 0);
            let none = std::iter::empty();
            builder
                .push_at(delta, 1000, None, Some(&value), none)
                .unwrap();
        }
        let mut bytes = builder.build(0).unwrap().to_vec();
        bytes[23..27].copy_from_slice(&4_i32.to_be_bytes());
        checked(&mut bytes);
        log.push_raw(5, bytes.into());
    });
    let mut consumer = open(&broker).await;
    assert_eq!(drain(&mut consumer).await, (vec![0, 3], vec![]));
    assert!(consumer.close(SECOND).await.unwrap().is_ok());
    let mut expected = all([0, 3], ACCEPT);
    expected.extend(all([1, 2, 4], GAP));
    assert_eq!(settled(&broker), expected);
}
