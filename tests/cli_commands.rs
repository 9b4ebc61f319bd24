//! The commands around `run` on a real broker: topics, produce, consume, quickstart, and the examples.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use sharegroup_launcher::Kafka;
use support::{Folder, Run, binary};

/// One broker for all tests of this file; topics, groups and folders differ. `None` = skipped.
fn kafka() -> Option<&'static Kafka> {
    static KAFKA: OnceLock<Option<Kafka>> = OnceLock::new();
    KAFKA
        .get_or_init(|| {
            Kafka::builder()
                .set("group.share.heartbeat.interval.ms", "1000")
                .start_or_skip()
                .unwrap()
        })
        .as_ref()
}

/// The program with a command's arguments.
fn command(kafka: &Kafka, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .args(arguments)
        .args(["--bootstrap-server", &kafka.bootstrap_servers()])
        .stdin(Stdio::null());
    command
}

#[track_caller]
fn done(kafka: &Kafka, arguments: &[&str]) -> Output {
    let output = command(kafka, arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A topic with these lines, written by `produce`.
fn fill(kafka: &Kafka, folder: &Folder, topic: &str, lines: &str, more: &[&str]) {
    let topics = ["topics", "create", "--partitions", "2", "--topic", topic];
    done(kafka, &topics);
    let file = folder.write("lines", lines);
    let file = file.to_str().unwrap();
    let produce = ["produce", "--topic", topic, "--file", file];
    done(kafka, &[&produce[..], more].concat());
}

fn numbers(count: u32) -> String {
    (0..count).map(|number| format!("{number}\n")).collect()
}

#[test]
fn topics_are_created_listed_described_and_deleted() {
    let Some(kafka) = kafka() else { return };
    let create = ["topics", "create", "--partitions", "3", "--topic", "listed"];
    let created = done(
        kafka,
        &[&create[..], &["--config", "retention.ms=1000"]].concat(),
    );
    assert!(text(&created.stdout).contains("listed: 3 partitions"));
    let again = command(kafka, &create).output().unwrap();
    assert_eq!(again.status.code(), Some(1));
    let errors = text(&again.stderr);
    assert!(errors.contains("TOPIC_ALREADY_EXISTS"), "{errors}");
    assert!(errors.contains("--if-not-exists"), "{errors}");
    done(kafka, &[&create[..], &["--if-not-exists"]].concat());

    let list = text(&done(kafka, &["topics", "list"]).stdout);
    let listed = |line: &str| line.split_whitespace().eq(["listed", "3"]);
    assert!(list.lines().any(listed), "{list}");
    let json = text(&done(kafka, &["topics", "list", "-o", "json"]).stdout);
    assert!(json.contains("\"topic\": \"listed\""), "{json}");
    let described = text(&done(kafka, &["topics", "describe", "--topic", "listed"]).stdout);
    assert!(described.contains("retention.ms=1000"), "{described}");
    assert_eq!(described.lines().count(), 5, "{described}");

    let delete = ["topics", "delete", "--topic", "listed"];
    let deleted = done(kafka, &delete);
    assert_eq!(text(&deleted.stdout), "Deleted topic listed.\n");
    let describe = ["topics", "describe", "--topic", "listed"];
    for missing in [&delete, &describe] {
        let output = command(kafka, missing).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let errors = text(&output.stderr);
        assert!(errors.contains("topic listed does not exist"), "{errors}");
    }
    done(kafka, &[&delete[..], &["--if-exists"]].concat());
}

/// With every part printed, against Kafka 4.4's own tool.
#[test]
fn consume_prints_what_kafkas_own_tool_prints() {
    let Some(kafka) = kafka() else { return };
    let folder = Folder::new("cli-consume");
    let lines = "k1:v1\nk2:\n:v3\nk4:v4:w4\n";
    fill(
        kafka,
        &folder,
        "printed",
        lines,
        &["--key-separator", ":", "--compression", "zstd"],
    );
    let parts = [
        "timestamp",
        "partition",
        "offset",
        "delivery",
        "headers",
        "key",
    ];
    let parts: Vec<_> = parts
        .iter()
        .map(|part| format!("print.{part}=true"))
        .collect();
    let properties = |option| parts.iter().flat_map(move |part| [option, part.as_str()]);
    let ours: Vec<&str> = ["consume", "--topic", "printed", "--group", "ours"]
        .into_iter()
        .chain(["--from-beginning", "--max-messages", "4"])
        .chain(properties("--property"))
        .collect();
    let ours = done(kafka, &ours);
    assert!(text(&ours.stderr).contains("Processed a total of 4 messages"));

    let servers = kafka.bootstrap_servers();
    let group = [
        "--entity-type",
        "groups",
        "--entity-name",
        "theirs",
        "--alter",
    ];
    let reset = ["--add-config", "share.auto.offset.reset=earliest"];
    let configs = ["--bootstrap-server", servers.as_str()]
        .into_iter()
        .chain(group)
        .chain(reset);
    assert!(
        kafka
            .tool("org.apache.kafka.tools.ConfigCommand", configs)
            .unwrap()
            .status
            .success()
    );
    let theirs = ["--bootstrap-server", servers.as_str(), "--topic", "printed"]
        .into_iter()
        .chain([
            "--group",
            "theirs",
            "--max-messages",
            "4",
            "--timeout-ms",
            "60000",
        ])
        .chain(properties("--formatter-property"));
    let theirs = kafka.tool(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        theirs,
    );
    let sorted = |bytes: &[u8]| {
        text(bytes)
            .lines()
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(sorted(&ours.stdout), sorted(&theirs.unwrap().stdout));
    assert_eq!(sorted(&ours.stdout).len(), 4);
}

#[test]
fn consume_starts_a_new_group_at_the_end_unless_told_otherwise_and_says_so() {
    let Some(kafka) = kafka() else { return };
    let folder = Folder::new("cli-start");
    fill(kafka, &folder, "started", &numbers(100), &[]);
    let consume = [
        "consume",
        "--topic",
        "started",
        "--timeout-ms",
        "4000",
        "--group",
    ];
    let at_end = done(kafka, &[&consume[..], &["at-end"]].concat());
    assert_eq!(text(&at_end.stdout), "");
    assert!(text(&at_end.stderr).contains("share.auto.offset.reset=latest"));
    let all = done(
        kafka,
        &[&consume[..], &["all", "--from-beginning"]].concat(),
    );
    assert_eq!(text(&all.stdout).lines().count(), 100);
    assert!(text(&all.stderr).contains("set share.auto.offset.reset=earliest on group all"));
    let again = done(
        kafka,
        &[&consume[..], &["all", "--from-beginning"]].concat(),
    );
    assert_eq!(text(&again.stdout), "");
    assert!(text(&again.stderr).contains("goes on where it stands"));
}

/// A record counts as printed once it is in the pipe.
#[test]
fn what_was_not_printed_when_the_reader_leaves_comes_again() {
    const RECORDS: u32 = 50_000;
    let Some(kafka) = kafka() else { return };
    let folder = Folder::new("cli-pipe");
    fill(kafka, &folder, "piped", &numbers(RECORDS), &[]);
    let consume = [
        "consume",
        "--topic",
        "piped",
        "--group",
        "piped",
        "--from-beginning",
    ];
    let mut child = command(kafka, &consume)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut seen = BTreeSet::new();
    for _ in 0..1_000 {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        seen.insert(line.trim().to_owned());
    }
    drop(output);
    assert!(child.wait().unwrap().success());

    let rest = done(kafka, &[&consume[..5], &["--timeout-ms", "5000"]].concat());
    let rest: BTreeSet<_> = text(&rest.stdout).lines().map(str::to_owned).collect();
    let in_the_pipe = RECORDS as usize - seen.union(&rest).count();
    // 64 KiB of lines of two to six bytes.
    assert!(in_the_pipe < 64 * 1024 / 2, "{in_the_pipe}");
    assert!(
        rest.len() > RECORDS as usize / 4,
        "{} came again",
        rest.len()
    );
}

#[test]
fn the_quickstart_on_a_real_kafka_ends_with_counts_that_match_and_leaves_the_files() {
    if kafka().is_none() {
        return;
    }
    let folder = Folder::new("cli-quickstart-kafka");
    let files = folder.join("files");
    let mut command = Command::new(binary());
    command
        .args(["quickstart", "--broker", "kafka", "--records", "20000"])
        .args(["--seed", "7", "--dir"])
        .arg(&files);
    let mut run = Run::spawn(command, folder.join("log"));
    let status = run.wait(Duration::from_secs(180));
    assert!(status.success(), "{status}\n{}", run.log());
    support::quickstart::check(&run.log(), &files, 20_000);
    assert!(run.log().contains("a real Kafka"), "{}", run.log());
}

#[test]
fn the_examples_run() {
    let Some(kafka) = kafka() else { return };
    let folder = Folder::new("cli-examples");
    fill(kafka, &folder, "orders", &numbers(1_000), &[]);
    let example = |name: &str, here: &str, there: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("examples")
            .join(name);
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains(here), "{name} has {here}");
        folder.write(name, &text.replace(here, there))
    };
    let output = folder.join("orders-");
    let mut command = Command::new(binary());
    command
        .arg("run")
        .arg(example(
            "worker.properties",
            "localhost:9092",
            &kafka.bootstrap_servers(),
        ))
        .arg(example(
            "file-sink.properties",
            "/tmp/orders-",
            output.to_str().unwrap(),
        ))
        .args(["--exit-when-idle", "2s", "--strict"]);
    let mut run = Run::spawn(command, folder.join("log"));
    let status = run.wait(Duration::from_secs(60));
    assert!(status.success(), "{status}\n{}", run.log());
    let lines = |task| std::fs::read_to_string(folder.join(&format!("orders-{task}.txt"))).unwrap();
    assert_eq!(lines(0).lines().count() + lines(1).lines().count(), 1_000);
}
