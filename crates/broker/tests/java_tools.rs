//! Kafka's own tools, version 4.4, against this broker.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sharegroup_broker::model::Model;
use sharegroup_broker::{Broker, BrokerBuilder};
use sharegroup_launcher::Tools;

/// A broker on a runtime of its own, and the tools.
struct Fixture {
    _runtime: tokio::runtime::Runtime,
    broker: Broker,
    tools: Tools,
}

impl Fixture {
    /// `None` where this machine has no Java or Maven, with a line that says so.
    fn new(describe: impl FnOnce(BrokerBuilder) -> BrokerBuilder) -> Option<Self> {
        let tools = match Tools::fetch("4.4.0") {
            Err(error) if error.is_missing_requirement() && std::env::var_os("CI").is_none() => {
                eprintln!("SKIPPED: Kafka's tools are needed: {error}");
                return None;
            }
            tools => tools.unwrap(),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let broker = runtime
            .block_on(describe(Broker::builder()).start())
            .unwrap();
        Some(Self {
            _runtime: runtime,
            broker,
            tools,
        })
    }

    /// Runs a tool to its end; its output must tell of success.
    fn run(&self, class: &str, args: &str) -> String {
        let output = self.output(class, args);
        let text = text(&output);
        assert!(output.status.success(), "{class} {args}:\n{text}");
        text
    }

    /// Starts a share consumer in the group `g` and waits until it has been assigned something.
    fn member(&self) -> Running {
        let args = "--bootstrap-server BOOTSTRAP --topic orders --group-id g";
        let args = args.replace("BOOTSTRAP", self.broker.bootstrap_servers());
        let class = "org.apache.kafka.tools.VerifiableShareConsumer";
        let mut command = self.tools.command(class, args.split_whitespace());
        let running = Running(command.stdout(Stdio::null()).spawn().unwrap());
        let is_assigned = |model: &mut Model| {
            let group = model.groups.get("g").into_iter();
            let mut members = group.flat_map(|group| group.members.values());
            members.any(|member| !member.assigned.is_empty())
        };
        while !self.broker.model(is_assigned) {
            sleep(Duration::from_millis(20));
        }
        running
    }

    fn output(&self, class: &str, args: &str) -> Output {
        let class = format!("org.apache.kafka.tools.{class}");
        let args = args.replace("BOOTSTRAP", self.broker.bootstrap_servers());
        let began = Instant::now();
        let output = self.tools.run(&class, args.split_whitespace()).unwrap();
        println!(
            "{class} {args} took {:?}\n{}",
            began.elapsed(),
            text(&output)
        );
        output
    }
}

/// A file with a client's configuration, removed when it goes.
struct Config(PathBuf);

impl Config {
    fn new(text: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sharegroup-java-tools-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// A tool that runs until it is killed.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn topic_command_makes_describes_grows_and_deletes_topics() {
    let Some(fixture) = Fixture::new(|builder| builder.brokers(3)) else {
        return;
    };
    fixture.run("TopicCommand", "--bootstrap-server BOOTSTRAP --create --topic orders --partitions 4 --replication-factor 2 --config retention.bytes=1000000");
    let text = fixture.run(
        "TopicCommand",
        "--bootstrap-server BOOTSTRAP --describe --topic orders",
    );
    assert!(
        text.contains("PartitionCount: 4") && text.contains("ReplicationFactor: 2"),
        "{text}"
    );
    assert!(text.contains("retention.bytes=1000000"), "{text}");
    fixture.run(
        "TopicCommand",
        "--bootstrap-server BOOTSTRAP --alter --topic orders --partitions 6",
    );
    let text = fixture.run("TopicCommand", "--bootstrap-server BOOTSTRAP --list");
    assert!(text.contains("orders"), "{text}");
    fixture.run(
        "TopicCommand",
        "--bootstrap-server BOOTSTRAP --delete --topic orders",
    );
    let text = fixture.run("TopicCommand", "--bootstrap-server BOOTSTRAP --list");
    assert!(!text.contains("orders"), "{text}");
}

#[test]
fn config_command_alters_and_describes_topics_and_groups() {
    let Some(fixture) = Fixture::new(|builder| builder.topic("orders", 1)) else {
        return;
    };
    fixture.run("ConfigCommand", "--bootstrap-server BOOTSTRAP --alter --entity-type topics --entity-name orders --add-config message.timestamp.type=LogAppendTime");
    let text = fixture.run(
        "ConfigCommand",
        "--bootstrap-server BOOTSTRAP --describe --entity-type topics --entity-name orders",
    );
    assert!(
        text.contains("message.timestamp.type=LogAppendTime"),
        "{text}"
    );
    fixture.run("ConfigCommand", "--bootstrap-server BOOTSTRAP --alter --entity-type groups --entity-name g --add-config share.auto.offset.reset=earliest,share.delivery.count.limit=7");
    let text = fixture.run(
        "ConfigCommand",
        "--bootstrap-server BOOTSTRAP --describe --entity-type groups --entity-name g",
    );
    assert!(
        text.contains("share.auto.offset.reset=earliest")
            && text.contains("share.delivery.count.limit=7"),
        "{text}"
    );
    let refused = fixture.output("ConfigCommand", "--bootstrap-server BOOTSTRAP --alter --entity-type groups --entity-name g --add-config share.record.lock.duration.ms=1");
    assert!(!refused.status.success(), "{}", text.as_str());
}

#[test]
fn producers_of_java_write_with_every_codec_and_share_consumers_read_it_all() {
    let Some(fixture) = Fixture::new(|builder| {
        builder
            .topic("orders", 4)
            .group("g", "share.auto.offset.reset", "earliest")
    }) else {
        return;
    };
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let text = fixture.run("ProducerPerformance", &format!("--topic orders --num-records 2000 --record-size 100 --throughput -1 --bootstrap-server BOOTSTRAP --command-property compression.type={codec} acks=all enable.idempotence=true"));
        assert!(text.contains("2000 records sent"), "{text}");
        let config = Config::new(&format!(
            "compression.type={codec}\nenable.idempotence=true\nretries=5\n"
        ));
        let config = config.0.display();
        let text = fixture.run("VerifiableProducer", &format!("--bootstrap-server BOOTSTRAP --topic orders --max-messages 100 --acks -1 --command-config {config}"));
        assert!(text.contains("\"acked\":100"), "{text}");
    }
    let text = fixture.run(
        "ShareConsumerPerformance",
        "--bootstrap-server BOOTSTRAP --topic orders --group g --num-records 10500 --timeout 20000",
    );
    assert!(text.contains("10500"), "{text}");
    let text = fixture.run(
        "consumer.group.ShareGroupCommand",
        "--bootstrap-server BOOTSTRAP --describe --group g --offsets",
    );
    assert!(text.contains("orders"), "{text}");
}

#[test]
fn a_transactional_producer_of_java_commits_and_its_records_are_read_committed() {
    let Some(fixture) = Fixture::new(|builder| {
        builder
            .topic("orders", 2)
            .group("g", "share.auto.offset.reset", "earliest")
            .group("g", "share.isolation.level", "read_committed")
    }) else {
        return;
    };
    let text = fixture.run("ProducerPerformance", "--topic orders --num-records 3000 --record-size 100 --throughput 3000 --bootstrap-server BOOTSTRAP --transactional-id t --transaction-duration-ms 100");
    assert!(text.contains("3000 records sent"), "{text}");
    let text = fixture.run(
        "ShareConsumerPerformance",
        "--bootstrap-server BOOTSTRAP --topic orders --group g --num-records 3000 --timeout 20000",
    );
    assert!(text.contains("3000"), "{text}");
    let markers: i64 = fixture.broker.model(|model| {
        let topic = model.topics.named("orders").unwrap();
        topic
            .partitions
            .iter()
            .map(|partition| partition.log.end_offset())
            .sum::<i64>()
            - 3000
    });
    assert!(markers > 2, "transactions were ended: {markers}");
}

#[test]
fn console_share_consumer_prints_what_was_produced() {
    let Some(fixture) = Fixture::new(|builder| {
        builder
            .topic("orders", 1)
            .group("g", "share.auto.offset.reset", "earliest")
    }) else {
        return;
    };
    fixture.run(
        "VerifiableProducer",
        "--bootstrap-server BOOTSTRAP --topic orders --max-messages 10 --acks -1",
    );
    let text = fixture.run("consumer.ConsoleShareConsumer", "--bootstrap-server BOOTSTRAP --topic orders --group g --max-messages 10 --timeout-ms 20000");
    for value in 0..10 {
        assert!(
            text.lines().any(|line| line == value.to_string()),
            "{value}: {text}"
        );
    }
}

#[test]
fn verifiable_share_consumer_acknowledges_in_both_modes() {
    for mode in ["sync", "async"] {
        let Some(fixture) = Fixture::new(|builder| {
            builder
                .topic("orders", 2)
                .group("g", "share.auto.offset.reset", "earliest")
        }) else {
            return;
        };
        fixture.run(
            "VerifiableProducer",
            "--bootstrap-server BOOTSTRAP --topic orders --max-messages 100 --acks -1",
        );
        let text = fixture.run("VerifiableShareConsumer", &format!("--bootstrap-server BOOTSTRAP --topic orders --group-id g --max-messages 100 --acknowledgement-mode {mode} --offset-reset-strategy earliest"));
        assert!(text.contains("\"name\":\"offsets_acknowledged\""), "{text}");
        assert!(text.contains("\"success\":true"), "{text}");
        let lag = fixture.run(
            "consumer.group.ShareGroupCommand",
            "--bootstrap-server BOOTSTRAP --describe --group g --offsets",
        );
        let lags: Vec<&str> = lag
            .lines()
            .filter(|line| line.starts_with('g'))
            .filter_map(|line| line.split_whitespace().last())
            .collect();
        // The tool prints a dash for a partition that nobody has settled anything of.
        assert!(
            lags.len() == 2 && lags.iter().all(|lag| ["0", "-"].contains(lag)),
            "{lag}"
        );
    }
}

#[test]
fn share_group_command_lists_describes_resets_and_deletes() {
    let Some(fixture) = Fixture::new(|builder| {
        builder
            .topic("orders", 1)
            .group("g", "share.auto.offset.reset", "earliest")
    }) else {
        return;
    };
    fixture.run(
        "VerifiableProducer",
        "--bootstrap-server BOOTSTRAP --topic orders --max-messages 20 --acks -1",
    );
    fixture.run("consumer.ConsoleShareConsumer", "--bootstrap-server BOOTSTRAP --topic orders --group g --max-messages 20 --timeout-ms 20000");
    let command = "consumer.group.ShareGroupCommand";
    let text = fixture.run(command, "--bootstrap-server BOOTSTRAP --list");
    assert!(text.lines().any(|line| line == "g"), "{text}");
    let text = fixture.run(
        command,
        "--bootstrap-server BOOTSTRAP --describe --group g --state",
    );
    assert!(text.contains("Empty"), "{text}");
    fixture.run(
        command,
        "--bootstrap-server BOOTSTRAP --describe --group g --members",
    );
    let text = fixture.run(command, "--bootstrap-server BOOTSTRAP --reset-offsets --group g --topic orders --to-earliest --execute");
    assert!(text.contains("orders"), "{text}");
    let text = fixture.run("consumer.ConsoleShareConsumer", "--bootstrap-server BOOTSTRAP --topic orders --group g --max-messages 20 --timeout-ms 20000");
    assert!(text.lines().any(|line| line == "19"), "{text}");
    let text = fixture.run(
        command,
        "--bootstrap-server BOOTSTRAP --delete-offsets --group g --topic orders",
    );
    assert!(text.contains("orders"), "{text}");
    fixture.run(command, "--bootstrap-server BOOTSTRAP --delete --group g");
    let text = fixture.run(command, "--bootstrap-server BOOTSTRAP --list");
    assert!(!text.lines().any(|line| line == "g"), "{text}");
}

#[test]
fn share_group_command_tells_of_members_and_leaves_a_group_with_members_alone() {
    let Some(fixture) = Fixture::new(|builder| {
        builder
            .topic("orders", 3)
            .group("g", "share.auto.offset.reset", "earliest")
    }) else {
        return;
    };
    let member = fixture.member();
    let command = "consumer.group.ShareGroupCommand";
    let output = fixture.run(command, "--bootstrap-server BOOTSTRAP --list --state");
    assert!(
        output
            .lines()
            .any(|line| line.starts_with("g ") && line.contains("Stable")),
        "{output}"
    );
    let output = fixture.run(
        command,
        "--bootstrap-server BOOTSTRAP --describe --group g --members --verbose",
    );
    let row = output.lines().find(|line| line.starts_with("g ")).unwrap();
    assert!(
        row.contains("127.0.0.1") && row.contains("orders:0,1,2"),
        "{output}"
    );
    let output = fixture.run(
        command,
        "--bootstrap-server BOOTSTRAP --describe --group g --state --verbose",
    );
    let row = output.lines().find(|line| line.starts_with("g ")).unwrap();
    assert!(
        row.contains("Stable") && row.trim_end().ends_with(" 1"),
        "{output}"
    );
    for refused in [
        "--reset-offsets --group g --topic orders --to-earliest --execute",
        "--delete-offsets --group g --topic orders",
        "--delete --group g",
    ] {
        let answer = fixture.output(command, &format!("--bootstrap-server BOOTSTRAP {refused}"));
        let told = text(&answer);
        assert!(
            told.to_lowercase().contains("not empty") || told.contains("Stable"),
            "{refused}: {told}"
        );
    }
    drop(member);
}

#[test]
fn share_group_command_resets_to_the_end_and_to_a_time() {
    let Some(fixture) = Fixture::new(|builder| builder.topic("orders", 1)) else {
        return;
    };
    fixture.run(
        "VerifiableProducer",
        "--bootstrap-server BOOTSTRAP --topic orders --max-messages 20 --acks -1",
    );
    let command = "consumer.group.ShareGroupCommand";
    for (to, start) in [
        ("--to-latest", 20),
        ("--to-datetime 2020-01-01T00:00:00.000", 0),
        ("--to-latest", 20),
    ] {
        let reset = format!(
            "--bootstrap-server BOOTSTRAP --reset-offsets --group g --topic orders {to} --execute"
        );
        fixture.run(command, &reset);
        let text = fixture.run(
            command,
            "--bootstrap-server BOOTSTRAP --describe --group g --offsets",
        );
        let row = text.lines().find(|line| line.starts_with("g ")).unwrap();
        let fields: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            fields[3..5],
            [start.to_string(), (20 - start).to_string()],
            "{text}"
        );
    }
}
