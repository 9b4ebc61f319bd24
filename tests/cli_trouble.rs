//! Bad input and trouble: what the program says, what it does, and how it ends.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::io::Read as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_launcher::Kafka;
use support::{Folder, Run, RunPlan, Written, binary, create_topic, lines, produce, wait_for};

/// One broker for all tests of this file; topics, groups and folders differ. `None` = skipped.
fn kafka() -> Option<&'static Kafka> {
    static KAFKA: OnceLock<Option<Kafka>> = OnceLock::new();
    KAFKA
        .get_or_init(|| Kafka::builder().start_or_skip().unwrap())
        .as_ref()
}

fn plan<'a>(kafka: &'a Kafka, folder: &'a Folder, name: &'a str) -> RunPlan<'a> {
    RunPlan {
        name,
        kafka,
        folder,
        topic: name,
        group: name,
        tasks: 2,
        more: "",
        arguments: &["--exit-when-idle", "2s"],
    }
}

/// Configuration files for servers that need not exist.
fn files(folder: &Folder, servers: &str, worker: &str, connector: &str) -> [PathBuf; 2] {
    let output = folder.join("files-${task}.out");
    [
        folder.write(
            "worker.properties",
            &format!("bootstrap.servers={servers}\n{worker}\n"),
        ),
        folder.write(
            "sink.properties",
            &format!(
                "name=files\nconnector.class=file\ntopics=files\nfile={}\nconsumer.override.group.protocol=share\n{connector}\n",
                output.display()
            ),
        ),
    ]
}

fn command(files: &[PathBuf; 2], arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.arg("run").args(files).args(arguments);
    command
}

/// An address where nobody listens.
fn dead_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[track_caller]
fn assert_says(run: &Run, texts: &[&str]) {
    let log = run.log();
    for text in texts {
        assert!(log.contains(text), "`{text}` is not in:\n{log}");
    }
}

#[test]
fn a_broker_that_is_not_reachable_is_named_while_retrying_until_the_startup_timeout() {
    let folder = Folder::new("cli-unreachable");
    let address = dead_address();
    let files = files(&folder, &address, "", "");
    let start = Instant::now();
    let command = command(&files, &["--startup-timeout", "4s"]);
    let mut run = Run::spawn(command, folder.join("log"));
    let waiting = format!("waiting for the cluster at {address}");
    wait_for("a message while it retries", Duration::from_secs(4), || {
        run.log().contains(&waiting)
    });
    assert!(run.child.try_wait().unwrap().is_none(), "it still retries");
    let status = run.wait(Duration::from_secs(20));
    assert_eq!(status.code(), Some(1));
    assert!(start.elapsed() >= Duration::from_secs(4));
    assert_says(&run, &[&address, "failed"]);
    // Every task fails for one reason, which is said once.
    assert_eq!(
        run.log().matches("not done within").count(),
        1,
        "{}",
        run.log()
    );
}

#[test]
fn a_signal_before_the_cluster_was_reached_ends_with_its_code() {
    let folder = Folder::new("cli-never-reached");
    let files = files(&folder, &dead_address(), "", "");
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let log = folder.join(&format!("log{signal}"));
        let mut run = Run::spawn(command(&files, &[]), log);
        wait_for("its start", Duration::from_secs(10), || {
            run.log().contains("Starting a connector")
        });
        run.signal(signal);
        let status = run.wait(Duration::from_secs(10));
        assert_eq!(status.code(), Some(code), "{}", run.log());
    }
}

#[test]
fn a_missing_topic_is_said_and_waited_for_and_read_once_it_exists() {
    let Some(kafka) = kafka() else { return };
    let folder = Folder::new("cli-missing");
    let mut run = Run::start(&plan(kafka, &folder, "missing"));
    wait_for("the warning", Duration::from_secs(20), || {
        run.log()
            .contains("topic missing does not exist; waiting for it")
    });
    assert!(run.child.try_wait().unwrap().is_none(), "it waits");
    create_topic(kafka, "missing", 2, 1);
    produce(kafka, &folder, "missing", 1_000);
    let status = run.wait(Duration::from_secs(120));
    assert!(status.success(), "{status}\n{}", run.log());
    let written = Written::read(&folder);
    assert_eq!((written.distinct(), written.duplicates()), (1_000, 0));
}

#[test]
fn b_098_share_groups_that_are_off_name_the_feature_and_the_command_that_turns_it_on() {
    let kafka = Kafka::builder().feature("share.version", 0);
    let Some(kafka) = kafka.start_or_skip().unwrap() else {
        return;
    };
    let folder = Folder::new("cli-off");
    create_topic(&kafka, "off", 1, 1);
    let mut run = Run::start(&plan(&kafka, &folder, "off"));
    assert_eq!(run.wait(Duration::from_secs(30)).code(), Some(1));
    let turns_it_on = "upgrade --feature share.version=1";
    assert_says(
        &run,
        &["share.version is 0", "kafka-features.sh", turns_it_on],
    );
}

#[test]
fn a_nearly_known_key_is_an_error_with_the_right_name_and_a_foreign_one_a_warning() {
    let folder = Folder::new("cli-keys");
    let address = dead_address();
    let wrong = files(
        &folder,
        &address,
        "task.shutdown.graceful.timout.ms=1",
        "task.max=2\nmy.own.key=1",
    );
    let mut run = Run::spawn(command(&wrong, &[]), folder.join("wrong.log"));
    assert_eq!(run.wait(Duration::from_secs(10)).code(), Some(2));
    assert_says(
        &run,
        &[
            "worker.properties:2: task.shutdown.graceful.timout.ms: is not a key",
            "did you mean task.shutdown.graceful.timeout.ms?",
            "sink.properties:6: task.max: is not a key",
            "did you mean tasks.max?",
            "warning: ",
            "my.own.key",
        ],
    );

    let foreign = files(&folder, &address, "", "my.own.key=1");
    let arguments = ["--startup-timeout", "100ms"];
    let mut run = Run::spawn(command(&foreign, &arguments), folder.join("foreign.log"));
    assert_eq!(
        run.wait(Duration::from_secs(10)).code(),
        Some(1),
        "it tried"
    );
    assert_says(&run, &["warning: ", "my.own.key: is not a known key"]);
    let mut run = Run::spawn(command(&foreign, &["--strict"]), folder.join("strict.log"));
    assert_eq!(run.wait(Duration::from_secs(10)).code(), Some(2));
    assert_says(&run, &["error: ", "my.own.key: is not a known key"]);
}

#[test]
fn a_configuration_from_a_pipe_is_read_and_one_that_never_comes_ends_with_ctrl_c() {
    let folder = Folder::new("cli-pipe");
    let [worker, sink] = files(&folder, &dead_address(), "", "tasks.max=0");
    let mut piped = Command::new("bash");
    piped
        .args(["-c", "exec \"$0\" run <(cat \"$1\") <(cat \"$2\")"])
        .arg(binary())
        .args([&worker, &sink]);
    let mut run = Run::spawn(piped, folder.join("piped.log"));
    assert_eq!(run.wait(Duration::from_secs(10)).code(), Some(2));
    assert_says(&run, &["tasks.max=0: must be a whole number from 1"]);

    let pipe = folder.join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let mut waiting = Command::new(binary());
    waiting.arg("run").args([&worker, &pipe]);
    let mut run = Run::spawn(waiting, folder.join("waiting.log"));
    // Opened for writing as soon as it is opened for reading; nothing is ever written.
    let _writer = std::fs::File::options().write(true).open(&pipe).unwrap();
    run.signal("-INT");
    assert_eq!(run.wait(Duration::from_secs(10)).code(), Some(130));
}

#[test]
fn problems_of_a_file_of_another_kind_are_not_told_line_by_line() {
    let folder = Folder::new("cli-many");
    let lines: String = (0..100).map(|line| format!("odd.{line}=1\n")).collect();
    let many = files(&folder, &dead_address(), &lines, "tasks.max=0");
    let mut run = Run::spawn(command(&many, &[]), folder.join("log"));
    assert_eq!(run.wait(Duration::from_secs(10)).code(), Some(2));
    assert_says(&run, &["and 80 more", "tasks.max=0"]);
    assert!(run.log().lines().count() < 30, "{}", run.log());
}

#[test]
fn b_098_a_group_id_of_a_consumer_group_is_refused_with_its_type_and_the_way_out() {
    let Some(kafka) = kafka() else { return };
    let folder = Folder::new("cli-taken");
    create_topic(kafka, "taken", 1, 1);
    produce(kafka, &folder, "taken", 10);
    for (protocol, group_type) in [("classic", "classic"), ("consumer", "consumer")] {
        let group = format!("taken-{protocol}");
        let servers = kafka.bootstrap_servers();
        let protocol = format!("group.protocol={protocol}");
        let consumer = [
            "--bootstrap-server",
            &servers,
            "--topic",
            "taken",
            "--group",
            &group,
            "--command-property",
            &protocol,
            "--command-property",
            "auto.offset.reset=earliest",
            "--max-messages",
            "1",
        ];
        let output = kafka.tool("org.apache.kafka.tools.consumer.ConsoleConsumer", consumer);
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        let mut run = Run::start(&RunPlan {
            group: &group,
            ..plan(kafka, &folder, "taken")
        });
        assert_eq!(run.wait(Duration::from_secs(30)).code(), Some(1));
        let names = format!("group id {group} belongs to a {group_type} group");
        assert_says(&run, &[&names, "share.group.id", "--delete"]);
    }
}

/// While the worker was cut off, its group ended and a consumer group took the id.
#[test]
fn b_098_a_group_id_that_is_taken_later_fails_the_task_with_its_name() {
    let kafka = Kafka::builder()
        .set("group.share.heartbeat.interval.ms", "1000")
        .set("group.share.session.timeout.ms", "3000");
    let Some(kafka) = kafka.start_or_skip().unwrap() else {
        return;
    };
    let folder = Folder::new("cli-taken-later");
    create_topic(&kafka, "later", 1, 1);
    produce(&kafka, &folder, "later", 10);
    let mut run = Run::start(&RunPlan {
        arguments: &[],
        tasks: 1,
        ..plan(&kafka, &folder, "later")
    });
    wait_for("its lines", Duration::from_secs(60), || {
        lines(&folder, "later") == 10
    });
    run.signal("-STOP");
    let servers = kafka.bootstrap_servers();
    let to = ["--bootstrap-server", servers.as_str()];
    let delete = to.into_iter().chain(["--delete", "--group", "later"]);
    let delete: Vec<_> = delete.collect();
    wait_for("the group's end", Duration::from_secs(60), || {
        let tool = "org.apache.kafka.tools.consumer.group.ShareGroupCommand";
        let output = kafka.tool(tool, delete.iter().copied()).unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success() && said.contains("was successful")
    });
    let consume = [
        "--topic",
        "later",
        "--group",
        "later",
        "--max-messages",
        "1",
    ];
    let reset = ["--command-property", "auto.offset.reset=earliest"];
    let consume = to.into_iter().chain(consume).chain(reset);
    let output = kafka.tool("org.apache.kafka.tools.consumer.ConsoleConsumer", consume);
    assert!(output.unwrap().status.success());
    run.signal("-CONT");
    assert_eq!(run.wait(Duration::from_secs(60)).code(), Some(1));
    assert_says(&run, &["group id later belongs to a", "failed"]);
}

#[test]
fn a_missing_output_folder_is_a_wrong_configuration_and_leaves_the_records_to_others() {
    let Some(kafka) = kafka() else { return };
    let folder = Folder::new("cli-nofolder");
    create_topic(kafka, "nofolder", 2, 1);
    produce(kafka, &folder, "nofolder", 1_000);
    let elsewhere = format!("file={}", folder.join("no/such/folder.out").display());
    let mut run = Run::start(&RunPlan {
        more: &elsewhere,
        ..plan(kafka, &folder, "nofolder")
    });
    assert_eq!(run.wait(Duration::from_secs(60)).code(), Some(2));
    assert_says(&run, &["no/such", "does not exist; create it"]);

    let mut second = Run::start(&plan(kafka, &folder, "nofolder"));
    let status = second.wait(Duration::from_secs(60));
    assert!(status.success(), "{status}\n{}", second.log());
    let written = Written::read(&folder);
    assert_eq!((written.distinct(), written.duplicates()), (1_000, 0));
}

/// As logrotate does, and somebody who cleans up.
#[test]
fn files_that_are_moved_away_while_they_are_written_lose_no_record() {
    const RECORDS: u64 = 300_000;
    let Some(kafka) = kafka() else { return };
    let folder = Folder::new("cli-rotated");
    create_topic(kafka, "rotated", 2, 1);
    produce(kafka, &folder, "rotated", RECORDS);
    let mut run = Run::start(&plan(kafka, &folder, "rotated"));
    let mut moves = 0;
    wait_for("the end", Duration::from_secs(120), || {
        // Either may have the most to do.
        for task in 0..2 {
            let file = folder.join(&format!("rotated-{task}.out"));
            let away = folder.join(&format!("away-{moves}.out"));
            moves += u32::from(std::fs::rename(file, away).is_ok());
        }
        run.child.try_wait().unwrap().is_some()
    });
    assert!(run.wait(Duration::ZERO).success(), "{}", run.log());
    assert!(moves > 2, "{moves}");
    assert_says(&run, &["The file was moved or removed"]);
    assert_eq!(Written::read(&folder).missing(RECORDS), Vec::<u64>::new());
}

/// The write fails in the middle, with no room for the rest.
#[test]
fn a_file_size_limit_fails_the_tasks_and_leaves_the_records_to_others() {
    const RECORDS: u64 = 100_000;
    let Some(kafka) = kafka() else { return };
    let folder = Folder::new("cli-full");
    create_topic(kafka, "full", 2, 1);
    produce(kafka, &folder, "full", RECORDS);
    // 64 blocks, of 512 or 1,024 bytes: a tenth of what would be written, room enough for the log.
    let [worker, sink] = limited_files(kafka, &folder);
    let limited = || {
        let mut limited = Command::new("sh");
        limited
            .args(["-c", "ulimit -f 64 && exec \"$@\"", "sh"])
            .arg(binary())
            .arg("run")
            .args([&worker, &sink])
            .args(["--exit-when-idle", "2s"]);
        limited
    };
    let mut run = Run::spawn(limited(), folder.join("limited.log"));
    let status = run.wait(Duration::from_secs(60));
    assert_eq!(status.code(), Some(1), "{status}\n{}", run.log());
    assert_says(&run, &["can't be written", "failed"]);
    let before = Written::read(&folder);
    assert!(before.distinct() > 0 && before.distinct() < RECORDS);

    // A start without room takes no records: each would cost them one of their five deliveries.
    for start in 0..6 {
        let mut again = Run::spawn(limited(), folder.join(&format!("again-{start}.log")));
        let status = again.wait(Duration::from_secs(60));
        assert_eq!(status.code(), Some(1), "{status}\n{}", again.log());
        assert_says(&again, &["failed: ", "ulimit -f"]);
        // Each of the two tasks says why at most once.
        assert!(
            again.log().matches("ulimit -f").count() <= 2,
            "{}",
            again.log()
        );
        assert!(!again.log().contains("is released"), "{}", again.log());
    }

    let mut second = Run::start(&plan(kafka, &folder, "full"));
    let status = second.wait(Duration::from_secs(120));
    assert!(status.success(), "{status}\n{}", second.log());
    let written = Written::read(&folder);
    assert_eq!(written.missing(RECORDS), Vec::<u64>::new());
    assert_eq!(written.duplicates(), 0);
}

fn limited_files(kafka: &Kafka, folder: &Folder) -> [PathBuf; 2] {
    let output = folder.join("limited-${task}.out");
    [
        folder.write(
            "limited-worker.properties",
            &format!("bootstrap.servers={}\n", kafka.bootstrap_servers()),
        ),
        folder.write(
            "limited-sink.properties",
            &format!(
                "name=limited\nconnector.class=file\ntopics=full\ntasks.max=2\nfile={}\nshare.group.id=full\n\
                 consumer.override.group.protocol=share\n",
                output.display()
            ),
        ),
    ]
}

#[test]
fn sigterm_and_ctrl_c_leave_the_group_within_five_seconds() {
    let Some(kafka) = kafka() else { return };
    let folder = Folder::new("cli-signals");
    create_topic(kafka, "signals", 2, 1);
    for signal in ["-TERM", "-INT"] {
        let mut run = Run::start(&RunPlan {
            arguments: &[],
            ..plan(kafka, &folder, "signals")
        });
        wait_for("both members", Duration::from_secs(30), || {
            members(kafka, "signals") == 2
        });
        let asked = Instant::now();
        run.signal(signal);
        let status = run.wait(Duration::from_secs(10));
        let took = asked.elapsed();
        assert!(status.success(), "{status}\n{}", run.log());
        assert!(
            took < Duration::from_secs(5),
            "{signal}: left after {took:?}"
        );
        assert_eq!(members(kafka, "signals"), 0, "{signal}: the group is left");
    }
}

fn members(kafka: &Kafka, group: &str) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let admin = Admin::new(ClientConfig::new(&kafka.bootstrap_servers()).unwrap());
    let group = runtime.block_on(admin.describe_share_group(group));
    group.map_or(0, |group| group.members.len())
}

/// A worker with a task that hangs: it prints a record to a pipe that has no room for it and that nobody reads.
fn hanging(kafka: &Kafka, folder: &Folder, name: &str) -> Child {
    create_topic(kafka, name, 1, 1);
    let file = folder.write("lines", &format!("{}\n", "x".repeat(200_000)));
    let produced = Command::new(binary())
        .args(["produce", "--topic", name, "--bootstrap-server"])
        .arg(kafka.bootstrap_servers())
        .arg("--file")
        .arg(file)
        .status();
    assert!(produced.unwrap().success());
    let worker = folder.write(
        "worker.properties",
        &format!("bootstrap.servers={}\n", kafka.bootstrap_servers()),
    );
    let sink = folder.write(
        "sink.properties",
        &format!(
            "name={name}\nconnector.class=console\ntopics={name}\nconsumer.override.group.protocol=share\n"
        ),
    );
    let log = std::fs::File::create(folder.join("log")).unwrap();
    let mut child = Command::new(binary())
        .arg("run")
        .args([worker, sink])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    // It prints, so it hangs now or in a moment.
    let mut byte = [0];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut byte)
        .unwrap();
    child
}

fn signal(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    let status = Command::new("kill").args([signal, &pid]).status().unwrap();
    assert!(status.success());
}

fn wait(child: &mut Child, within: Duration) -> Option<i32> {
    let mut code = None;
    wait_for("the end", within, || match child.try_wait().unwrap() {
        Some(status) => {
            code = status.code();
            true
        }
        None => false,
    });
    code
}

#[test]
fn a_task_that_hangs_is_stopped_within_the_budget_and_its_records_go_to_others() {
    let Some(kafka) = kafka() else { return };
    let folder = Folder::new("cli-hanging");
    let mut child = hanging(kafka, &folder, "hanging");
    let asked = Instant::now();
    signal(&child, "-TERM");
    assert_eq!(wait(&mut child, Duration::from_secs(8)), Some(0));
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(5), "stopped after {took:?}");
    assert_eq!(members(kafka, "connect-hanging"), 0, "the group is left");
    let mut second = Run::start(&RunPlan {
        group: "connect-hanging",
        ..plan(kafka, &folder, "hanging")
    });
    let status = second.wait(Duration::from_secs(30));
    assert!(status.success(), "{status}\n{}", second.log());
    assert_eq!(lines(&folder, "hanging"), 1, "the record came again");
}

#[test]
fn a_second_signal_ends_at_once() {
    let Some(kafka) = kafka() else { return };
    for (name, first, second, code) in [
        ("twice-term", "-TERM", "-TERM", 143),
        ("twice-int", "-INT", "-INT", 130),
    ] {
        let folder = Folder::new(&format!("cli-{name}"));
        let mut child = hanging(kafka, &folder, name);
        signal(&child, first);
        wait_for(
            "the first signal to be seen",
            Duration::from_secs(2),
            || {
                let log = std::fs::read_to_string(folder.join("log"));
                log.unwrap().contains("Stopping")
            },
        );
        assert!(child.try_wait().unwrap().is_none(), "it is still stopping");
        let asked = Instant::now();
        signal(&child, second);
        assert_eq!(wait(&mut child, Duration::from_secs(2)), Some(code));
        let took = asked.elapsed();
        assert!(took < Duration::from_secs(1), "ended after {took:?}");
    }
}

#[test]
fn a_failed_connector_ends_the_command_with_code_1_once_the_others_are_idle() {
    let Some(kafka) = kafka() else { return };
    let folder = Folder::new("cli-mixed");
    create_topic(kafka, "mixed", 2, 1);
    produce(kafka, &folder, "mixed", 20_000);
    // A link to nowhere, and no file.
    let in_the_way = folder.join("link");
    std::os::unix::fs::symlink(folder.join("none/x"), &in_the_way).unwrap();
    let [worker, broken] = files(
        &folder,
        &kafka.bootstrap_servers(),
        "consumer.group.protocol=share",
        &format!("file={}\ntopics=mixed", in_the_way.display()),
    );
    let good = folder.write(
        "good.json",
        &format!(
            r#"{{"name": "good", "config": {{"connector.class": "file", "topics": "mixed", "tasks.max": 2, "file": "{}"}}}}"#,
            folder.join("good-${task}.out").display()
        ),
    );
    let mut command = Command::new(binary());
    command
        .arg("run")
        .args([worker, broken, good])
        .args(["--exit-when-idle", "2s"]);
    let mut run = Run::spawn(command, folder.join("log"));
    assert_eq!(run.wait(Duration::from_secs(120)).code(), Some(1));
    assert_says(
        &run,
        &["task files-0 failed", "ending=\"idle\"", "tasks_failed=1"],
    );
    let written = Written::read(&folder);
    assert_eq!((written.distinct(), written.duplicates()), (20_000, 0));
}

#[test]
fn exit_when_idle_max_ends_with_code_3_and_says_what_is_waited_for() {
    let Some(kafka) = kafka() else { return };
    let folder = Folder::new("cli-stuck");
    let mut run = Run::start(&RunPlan {
        arguments: &["--exit-when-idle", "1s", "--exit-when-idle-max", "5s"],
        ..plan(kafka, &folder, "never-created")
    });
    assert_eq!(run.wait(Duration::from_secs(30)).code(), Some(3));
    assert_says(
        &run,
        &["--exit-when-idle-max", "missing topics: never-created"],
    );
    assert_eq!(lines(&folder, "never-created"), 0);
}
