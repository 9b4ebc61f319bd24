//! The program with its embedded broker: nothing but Rust is needed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use support::{Folder, Run, binary, wait_for};

/// The program, started; killed when dropped.
struct Program {
    child: Child,
}

impl Program {
    fn start(arguments: &[&str]) -> Self {
        Self::spawn(Command::new(binary()).args(arguments))
    }

    fn spawn(command: &mut Command) -> Self {
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child }
    }

    /// Feeds standard input and ends it.
    fn feed(&mut self, text: &str) {
        let mut stdin = self.child.stdin.take().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
    }

    /// The first line of standard error in which something stands.
    #[allow(clippy::unbuffered_bytes, reason = "what follows is for the next look")]
    fn says(&mut self, what: &str) -> String {
        let stderr = self.child.stderr.as_mut().unwrap();
        let mut seen = String::new();
        for byte in stderr.bytes() {
            seen.push(char::from(byte.unwrap()));
            if seen.ends_with('\n') && seen.contains(what) {
                return seen.lines().next_back().unwrap().to_owned();
            }
        }
        panic!("{what} is not in:\n{seen}");
    }

    /// The servers that a broker tells when it is ready.
    fn servers(&mut self) -> String {
        let mut line = String::new();
        let mut stdout = BufReader::new(self.child.stdout.as_mut().unwrap());
        stdout.read_line(&mut line).unwrap();
        let servers = line.trim_end().strip_prefix("bootstrap.servers=");
        servers.unwrap_or_else(|| panic!("{line}")).to_owned()
    }

    fn end(mut self, signal: &str) -> Output {
        let pid = self.child.id().to_string();
        let killed = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(killed.success());
        self.output()
    }

    fn output(&mut self) -> Output {
        let mut stdout = Vec::new();
        let mut stderr = Vec::new();
        self.child.stdin.take();
        let out = self.child.stdout.as_mut().unwrap();
        out.read_to_end(&mut stdout).unwrap();
        let err = self.child.stderr.as_mut().unwrap();
        err.read_to_end(&mut stderr).unwrap();
        Output {
            status: self.child.wait().unwrap(),
            stdout,
            stderr,
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A command to its end.
fn done(servers: &str, arguments: &[&str], input: &str) -> String {
    let server = ["--bootstrap-server", servers];
    let mut program = Program::start(&[arguments, &server[..]].concat());
    program.feed(input);
    let output = program.output();
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    text(&output.stdout)
}

/// What a command complains about before it starts anything.
fn refused(arguments: &[&str]) -> String {
    let output = Program::start(arguments).output();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    text(&output.stderr)
}

fn numbers(count: u32) -> String {
    (0..count).map(|number| format!("{number}\n")).collect()
}

fn lines(text: &str) -> BTreeSet<&str> {
    text.lines().collect()
}

/// A port that nobody uses.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn a_broker_serves_the_other_commands_until_it_is_stopped() {
    let arguments = [
        "broker",
        "--port",
        "0",
        "--brokers",
        "2",
        "--topic",
        "orders:4",
    ];
    let mut broker = Program::start(&arguments);
    let servers = broker.servers();
    assert_eq!(servers.split(',').count(), 2, "{servers}");
    let described = done(&servers, &["topics", "describe", "--topic", "orders"], "");
    assert!(described.contains("orders"), "{described}");
    let all = numbers(2_000);
    done(&servers, &["produce", "--topic", "orders"], &all);
    let consume = ["consume", "--topic", "orders", "--from-beginning"];
    let consume = [&consume[..], &["--max-messages", "2000"]].concat();
    assert_eq!(lines(&done(&servers, &consume, "")), lines(&all));
    let ended = broker.end("-TERM");
    let said = text(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    assert!(
        said.contains("produce --topic orders --bootstrap-server"),
        "{said}"
    );
    assert!(said.contains("Ended by SIGTERM"), "{said}");
    assert!(said.contains("2,000 records in 1 topic"), "{said}");
}

#[test]
fn what_a_broker_can_not_be_started_with_is_said_with_what_to_do() {
    let folder = Folder::new("cli-broker-faults");
    let faults = folder.write(
        "faults.txt",
        "Produce: delay 5ms\n\nsharefetch: cut after\n",
    );
    let late = folder.write("late.txt", "# one broker\nat 5s: crash 2\n");
    let (faults, late) = (faults.to_str().unwrap(), late.to_str().unwrap());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (arguments, says) in [
        (["--port", &port], "something listens there already"),
        (["--port", &port], "choose another --port"),
        (["--topic", "orders:many"], "such as orders:4"),
        (["--set", "num.partitons=4"], "did you mean num.partitions?"),
        (["--set", "num.partitions=0"], "Value must be at least 1"),
        (["--fault", faults], "faults.txt, line 3"),
        (["--fault", faults], "did you mean ShareFetch?"),
        (["--fault", late], "line 2: there is no broker 2"),
        (["--fault", "nowhere.txt"], "nowhere.txt can't be read"),
        (
            ["--fault", "/dev/zero"],
            "/dev/zero is longer than 1024 KiB",
        ),
        (["--dir", faults], "faults.txt"),
        (["--host", "0.0.0.0"], "clients are told this address"),
        (["--host", "192.0.2.7"], "doesn't have that address"),
    ] {
        let error = refused(&[&["broker"], &arguments[..]].concat());
        assert!(error.contains(says), "{arguments:?}: {error}");
    }
}

#[test]
fn produce_that_gets_no_confirmation_ends_soon_after_ctrl_c_and_says_how_many() {
    let folder = Folder::new("cli-produce-stop");
    let faults = folder.write("faults.txt", "Produce: cut before\n");
    let faults = faults.to_str().unwrap();
    let start = [
        "broker", "--port", "0", "--topic", "orders", "--fault", faults,
    ];
    let mut broker = Program::start(&start);
    let servers = broker.servers();
    let produce = [
        "produce",
        "--topic",
        "orders",
        "--bootstrap-server",
        &servers,
    ];
    let mut produce = Program::start(&produce);
    produce.feed(&numbers(100));
    produce.says("again");
    let begin = Instant::now();
    let ended = produce.end("-INT");
    let said = text(&ended.stderr);
    assert!(begin.elapsed() < Duration::from_secs(20), "{said}");
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("Stopping: waiting up to 5 s"), "{said}");
    assert!(said.contains("Wrote 0 records"), "{said}");
    assert!(said.contains("100 more not confirmed"), "{said}");
    broker.end("-TERM");
}

#[test]
fn a_broker_with_a_folder_has_everything_again_after_it_was_killed() {
    let folder = Folder::new("cli-broker-dir");
    let dir = folder.join("broker");
    let dir = dir.to_str().unwrap();
    let start = ["broker", "--port", "0", "--topic", "orders:2", "--dir", dir];
    let mut broker = Program::start(&start);
    let servers = broker.servers();
    let all = numbers(500);
    done(&servers, &["produce", "--topic", "orders"], &all);
    let consume = ["consume", "--topic", "orders", "--from-beginning"];
    let some = [&consume[..], &["--max-messages", "200"]].concat();
    let first = done(&servers, &some, "");
    broker.end("-KILL");
    let mut broker = Program::start(&start);
    let servers = broker.servers();
    let rest = [&consume[..], &["--max-messages", "300"]].concat();
    let rest = done(&servers, &rest, "");
    let seen: BTreeSet<&str> = lines(&first).union(&lines(&rest)).copied().collect();
    assert_eq!(seen, lines(&all));
    let said = text(&broker.end("-INT").stderr);
    assert!(said.contains("stays in"), "{said}");
}

/// `ulimit -f` stands in for a full disk.
#[test]
fn a_broker_whose_folder_is_full_says_what_it_could_not_keep() {
    let folder = Folder::new("cli-broker-full");
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 256 && exec \"$@\"", "sh"]);
    limited.arg(binary());
    limited.args(["broker", "--port", "0", "--topic", "orders", "--dir"]);
    let mut broker = Program::spawn(limited.arg(folder.join("broker")));
    let servers = broker.servers();
    let produce = ["produce", "--topic", "orders", "--bootstrap-server"];
    let mut produce = Program::start(&[&produce[..], &[&servers]].concat());
    produce.feed(&numbers(100_000));
    broker.says("can't be written");
    produce.end("-KILL");
    let said = text(&broker.end("-INT").stderr);
    let lost = "could not be written to the folder: refused, not acknowledged, and lost now";
    assert!(said.contains(lost), "{said}");
}

#[test]
fn faults_of_a_file_strike_and_cost_no_record() {
    let folder = Folder::new("cli-broker-struck");
    let script = "seed 3\nany 2% first 30: cut after\nShareFetch 10%: delay 5ms\n\
                  every 300ms first 6: move leader orders-0 to next\nevery 400ms first 4: crash 1\n";
    let faults = folder.write("faults.txt", script);
    let mut broker = Program::start(&[
        "broker",
        "--port",
        "0",
        "--brokers",
        "2",
        "--topic",
        "orders:2",
        "--fault",
        faults.to_str().unwrap(),
    ]);
    let servers = broker.servers();
    let all = numbers(5_000);
    done(&servers, &["produce", "--topic", "orders"], &all);
    let worker = folder.write(
        "worker.properties",
        &format!("bootstrap.servers={servers}\n"),
    );
    let output = folder.join("out.txt");
    let sink = folder.write("sink.properties", &sink("orders", &output));
    let mut command = Command::new(binary());
    command.arg("run").args([&worker, &sink]);
    command.args(["--exit-when-idle", "1s"]);
    let mut run = Run::spawn(command, folder.join("log"));
    let status = run.wait(Duration::from_secs(60));
    assert!(status.success(), "{status}\n{}", run.log());
    let written = std::fs::read_to_string(&output).unwrap();
    assert_eq!(lines(&written), lines(&all), "{}", run.log());
    let said = text(&broker.end("-INT").stderr);
    assert!(said.contains("faults struck"), "{said}");
}

fn sink(topic: &str, output: &std::path::Path) -> String {
    format!(
        "name={topic}\nconnector.class=file\ntopics={topic}\nfile={}\n\
         consumer.override.group.protocol=share\n",
        output.display()
    )
}

#[test]
fn consume_says_at_once_that_it_stops_and_what_it_can_not_leave() {
    let mut broker = Program::start(&["broker", "--port", "0"]);
    let servers = broker.servers();
    let consume = ["consume", "--topic", "missing", "--bootstrap-server"];
    let mut consume = Program::start(&[&consume[..], &[&servers]].concat());
    let warned = consume.says("topic missing does not exist");
    let creation = format!("topics create --topic missing --bootstrap-server {servers}");
    assert!(warned.contains(&creation), "{warned}");
    wait_for("the member", Duration::from_secs(10), || {
        members(&servers, "share") == 1
    });
    broker.end("-KILL");
    let pid = consume.child.id().to_string();
    let told = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(told.success());
    let start = Instant::now();
    consume.says("Stopping: ");
    assert!(start.elapsed() < Duration::from_secs(2));
    let said = text(&consume.output().stderr);
    assert!(said.contains("the group was not left in time"), "{said}");
    assert!(start.elapsed() < Duration::from_secs(8));
}

fn members(servers: &str, group: &str) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let admin = Admin::new(ClientConfig::new(servers).unwrap());
    let group = runtime.block_on(admin.describe_share_group(group));
    group.map_or(0, |group| group.members.len())
}

#[test]
fn the_quickstart_ends_with_counts_that_match_and_leaves_the_files() {
    let folder = Folder::new("cli-quickstart");
    let files = folder.join("files");
    let mut command = Command::new(binary());
    // No Java, no Maven.
    command.env("PATH", "").env_remove("JAVA_HOME");
    command.args(["quickstart", "--records", "20000", "--seed", "7", "--dir"]);
    command.arg(&files);
    let mut run = Run::spawn(command, folder.join("log"));
    let status = run.wait(Duration::from_secs(60));
    assert!(status.success(), "{status}\n{}", run.log());
    support::quickstart::check(&run.log(), &files, 20_000);
    let said = run.log();
    assert!(said.contains("an embedded broker runs on"), "{said}");
}

#[test]
fn the_quickstart_says_what_does_not_go_together() {
    let error = refused(&["quickstart", "--kafka-version", "4.4.0"]);
    assert!(error.contains("add that"), "{error}");
}

#[test]
fn run_with_its_own_broker_writes_what_others_produce() {
    let folder = Folder::new("cli-embedded-run");
    let port = free_port();
    let servers = format!("localhost:{port}");
    let worker = folder.write(
        "worker.properties",
        &format!("bootstrap.servers={servers}\n"),
    );
    let output = folder.join("out.txt");
    let sink = folder.write("sink.properties", &sink("orders", &output));
    let files = [worker.to_str().unwrap(), sink.to_str().unwrap()];
    let mut run = Program::start(&[&["run", "--embedded"], &files[..]].concat());
    let command = run.says("produce --topic orders");
    assert!(command.contains(&format!("127.0.0.1:{port}")), "{command}");
    let all = numbers(500);
    done(&servers, &["produce", "--topic", "orders"], &all);
    let written = || std::fs::read_to_string(&output).unwrap_or_default();
    wait_for("500 lines", Duration::from_secs(30), || {
        written().lines().count() >= 500
    });
    assert_eq!(lines(&written()), lines(&all));
    let ended = run.end("-INT");
    assert!(ended.status.success(), "{}", text(&ended.stderr));
}

#[test]
fn consume_with_its_own_broker_prints_what_others_produce() {
    let servers = format!("127.0.0.1:{}", free_port());
    let all = numbers(300);
    let mut consume = Program::start(&[
        "consume",
        "--embedded",
        "--bootstrap-server",
        &servers,
        "--topic",
        "orders",
        "--max-messages",
        "300",
    ]);
    consume.says("produce --topic orders");
    done(&servers, &["produce", "--topic", "orders"], &all);
    let output = consume.output();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(lines(&text(&output.stdout)), lines(&all));
}

#[test]
fn produce_with_its_own_broker_keeps_it_until_ctrl_c() {
    let servers = format!("127.0.0.1:{}", free_port());
    let all = numbers(300);
    let mut produce = Program::start(&[
        "produce",
        "--embedded",
        "--bootstrap-server",
        &servers,
        "--topic",
        "orders",
    ]);
    produce.feed(&all);
    produce.says("consume --topic orders --from-beginning");
    let consume = ["consume", "--topic", "orders", "--from-beginning"];
    let consume = [&consume[..], &["--max-messages", "300"]].concat();
    assert_eq!(lines(&done(&servers, &consume, "")), lines(&all));
    let ended = produce.end("-INT");
    assert!(ended.status.success(), "{}", text(&ended.stderr));
}

#[test]
fn an_embedded_broker_is_only_where_and_how_it_can_be() {
    let consume = ["consume", "--embedded", "--topic", "orders"];
    for (arguments, says) in [
        (
            ["--bootstrap-server", "kafka.example.com:9092"],
            "write localhost and a port",
        ),
        (
            ["--bootstrap-server", "localhost:1,localhost:2"],
            "names several",
        ),
        (
            ["--command-property", "security.protocol=SSL"],
            "neither TLS nor SASL",
        ),
    ] {
        let error = refused(&[&consume[..], &arguments[..]].concat());
        assert!(error.contains(says), "{arguments:?}: {error}");
    }
}

#[test]
fn validate_connect_looks_at_cluster_and_target_and_changes_nothing() {
    let mut broker = Program::start(&["broker", "--port", "0", "--topic", "orders:4"]);
    let servers = broker.servers();
    let folder = Folder::new("validate-connect");
    let worker = folder.write(
        "worker.properties",
        &format!("bootstrap.servers={servers}\n"),
    );
    let file = folder.join("out.txt");
    let sink = |topics: &str| {
        let text = format!(
            "name=out\nconnector.class=file\ntopics={topics}\nfile={}\nconsumer.override.group.protocol=share\n\
             errors.tolerance=all\nerrors.deadletterqueue.topic.name=dead\n",
            file.display()
        );
        folder.write("sink.properties", &text)
    };
    let look = |sink: &std::path::Path| {
        let arguments = ["validate", "--connect", "--connect-timeout", "5s"];
        let output = Command::new(binary())
            .args(arguments)
            .args([&worker, sink])
            .output()
            .unwrap();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (code, out, err) = look(&sink("orders"));
    assert_eq!(code, Some(0), "{out}{err}");
    for line in [
        format!("  Kafka at {servers} answers and has share groups\n"),
        "  topic orders has 4 partitions\n".to_owned(),
        "  dead-letter topic dead isn't there yet; it is created at the first start\n".to_owned(),
        format!(
            "  file {} isn't there yet and can be made\n",
            file.display()
        ),
    ] {
        assert!(out.contains(&line), "{line}{out}");
    }
    assert!(out.ends_with("Nothing is wrong.\n"), "{out}");
    assert!(!file.exists());
    let topics = done(&servers, &["topics", "list"], "");
    assert!(!topics.contains("dead"), "{topics}");
    let (code, out, err) = look(&sink("orders,others"));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(
        err.contains("sink.properties:3: topics=orders,others: there is no topic others yet"),
        "{err}"
    );
    assert!(out.ends_with("No errors, 1 warning.\n"), "{out}");
    broker.end("-KILL");
    let (code, _, err) = look(&sink("orders"));
    assert_eq!(code, Some(1), "{err}");
    let place = format!("worker.properties:1: bootstrap.servers={servers}: ");
    assert!(err.contains(&place), "{err}");
}
