//! Whole workers with the sink `http`: from the embedded broker to a server that fails, refuses and hangs.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "../../consumer/tests/group/mod.rs"]
mod group;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use group::set_group;
use sharegroup_broker::Broker;
use sharegroup_consumer::ShareConsumer;
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_sink::config::{Properties, load_properties};
use sharegroup_sink::worker::{TaskCounters, Worker, WorkerOptions};
use sharegroup_testkit::http_server::{HttpServer, Reply};
use tokio::time::timeout;

const S: Duration = Duration::from_secs(1);
const LOCK: Duration = Duration::from_secs(1);
const TOPIC: &str = "orders";
const GROUP: &str = "connect-web";

/// A broker with a topic of so many records, and a group with a short lock.
async fn cluster(records: usize) -> (Broker, Admin) {
    let broker = Broker::builder().set("group.share.min.record.lock.duration.ms", "1000");
    let broker = broker.start().await.unwrap();
    let client = ClientConfig::new(broker.bootstrap_servers()).unwrap();
    let admin = Admin::new(client.clone());
    let lock_ms = LOCK.as_millis().to_string();
    let settings = [
        ("share.record.lock.duration.ms", lock_ms.as_str()),
        ("share.auto.offset.reset", "earliest"),
    ];
    set_group(&admin, GROUP, &settings).await;
    admin.create_topic(TOPIC, 1, -1, &[]).await.unwrap();
    let producer = Producer::new(ProducerConfig::new(client));
    for number in 0..records {
        let record = ProducerRecord::new(TOPIC)
            .key(format!("k{number}"))
            .value(number.to_string());
        drop(producer.send(record).await.unwrap());
    }
    producer.close(10 * S).await.unwrap();
    (broker, admin)
}

fn start(broker: &Broker, server: &HttpServer, settings: &[(&str, &str)]) -> Worker {
    let mut worker = Properties::new("worker.properties");
    worker.set("bootstrap.servers", broker.bootstrap_servers());
    worker.set("consumer.group.protocol", "share");
    let mut sink = Properties::new("web.properties");
    let url = server.url("/in");
    let own = [
        ("name", "web"),
        ("connector.class", "http"),
        ("topics", TOPIC),
        ("http.url", &url),
    ];
    for (key, value) in own.iter().chain(settings) {
        sink.set(*key, *value);
    }
    let registry = sharegroup_connectors::registry();
    let loaded = load_properties(worker, vec![sink], true, &registry).unwrap();
    Worker::start(&loaded.worker, loaded.connectors, &WorkerOptions::default())
}

/// Waits until the group has settled every record for good.
async fn settled(admin: &Admin) {
    let settled = async {
        loop {
            let offsets = admin.share_group_offsets(GROUP, None).await.unwrap();
            if offsets.first().and_then(|partition| partition.lag) == Some(0) {
                return;
            }
            tokio::time::sleep(S / 20).await;
        }
    };
    timeout(60 * S, settled).await.unwrap();
}

async fn end(worker: Worker) -> TaskCounters {
    worker.stop(10 * S).await;
    worker.status().totals()
}

/// So many records of a topic.
async fn read(broker: &Broker, topic: &str, count: usize) -> Vec<(Option<Bytes>, Option<Bytes>)> {
    let client = ClientConfig::new(broker.bootstrap_servers()).unwrap();
    let admin = Admin::new(client);
    set_group(&admin, "reader", &[("share.auto.offset.reset", "earliest")]).await;
    let mut consumer = ShareConsumer::builder(broker.bootstrap_servers())
        .group_id("reader")
        .topics([topic])
        .build()
        .await
        .unwrap();
    let mut records = Vec::new();
    while records.len() < count {
        let batch = timeout(20 * S, consumer.poll()).await.unwrap();
        let batch = batch.unwrap().unwrap();
        for record in batch.records() {
            records.push((record.key_bytes(), record.value_bytes()));
        }
        batch.accept();
    }
    assert!(consumer.close(5 * S).await.unwrap().is_ok());
    records
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn refused_records_are_set_aside_and_all_others_are_delivered_once_though_some_calls_fail() {
    let (broker, admin) = cluster(2_000).await;
    let failed = Mutex::new(BTreeSet::new());
    let server = HttpServer::start(move |request| {
        let number: u64 = request.text().parse().unwrap();
        if number % 100 == 50 {
            Reply::status(400).body("no such order")
        } else if number % 20 == 7 && failed.lock().unwrap().insert(number) {
            Reply::status(503)
        } else {
            Reply::status(200).after(Duration::from_millis(2))
        }
    })
    .await;
    let settings = [
        ("errors.tolerance", "all"),
        ("errors.deadletterqueue.topic.name", "dead"),
        ("errors.deadletterqueue.topic.replication.factor", "1"),
        ("errors.deadletterqueue.context.headers.enable", "true"),
    ];
    let worker = start(&broker, &server, &settings);
    settled(&admin).await;
    let totals = end(worker).await;
    let mut answered: BTreeMap<u64, usize> = BTreeMap::new();
    for seen in server.seen() {
        *answered.entry(seen.text().parse().unwrap()).or_default() += 1;
    }
    assert_eq!(answered.len(), 2_000);
    for (number, times) in answered {
        assert_eq!(times, 1 + usize::from(number % 20 == 7), "{number}");
    }
    assert_eq!(
        (totals.written, totals.acquired),
        (1_980, 2_000),
        "{totals:?}"
    );
    let dead = read(&broker, "dead", 20).await;
    let dead: BTreeSet<_> = dead.into_iter().map(|(_, value)| value.unwrap()).collect();
    assert!(dead.iter().all(|value| value.ends_with(b"50")), "{dead:?}");
}

/// Which records are at the server at this moment.
#[derive(Default)]
struct AtServer {
    now: BTreeSet<String>,
    twice: Vec<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_record_is_with_two_workers_at_once_while_calls_hang_for_two_locks() {
    let (broker, admin) = cluster(60).await;
    let at_server = Arc::new(Mutex::new(AtServer::default()));
    let shared = Arc::clone(&at_server);
    let runtime = tokio::runtime::Handle::current();
    let server = HttpServer::start(move |request| {
        let name = request.header("idempotency-key").unwrap().to_owned();
        let mut state = shared.lock().unwrap();
        if !state.now.insert(name.clone()) {
            state.twice.push(name.clone());
        }
        let shared = Arc::clone(&shared);
        let delay = 2 * LOCK;
        runtime.spawn(async move {
            tokio::time::sleep(delay - delay / 20).await;
            shared.lock().unwrap().now.remove(&name);
        });
        Reply::status(200).after(delay)
    })
    .await;
    let workers = [(); 2].map(|()| start(&broker, &server, &[]));
    settled(&admin).await;
    let mut written = 0;
    for worker in workers {
        let totals = end(worker).await;
        assert_eq!(totals.locks_lost, 0, "{totals:?}");
        written += totals.written;
    }
    assert_eq!((written, server.seen().len()), (60, 60));
    assert_eq!(at_server.lock().unwrap().twice, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answers_are_kept_in_a_topic_with_the_key_of_their_record() {
    let (broker, admin) = cluster(30).await;
    let nobody = HttpServer::start(|_| Reply::status(200)).await;
    let without = start(&broker, &nobody, &[("response.topic", "answers")]);
    without.any_failed().await;
    let status = without.status();
    let (_, task) = status.failed().next().unwrap();
    let trace = task.trace.clone().unwrap();
    assert!(trace.contains("answers does not exist"), "{trace}");
    end(without).await;
    admin.create_topic("answers", 1, -1, &[]).await.unwrap();
    let server =
        HttpServer::start(|request| Reply::status(200).body(format!("got {}", request.text())))
            .await;
    let worker = start(&broker, &server, &[("response.topic", "answers")]);
    settled(&admin).await;
    end(worker).await;
    let answers: BTreeMap<_, _> = read(&broker, "answers", 30).await.into_iter().collect();
    assert_eq!(answers.len(), 30);
    for (key, value) in answers {
        let (key, value) = (key.unwrap(), value.unwrap());
        let number = String::from_utf8_lossy(&key[1..]).into_owned();
        assert_eq!(value, format!("got {number}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_target_that_is_down_for_some_locks_gets_every_record_once_it_is_back() {
    let (broker, admin) = cluster(200).await;
    let is_down = Arc::new(Mutex::new(true));
    let down = Arc::clone(&is_down);
    let server = HttpServer::start(move |_| match *down.lock().unwrap() {
        true => Reply::status(503),
        false => Reply::status(200),
    })
    .await;
    let settings = [("share.breaker.probe.ms", "200")];
    let worker = start(&broker, &server, &settings);
    tokio::time::sleep(3 * LOCK).await;
    let while_down = server.seen().len();
    *is_down.lock().unwrap() = false;
    settled(&admin).await;
    let totals = end(worker).await;
    assert_eq!((totals.written, totals.locks_lost), (200, 0), "{totals:?}");
    assert_eq!(server.seen().len(), while_down + 200);
    // The breaker lets in a probe at a time.
    assert!(while_down < 150, "{while_down}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_group_without_renewals_gets_every_record_to_the_target_once() {
    let (broker, admin) = cluster(40).await;
    set_group(
        &admin,
        GROUP,
        &[
            ("share.renew.acknowledge.enable", "false"),
            ("share.record.lock.duration.ms", "3000"),
        ],
    )
    .await;
    let server = HttpServer::start(|_| Reply::status(200).after(S / 5)).await;
    let worker = start(&broker, &server, &[("http.concurrency.max", "2")]);
    settled(&admin).await;
    let totals = end(worker).await;
    assert_eq!(totals.locks_lost, 0, "{totals:?}");
    let seen = server.seen();
    let names: BTreeSet<_> = seen
        .iter()
        .map(|seen| seen.header("idempotency-key"))
        .collect();
    assert_eq!((names.len(), seen.len()), (40, 40), "{totals:?}");
}
