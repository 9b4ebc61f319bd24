//! One run of one client.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::broker::{Cluster, Counters};
use super::clients::Contender;
use super::figures::Figures;
use super::scenario::Scenario;
use crate::proofs::process::{Usage, read};

/// Beyond the time that the traffic of a latency run flows.
const WITHIN: Duration = Duration::from_secs(180);

/// A client at work.
pub(super) struct Running {
    child: Child,
    lines: Receiver<String>,
    deadline: Instant,
}

impl Running {
    pub(super) fn start(
        command: &mut Command,
        within: Duration,
        log: &Path,
    ) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(log)?)
            .spawn()?;
        let output = BufReader::new(child.stdout.take().context("its output")?);
        let (sender, lines) = channel();
        thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Ok(Self {
            child,
            lines,
            deadline: Instant::now() + within,
        })
    }

    /// Waits for the line that begins with a word, and gives its rest.
    pub(super) fn wait_for(&self, word: &str) -> anyhow::Result<(String, Usage)> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(word) {
                        let usage = read(self.child.id()).context("it has ended")?;
                        return Ok((rest.trim().to_owned(), usage));
                    }
                }
                Err(RecvTimeoutError::Timeout) => bail!("no {word:?} in time"),
                Err(RecvTimeoutError::Disconnected) => bail!("ended before {word:?}"),
            }
        }
    }
}

impl Running {
    /// Lets it end by itself.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        ensure!(status.success(), "{status}");
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // What it had to say is said.
        drop(self.child.kill().and_then(|()| self.child.wait()));
    }
}

/// Runs a client once in a fresh group.
///
/// # Errors
/// It failed, took too long, or has read something else than what was written.
pub(super) fn run(
    cluster: &mut Cluster,
    scenario: &Scenario,
    contender: Contender,
    command: Command,
    log: &Path,
) -> anyhow::Result<Figures> {
    if scenario.rate > 0 {
        latency(cluster, scenario, contender, command, log)
    } else {
        drain(cluster, scenario, contender, command, log)
    }
}

fn drain(
    cluster: &mut Cluster,
    scenario: &Scenario,
    contender: Contender,
    mut command: Command,
    log: &Path,
) -> anyhow::Result<Figures> {
    let topic = cluster.topic(scenario.shape)?;
    let group = cluster.group()?;
    let records = scenario.shape.records;
    let (poll, members) = (scenario.poll.to_string(), scenario.members.to_string());
    command
        .args(["--servers", &cluster.servers(), "--topic", &topic.name])
        .args(["--group", &group, "--records", &records.to_string()])
        .args([
            "--poll",
            &poll,
            "--members",
            &members,
            "--mode",
            contender.mode,
        ])
        .args(["--mixed", if scenario.mixed { "true" } else { "false" }])
        .args(["--handler-ms", &scenario.handler_ms.to_string()]);
    let before = cluster.counters()?;
    let started = Instant::now();
    let running = Running::start(&mut command, WITHIN, log)?;
    let (_, first) = running.wait_for("first")?;
    let to_first = started.elapsed();
    let (answer, last) = running.wait_for("done")?;
    let after = cluster.counters()?;
    drop(running);
    let answer: Value = serde_json::from_str(&answer)?;
    let number = |name| answer.get(name).and_then(Value::as_f64).context(name);
    let seconds = number("seconds")?;
    ensure!(number("records")? == records as f64, "settled: {answer}");
    let checksum = answer.get("checksum").and_then(Value::as_str);
    ensure!(
        checksum == Some(topic.checksum.as_str()),
        "another checksum than {}: {answer}",
        topic.checksum
    );
    let per_record = |time: Duration| time.as_secs_f64() * 1e6 / records as f64;
    let bytes = records * scenario.shape.value_bytes;
    let mut figures = requests(before, after, records as f64 / 1000.0);
    figures.extend([
        ("records_per_second", records as f64 / seconds),
        ("mb_per_second", bytes as f64 / seconds / 1e6),
        ("cpu_us", per_record(last.cpu.saturating_sub(first.cpu))),
        ("rss_mb", last.peak_kib as f64 / 1024.0),
        ("start_s", to_first.as_secs_f64()),
        ("again", number("again")?),
        (
            "broker_cpu_us",
            per_record(after.cpu.saturating_sub(before.cpu)),
        ),
    ]);
    Ok(figures)
}

/// Runs a client, or the limit, against a replay server of its own.
///
/// # Errors
/// It failed or took too long.
pub(super) fn replay(
    mut server: Command,
    scenario: &Scenario,
    mut command: Command,
    log: &Path,
) -> anyhow::Result<Figures> {
    let server = Running::start(&mut server, WITHIN, &log.with_extension("server.log"))?;
    let (address, _) = server.wait_for("ready")?;
    let (records, poll) = (
        scenario.shape.records.to_string(),
        scenario.poll.to_string(),
    );
    // Names that it leaves out don't matter to the limit.
    command.args([
        "--servers",
        &address,
        "--topic",
        "replay",
        "--group",
        "replay",
    ]);
    command.args(["--records", &records, "--poll", &poll, "--mode", "fast"]);
    let started = Instant::now();
    let running = Running::start(&mut command, WITHIN, log)?;
    let (_, first) = running.wait_for("first")?;
    let to_first = started.elapsed();
    let (answer, last) = running.wait_for("done")?;
    let answer: Value = serde_json::from_str(&answer)?;
    let number = |name| answer.get(name).and_then(Value::as_f64).context(name);
    let (records, seconds) = (number("records")?, number("seconds")?);
    let cpu = last.cpu.saturating_sub(first.cpu);
    Ok(Figures::from([
        ("records_per_second", records / seconds),
        (
            "mb_per_second",
            records * scenario.shape.value_bytes as f64 / seconds / 1e6,
        ),
        ("cpu_us", cpu.as_secs_f64() * 1e6 / records),
        ("rss_mb", last.peak_kib as f64 / 1024.0),
        ("start_s", to_first.as_secs_f64()),
    ]))
}

fn latency(
    cluster: &mut Cluster,
    scenario: &Scenario,
    contender: Contender,
    mut command: Command,
    log: &Path,
) -> anyhow::Result<Figures> {
    let topic = cluster.empty_topic(scenario.shape.partitions)?;
    let group = cluster.group()?;
    let (seconds, warm) = scenario.seconds;
    command
        .args(["--servers", &cluster.servers(), "--topic", &topic])
        .args(["--group", &group, "--poll", &scenario.poll.to_string()])
        .args([
            "--mode",
            contender.mode,
            "--rate",
            &scenario.rate.to_string(),
        ])
        .args([
            "--seconds",
            &seconds.to_string(),
            "--warm",
            &warm.to_string(),
        ])
        .args(["--partitions", &scenario.shape.partitions.to_string()]);
    let within = WITHIN + Duration::from_secs((seconds + warm).into());
    let running = Running::start(&mut command, within, log)?;
    let (_, first) = running.wait_for("first")?;
    let before = cluster.counters()?;
    let began = Instant::now();
    let (answer, last) = running.wait_for("done")?;
    let took = began.elapsed().as_secs_f64();
    let after = cluster.counters()?;
    drop(running);
    let answer: Value = serde_json::from_str(&answer)?;
    let number = |name| answer.get(name).and_then(Value::as_f64).context(name);
    let sent = f64::from(scenario.rate) * f64::from(seconds);
    // What is sent as the measuring begins may count as warm-up.
    ensure!(
        number("samples")? >= sent * 0.95,
        "of {sent} sent: {answer}"
    );
    let mut figures = requests(before, after, took);
    for name in [
        "p50_ms",
        "p99_ms",
        "p999_ms",
        "max_ms",
        "again",
        "delivered_p50_ms",
    ] {
        figures.insert(name, number(name)?);
    }
    figures.extend([
        (
            "cpu_ms_per_second",
            (last.cpu.saturating_sub(first.cpu)).as_secs_f64() * 1e3 / took,
        ),
        ("rss_mb", last.peak_kib as f64 / 1024.0),
        (
            "broker_cpu_ms_per_second",
            after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e3 / took,
        ),
    ]);
    Ok(figures)
}

/// Requests as the brokers counted them, per thousand records or per second.
fn requests(before: Counters, after: Counters, per: f64) -> Figures {
    let fetches = (after.share_fetch - before.share_fetch) / per;
    let acknowledges = (after.share_acknowledge - before.share_acknowledge) / per;
    Figures::from([
        ("fetches", fetches),
        ("acknowledges", acknowledges),
        ("requests", fetches + acknowledges),
    ])
}
