//! Rounds of `kill -9` while clients produce and acknowledge: the broker stands by what it said.
//!
//! `SHAREGROUP_RECOVERY_ROUNDS` sets their number; 5 otherwise.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests"
)]

mod clients;
mod ledger;
#[path = "../raw/mod.rs"]
mod raw;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs, process, thread};

use sharegroup_broker::Broker;
use sharegroup_wire::ErrorCode;
use sharegroup_wire::compress::DecompressLimits;
use sharegroup_wire::message::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use sharegroup_wire::message::fetch::{FetchPartition, FetchRequest, FetchTopic};
use sharegroup_wire::message::metadata::MetadataRequest;
use sharegroup_wire::record::RecordBatches;

use clients::{
    Consumer, Ended, Producer, Random, Settles, Target, churn, churn_once, init, transact,
};
use ledger::{At, Known, Ledger};
use raw::Raw;

const PARTITIONS: u64 = 3;
const ROUNDS: &str = "SHAREGROUP_RECOVERY_ROUNDS";
/// Tells the process that is to be killed its folder.
const DIR: &str = "SHAREGROUP_RECOVERY_DIR";

/// Not a test: what the other one starts and kills.
#[test]
fn broker_process() {
    let Some(dir) = env::var_os(DIR) else {
        return;
    };
    // The end of its input is the end of who started it.
    thread::spawn(|| {
        drop(std::io::stdin().read(&mut [0]));
        process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let broker = Broker::builder()
            .dir(dir)
            .topic("orders", i32::try_from(PARTITIONS).unwrap())
            .group("g", "share.auto.offset.reset", "earliest")
            .group("g", "share.isolation.level", "read_committed")
            .group("g", "share.delivery.count.limit", "10")
            .start()
            .await
            .unwrap();
        println!("bootstrap.servers={}", broker.bootstrap_servers());
        std::future::pending::<()>().await;
    });
}

fn start(dir: &Path) -> (Child, String) {
    start_by(Command::new(env::current_exe().unwrap()), dir)
}

fn start_by(mut command: Command, dir: &Path) -> (Child, String) {
    let mut child = command
        .args(["broker_process", "--exact", "--nocapture"])
        .env(DIR, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let servers = lines.find_map(|line| {
        let line = line.unwrap();
        let (_, servers) = line.split_once("bootstrap.servers=")?;
        Some(servers.to_owned())
    });
    (child, servers.unwrap())
}

/// A folder that no other test has.
fn own_dir(name: &str) -> PathBuf {
    let name = format!("sharegroup-broker-{name}-{}", process::id());
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn what_was_said_before_kill_9_holds_after_it() {
    let rounds = env::var(ROUNDS).map_or(5, |rounds| rounds.parse().unwrap());
    let dir = own_dir("recovery");
    let ledger = Ledger::default();
    let mut random = Random(rounds);
    let mut producers = [Producer::new("a", 1), Producer::new("b", 2)];
    let mut topics = None;
    let gone = Err(Ended::Gone);
    for round in 0..rounds {
        let (mut child, address) = start(&dir);
        let target = target(&address);
        let known = *topics.get_or_insert((target.orders, target.churn));
        assert_eq!(
            (target.orders, target.churn),
            known,
            "topics keep their ids"
        );
        let until = ledger.told().answers + 20 + random.below(600);
        thread::scope(|scope| {
            for producer in &mut producers {
                scope.spawn(|| assert_eq!(producer.run(&target, &ledger), gone));
            }
            scope.spawn(|| assert_eq!(transact(&target, &ledger, round), gone));
            scope.spawn(|| assert_eq!(churn(&target, &ledger), gone));
            for member in [2 * round, 2 * round + 1] {
                let consumer = Consumer {
                    target: &target,
                    ledger: &ledger,
                    member,
                    settles: Settles::AtRandom,
                };
                scope.spawn(move || assert_eq!(consumer.run(), gone));
            }
            ledger.wait_for(until);
            child.kill().unwrap();
            child.wait().unwrap();
        });
        assert_eq!(ledger.told().violations, [""; 0], "round {round}");
    }
    settle_the_rest(&dir, &ledger, 2 * rounds);
    fs::remove_dir_all(&dir).unwrap();
    let told = ledger.told();
    let settled = told.records.values();
    let settled = settled.filter(|known| **known == Known::Settled).count();
    println!(
        "{rounds} rounds: {} answers, {} produced, {} aborted, {settled} settled, {} delivered again after a release",
        told.answers,
        told.produced.len(),
        told.aborted.len(),
        told.delivered_again,
    );
}

/// One member settles all that is left; then everything that was said is compared with what is there.
fn settle_the_rest(dir: &Path, ledger: &Ledger, member: u64) {
    let (mut child, address) = start(dir);
    let target = target(&address);
    let last = Consumer {
        target: &target,
        ledger,
        member,
        settles: Settles::All,
    };
    // A transaction that the last kill has left open holds back what is behind it.
    init(&mut Raw::connect(&address), ledger, Some("transactions")).unwrap();
    last.run().unwrap();
    churn_once(&mut Raw::connect(&address), &target, ledger).unwrap();
    let logs = (0..PARTITIONS).map(|index| read(&target, index));
    check(ledger, &logs.collect::<Vec<_>>());
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The journal can't grow beyond 128 KiB, as on a full disk.
#[cfg(unix)]
#[test]
fn a_disk_that_takes_no_more_is_told_and_loses_nothing() {
    let dir = own_dir("full-disk");
    let mut limited = Command::new("sh");
    // In blocks of 512 bytes; the signal would end the process.
    let limit = "trap '' XFSZ; ulimit -f 256; exec \"$0\" \"$@\"";
    limited.args(["-c", limit]).arg(env::current_exe().unwrap());
    let (mut child, address) = start_by(limited, &dir);
    let target = target(&address);
    let ledger = Ledger::default();
    let consumer = Consumer {
        target: &target,
        ledger: &ledger,
        member: 1,
        settles: Settles::All,
    };
    let mut producer = Producer::new("a", 1);
    let refused = Err(Ended::Refused(ErrorCode::KafkaStorageError));
    assert_eq!(producer.run(&target, &ledger), refused);
    assert_eq!(consumer.run(), refused);
    child.kill().unwrap();
    child.wait().unwrap();

    settle_the_rest(&dir, &ledger, 2);
    assert!(!ledger.told().produced.is_empty());
    fs::remove_dir_all(&dir).unwrap();
}

/// The topics; the one that forgets is made where it isn't there.
fn target(address: &str) -> Target {
    let mut raw = Raw::connect(address);
    let churn = CreatableTopic {
        name: "churn".into(),
        num_partitions: 1,
        replication_factor: 1,
        assignments: Vec::new(),
        configs: vec![CreatableTopicConfig {
            name: "retention.bytes".into(),
            value: Some("100000".into()),
        }],
    };
    let made = raw.call(
        &CreateTopicsRequest {
            topics: vec![churn],
            timeout_ms: 5000,
            validate_only: false,
        },
        7,
    );
    let result = made.topics.first().unwrap().error_code;
    assert!(matches!(
        result,
        ErrorCode::None | ErrorCode::TopicAlreadyExists
    ));
    let metadata = raw.call(&MetadataRequest::default(), 12);
    let id = |name: &str| {
        let mut topics = metadata.topics.iter();
        let topic = topics.find(|topic| topic.name.as_deref() == Some(name));
        topic.unwrap().topic_id
    };
    Target {
        address: address.to_owned(),
        orders: id("orders"),
        churn: id("churn"),
    }
}

/// All records of a partition, by offset; markers are `None`.
fn read(target: &Target, partition: u64) -> BTreeMap<i64, Option<String>> {
    let mut raw = Raw::connect(&target.address);
    let mut records = BTreeMap::new();
    let mut next = 0;
    loop {
        let request = FetchRequest {
            topics: vec![FetchTopic {
                topic_id: target.orders,
                partitions: vec![FetchPartition {
                    partition: i32::try_from(partition).unwrap(),
                    fetch_offset: next,
                    partition_max_bytes: 1 << 20,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let answer = raw.call(&request, 16);
        let got = answer
            .responses
            .into_iter()
            .flat_map(|topic| topic.partitions);
        let got = got.last().unwrap();
        assert_eq!(got.error_code, ErrorCode::None, "{got:?}");
        let before = next;
        for batch in RecordBatches::new(got.records.unwrap_or_default()) {
            let batch = batch.unwrap();
            for record in batch.records(&DecompressLimits::default()).unwrap() {
                let record = record.unwrap();
                let value = String::from_utf8(record.value.unwrap().to_vec());
                let value = value.ok().filter(|_| !batch.is_control());
                records.insert(record.offset, value);
            }
            next = batch.last_offset() + 1;
        }
        if next == before {
            return records;
        }
    }
}

/// Everything is where it was said to be, once, and was settled in the end.
fn check(ledger: &Ledger, logs: &[BTreeMap<i64, Option<String>>]) {
    let mut places: BTreeMap<&String, At> = BTreeMap::new();
    for (partition, log) in (0..).zip(logs) {
        for (offset, value) in log {
            let Some(value) = value else {
                continue;
            };
            let before = places.insert(value, (partition, *offset));
            assert_eq!(before, None, "{value} is there twice");
        }
    }
    let told = ledger.told();
    assert_eq!(told.violations, [""; 0]);
    for (value, at) in &told.produced {
        assert_eq!(places.get(value), Some(at), "{value} was acknowledged");
        let known = told.records.get(at);
        let may_be_settled = matches!(known, Some(Known::Settled | Known::Asked(_)));
        assert!(may_be_settled, "{value} at {at:?} is lost: {known:?}");
    }
}
