//! A worker as a service: it reloads, tells systemd, is scraped, and keeps secrets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sharegroup_broker::Broker;
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use support::{Folder, Run, address, binary, get, says, wait_for};
use tokio::runtime::Runtime;

const S: Duration = Duration::from_secs(1);

/// An embedded broker with topics.
struct Cluster {
    runtime: Runtime,
    broker: Broker,
}

impl Cluster {
    fn new(topics: &[&str]) -> Self {
        let runtime = Runtime::new().unwrap();
        let broker = runtime.block_on(Broker::builder().start()).unwrap();
        let cluster = Self { runtime, broker };
        let admin = Admin::new(cluster.client());
        for topic in topics {
            let created = admin.create_topic(topic, 1, -1, &[]);
            cluster.runtime.block_on(created).unwrap();
        }
        cluster
    }

    fn client(&self) -> ClientConfig {
        ClientConfig::new(self.broker.bootstrap_servers()).unwrap()
    }

    fn produce(&self, topic: &str, values: impl IntoIterator<Item = String>) {
        self.runtime.block_on(async {
            let producer = Producer::new(ProducerConfig::new(self.client()));
            for value in values {
                let record = ProducerRecord::new(topic).value(value);
                drop(producer.send(record).await.unwrap());
            }
            producer.close(10 * S).await.unwrap();
        });
    }

    fn worker(&self, folder: &Folder, more: &str) -> PathBuf {
        let servers = self.broker.bootstrap_servers();
        let text = format!(
            "bootstrap.servers={servers}\nconsumer.group.protocol=share\nlisteners=http://127.0.0.1:0\n{more}\n"
        );
        folder.write("worker.properties", &text)
    }
}

/// The file of a connector that reads the topic of its name and writes `<name>-<task>.out`.
fn sink(folder: &Folder, name: &str, more: &str) -> String {
    let output = folder.join(&format!("{name}-${{task}}.out"));
    format!(
        "name={name}\nconnector.class=file\ntopics={name}\nfile={}\n{more}\n",
        output.display()
    )
}

fn start(arguments: &[&Path], log: PathBuf) -> Run {
    let mut command = Command::new(binary());
    command.arg("run").args(arguments);
    Run::spawn(command, log)
}

fn is_ready(address: &str) {
    wait_for("readiness", 30 * S, || {
        get(address, "/health/ready").starts_with("HTTP/1.1 200")
    });
}

/// The lines of a connector's files.
fn written(folder: &Folder, name: &str) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for task in 0..4 {
        let file = folder.join(&format!("{name}-{task}.out"));
        let text = fs::read_to_string(file).unwrap_or_default();
        lines.extend(text.lines().map(str::to_owned));
    }
    lines
}

/// Every line of a connector's files, those of rotated ones too.
fn all_lines(folder: &Folder, name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder.join("")).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        if file.starts_with(&format!("{name}-0")) {
            // A file may be renamed between the two.
            let text = fs::read_to_string(&path).unwrap_or_default();
            lines.extend(text.lines().map(str::to_owned));
        }
    }
    lines
}

fn numbered(name: &str, numbers: std::ops::Range<u32>) -> BTreeSet<String> {
    numbers.map(|number| format!("{name}{number}")).collect()
}

#[test]
fn sighup_changes_what_changed_and_nothing_else() {
    let folder = Folder::new("cli-reload");
    let names = ["keep", "grow", "move", "come"];
    let cluster = Cluster::new(&names);
    let worker = cluster.worker(&folder, "");
    fs::create_dir(folder.join("sinks")).unwrap();
    let put = |name: &str, more: &str| {
        let file = format!("sinks/{name}.properties");
        folder.write(&file, &sink(&folder, name, more));
    };
    for name in &names[..3] {
        put(name, "");
    }
    let run = start(&[&worker, &folder.join("sinks")], folder.join("log"));
    let address = address(&run);
    is_ready(&address);
    let produce = |round: u32| {
        for name in names {
            let numbers = round * 10..round * 10 + 10;
            cluster.produce(name, numbered(name, numbers));
        }
    };
    let all_written = |names: &[&str], rounds: u32| {
        for name in names {
            wait_for(&format!("all of {name}"), 30 * S, || {
                written(&folder, name) == numbered(name, 0..rounds * 10)
            });
        }
    };
    produce(0);
    all_written(&names[..3], 1);
    // Not only after the first ten seconds.
    wait_for("lags", 8 * S, || {
        get(&address, "/metrics").contains("share_group_lag{")
    });

    put("grow", "tasks.max=3");
    put("move", "share.acknowledgement.mode=implicit");
    put("come", "");
    run.signal("-HUP");
    says(&run, "Reloaded: added. connector=\"come\"");
    says(&run, "Reloaded: tasks.max is 3. connector=\"grow\"");
    let changed =
        "Reloaded: started with other settings: share.acknowledgement.mode. connector=\"move\"";
    says(&run, changed);
    is_ready(&address);
    assert!(get(&address, "/metrics").contains("worker_metrics_task_count 6\n"));
    produce(1);
    all_written(&names, 2);

    // A file that is wrong: nothing changes, not even what is right.
    put("keep", "tasks.max=none");
    put("grow", "");
    run.signal("-HUP");
    says(&run, "Nothing is changed: ");
    let log = run.log();
    let line = log.lines().find(|line| line.contains("Nothing is changed"));
    assert!(
        line.unwrap()
            .contains("keep.properties:5: tasks.max=none: "),
        "{log}"
    );
    produce(2);
    all_written(&names, 3);
    assert!(get(&address, "/metrics").contains("worker_metrics_task_count 6\n"));

    put("keep", "");
    fs::remove_file(folder.join("sinks/come.properties")).unwrap();
    let more = "listeners=http://127.0.0.1:1\nproducer.linger.ms=5";
    cluster.worker(&folder, more);
    run.signal("-HUP");
    says(&run, "Reloaded: removed. connector=\"come\"");
    says(&run, "count from its next start. keys=\"listeners\"");
    says(
        &run,
        "Reloaded: started with the worker's new settings. connector=\"keep\"",
    );
    is_ready(&address);
    produce(3);
    all_written(&names[..3], 4);
    assert_eq!(written(&folder, "come"), numbered("come", 0..30));

    // What never changed has joined twice: at the start, and with the worker's new settings.
    let joined = |task: &str| {
        let task = format!("task=\"{task}\"");
        let log = run.log();
        let joins = log
            .lines()
            .filter(|line| line.contains("Joined the share group"));
        joins.filter(|line| line.contains(&task)).count()
    };
    assert_eq!((joined("keep-0"), joined("come-0")), (2, 1));
    let mut run = run;
    run.signal("-TERM");
    let status = run.wait(20 * S);
    assert!(status.success(), "{}", run.log());
}

/// The next datagram that begins with one of these.
/// The first line that is logged blocks whoever logs it, and then everybody.
#[cfg(target_os = "linux")]
#[test]
fn a_log_that_nobody_reads_does_not_keep_the_program_from_ending() {
    let folder = Folder::new("cli-unread");
    let cluster = Cluster::new(&["unread"]);
    let worker = cluster.worker(&folder, "");
    let connector = folder.write("sink.properties", &sink(&folder, "unread", ""));
    let (_reader, mut writer) = UnixStream::pair().unwrap();
    writer.set_nonblocking(true).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    writer.set_nonblocking(false).unwrap();
    let mut command = Command::new(binary());
    command.arg("run").args([worker, connector]);
    let stderr = Stdio::from(OwnedFd::from(writer));
    let child = command.stdin(Stdio::null()).stderr(stderr).spawn().unwrap();
    let mut run = Run::of(child, folder.join("log"));
    let status = format!("/proc/{}/status", run.child.id());
    wait_for("a handler of SIGTERM", 30 * S, || {
        let status = fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        u64::from_str_radix(caught.unwrap().trim(), 16).unwrap() & (1 << 14) != 0
    });
    // Two that come together may count as one.
    wait_for("its end", 5 * S, || {
        run.signal("-TERM");
        run.child.try_wait().unwrap().is_some()
    });
    let status = run.wait(S);
    assert_eq!(status.code(), Some(143), "{status}");
}

/// Eight puts of one task share a file, with rotation and compression too; a kill and a stop in between.
#[test]
fn lanes_of_one_task_write_one_file_and_lose_nothing_when_killed() {
    let folder = Folder::new("cli-lanes");
    let names = ["plain", "rotated"];
    let cluster = Cluster::new(&names);
    let worker = cluster.worker(&folder, "");
    let more = "tasks.max=1\nshare.concurrency=8\nconsumer.override.max.poll.records=50";
    let rotates = format!("{more}\nrotate.bytes=20000");
    let plain = folder.write("plain.properties", &sink(&folder, "plain", more));
    let rotated = folder.write("rotated.properties", &sink(&folder, "rotated", &rotates));
    for name in names {
        cluster.produce(name, numbered(name, 0..20_000));
    }
    let mut run = start(&[&worker, &plain, &rotated], folder.join("first"));
    let some = || {
        names
            .iter()
            .all(|name| !all_lines(&folder, name).is_empty())
    };
    wait_for("some lines", 60 * S, some);
    run.signal("-KILL");
    run.wait(S);

    let mut run = start(&[&worker, &plain, &rotated], folder.join("second"));
    let complete = |name: &&str| {
        all_lines(&folder, name)
            .into_iter()
            .collect::<BTreeSet<_>>()
            == numbered(name, 0..20_000)
    };
    wait_for("all lines", 60 * S, || names.iter().all(complete));
    run.signal("-INT");
    let status = run.wait(30 * S);
    assert!(status.success(), "{status}\n{}", run.log());
    // What was held when it was killed may be there twice, and nothing else.
    for name in names {
        let twice = all_lines(&folder, name).len() - 20_000;
        println!("{name}: {twice} lines twice");
        assert!(twice <= 2_000, "{name}: {twice}");
    }
}

fn hears(socket: &UnixDatagram, wanted: &[&str]) -> String {
    let mut bytes = [0; 1024];
    loop {
        let length = socket.recv(&mut bytes).expect("a datagram in time");
        let text = String::from_utf8_lossy(bytes.get(..length).unwrap()).into_owned();
        if wanted.iter().any(|wanted| text.starts_with(wanted)) {
            return text;
        }
    }
}

#[test]
fn systemd_is_told_of_start_reload_life_and_stop() {
    let folder = Folder::new("cli-notify");
    let cluster = Cluster::new(&["notified"]);
    let worker = cluster.worker(&folder, "");
    let connector = folder.write("sink.properties", &sink(&folder, "notified", ""));
    let place = folder.join("notify");
    let socket = UnixDatagram::bind(&place).unwrap();
    socket.set_read_timeout(Some(30 * S)).unwrap();
    let mut command = Command::new(binary());
    command
        .arg("run")
        .args([&worker, &connector])
        .env("NOTIFY_SOCKET", &place)
        .env("WATCHDOG_USEC", "200000");
    let mut run = Run::spawn(command, folder.join("log"));
    assert_eq!(
        hears(&socket, &["READY", "RELOADING", "STOPPING"]),
        "READY=1"
    );
    let status = hears(&socket, &["STATUS"]);
    assert_eq!(
        status,
        "STATUS=1 task running; written 0, acknowledged 0, redelivered 0"
    );
    assert_eq!(hears(&socket, &["WATCHDOG"]), "WATCHDOG=1");
    run.signal("-HUP");
    let reloading = hears(&socket, &["READY", "RELOADING", "STOPPING"]);
    let micros = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
    assert!(micros.unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(
        hears(&socket, &["READY", "RELOADING", "STOPPING"]),
        "READY=1"
    );
    run.signal("-TERM");
    let stopping = hears(&socket, &["READY", "RELOADING", "STOPPING"]);
    assert!(stopping.starts_with("STOPPING=1\n"), "{stopping}");
    assert!(run.wait(20 * S).success());
}

/// One of two tasks can't write its file, until somebody makes room for it.
#[test]
fn sighup_stops_connectors_whose_files_are_gone_be_they_the_last() {
    let folder = Folder::new("cli-gone");
    let cluster = Cluster::new(&["in", "named"]);
    let worker = cluster.worker(&folder, "");
    fs::create_dir(folder.join("sinks")).unwrap();
    let in_folder = || folder.write("sinks/in.properties", &sink(&folder, "in", ""));
    let in_folder_file = in_folder();
    let named = folder.write("named.properties", &sink(&folder, "named", ""));
    let files = [&worker, &folder.join("sinks"), &named];
    let mut run = start(&files.map(PathBuf::as_path), folder.join("log"));
    let address = address(&run);
    is_ready(&address);

    fs::remove_file(&named).unwrap();
    run.signal("-HUP");
    says(&run, "Reloaded: removed. connector=\"named\"");
    fs::remove_file(in_folder_file).unwrap();
    run.signal("-HUP");
    says(&run, "Reloaded: removed. connector=\"in\"");
    says(&run, "No connector is left");
    assert!(get(&address, "/health/ready").contains("there is no connector"));

    in_folder();
    run.signal("-HUP");
    says(&run, "Reloaded: added. connector=\"in\"");
    is_ready(&address);
    cluster.produce("in", numbered("in", 0..10));
    wait_for("all of in", 30 * S, || {
        written(&folder, "in") == numbered("in", 0..10)
    });
    run.signal("-TERM");
    assert_eq!(run.wait(20 * S).code(), Some(0), "{}", run.log());
}

#[test]
fn where_no_named_file_is_left_nothing_changes() {
    let folder = Folder::new("cli-none-left");
    let cluster = Cluster::new(&["out"]);
    let worker = cluster.worker(&folder, "");
    let file = folder.write("out.properties", &sink(&folder, "out", ""));
    let mut run = start(&[&worker, &file], folder.join("log"));
    is_ready(&address(&run));
    fs::remove_file(&file).unwrap();
    run.signal("-HUP");
    says(&run, "Nothing is changed: ");
    says(&run, "out.properties: can't be read");
    cluster.produce("out", numbered("out", 0..10));
    wait_for("all of out", 30 * S, || {
        written(&folder, "out") == numbered("out", 0..10)
    });
    run.signal("-TERM");
    assert_eq!(run.wait(20 * S).code(), Some(0), "{}", run.log());
}

#[test]
fn sighup_starts_failed_tasks_again_and_their_failure_says_so() {
    let folder = Folder::new("cli-failed");
    let cluster = Cluster::new(&["half"]);
    let worker = cluster.worker(&folder, "");
    let connector = folder.write("sink.properties", &sink(&folder, "half", "tasks.max=2"));
    // It leads into a folder that isn't there.
    let in_the_way = folder.join("half-1.out");
    std::os::unix::fs::symlink(folder.join("none/x"), &in_the_way).unwrap();
    let mut run = start(&[&worker, &connector], folder.join("log"));
    says(&run, "then send SIGHUP to start it again. task=\"half-1\"");
    let address = address(&run);
    fs::remove_file(in_the_way).unwrap();
    run.signal("-HUP");
    says(
        &run,
        "Reloaded: failed tasks started again: half-1. connector=\"half\"",
    );
    let running = "task_metrics_status{connector=\"half\",task=\"1\",status=\"running\"} 1";
    wait_for("the second task", 30 * S, || {
        get(&address, "/metrics").contains(running)
    });
    run.signal("-TERM");
    assert!(run.wait(20 * S).success(), "{}", run.log());
}

/// A connector that is read from a pipe lets the worker wait, and a cluster that isn't there lets its task.
#[test]
fn a_reload_before_the_first_join_neither_ends_the_program_nor_makes_it_ready() {
    let folder = Folder::new("cli-early");
    let place = folder.join("notify");
    let socket = UnixDatagram::bind(&place).unwrap();
    socket.set_read_timeout(Some(30 * S)).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let servers = taken.local_addr().unwrap();
    let text = format!("bootstrap.servers={servers}\nconsumer.group.protocol=share\nlisteners=\n");
    let worker = folder.join("worker.properties");
    assert!(
        Command::new("mkfifo")
            .arg(&worker)
            .status()
            .unwrap()
            .success()
    );
    let connector = folder.write("sink.properties", &sink(&folder, "early", ""));
    let mut command = Command::new(binary());
    command
        .arg("run")
        .args([&worker, &connector])
        .env("NOTIFY_SOCKET", &place);
    let mut run = Run::spawn(command, folder.join("log"));
    // Opened for writing only once it is read.
    let mut pipe = fs::OpenOptions::new().write(true).open(&worker).unwrap();
    run.signal("-HUP");
    pipe.write_all(text.as_bytes()).unwrap();
    // What the reload finds there; the first reading ends with the pipe.
    let file = folder.write("worker.next", &text);
    fs::rename(file, &worker).unwrap();
    drop(pipe);
    says(&run, "Reloaded: no connector has changed.");
    run.signal("-HUP");
    wait_for("the second reload", 30 * S, || {
        let log = run.log();
        log.matches("Reloaded: no connector has changed.").count() == 2
    });
    run.signal("-TERM");
    let told = hears(&socket, &["READY", "RELOADING", "STOPPING"]);
    assert!(told.starts_with("STOPPING"), "{told}");
    run.wait(20 * S);
}

#[test]
fn an_address_that_is_taken_ends_the_program_only_where_it_is_set() {
    let folder = Folder::new("cli-taken");
    let cluster = Cluster::new(&["taken"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("listeners=http://{}", taken.local_addr().unwrap());
    let worker = cluster.worker(&folder, &place);
    let connector = folder.write("sink.properties", &sink(&folder, "taken", ""));
    let mut run = start(&[&worker, &connector], folder.join("log"));
    assert_eq!(run.wait(20 * S).code(), Some(2), "{}", run.log());
    assert!(
        run.log().contains("listeners: can't listen on 127.0.0.1:"),
        "{}",
        run.log()
    );

    // By this test, or by somebody else.
    let _taken = TcpListener::bind("127.0.0.1:8083");
    let servers = cluster.broker.bootstrap_servers();
    let worker = folder.write(
        "worker.properties",
        &format!("bootstrap.servers={servers}\n"),
    );
    let connector = folder.write(
        "sink.properties",
        &sink(&folder, "taken", "consumer.override.group.protocol=share"),
    );
    let run = start(&[&worker, &connector], folder.join("log"));
    says(&run, "No metrics and no health are served");
    says(&run, "Joined the share group");
}

/// Planted in every place where a secret may stand; none may come out.
#[test]
fn secrets_appear_in_no_log_metric_dead_letter_or_output() {
    let folder = Folder::new("cli-secrets");
    let cluster = Cluster::new(&["secrets", "dead"]);
    let login = |password: &str| {
        format!(
            "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"u\" password=\"{password}\";"
        )
    };
    let jaas = login("S3CRET-jaas");
    let secrets = folder.write("secrets", &format!("word=S3CRET-file\njaas={jaas}\n"));
    let given = |key: &str| format!("${{file:{}:{key}}}", secrets.display());
    let mut of_worker = format!(
        "config.providers=file\nconfig.providers.file.class=FileConfigProvider\nsome.api.token=S3CRET-token\nmy.password={}\n",
        given("word")
    );
    let mut of_connector = format!(
        "value.converter=org.apache.kafka.connect.json.JsonConverter\nerrors.tolerance=all\n\
         errors.deadletterqueue.topic.name=dead\nerrors.deadletterqueue.topic.replication.factor=1\n\
         errors.deadletterqueue.context.headers.enable=true\nerrors.log.enable=true\nerrors.log.include.messages=true\n\
         db.password=S3CRET-db\nsink.secret={}\nvalue.converter.basic.auth.user.info=u:S3CRET-registry\n",
        given("word")
    );
    for (key, value) in [
        ("ssl.key.password", "S3CRET-key".to_owned()),
        ("ssl.keystore.password", "S3CRET-store".to_owned()),
        ("ssl.truststore.password", given("word")),
        ("ssl.keystore.key", "S3CRET-pem".to_owned()),
        (
            "sasl.oauthbearer.client.credentials.client.secret",
            "S3CRET-oauth".to_owned(),
        ),
    ] {
        for prefix in ["", "consumer.", "producer.", "admin."] {
            of_worker.push_str(&format!("{prefix}{key}={value}\n"));
        }
        for prefix in [
            "consumer.override.",
            "producer.override.",
            "admin.override.",
        ] {
            of_connector.push_str(&format!("{prefix}{key}={value}\n"));
        }
    }
    for prefix in ["", "consumer.", "producer.", "admin."] {
        let login = login("S3CRET-plain");
        of_worker.push_str(&format!("{prefix}sasl.jaas.config={login}\n"));
    }
    for prefix in [
        "consumer.override.",
        "producer.override.",
        "admin.override.",
    ] {
        of_connector.push_str(&format!("{prefix}sasl.jaas.config={}\n", given("jaas")));
    }
    let worker = cluster.worker(&folder, &of_worker);
    let connector = folder.write("sink.properties", &sink(&folder, "secrets", &of_connector));
    let mut said = String::new();
    for arguments in [
        vec!["validate"],
        vec!["validate", "--strict"],
        // All keys that no client takes are errors then.
        vec!["run", "--strict"],
    ] {
        let mut command = Command::new(binary());
        let output = command.args(arguments).args([&worker, &connector]).output();
        let output = output.unwrap();
        said.push_str(&String::from_utf8_lossy(&output.stdout));
        said.push_str(&String::from_utf8_lossy(&output.stderr));
    }
    assert!(said.contains("some.api.token"), "{said}");
    hides("what is said of the files", &said);

    // A broker that knows nobody's password.
    let sasl = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n";
    let sasl: String = ["", "consumer.", "admin."]
        .iter()
        .flat_map(|prefix| sasl.lines().map(move |line| format!("{prefix}{line}\n")))
        .collect();
    cluster.worker(&folder, &format!("{of_worker}{sasl}"));
    let mut command = Command::new(binary());
    command.args(["--log-level", "trace", "run", "--startup-timeout", "1s"]);
    let output = command.args([&worker, &connector]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    hides("a failure", &String::from_utf8_lossy(&output.stderr));

    cluster.worker(&folder, &of_worker);
    let mut command = Command::new(binary());
    command.args(["--log-level", "trace", "run"]);
    command.args([&worker, &connector]);
    let mut run = Run::spawn(command, folder.join("log"));
    says(&run, "Joined the share group");
    let address = address(&run);
    cluster.produce("secrets", ["{\"a\":1}".to_owned(), "no json".to_owned()]);
    says(&run, "Serving /metrics");
    wait_for("both records", 30 * S, || {
        let page = get(&address, "/metrics");
        hides("metrics", &page);
        hides("readiness", &get(&address, "/health/ready"));
        let read = "sink_task_metrics_sink_record_read_total{connector=\"secrets\",task=\"0\"} 2\n";
        page.contains(read)
    });
    // The connector is set otherwise, and wrong after that.
    for more in ["tasks.max=2", "topics.regex=("] {
        let text = sink(&folder, "secrets", &format!("{of_connector}{more}"));
        folder.write("sink.properties", &text);
        run.signal("-HUP");
        let said = if more == "tasks.max=2" {
            "Reloaded: tasks.max is 2"
        } else {
            "Nothing is changed"
        };
        says(&run, said);
    }
    run.signal("-TERM");
    run.wait(20 * S);
    let mut command = Command::new(binary());
    let servers = cluster.broker.bootstrap_servers();
    command.args(["consume", "--topic", "dead", "--bootstrap-server", servers]);
    command.args(["--from-beginning", "--timeout-ms", "2000"]);
    command.args(["--property", "print.headers=true"]);
    let letters = command.output().unwrap();
    let errors = String::from_utf8_lossy(&letters.stderr);
    assert!(letters.status.success(), "{errors}");
    hides("dead letters", &String::from_utf8_lossy(&letters.stdout));
    hides("the log", &run.log());
}

#[track_caller]
fn hides(place: &str, text: &str) {
    let line = text.lines().find(|line| line.contains("S3CRET"));
    assert_eq!(line, None, "a secret is in {place}");
}
