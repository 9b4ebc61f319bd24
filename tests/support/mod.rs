//! What the end-to-end tests share: the program as a process, and what it wrote.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs
)]

pub mod job;
pub mod quickstart;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sharegroup_launcher::Kafka;

/// The program: `SHAREGROUP_BIN`, or built now.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let build = || build(&["--release", "--package", "sharegroup-cli"]);
    BINARY.get_or_init(|| std::env::var_os("SHAREGROUP_BIN").map_or_else(build, PathBuf::from))
}

/// An example of the package: in the folder `SHAREGROUP_EXAMPLES`, or built now.
pub fn example(name: &str) -> PathBuf {
    std::env::var_os("SHAREGROUP_EXAMPLES").map_or_else(
        || build(&["--package", "sharegroup", "--example", name]),
        |folder| PathBuf::from(folder).join(name),
    )
}

fn build(what: &[&str]) -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--message-format", "json"])
        .args(what)
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "the program builds");
    let text = String::from_utf8_lossy(&output.stdout);
    let executables = text
        .lines()
        .filter_map(|line| line.split("\"executable\":\"").nth(1)?.split('"').next());
    executables
        .map(PathBuf::from)
        .next_back()
        .expect("cargo names the program")
}

/// Waits for a condition, looked at every 10 ms.
///
/// # Panics
/// After the time allowed.
pub fn wait_for(what: &str, within: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + within;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within {within:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A temporary folder that goes away at the end.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        // Tests of one process may use the same name.
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), FOLDERS.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("sharegroup-{name}-{process}-{number}"));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// One `sharegroup run`: its worker and connector file, its output files, its log.
#[derive(Debug)]
pub struct Run {
    pub child: Child,
    log: PathBuf,
}

/// What a run is told.
#[derive(Debug)]
pub struct RunPlan<'a> {
    pub name: &'a str,
    pub kafka: &'a Kafka,
    pub folder: &'a Folder,
    pub topic: &'a str,
    pub group: &'a str,
    pub tasks: usize,
    /// More lines of the connector file.
    pub more: &'a str,
    /// More arguments.
    pub arguments: &'a [&'a str],
}

impl Run {
    /// Starts the program with a file sink that writes `<name>-<task>.out` in the folder.
    pub fn start(plan: &RunPlan<'_>) -> Self {
        let RunPlan {
            name,
            kafka,
            folder,
            topic,
            group,
            tasks,
            more,
            arguments,
        } = *plan;
        let worker = folder.write(
            &format!("{name}-worker.properties"),
            &format!(
                "bootstrap.servers={}\nkey.converter=org.apache.kafka.connect.converters.ByteArrayConverter\n\
                 value.converter=org.apache.kafka.connect.converters.ByteArrayConverter\nconsumer.group.protocol=share\n",
                kafka.bootstrap_servers()
            ),
        );
        let output = folder.join(&format!("{name}-${{task}}.out"));
        let connector = folder.write(
            &format!("{name}-sink.properties"),
            &format!(
                "name={name}\nconnector.class=FileStreamSink\ntopics={topic}\ntasks.max={tasks}\nfile={}\nshare.group.id={group}\n{more}\n",
                output.display()
            ),
        );
        let mut command = Command::new(binary());
        command
            .arg("run")
            .arg(&worker)
            .arg(&connector)
            .args(arguments);
        Self::spawn(command, folder.join(&format!("{name}.log")))
    }

    /// Starts a command; what it prints is appended to the log.
    pub fn spawn(mut command: Command, log: PathBuf) -> Self {
        let file = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .expect("the program starts");
        Self { child, log }
    }

    /// A process whose output is elsewhere.
    pub const fn of(child: Child, log: PathBuf) -> Self {
        Self { child, log }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill")
            .arg(signal)
            .arg(self.child.id().to_string())
            .status()
            .unwrap();
        assert!(status.success(), "kill {signal}");
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// After the time allowed.
    pub fn wait(&mut self, within: Duration) -> ExitStatus {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "the program did not end within {within:?}; its log:\n{}",
                self.log()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Waits until its log has a text.
///
/// # Panics
/// After 30 s.
pub fn says(run: &Run, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !run.log().contains(what) {
        assert!(
            Instant::now() < deadline,
            "`{what}` is not in:\n{}",
            run.log()
        );
        thread::sleep(Duration::from_millis(10));
    }
}

/// Where it serves metrics, as its log says.
pub fn address(run: &Run) -> String {
    let what = "Serving /metrics";
    says(run, what);
    let log = run.log();
    let line = log.lines().find(|line| line.contains(what)).unwrap();
    let address = line.split("address=").nth(1).unwrap();
    address.split(' ').next().unwrap().to_owned()
}

/// The answer of a worker's listener, its head too.
pub fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The output files of a run: how many lines, without reading them into memory at once.
pub fn lines(folder: &Folder, name: &str) -> u64 {
    output_files(folder, name)
        .iter()
        .map(|path| {
            fs::read(path)
                .unwrap()
                .iter()
                .filter(|byte| **byte == b'\n')
                .count() as u64
        })
        .sum()
}

fn output_files(folder: &Folder, name: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(&folder.0)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.file_name().is_some_and(|file| {
                let file = file.to_string_lossy();
                file.starts_with(name) && file.ends_with(".out")
            })
        })
        .collect();
    files.sort();
    files
}

/// What was written by all runs of a folder: how often each value.
#[derive(Debug, Default)]
pub struct Written {
    values: BTreeMap<u64, u32>,
}

impl Written {
    /// Reads every output file. A half line at the end of a killed run's file is no value.
    pub fn read(folder: &Folder) -> Self {
        let mut written = Self::default();
        for path in output_files(folder, "") {
            let text = fs::read(&path).unwrap();
            let whole = text
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |end| end + 1);
            for line in text[..whole]
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
            {
                let value = std::str::from_utf8(line)
                    .ok()
                    .and_then(|line| line.parse().ok());
                let value = value.unwrap_or_else(|| {
                    panic!(
                        "{}: strange line {:?}",
                        path.display(),
                        String::from_utf8_lossy(line)
                    )
                });
                *written.values.entry(value).or_default() += 1;
            }
        }
        written
    }

    pub fn distinct(&self) -> u64 {
        self.values.len() as u64
    }

    pub fn duplicates(&self) -> u64 {
        self.values
            .values()
            .map(|count| u64::from(*count) - 1)
            .sum()
    }

    /// The first values of `0..count` that are missing.
    pub fn missing(&self, count: u64) -> Vec<u64> {
        (0..count)
            .filter(|value| !self.values.contains_key(value))
            .take(10)
            .collect()
    }
}

pub fn create_topic(kafka: &Kafka, topic: &str, partitions: u32, replication: u32) {
    let (partitions, replication) = (partitions.to_string(), replication.to_string());
    let servers = kafka.bootstrap_servers();
    let arguments = [
        "--bootstrap-server",
        &servers,
        "--create",
        "--topic",
        topic,
        "--partitions",
        &partitions,
        "--replication-factor",
        &replication,
    ];
    kafka
        .tool("org.apache.kafka.tools.TopicCommand", arguments)
        .unwrap();
}

/// Kafka's own producer writes the values 0, 1, … as text.
pub fn produce(kafka: &Kafka, folder: &Folder, topic: &str, count: u64) {
    let status = producer(kafka, folder, topic, count).status().unwrap();
    assert!(status.success(), "VerifiableProducer ended with {status}");
}

/// The same as a command. It retries for ever: by default it would count a lost broker as an error.
pub fn producer(kafka: &Kafka, folder: &Folder, topic: &str, count: u64) -> Command {
    let servers = kafka.bootstrap_servers();
    let count = count.to_string();
    let config = folder.write(
        "producer.properties",
        "retries=2147483647\ndelivery.timeout.ms=180000\n",
    );
    let mut command = kafka.tool_command(
        "org.apache.kafka.tools.VerifiableProducer",
        [
            "--bootstrap-server",
            &servers,
            "--topic",
            topic,
            "--max-messages",
            &count,
            "--acks",
            "-1",
        ],
    );
    command
        .arg("--command-config")
        .arg(config)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Lag of a group as Kafka's own tool tells it, summed over its partitions.
pub fn lag(kafka: &Kafka, group: &str) -> Option<u64> {
    let servers = kafka.bootstrap_servers();
    let output = kafka
        .tool(
            "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
            [
                "--bootstrap-server",
                &servers,
                "--describe",
                "--offsets",
                "--group",
                group,
            ],
        )
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows = text
        .lines()
        .filter(|line| line.split_whitespace().next() == Some(group));
    let lags: Option<Vec<u64>> = rows
        .map(|row| row.split_whitespace().last()?.parse().ok())
        .collect();
    lags.filter(|lags| !lags.is_empty())
        .map(|lags| lags.iter().sum())
}
