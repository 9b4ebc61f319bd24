//! The embedded broker beside a real one, in turn in one run: Kafka's `ShareConsumerPerformance` and our
//! consumer read the same topic from each, with a fresh group each time. It has to be as fast as the
//! real one at a fifth of its CPU, and to start within 100 ms.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use sharegroup_launcher::Kafka;

use super::drain::{RECORDS, ROUNDS, VALUE_BYTES, fill, retry_theirs, try_theirs};
use super::process::{median, read};
use crate::run::{Context, Count};

/// The embedded broker's CPU per record, as a part of the real one's.
const CPU_SHARE_MAX: f64 = 0.2;
/// Where the consumer itself is the bottleneck the rates are equal but for noise.
const RATE_MIN: f64 = 0.95;
const START_MAX: Duration = Duration::from_millis(100);

/// `sharegroup broker` as a process of its own, killed when dropped.
pub(super) struct Embedded {
    pub(super) process: Child,
    pub(super) servers: String,
    /// From its start until somebody was connected.
    started_in: Duration,
}

impl Embedded {
    pub(super) fn start(program: &Path) -> anyhow::Result<Self> {
        let start = Instant::now();
        let mut process = Command::new(program)
            .args(["broker", "--port", "0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut line = String::new();
        let stdout = process.stdout.take().context("its output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let servers = line.trim_end().strip_prefix("bootstrap.servers=");
        let servers = servers.with_context(|| format!("it said {line:?}"))?;
        TcpStream::connect(servers)?;
        Ok(Self {
            servers: servers.to_owned(),
            process,
            started_in: start.elapsed(),
        })
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A broker that is measured.
struct Side {
    name: &'static str,
    servers: String,
    pid: u32,
    ours: Vec<Round>,
    theirs: Vec<Round>,
}

#[derive(Debug, Clone, Copy)]
struct Round {
    records_per_second: f64,
    /// Of the broker's process, in microseconds.
    cpu_per_record: f64,
}

pub(crate) fn prove(context: &Context) -> anyhow::Result<Count> {
    let Some(kafka) = Kafka::builder().full_jit(true).start_or_skip()? else {
        return Ok(Count {
            skipped: 1,
            ..Count::default()
        });
    };
    let (program, consumer) = build(context)?;
    let mut starts = Vec::new();
    for _ in 0..10 {
        starts.push(Embedded::start(&program)?.started_in.as_secs_f64());
    }
    let start = Duration::from_secs_f64(median(starts)?);
    println!("`sharegroup broker` takes connections after {start:?} (median of 10 starts)");
    let embedded = Embedded::start(&program)?;
    let mut sides = [
        Side::new("embedded", &embedded.servers, embedded.process.id()),
        Side::new(
            "real",
            &kafka.bootstrap_servers(),
            kafka.broker(1).pid().context("its process")?,
        ),
    ];
    for side in &sides {
        fill(&kafka, &side.servers)?;
    }
    for round in 0..ROUNDS {
        for side in &mut sides {
            side.run_ours(&consumer, round)?;
            side.run_theirs(&kafka, round)?;
        }
    }
    println!(
        "{RECORDS} records of {VALUE_BYTES} bytes, 4 partitions, {ROUNDS} rounds in turn, median (min..max):"
    );
    let peak_kib = read(embedded.process.id()).context("its memory")?.peak_kib;
    println!("our consumer, the broker being:");
    let ours = compare(&sides, |side| &side.ours)?;
    println!("ShareConsumerPerformance with 1 thread, the broker being:");
    let theirs = compare(&sides, |side| &side.theirs)?;
    println!("peak RSS of the embedded broker: {} MiB", peak_kib / 1024);
    ensure!(
        start < START_MAX,
        "the start takes longer than {START_MAX:?}"
    );
    judge("our consumer", ours)?;
    judge("ShareConsumerPerformance", theirs)?;
    Ok(Count::ONE)
}

/// The program, and the consumer that only counts.
fn build(context: &Context) -> anyhow::Result<(PathBuf, PathBuf)> {
    context.output(&mut context.cargo(["build", "--release", "-p", "sharegroup-cli"]))?;
    let example = [
        "build",
        "--release",
        "-p",
        "sharegroup-consumer",
        "--example",
        "drain",
    ];
    context.output(&mut context.cargo(example))?;
    let folder = context.target_dir().join("release");
    Ok((folder.join("sharegroup"), folder.join("examples/drain")))
}

impl Side {
    fn new(name: &'static str, servers: &str, pid: u32) -> Self {
        Self {
            name,
            servers: servers.to_owned(),
            pid,
            ours: Vec::new(),
            theirs: Vec::new(),
        }
    }

    fn cpu(&self) -> anyhow::Result<Duration> {
        Ok(read(self.pid).context("the broker is gone")?.cpu)
    }

    fn since(
        &self,
        before: Duration,
        records: u64,
        records_per_second: f64,
    ) -> anyhow::Result<Round> {
        let cpu = self.cpu()?.saturating_sub(before);
        Ok(Round {
            records_per_second,
            cpu_per_record: cpu.as_secs_f64() * 1e6 / records as f64,
        })
    }

    fn run_ours(&mut self, consumer: &Path, round: u32) -> anyhow::Result<()> {
        let before = self.cpu()?;
        let output = Command::new(consumer)
            .args([&self.servers, "drain", &format!("ours-{round}")])
            .arg(RECORDS.to_string())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "our consumer failed: {text}");
        let rate = text
            .lines()
            .next()
            .and_then(|line| line.rsplit_once(": "))
            .and_then(|(_, rate)| rate.split(' ').next()?.parse().ok());
        let rate = rate.with_context(|| format!("no rate in {text:?}"))?;
        let round = self.since(before, RECORDS, rate)?;
        self.ours.push(round);
        Ok(())
    }

    fn run_theirs(&mut self, kafka: &Kafka, round: u32) -> anyhow::Result<()> {
        let round = retry_theirs(|attempt| {
            let group = format!("theirs-{round}-{attempt}");
            let before = self.cpu()?;
            let run = try_theirs(kafka, &self.servers, &group)?;
            run.map(|run| self.since(before, run.records, run.records_per_second))
                .transpose()
        })?;
        self.theirs.push(round);
        Ok(())
    }
}

/// Prints one consumer's figures on both brokers, and returns the embedded one's divided by the real
/// one's: rate, and CPU.
fn compare(sides: &[Side; 2], rounds: impl Fn(&Side) -> &Vec<Round>) -> anyhow::Result<(f64, f64)> {
    let mut medians = Vec::new();
    for side in sides {
        let rounds = rounds(side);
        let column = |figure: fn(&Round) -> f64| -> anyhow::Result<(f64, String)> {
            let figures: Vec<f64> = rounds.iter().map(figure).collect();
            let min = figures.iter().copied().fold(f64::INFINITY, f64::min);
            let max = figures.iter().copied().fold(0.0, f64::max);
            let middle = median(figures)?;
            Ok((middle, format!("{middle:.2} ({min:.2}..{max:.2})")))
        };
        let rate = column(|round| round.records_per_second / 1000.0)?;
        let cpu = column(|round| round.cpu_per_record)?;
        println!(
            "  {:<9} {} k records/s, {} CPU µs/record of the broker",
            side.name, rate.1, cpu.1
        );
        medians.push((rate.0, cpu.0));
    }
    match medians.as_slice() {
        [embedded, real] => Ok((embedded.0 / real.0, embedded.1 / real.1)),
        _ => anyhow::bail!("two brokers are compared"),
    }
}

fn judge(consumer: &str, (rate, cpu): (f64, f64)) -> anyhow::Result<()> {
    println!("{consumer}: {rate:.2} of the real one's records/s, {cpu:.2} of its CPU");
    ensure!(
        rate >= RATE_MIN,
        "{consumer}: slower than on the real broker"
    );
    ensure!(
        cpu <= CPU_SHARE_MAX,
        "{consumer}: the embedded broker takes more than {CPU_SHARE_MAX} of the real one's CPU"
    );
    Ok(())
}
