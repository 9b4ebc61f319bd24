//! Real brokers, started and ended. Without Java and Maven these tests say `SKIPPED:`; with `CI=true` they fail then.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use sharegroup_launcher::{Kafka, LaunchError};

/// Runs a tool against the cluster and returns what it printed.
fn tool(kafka: &Kafka, class: &str, args: &[&str]) -> String {
    let output = kafka
        .tool(
            &format!("org.apache.kafka.tools.{class}"),
            ["--bootstrap-server", &kafka.bootstrap_servers()]
                .iter()
                .chain(args),
        )
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{class} {args:?}: {stdout}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    stdout
}

fn is_gone(pid: u32) -> bool {
    // A process nobody waits for any more has no command line left.
    fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |line| line.is_empty())
}

/// Waits for something that another process does.
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn killed_broker_starts_again_on_the_same_data_and_port() {
    let Some(kafka) = Kafka::builder()
        .set("num.partitions", "3")
        .start_or_skip()
        .unwrap()
    else {
        return;
    };
    let broker = kafka.broker(1);
    let (port, pid) = (broker.port(), broker.pid().unwrap());
    assert_eq!(kafka.bootstrap_servers(), format!("127.0.0.1:{port}"));
    tool(&kafka, "TopicCommand", &["--create", "--topic", "kept"]);

    broker.kill().unwrap();
    assert!(!broker.is_running());
    assert!(is_gone(pid));
    assert!(matches!(
        broker.freeze(),
        Err(LaunchError::NotRunning { node_id: 1 })
    ));
    TcpStream::connect(broker.address()).unwrap_err();

    broker.start().unwrap();
    assert!(matches!(
        broker.start(),
        Err(LaunchError::AlreadyRunning { node_id: 1 })
    ));
    assert_ne!(broker.pid().unwrap(), pid);
    let topic = tool(&kafka, "TopicCommand", &["--describe", "--topic", "kept"]);
    assert!(topic.contains("PartitionCount: 3"), "{topic}");
    let features = tool(&kafka, "FeatureCommand", &["describe"]);
    assert!(features.lines().any(|line| line.contains("share.version") && line.contains("FinalizedVersionLevel: 2")), "{features}");

    let (dir, pid) = (kafka.dir().to_path_buf(), broker.pid().unwrap());
    drop(kafka);
    assert!(is_gone(pid));
    assert!(!dir.exists());
}

#[test]
fn three_brokers_survive_a_killed_and_a_frozen_one() {
    let Some(kafka) = Kafka::builder().brokers(3).start_or_skip().unwrap() else {
        return;
    };
    assert_eq!(kafka.bootstrap_servers().split(',').count(), 3);
    tool(
        &kafka,
        "TopicCommand",
        &["--create", "--topic", "three", "--partitions", "3"],
    );
    let topic = tool(&kafka, "TopicCommand", &["--describe", "--topic", "three"]);
    assert!(topic.contains("ReplicationFactor: 3"), "{topic}");

    kafka.broker(2).kill().unwrap();
    assert!(
        kafka.broker(1).is_running()
            && !kafka.broker(2).is_running()
            && kafka.broker(3).is_running()
    );
    kafka.broker(2).start().unwrap();

    kafka.broker(3).freeze().unwrap();
    assert!(kafka.broker(3).is_running());
    kafka.broker(3).thaw().unwrap();
    kafka.broker(3).wait_ready().unwrap();

    kafka.broker(1).stop().unwrap();
    assert!(!kafka.broker(1).is_running());
    assert!(
        kafka
            .broker(1)
            .log_tail(200)
            .contains("shut down completed"),
        "{}",
        kafka.broker(1).log_tail(200)
    );
    kafka.broker(1).start().unwrap();
    kafka.stop().unwrap();
    assert!(kafka.brokers().iter().all(|broker| !broker.is_running()));
}

#[test]
fn broker_that_cannot_start_shows_its_log() {
    let started = Kafka::builder()
        .set("share.coordinator.state.topic.num.partitions", "none")
        .start_or_skip();
    let error = match started {
        Ok(None) => return,
        Ok(Some(_)) => panic!("started with a setting that is no number"),
        Err(error) => error,
    };
    let text = error.to_string();
    assert!(
        matches!(
            error,
            LaunchError::Format { .. } | LaunchError::Exited { .. }
        ),
        "{text}"
    );
    assert!(
        text.contains("share.coordinator.state.topic.num.partitions"),
        "{text}"
    );
}

#[test]
fn given_data_folder_stays_and_is_used_again() {
    let dir = TestDir::new("given");
    let start = || {
        Kafka::builder()
            .data_dir(dir.0.clone())
            .start_or_skip()
            .unwrap()
    };
    let Some(kafka) = start() else { return };
    tool(&kafka, "TopicCommand", &["--create", "--topic", "kept"]);
    let pid = kafka.broker(1).pid().unwrap();
    drop(kafka);
    assert!(is_gone(pid));
    let kafka = start().unwrap();
    assert!(tool(&kafka, "TopicCommand", &["--list"]).contains("kept"));
}

#[test]
fn detached_brokers_outlive_their_owner_until_stopped() {
    let Some(kafka) = Kafka::builder().start_or_skip().unwrap() else {
        return;
    };
    let dir = kafka.dir().to_path_buf();
    let detached = kafka.detach();
    assert_eq!(detached.running_count(), 1);
    assert!(dir.is_dir());
    TcpStream::connect(&detached.bootstrap_servers).unwrap();
    detached.stop().unwrap();
    assert_eq!(detached.running_count(), 0);
    assert!(!dir.exists());
}

/// Set for the copy of this program that plays the owner: where it reports its broker.
const OWNER_REPORT: &str = "SHAREGROUP_TEST_OWNER_REPORT";

#[test]
fn broker_ends_when_its_owner_is_killed() {
    if let Some(report) = std::env::var_os(OWNER_REPORT) {
        own_a_broker(Path::new(&report));
    }
    // Says SKIPPED and makes sure that the jars are there.
    if Kafka::builder().start_or_skip().unwrap().is_none() {
        return;
    }
    let dir = TestDir::new("owner");
    let report = dir.0.join("report");
    let mut owner = Owner(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "broker_ends_when_its_owner_is_killed"])
            .env(OWNER_REPORT, &report)
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    wait_until("the start of a broker", || {
        report.exists() || owner.0.try_wait().unwrap().is_some()
    });
    let report = fs::read_to_string(&report).unwrap();
    let (pid, folder) = report.split_once(' ').unwrap();
    let pid = pid.parse().unwrap();
    assert!(!is_gone(pid));
    owner.0.kill().unwrap();
    owner.0.wait().unwrap();
    wait_until("the end of the broker", || is_gone(pid));
    wait_until("the removal of its folder", || !Path::new(folder).exists());
}

/// Starts a broker, reports it and waits to be killed.
fn own_a_broker(report: &Path) -> ! {
    let kafka = Kafka::builder().start().unwrap();
    let part = report.with_extension("part");
    fs::write(
        &part,
        format!(
            "{} {}",
            kafka.broker(1).pid().unwrap(),
            kafka.dir().display()
        ),
    )
    .unwrap();
    fs::rename(&part, report).unwrap();
    loop {
        thread::park();
    }
}

struct Owner(Child);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

struct TestDir(PathBuf);

impl TestDir {
    fn new(name: &str) -> Self {
        let dir =
            std::env::temp_dir().join(format!("sharegroup-launcher-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}
