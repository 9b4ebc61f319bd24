//! Metrics pushed to the broker (KIP-714): on the embedded broker, and on a real one that wants none.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod both;
mod group;

use std::collections::BTreeMap;
use std::time::Duration;

use sharegroup_broker::Broker;
use sharegroup_broker::model::faults::Fault;
use sharegroup_broker::model::telemetry::{Push, Subscription};
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_consumer::{ShareConsumer, ShareConsumerBuilder, ShareMetrics};
use sharegroup_wire::ErrorCode;
use sharegroup_wire::compress::{Compression, DecompressLimits, decompress};
use tokio::time::{Instant, sleep, timeout};

use both::on_both;

const SECOND: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(10);
const ASK: i16 = 71;
const PUSH: i16 = 72;
const SHARE: &str = "org.apache.kafka.consumer.share.";

// ---- a reader of protobuf, as independent of the writer as can be

/// A message's fields: number, and varint or fixed64 as a number, else bytes.
#[derive(Debug, Clone)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return value;
        }
    }
    panic!("a varint without an end")
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (number, rest) = bytes.split_at(8);
                bytes = rest;
                Field::Number(u64::from_le_bytes(number.try_into().unwrap()))
            }
            2 => {
                let len = usize::try_from(varint(&mut bytes)).unwrap();
                let (inner, rest) = bytes.split_at(len);
                bytes = rest;
                Field::Bytes(inner)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn all(bytes: &[u8], number: u64) -> Vec<&[u8]> {
    let fields = fields(bytes).into_iter();
    let found = fields.filter_map(|field| match field {
        (found, Field::Bytes(inner)) if found == number => Some(inner),
        _ => None,
    });
    found.collect()
}

fn one(bytes: &[u8], number: u64) -> &[u8] {
    let found = all(bytes, number);
    assert_eq!(found.len(), 1, "field {number}");
    found[0]
}

fn number(bytes: &[u8], number: u64) -> u64 {
    let mut fields = fields(bytes).into_iter();
    fields
        .find_map(|field| match field {
            (found, Field::Number(value)) if found == number => Some(value),
            _ => None,
        })
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[derive(Debug, Default)]
struct Decoded {
    resource: BTreeMap<String, String>,
    counters: BTreeMap<String, u64>,
    levels: BTreeMap<String, f64>,
}

/// Reads `MetricsData` and checks its form.
fn decoded(push: &Push, is_delta: bool) -> Decoded {
    let codec = Compression::from_id(push.compression_type.try_into().unwrap()).unwrap();
    let data = decompress(codec, &push.metrics, &DecompressLimits::default()).unwrap();
    let resource_metrics = one(&data, 1);
    let mut decoded = Decoded::default();
    for attribute in all(one(resource_metrics, 1), 1) {
        let value = text(one(one(attribute, 2), 1));
        decoded.resource.insert(text(one(attribute, 1)), value);
    }
    let scope_metrics = one(resource_metrics, 2);
    assert_eq!(text(one(one(scope_metrics, 1), 1)), "sharegroup-consumer");
    for metric in all(scope_metrics, 2) {
        let name = text(one(metric, 1));
        if let [gauge] = all(metric, 5)[..] {
            let level = f64::from_bits(number(one(gauge, 1), 4));
            assert_eq!(decoded.levels.insert(name, level), None);
            continue;
        }
        let sum = one(metric, 7);
        assert_eq!(number(sum, 2), if is_delta { 1 } else { 2 }, "temporality");
        assert_eq!(number(sum, 3), 1, "monotonic");
        let point = one(sum, 1);
        assert!(number(point, 2) <= number(point, 3), "times");
        assert_eq!(decoded.counters.insert(name, number(point, 6)), None);
    }
    decoded
}

/// What must have been counted under each name.
fn expected(m: &ShareMetrics) -> BTreeMap<String, u64> {
    let acknowledged = m.accepted + m.released + m.rejected + m.gaps;
    let failed = m.acknowledge_errors + m.acknowledgements_lost;
    let kafkas = [
        ("fetch.manager.bytes.consumed", m.bytes_fetched),
        ("fetch.manager.records.consumed", m.records_acquired),
        ("fetch.manager.fetch", m.fetches),
        ("fetch.manager.acknowledgements.send", acknowledged + failed),
        ("fetch.manager.acknowledgements.error", failed),
        ("coordinator.heartbeat", m.heartbeats),
    ];
    let ours = [
        ("records.redelivered", m.records_redelivered),
        ("accepted", m.accepted),
        ("released", m.released),
        ("rejected", m.rejected),
        ("gaps", m.gaps),
        ("acknowledge.errors", m.acknowledge_errors),
        ("acknowledgements.lost", m.acknowledgements_lost),
        ("accepts.unconfirmed", m.accepts_unconfirmed),
        ("locks.lost", m.locks_lost),
        ("records.renewed", m.records_renewed),
        ("corrupt.batches", m.corrupt_batches),
        ("acknowledge.requests", m.acknowledge_requests),
    ];
    let kafkas = kafkas.map(|(name, count)| (format!("{SHARE}{name}.total"), count));
    let ours = ours.map(|(name, count)| (format!("sharegroup.consumer.{name}.total"), count));
    kafkas.into_iter().chain(ours).collect()
}

// ---- a broker that wants metrics, and a consumer

fn wanted() -> Subscription {
    Subscription {
        id: 7,
        metrics: vec!["*".to_owned()],
        push_interval_ms: i32::try_from(INTERVAL.as_millis()).unwrap(),
        ..Default::default()
    }
}

struct World {
    broker: Broker,
    config: ClientConfig,
}

impl World {
    async fn new(subscription: Subscription) -> Self {
        let broker = Broker::builder()
            .in_memory()
            .topic("orders", 1)
            .group("orders", "share.auto.offset.reset", "earliest")
            .start()
            .await
            .unwrap();
        broker.model(|model| model.telemetry.subscription = subscription);
        let mut config = ClientConfig::new(broker.bootstrap_servers()).unwrap();
        config.connector = broker.connector();
        Self { broker, config }
    }

    async fn open(&self) -> ShareConsumer {
        let builder = ShareConsumer::builder_with(self.config.clone());
        named(builder.driver_on_current()).build().await.unwrap()
    }

    async fn accept(&self, consumer: &mut ShareConsumer, records: usize) {
        let producer = Producer::new(ProducerConfig::new(self.config.clone()));
        for _ in 0..records {
            let sent = producer.send(ProducerRecord::new("orders").value("v"));
            sent.await.unwrap().await.unwrap();
        }
        producer.close(SECOND).await.unwrap();
        let mut left = records;
        while left > 0 {
            let polled = timeout(60 * SECOND, consumer.poll()).await.unwrap();
            let batch = polled.unwrap().unwrap();
            left -= batch.len();
            batch.accept();
        }
        assert!(consumer.commit().await.unwrap().is_ok());
    }

    fn pushes(&self) -> Vec<Push> {
        self.broker.model(|model| model.telemetry.pushes.clone())
    }

    fn asked(&self) -> u64 {
        self.broker.model(|model| model.telemetry.asked)
    }

    fn change(&self, change: impl FnOnce(&mut Subscription)) {
        self.broker
            .model(|model| change(&mut model.telemetry.subscription));
    }
}

fn named(builder: ShareConsumerBuilder) -> ShareConsumerBuilder {
    let builder = builder.group_id("orders").topics(["orders"]);
    builder.client_rack("rack-7").max_poll_interval(None)
}

async fn close(mut consumer: ShareConsumer) -> ShareMetrics {
    drop(consumer.close(10 * SECOND).await.unwrap());
    consumer.metrics()
}

#[tokio::test(start_paused = true)]
async fn broker_gets_what_the_consumer_counted() {
    let world = World::new(Subscription {
        is_delta: false,
        ..wanted()
    })
    .await;
    let mut consumer = world.open().await;
    world.accept(&mut consumer, 20).await;
    sleep(5 * INTERVAL).await;
    let pushed = world.pushes().len();
    assert!((4..=6).contains(&pushed), "{pushed} pushes in 5 intervals");
    assert_eq!(world.asked(), 1);
    let id = consumer.client_instance_id().unwrap();
    let member_id = consumer.status().member_id.clone();
    let counted = close(consumer).await;
    assert_eq!(counted.accepted, 20);

    let pushes = world.pushes();
    let last = pushes.last().unwrap();
    assert!(last.terminating);
    assert!(pushes[..pushed].iter().all(|push| !push.terminating));
    assert!(
        pushes
            .iter()
            .all(|push| push.client_instance_id.to_string() == id)
    );
    let decoded = decoded(last, false);
    assert_eq!(decoded.counters, expected(&counted));
    let levels: Vec<_> = decoded.levels.keys().map(String::as_str).collect();
    assert_eq!(
        levels,
        ["org.apache.kafka.consumer.share.last.poll.seconds.ago"]
    );
    let resource = [
        ("client_rack", "rack-7"),
        ("group_id", "orders"),
        ("group_member_id", &member_id),
    ];
    let resource = resource.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(decoded.resource, BTreeMap::from(resource));
    assert_eq!(counted.telemetry_pushes, pushes.len() as u64);
}

/// All pushes together.
fn summed(pushes: &[Push]) -> BTreeMap<String, u64> {
    let mut sum = BTreeMap::new();
    for push in pushes {
        for (name, count) in decoded(push, true).counters {
            *sum.entry(name).or_default() += count;
        }
    }
    sum
}

#[tokio::test(start_paused = true)]
async fn differences_add_up_whatever_the_broker_refuses_in_between() {
    let world = World::new(wanted()).await;
    let mut consumer = world.open().await;
    world.accept(&mut consumer, 5).await;
    sleep(2 * INTERVAL).await;
    let refusals = [
        ErrorCode::ThrottlingQuotaExceeded,
        ErrorCode::UnknownSubscriptionId,
        ErrorCode::TelemetryTooLarge,
        ErrorCode::UnsupportedCompressionType,
        ErrorCode::UnknownServerError,
    ];
    for refusal in refusals {
        let before = world.pushes().len();
        world.broker.faults(PUSH, [Fault::Error(refusal)]);
        world.accept(&mut consumer, 3).await;
        sleep(4 * INTERVAL).await;
        assert!(world.pushes().len() > before, "{refusal}");
    }
    // Each but the last error made the client ask again what is wanted.
    assert_eq!(world.asked(), 5);
    let counted = close(consumer).await;
    assert_eq!(summed(&world.pushes()), expected(&counted));
}

#[tokio::test(start_paused = true)]
async fn a_changed_subscription_is_followed() {
    let world = World::new(wanted()).await;
    let mut consumer = world.open().await;
    world.accept(&mut consumer, 5).await;
    sleep(2 * INTERVAL).await;
    let before = world.pushes().len();
    world.change(|wanted| {
        wanted.id = 8;
        wanted.metrics = vec![
            format!("{SHARE}fetch.manager.records"),
            "sharegroup.consumer.a".into(),
        ];
        wanted.is_delta = false;
    });
    sleep(4 * INTERVAL).await;
    let pushes = world.pushes();
    assert!(pushes.len() > before);
    let decoded = decoded(pushes.last().unwrap(), false);
    let names: Vec<_> = decoded.counters.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "org.apache.kafka.consumer.share.fetch.manager.records.consumed.total",
            "sharegroup.consumer.accepted.total",
            "sharegroup.consumer.accepts.unconfirmed.total",
            "sharegroup.consumer.acknowledge.errors.total",
            "sharegroup.consumer.acknowledge.requests.total",
            "sharegroup.consumer.acknowledgements.lost.total",
        ]
    );
    assert!(decoded.levels.is_empty());
    assert_eq!(decoded.counters[names[0]], 5);
    // Nothing more is wanted.
    world.change(|wanted| {
        wanted.id = 9;
        wanted.metrics.clear();
    });
    sleep(2 * INTERVAL).await;
    let before = world.pushes().len();
    sleep(20 * INTERVAL).await;
    close(consumer).await;
    assert_eq!(world.pushes().len(), before);
}

#[tokio::test(start_paused = true)]
async fn first_codec_that_both_know_is_taken() {
    for (accepted, taken) in [
        (&[4_i8, 3, 1, 2][..], 4),
        (&[3, 1], 3),
        (&[99, -1, 1], 1),
        (&[2], 2),
        (&[99], 0),
        (&[], 0),
    ] {
        let world = World::new(Subscription {
            compression_types: accepted.to_vec(),
            ..wanted()
        })
        .await;
        let consumer = world.open().await;
        sleep(2 * INTERVAL).await;
        let counted = close(consumer).await;
        let pushes = world.pushes();
        assert!(pushes.iter().all(|push| push.compression_type == taken));
        assert_eq!(summed(&pushes), expected(&counted));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_larger_than_the_broker_takes_is_not_sent() {
    let world = World::new(Subscription {
        bytes_max: 10,
        ..wanted()
    })
    .await;
    let mut consumer = world.open().await;
    world.accept(&mut consumer, 5).await;
    sleep(10 * INTERVAL).await;
    assert!(world.pushes().is_empty());
    assert!((2..=10).contains(&world.asked()), "{}", world.asked());
    world.change(|wanted| wanted.bytes_max = 100_000);
    sleep(4 * INTERVAL).await;
    let counted = close(consumer).await;
    assert_eq!(summed(&world.pushes()), expected(&counted));
}

#[tokio::test(start_paused = true)]
async fn broker_that_wants_none_is_asked_every_five_minutes_and_one_that_refuses_no_more() {
    let world = World::new(Subscription::default()).await;
    let consumer = world.open().await;
    sleep(1000 * SECOND).await;
    assert!((4..=5).contains(&world.asked()), "{}", world.asked());
    assert!(consumer.client_instance_id().is_some());
    close(consumer).await;
    assert!(world.pushes().is_empty());

    for error in [ErrorCode::InvalidRequest, ErrorCode::UnsupportedVersion] {
        let world = World::new(wanted()).await;
        world.broker.faults(ASK, [Fault::Error(error)]);
        let consumer = world.open().await;
        sleep(600 * SECOND).await;
        close(consumer).await;
        assert_eq!((world.asked(), world.pushes().len()), (0, 0), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_push_that_is_never_answered_holds_up_a_close_for_a_second_at_most() {
    let world = World::new(wanted()).await;
    let mut consumer = world.open().await;
    world.accept(&mut consumer, 5).await;
    sleep(2 * INTERVAL).await;
    world.broker.faults(PUSH, [Fault::Withhold]);
    let started = Instant::now();
    assert!(consumer.close(10 * SECOND).await.unwrap().is_ok());
    let took = started.elapsed();
    assert!(took >= SECOND && took < 2 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn without_metrics_push_nobody_is_asked() {
    let world = World::new(wanted()).await;
    let builder = ShareConsumer::builder_with(world.config.clone()).driver_on_current();
    let consumer = named(builder).metrics_push(false).build().await.unwrap();
    sleep(10 * INTERVAL).await;
    assert_eq!(consumer.client_instance_id(), None);
    close(consumer).await;
    assert_eq!((world.asked(), world.pushes().len()), (0, 0));
}

/// A real broker receives metrics only with a plugin in Java, and the embedded one wants none by default.
#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_wants_metrics_the_client_works_and_stays_quiet() {
    on_both(&[("auto.create.topics.enable", "true")], async |cluster| {
        let config = ClientConfig::new(cluster.bootstrap_servers()).unwrap();
        let admin = sharegroup_consumer::admin::Admin::new(config.clone());
        admin.create_topic("orders", 1, -1, &[]).await.unwrap();
        group::set_group(&admin, "orders", &[("share.auto.offset.reset", "earliest")]).await;
        let producer = Producer::new(ProducerConfig::new(config.clone()));
        let sent = producer.send(ProducerRecord::new("orders").value("v"));
        sent.await.unwrap().await.unwrap();
        let mut consumer = named(ShareConsumer::builder_with(config))
            .build()
            .await
            .unwrap();
        let polled = timeout(60 * SECOND, consumer.poll()).await.unwrap();
        polled.unwrap().unwrap().accept();
        println!("client instance id: {:?}", consumer.client_instance_id());
        let counted = close(consumer).await;
        assert_eq!((counted.accepted, counted.telemetry_pushes), (1, 0));
    })
    .await;
}
