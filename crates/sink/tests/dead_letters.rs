//! Poison records in the midst of good ones, with a dead-letter topic: on a real broker and on the embedded one.
//! They are poison to the sink, or to the converter of values.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

#[path = "../../consumer/tests/both/mod.rs"]
mod both;
mod target;

use std::collections::BTreeMap;

use both::{Cluster, on_shared};
use sharegroup_broker::Broker;
use sharegroup_consumer::admin::{Admin, LogPosition};
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerHeader, ProducerRecord};
use sharegroup_consumer::{ClientConfig, Header, ShareConsumer};
use sharegroup_sink::data::Value;
use sharegroup_sink::worker::{TaskState, Worker, WorkerOptions};
use target::{S, Target, end, load_with, named, prepare, settled, start_with};
use tokio::time::timeout;

const EARLIEST: (&str, &str) = ("share.auto.offset.reset", "earliest");
const BATCHES: i64 = 200;
const BATCH: i64 = 100;

/// One record of each batch, each time another one.
fn poison() -> Vec<i64> {
    (0..BATCHES)
        .map(|batch| batch * BATCH + batch % BATCH)
        .collect()
}

/// JSON, but for the poison.
fn value(number: i64) -> String {
    if poison().contains(&number) {
        format!("{{\"n\":{number}")
    } else {
        format!("{{\"n\":{number}}}")
    }
}

/// Key, value and headers, which a letter has to keep.
fn record(topic: &str, number: i64) -> ProducerRecord {
    let record = ProducerRecord::new(topic).partition(0);
    let record = record.key(format!("k{number}")).value(value(number));
    let mut record = record.header("trace", format!("t{number}"));
    record.headers.push(ProducerHeader {
        key: "empty".into(),
        value: None,
    });
    record
}

async fn fill(servers: &str, topic: &str) {
    let mut config = ProducerConfig::new(ClientConfig::new(servers).unwrap());
    config.linger = 60 * S;
    let producer = Producer::new(config);
    for number in 0..BATCHES * BATCH {
        drop(producer.send(record(topic, number)).await.unwrap());
        if number % BATCH == BATCH - 1 {
            producer.flush().await.unwrap();
        }
    }
    producer.close(30 * S).await.unwrap();
}

/// Header by name; `None` = null.
type Headers = BTreeMap<String, Option<String>>;

/// Key, value and headers.
type Found = (Vec<u8>, Vec<u8>, Headers);

/// The letters by the offset that they name.
async fn letters(servers: &str, topic: &str, count: usize) -> BTreeMap<i64, Found> {
    let builder = ShareConsumer::builder(servers).group_id(format!("{topic}-reader"));
    let builder = builder.topics([topic]).begin_at(LogPosition::Earliest);
    let mut consumer = builder.build().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut found = BTreeMap::new();
    let mut read = 0;
    while let Ok(polled) = timeout(if read < count { 30 * S } else { 2 * S }, consumer.poll()).await
    {
        let batch = polled.unwrap().unwrap();
        for record in batch.records() {
            let headers: Headers = record
                .headers()
                .map(|header| (text(header.key), header.value.map(text)))
                .collect();
            let offset = headers["__connect.errors.offset"].clone().unwrap();
            let letter = (
                record.key.unwrap().to_vec(),
                record.value.unwrap().to_vec(),
                headers,
            );
            let before = found.insert(offset.parse().unwrap(), letter);
            assert!(before.is_none(), "two letters of {offset}");
            read += 1;
        }
        batch.accept();
    }
    drop(consumer.close(5 * S).await);
    found
}

/// Settings for a topic of letters.
const fn to_letters(topic: &str) -> [(&str, &str); 4] {
    [
        ("errors.tolerance", "all"),
        ("errors.deadletterqueue.topic.name", topic),
        ("errors.deadletterqueue.topic.replication.factor", "1"),
        ("errors.deadletterqueue.context.headers.enable", "true"),
    ]
}

/// Where the poison is found, as Connect's context names it.
#[derive(Clone, Copy)]
enum Poisoned {
    Sink,
    Json,
}

impl Poisoned {
    /// Stage, class, class of the exception.
    const fn context(self) -> [&'static str; 3] {
        match self {
            Self::Sink => [
                "TASK_PUT",
                "org.apache.kafka.connect.sink.SinkTask",
                "org.apache.kafka.connect.errors.ConnectException",
            ],
            Self::Json => [
                "VALUE_CONVERTER",
                "org.apache.kafka.connect.json.JsonConverter",
                "org.apache.kafka.connect.errors.DataException",
            ],
        }
    }
}

fn expected(topic: &str, number: i64, poisoned: Poisoned) -> Headers {
    let [stage, class, exception] = poisoned.context();
    let text = |text: &str| Some(text.to_owned());
    let context = [
        ("topic", text(topic)),
        ("partition", text("0")),
        ("offset", Some(number.to_string())),
        ("connector.name", text("out")),
        ("task.id", text("0")),
        ("stage", text(stage)),
        ("class.name", text(class)),
        ("exception.class.name", text(exception)),
        ("group", text(topic)),
        ("delivery.count", text("1")),
    ];
    let context = context.map(|(name, value)| (format!("__connect.errors.{name}"), value));
    let own = [
        ("trace".to_owned(), Some(format!("t{number}"))),
        ("empty".to_owned(), None),
    ];
    own.into_iter().chain(context).collect()
}

async fn each_becomes_a_letter(
    cluster: &Cluster,
    name: &str,
    group: &[(&str, &str)],
    poisoned: Poisoned,
) {
    let servers = cluster.bootstrap_servers();
    let group: Vec<_> = [EARLIEST].iter().chain(group).copied().collect();
    let admin = prepare(servers, name, 0, &group).await;
    fill(servers, name).await;
    let target = Target::new([], None);
    let converter = match poisoned {
        Poisoned::Sink => {
            target.set_poison(poison());
            "ByteArrayConverter"
        }
        Poisoned::Json => "JsonConverter",
    };
    let dead = format!("{name}-dead");
    let loss_file = std::env::temp_dir().join(format!("sharegroup-{name}"));
    let keys = [
        ("consumer.override.max.poll.records", "500"),
        ("value.converter", converter),
        ("value.converter.schemas.enable", "false"),
    ];
    let keys = [&to_letters(&dead)[..], &keys].concat();
    let worker = start_with(servers, name, 1, &target, &loss_file, &keys);
    settled(&admin, name).await;
    let metrics = worker.status().connectors[0].tasks[0].metrics;
    let totals = end(worker).await;
    assert_eq!(
        (metrics.dead_letters, metrics.dead_letter_failures),
        (200, 0)
    );
    assert_eq!(
        (totals.named_as_lost, totals.locks_lost),
        (0, 0),
        "{totals:?}"
    );

    let poison = poison();
    let good = usize::try_from(BATCHES * BATCH).unwrap() - poison.len();
    assert_eq!((target.written(), target.duplicates()), (good, 0));
    assert!(poison.iter().all(|offset| !target.has(*offset)));
    let letters = letters(servers, &dead, poison.len()).await;
    assert_eq!(letters.keys().copied().collect::<Vec<_>>(), poison);
    for (offset, (key, value, headers)) in &letters {
        assert_eq!(*key, format!("k{offset}").into_bytes());
        assert_eq!(*value, self::value(*offset).into_bytes());
        let mut headers = headers.clone();
        for text in ["exception.message", "exception.stacktrace"] {
            let text = headers.remove(&format!("__connect.errors.{text}"));
            assert!(text.flatten().is_some_and(|text| !text.is_empty()));
        }
        assert_eq!(headers, expected(name, *offset, poisoned));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_poison_record_in_each_of_200_batches_becomes_a_letter_and_the_others_are_written_once() {
    on_shared(async |cluster| {
        each_becomes_a_letter(cluster, "poison", &[], Poisoned::Sink).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_record_that_is_no_json_in_each_of_200_batches_becomes_a_letter_and_the_others_are_written_once()
 {
    on_shared(async |cluster| {
        each_becomes_a_letter(cluster, "no-json", &[], Poisoned::Json).await;
    })
    .await;
}

/// The group has a dead-letter topic of the broker's (KIP-1191), which writes there what is rejected.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_080_with_a_letter_topic_of_the_groups_own_there_is_one_letter() {
    on_shared(async |cluster| {
        let servers = cluster.bootstrap_servers();
        create_net(servers, "dlq.b-080").await;
        let net = [
            ("errors.deadletterqueue.topic.name", "dlq.b-080"),
            ("errors.deadletterqueue.copy.record.enable", "true"),
        ];
        each_becomes_a_letter(cluster, "b-080", &net, Poisoned::Sink).await;
        let net = sharegroup_consumer::TopicPartition::new("dlq.b-080", 0);
        let admin = Admin::new(ClientConfig::new(servers).unwrap());
        let end = admin
            .log_offsets(&[net], LogPosition::Latest)
            .await
            .unwrap();
        assert_eq!(end[0].offset, 0, "the broker wrote a second letter");
    })
    .await;
}

/// Creates the topic of a net.
async fn create_net(servers: &str, topic: &str) {
    let admin = Admin::new(ClientConfig::new(servers).unwrap());
    let configs = [("errors.deadletterqueue.group.enable", "true")];
    admin.create_topic(topic, 1, -1, &configs).await.unwrap();
}

/// What the broker wrote to a net: the values by the offsets that their headers name.
async fn in_net(servers: &str, topic: &str, count: usize) -> Vec<(i64, Vec<u8>)> {
    let builder = ShareConsumer::builder(servers).group_id(format!("{topic}-reader"));
    let builder = builder.topics([topic]).begin_at(LogPosition::Earliest);
    let mut consumer = builder.build().await.unwrap();
    let mut found = Vec::new();
    while found.len() < count {
        let batch = timeout(30 * S, consumer.poll()).await.unwrap();
        let batch = batch.unwrap().unwrap();
        for record in batch.records() {
            let is_offset = |header: &Header<'_>| header.key == b"__dlq.errors.offset";
            let offset = record.headers().find(is_offset).unwrap().value.unwrap();
            let offset = std::str::from_utf8(offset).unwrap().parse().unwrap();
            found.push((offset, record.value.unwrap().to_vec()));
        }
        batch.accept();
    }
    drop(consumer.close(5 * S).await);
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn with_a_net_the_worker_writes_the_letter_and_the_broker_keeps_what_no_worker_could() {
    on_shared(async |cluster| {
        let (servers, name) = (cluster.bootstrap_servers(), "net-worker");
        create_net(servers, "dlq.net-worker").await;
        let admin = prepare(servers, name, 20, &[EARLIEST]).await;
        let target = Target::new([], None);
        target.set_poison([3]);
        let loss_file = std::env::temp_dir().join("sharegroup-net-worker");
        let net = [("share.dead.letter.net.topic", "dlq.net-worker")];
        let keys = [&to_letters("net-worker-dead")[..], &net].concat();
        let worker = start_with(servers, name, 1, &target, &loss_file, &keys);
        settled(&admin, name).await;
        let totals = end(worker).await;
        assert_eq!(
            (target.written(), totals.named_as_lost, totals.rejected),
            (19, 0, 0)
        );
        // The net is set: what a member rejects that isn't ours gets into it, and nothing else did.
        let producer = Producer::new(ProducerConfig::new(ClientConfig::new(servers).unwrap()));
        let record = ProducerRecord::new(name).value("crashed");
        drop(producer.send(record).await.unwrap());
        producer.close(30 * S).await.unwrap();
        let builder = ShareConsumer::builder(servers).group_id(name);
        let mut other = builder.topics([name]).build().await.unwrap();
        let batch = timeout(30 * S, other.poll()).await.unwrap();
        batch.unwrap().unwrap().reject();
        drop(other.close(5 * S).await);
        let found = in_net(servers, "dlq.net-worker", 1).await;
        assert_eq!(found, [(20, b"crashed".to_vec())]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_broker_writes_letters_where_it_is_told_to_and_each_reject_is_named() {
    on_shared(async |cluster| {
        let (servers, name) = (cluster.bootstrap_servers(), "net-broker");
        create_net(servers, "dlq.net-broker").await;
        let admin = prepare(servers, name, 20, &[EARLIEST]).await;
        let target = Target::new([], None);
        target.set_poison([3, 14]);
        let loss_file = servers.replace(':', "-");
        let loss_file = std::env::temp_dir().join(format!("sharegroup-{name}-{loss_file}"));
        drop(std::fs::remove_file(&loss_file));
        let keys = [
            ("errors.tolerance", "all"),
            ("share.dead.letter", "broker"),
            ("share.dead.letter.net.topic", "dlq.net-broker"),
        ];
        let worker = start_with(servers, name, 1, &target, &loss_file, &keys);
        settled(&admin, name).await;
        let totals = end(worker).await;
        assert_eq!(
            (target.written(), totals.named_as_lost, totals.rejected),
            (18, 2, 2)
        );
        // What the broker is to keep is named, and is not lost.
        assert_eq!((totals.left_to_broker, totals.lost()), (2, 0));
        assert_eq!(totals.dead_letters, 0);
        assert_eq!(named(&loss_file), [3, 14].into());
        let found = in_net(servers, "dlq.net-broker", 2).await;
        assert_eq!(found, [(3, b"r3".to_vec()), (14, b"r14".to_vec())]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_net_that_would_not_hold_lets_no_task_start() {
    on_shared(async |cluster| {
        let (servers, name) = (cluster.bootstrap_servers(), "net-missing");
        let admin = prepare(servers, name, 0, &[EARLIEST]).await;
        admin
            .create_topic("dlq.net-closed", 1, -1, &[])
            .await
            .unwrap();
        for (topic, advice) in [
            ("dead.net", "begin with dlq."),
            ("dlq.net-missing", "--create --topic dlq.net-missing"),
            ("dlq.net-closed", "--entity-name dlq.net-closed"),
        ] {
            let keys = [("share.dead.letter.net.topic", topic)];
            let target = Target::new([], None);
            let worker = start_with(servers, name, 1, &target, "unused".as_ref(), &keys);
            worker.any_failed().await;
            let trace = worker.status().connectors[0].tasks[0].trace.clone();
            let trace = trace.unwrap();
            assert!(trace.contains(advice), "{trace}");
            end(worker).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn letters_for_another_cluster_have_their_topic_there_or_let_no_task_start() {
    on_shared(async |cluster| {
        let (servers, name) = (cluster.bootstrap_servers(), "letters-elsewhere");
        let admin = prepare(servers, name, 20, &[EARLIEST]).await;
        let elsewhere = Broker::builder().start().await.unwrap();
        let there = elsewhere.bootstrap_servers();
        let target = Target::new([], None);
        target.set_poison([3]);
        let keys = |servers| {
            let mut keys = to_letters("dead-elsewhere").to_vec();
            keys.push(("producer.override.bootstrap.servers", servers));
            keys
        };
        let loss = "unused".as_ref();
        // A socket that hears and never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = silent.local_addr().unwrap().to_string();
        let loaded = load_with(servers, name, 1, &target, loss, &keys(&silent));
        let options = WorkerOptions::default().startup_timeout(5 * S);
        let worker = Worker::start(&loaded.worker, loaded.connectors, &options);
        worker.any_failed().await;
        let trace = worker.status().connectors[0].tasks[0].trace.clone();
        let trace = trace.unwrap();
        for text in [
            "errors.deadletterqueue.topic.name=dead-elsewhere",
            &silent,
            "producer.override.bootstrap.servers",
        ] {
            assert!(trace.contains(text), "{trace}");
        }
        end(worker).await;
        assert!(target.written() == 0, "nothing was taken");

        let worker = start_with(servers, name, 1, &target, loss, &keys(there));
        settled(&admin, name).await;
        let totals = end(worker).await;
        assert_eq!((target.written(), totals.dead_letters), (19, 1));
        let admin_there = Admin::new(ClientConfig::new(there).unwrap());
        let found = admin_there.find_topic("dead-elsewhere").await.unwrap();
        assert!(found.is_some());
        let here = admin.find_topic("dead-elsewhere").await.unwrap();
        assert!(here.is_none(), "{here:?}");
    })
    .await;
}

/// A record as a test wants it: key, value, value of its one header.
type Given = (&'static str, &'static [u8], &'static str);

/// Puts records on a topic of their own and has a sink with these converters write them. The answer: the values
/// that were written, and the stage that the letter of each other record names, by offset. Letters are checked to
/// be the records' bytes.
async fn through(
    cluster: &Cluster,
    name: &str,
    converters: &[(&str, &str)],
    records: &[Given],
    poison: &[i64],
) -> (Vec<(i64, Value)>, Vec<(i64, String)>) {
    let servers = cluster.bootstrap_servers();
    let admin = prepare(servers, name, 0, &[EARLIEST]).await;
    let producer = Producer::new(ProducerConfig::new(ClientConfig::new(servers).unwrap()));
    for (key, value, header) in records {
        let record = ProducerRecord::new(name).partition(0).key(*key);
        let record = record.value(*value).header("h", *header);
        drop(producer.send(record).await.unwrap());
    }
    producer.close(30 * S).await.unwrap();
    let target = Target::new([], None);
    target.set_poison(poison.iter().copied());
    let dead = format!("{name}-dead");
    let loss_file = std::env::temp_dir().join(format!("sharegroup-{name}"));
    let keys = [&to_letters(&dead)[..], converters].concat();
    let worker = start_with(servers, name, 1, &target, &loss_file, &keys);
    settled(&admin, name).await;
    let status = worker.status();
    assert_eq!(status.connectors[0].tasks[0].state, TaskState::Running);
    end(worker).await;
    assert_eq!(target.duplicates(), 0);
    let written = target.values();
    let letters = letters(servers, &dead, records.len() - written.len()).await;
    let stages = letters.into_iter().map(|(offset, (key, value, headers))| {
        let (given_key, given_value, _) = records[usize::try_from(offset).unwrap()];
        assert_eq!((&*key, &*value), (given_key.as_bytes(), given_value));
        let stage = headers["__connect.errors.stage"].clone();
        (offset, stage.unwrap())
    });
    (written, stages.collect())
}

const JSON: &str = "org.apache.kafka.connect.json.JsonConverter";
const PLAIN_JSON: [(&str, &str); 2] = [
    ("value.converter", JSON),
    ("value.converter.schemas.enable", "false"),
];

fn of_values<const N: usize>(offsets: [i64; N]) -> Vec<(i64, String)> {
    let stage = |offset| (offset, "VALUE_CONVERTER".to_owned());
    offsets.map(stage).to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_078_each_stage_has_its_letter_and_the_task_runs_on() {
    on_shared(async |cluster| {
        let converters = [
            ("key.converter", JSON),
            ("key.converter.schemas.enable", "false"),
            ("header.converter", JSON),
            ("header.converter.schemas.enable", "false"),
        ];
        let converters = [&PLAIN_JSON[..], &converters].concat();
        let records: [Given; 5] = [
            ("{", b"1", "1"),
            ("1", b"{", "1"),
            ("1", b"1", "{"),
            ("1", b"3", "1"),
            ("1", b"4", "1"),
        ];
        let (written, stages) = through(cluster, "b-078", &converters, &records, &[3]).await;
        assert_eq!(written, [(4, Value::Int64(4))]);
        let expected = [
            "KEY_CONVERTER",
            "VALUE_CONVERTER",
            "HEADER_CONVERTER",
            "TASK_PUT",
        ];
        let expected = (0..).zip(expected.map(str::to_owned));
        assert_eq!(stages, expected.collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_083_plain_json_in_place_of_the_envelope_becomes_a_letter() {
    on_shared(async |cluster| {
        let records: [Given; 3] = [
            ("k", br#"{"a":1}"#, "1"),
            (
                "k",
                br#"{"schema":{"type":"int32"},"payload":1,"x":0}"#,
                "1",
            ),
            ("k", br#"{"payload":1,"schema":{"type":"int32"}}"#, "1"),
        ];
        let json = [("value.converter", JSON)];
        let (written, stages) = through(cluster, "b-083", &json, &records, &[]).await;
        assert_eq!(written, [(2, Value::Int32(1))]);
        assert_eq!(stages, of_values([0, 1]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_084_no_wrapped_value_reaches_the_sink() {
    on_shared(async |cluster| {
        let records: [Given; 3] = [
            (
                "k",
                br#"{"schema":{"type":"int32"},"payload":3000000000}"#,
                "1",
            ),
            ("k", br#"{"schema":{"type":"int8"},"payload":300}"#, "1"),
            ("k", br#"{"schema":{"type":"int64"},"payload":"5"}"#, "1"),
        ];
        let json = [("value.converter", JSON)];
        let (written, stages) = through(cluster, "b-084", &json, &records, &[]).await;
        assert_eq!((written, stages), (Vec::new(), of_values([0, 1, 2])));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b_091_json_that_is_not_json_becomes_a_letter_and_json_null_is_written() {
    on_shared(async |cluster| {
        let records: [Given; 8] = [
            ("k", br#"{"a":1} xyz"#, "1"),
            ("k", br#"{"x":1e400}"#, "1"),
            ("k", br#"{"x":NaN}"#, "1"),
            ("k", b"", "1"),
            ("k", b"null", "1"),
            ("k", &[0x22, 0xff, 0x22], "1"),
            ("k", b"\xef\xbb\xbf7", "1"),
            ("k", b"7", "1"),
        ];
        let (written, stages) = through(cluster, "b-091", &PLAIN_JSON, &records, &[]).await;
        let seven = Value::Int64(7);
        assert_eq!(written, [(4, Value::Null), (6, seven.clone()), (7, seven)]);
        assert_eq!(stages, of_values([0, 1, 2, 3, 5]));
    })
    .await;
}
