//! The drain of the main job beside Kafka's own `ShareConsumerPerformance`, interleaved in one run on
//! one broker, each round with a fresh group. The program writes what it reads into files; Kafka's
//! tool throws it away. The tool runs with one thread and reads nine tenths: 4.4's ends by interrupting
//! its consumers, and one that waits for records at that moment makes it fail. Then it is run again.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use sharegroup_launcher::Kafka;

use super::process::{Usage, median, watch};
use crate::run::{Context, Count};

pub(super) const RECORDS: u64 = 1_000_000;
pub(super) const VALUE_BYTES: u64 = 256;
/// What Kafka's tool reads.
const THEIR_RECORDS: u64 = RECORDS / 10 * 9;
const TRIES: u32 = 15;
pub(super) const ROUNDS: u32 = 3;

#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) records: u64,
    pub(super) records_per_second: f64,
    usage: Usage,
}

pub(crate) fn prove(context: &Context) -> anyhow::Result<Count> {
    let Some(kafka) = Kafka::builder().full_jit(true).start_or_skip()? else {
        return Ok(Count {
            skipped: 1,
            ..Count::default()
        });
    };
    context.output(&mut context.cargo(["build", "--release", "-p", "sharegroup-cli"]))?;
    let program = context.target_dir().join("release").join("sharegroup");
    let folder = kafka.dir().join("drain");
    fs::create_dir_all(&folder)?;
    let servers = kafka.bootstrap_servers();
    fill(&kafka, &servers)?;
    let (mut one_task, mut two_tasks, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        one_task.push(run_ours(&kafka, &program, &folder, (round, 1))?);
        theirs.push(run_theirs(&kafka, &servers, round)?);
        two_tasks.push(run_ours(&kafka, &program, &folder, (round, 2))?);
    }
    println!(
        "{RECORDS} records of {VALUE_BYTES} bytes, 4 partitions, {ROUNDS} rounds in turn, median (min..max):"
    );
    let rate = report("sharegroup run, 1 task, into files", &one_task)?;
    let their_rate = report("ShareConsumerPerformance, 1 thread, thrown away", &theirs)?;
    report("sharegroup run, 2 tasks, into files", &two_tasks)?;
    println!(
        "ratio of the rates, one task to one thread: {:.2}",
        rate / their_rate
    );
    Ok(Count::ONE)
}

/// Makes the topic and fills it, with Kafka's own tools.
pub(super) fn fill(kafka: &Kafka, servers: &str) -> anyhow::Result<()> {
    let topic = [
        "--bootstrap-server",
        servers,
        "--create",
        "--topic",
        "drain",
        "--partitions",
        "4",
    ];
    kafka.tool("org.apache.kafka.tools.TopicCommand", topic)?;
    let (records, bytes) = (RECORDS.to_string(), VALUE_BYTES.to_string());
    kafka.tool(
        "org.apache.kafka.tools.ProducerPerformance",
        [
            "--bootstrap-server",
            servers,
            "--topic",
            "drain",
            "--num-records",
            &records,
            "--record-size",
            &bytes,
            "--throughput",
            "-1",
        ],
    )?;
    Ok(())
}

fn run_ours(
    kafka: &Kafka,
    program: &Path,
    folder: &Path,
    (round, tasks): (u32, u32),
) -> anyhow::Result<Round> {
    let worker = folder.join("worker.properties");
    let converter = "org.apache.kafka.connect.converters.ByteArrayConverter";
    fs::write(
        &worker,
        format!(
            "bootstrap.servers={}\nkey.converter={converter}\nvalue.converter={converter}\nconsumer.group.protocol=share\n",
            kafka.bootstrap_servers()
        ),
    )?;
    let connector = folder.join("sink.properties");
    let outputs: Vec<_> = (0..tasks)
        .map(|task| folder.join(format!("{round}-{task}.out")))
        .collect();
    let file = folder.join(format!("{round}-${{task}}.out"));
    fs::write(
        &connector,
        format!(
            "name=drain-{round}-{tasks}\nconnector.class=FileStreamSink\ntopics=drain\ntasks.max={tasks}\nfile={}\n",
            file.display()
        ),
    )?;
    let mut child = Command::new(program)
        .arg("run")
        .args([&worker, &connector])
        .args(["--exit-when-idle", "1s"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut growth: Vec<(Instant, u64)> = Vec::new();
    let (status, usage) = watch(&mut child, Duration::from_secs(120), |now| {
        let size = outputs
            .iter()
            .filter_map(|path| fs::metadata(path).ok())
            .map(|file| file.len())
            .sum();
        if size > growth.last().map_or(0, |(_, size)| *size) {
            growth.push((now, size));
        }
    })?;
    ensure!(status.success(), "the program ended with {status}");
    let (Some(first), Some(last)) = (growth.first(), growth.last()) else {
        anyhow::bail!("nothing was written")
    };
    let written: u64 = outputs
        .iter()
        .map(|path| {
            fs::read(path).map(|text| text.iter().filter(|byte| **byte == b'\n').count() as u64)
        })
        .sum::<Result<_, _>>()?;
    // Random bytes may be newlines: at least one line per record.
    ensure!(
        written >= RECORDS && last.1 == RECORDS * (VALUE_BYTES + 1),
        "{written} lines, {} bytes",
        last.1
    );
    outputs.iter().try_for_each(fs::remove_file)?;
    Ok(Round {
        records: RECORDS,
        records_per_second: RECORDS as f64 / (last.0 - first.0).as_secs_f64(),
        usage,
    })
}

fn run_theirs(kafka: &Kafka, servers: &str, round: u32) -> anyhow::Result<Round> {
    retry_theirs(|attempt| try_theirs(kafka, servers, &format!("theirs-{round}-{attempt}")))
}

/// Runs Kafka's tool until it doesn't fail.
pub(super) fn retry_theirs<T>(
    mut run: impl FnMut(u32) -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    for attempt in 0..TRIES {
        if let Some(finished) = run(attempt)? {
            return Ok(finished);
        }
    }
    anyhow::bail!("Kafka's tool failed {TRIES} times in a row")
}

/// `None` where the tool failed.
pub(super) fn try_theirs(
    kafka: &Kafka,
    servers: &str,
    group: &str,
) -> anyhow::Result<Option<Round>> {
    kafka.tool(
        "org.apache.kafka.tools.ConfigCommand",
        [
            "--bootstrap-server",
            servers,
            "--alter",
            "--entity-type",
            "groups",
            "--entity-name",
            group,
            "--add-config",
            "share.auto.offset.reset=earliest",
        ],
    )?;
    let records = THEIR_RECORDS.to_string();
    let mut child = kafka
        .tool_command(
            "org.apache.kafka.tools.ShareConsumerPerformance",
            [
                "--bootstrap-server",
                servers,
                "--topic",
                "drain",
                "--group",
                group,
                "--num-records",
                &records,
                "--threads",
                "1",
                "--hide-header",
            ],
        )
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (status, usage) = watch(&mut child, Duration::from_secs(180), |_| {})?;
    if !status.success() {
        return Ok(None);
    }
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().context("its output")?, &mut text)?;
    let line = text
        .lines()
        .rev()
        .find(|line| line.contains(','))
        .with_context(|| format!("no figures in {text:?}"))?;
    // start, end, MB, MB/s, records/s, records, fetch time …
    let rate = line
        .split(',')
        .nth(4)
        .and_then(|field| field.trim().parse().ok());
    let records_per_second = rate.with_context(|| format!("no rate in {line:?}"))?;
    Ok(Some(Round {
        records: THEIR_RECORDS,
        records_per_second,
        usage,
    }))
}

fn report(name: &str, rounds: &[Round]) -> anyhow::Result<f64> {
    let column = |figure: fn(&Round) -> f64| -> anyhow::Result<(f64, f64, f64)> {
        let figures: Vec<f64> = rounds.iter().map(figure).collect();
        let min = figures.iter().copied().fold(f64::INFINITY, f64::min);
        let max = figures.iter().copied().fold(0.0, f64::max);
        Ok((median(figures)?, min, max))
    };
    let rate = column(|round| round.records_per_second / 1000.0)?;
    let cpu = column(|round| round.usage.cpu.as_secs_f64() * 1e6 / round.records as f64)?;
    let memory = column(|round| round.usage.peak_kib as f64 / 1024.0)?;
    println!(
        "  {name}: {:.0} k records/s ({:.0}..{:.0}), {:.2} CPU µs/record ({:.2}..{:.2}, whole process), peak RSS {:.0} MiB ({:.0}..{:.0})",
        rate.0, rate.1, rate.2, cpu.0, cpu.1, cpu.2, memory.0, memory.1, memory.2
    );
    Ok(rate.0)
}
