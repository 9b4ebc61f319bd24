//! The two workers: our program, and Kafka Connect with Debezium's sink.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use sharegroup_launcher::{Kafka, Tools};

use super::measure::{Measured, Watch};
use super::server::Server;
use super::topic::TOPIC;
use super::{AnyError, Mode, Options};

/// The version of Kafka Connect.
const CONNECT: &str = "4.3.1";
const DEBEZIUM: [&str; 3] = ["io.debezium", "debezium-connector-jdbc", "3.3.1.Final"];
/// The worker has its own, and doesn't load the sink beside others.
const NOT_THEIRS: [&str; 4] = [
    "com.fasterxml.jackson.core:jackson-core",
    "com.fasterxml.jackson.core:jackson-databind",
    "com.fasterxml.jackson.core:jackson-annotations",
    "org.slf4j:*",
];
const JSON: &str = "org.apache.kafka.connect.json.JsonConverter";
const STANDALONE: &str = "org.apache.kafka.connect.cli.ConnectStandalone";

/// Of Kafka Connect, where a task has at least one partition.
const TASKS: u32 = 4;
/// Of ours: one task, whose `share.concurrency` is the number of connections.
pub(super) const CONNECTIONS: usize = 2;
/// Most rows of one statement, for all three.
pub(super) const BATCH: usize = 3000;

pub(super) async fn ours(
    kafka: &Kafka,
    server: &Server,
    options: &Options,
    mode: Mode,
    table: &str,
) -> Result<Measured, AnyError> {
    let guard = match mode {
        Mode::Insert => "",
        Mode::Upsert => "version.field=at\n",
    };
    let more = std::env::var("OURS_MORE")
        .unwrap_or_default()
        .replace(';', "\n");
    let sink = format!(
        "name={table}\nconnector.class=postgres\ntasks.max=1\nshare.concurrency={CONNECTIONS}\ntopics={TOPIC}\nconnection.url={}\n\
         insert.mode={mode}\npk.mode=record_key\ntable.name.format={table}\nbatch.size={BATCH}\n{guard}{more}\n",
        server.url()
    );
    let settings = settings(
        kafka,
        table,
        "consumer.group.protocol=share\nlisteners=\n",
        &sink,
    )?;
    let mut command = Command::new(&options.program);
    command.arg("run").args(&settings);
    measured(command, kafka, server, options, table).await
}

/// With what its documentation and trials say is its best: batches as large as its polls, rewritten by the driver where
/// that is faster.
pub(super) async fn debezium(
    kafka: &Kafka,
    server: &Server,
    options: &Options,
    mode: Mode,
    table: &str,
) -> Result<Measured, AnyError> {
    let connect = Tools::fetch(CONNECT)?;
    let plugins = connect.foreign_plugin(DEBEZIUM, &NOT_THEIRS)?;
    let rewrite = match mode {
        Mode::Insert => "?reWriteBatchedInserts=true",
        Mode::Upsert => "",
    };
    let more = std::env::var("THEIRS_MORE")
        .unwrap_or_default()
        .replace(';', "\n");
    let sink = format!(
        "name={table}\nconnector.class=io.debezium.connector.jdbc.JdbcSinkConnector\ntasks.max={TASKS}\ntopics={TOPIC}\n\
         connection.url={}{rewrite}\nconnection.username={}\nconnection.password=none\ninsert.mode={mode}\n\
         primary.key.mode=record_key\nprimary.key.fields=id\nschema.evolution=none\ncollection.name.format={table}\n\
         batch.size={BATCH}\nconsumer.override.max.poll.records={BATCH}\nuse.reduction.buffer=false\n{more}\n",
        server.jdbc_url(),
        server.user()
    );
    let worker = format!(
        "plugin.path={}\noffset.storage.file.filename={}\nlisteners=HTTP://127.0.0.1:0\n",
        plugins.display(),
        kafka.dir().join(format!("{table}.offsets")).display()
    );
    let settings = settings(kafka, table, &worker, &sink)?;
    let mut command = connect.service(STANDALONE, settings);
    command.env("JDK_JAVA_OPTIONS", "-Xms256M");
    measured(command, kafka, server, options, table).await
}

/// A worker file and a connector file.
fn settings(kafka: &Kafka, name: &str, worker: &str, sink: &str) -> Result<[PathBuf; 2], AnyError> {
    let file = |kind: &str| kafka.dir().join(format!("{name}.{kind}.properties"));
    let (worker_file, sink_file) = (file("worker"), file("sink"));
    let servers = kafka.bootstrap_servers();
    let worker = format!(
        "bootstrap.servers={servers}\nkey.converter={JSON}\nvalue.converter={JSON}\n{worker}"
    );
    fs::write(&worker_file, worker)?;
    fs::write(&sink_file, sink)?;
    Ok([worker_file, sink_file])
}

/// Runs a worker until its table is full.
async fn measured(
    mut command: Command,
    kafka: &Kafka,
    server: &Server,
    options: &Options,
    table: &str,
) -> Result<Measured, AnyError> {
    let log = kafka.dir().join(format!("{table}.log"));
    let file = File::create(&log)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?);
    let watch = Watch::begin(kafka, server, table, options.records).await?;
    let mut child = Ended(command.stderr(file).spawn()?);
    let pid = child.0.id();
    let is_alive = || match child.0.try_wait()? {
        None => Ok(()),
        Some(status) => Err(format!("the worker ended with {status}").into()),
    };
    let measured = watch.until_full(Some(pid), is_alive).await;
    measured.inspect_err(|_| {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let tail: Vec<_> = text.lines().rev().take(40).collect();
        tail.iter().rev().for_each(|line| eprintln!("{line}"));
    })
}

/// A process that ends with this.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
