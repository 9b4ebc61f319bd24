//! Our file sink beside Kafka Connect's `FileStreamSink`, in turn in one run on one broker: the same worker and
//! connector settings, but for the group's protocol and what Connect needs besides. Timed from the first line to
//! the last; CPU with the start-up and without it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use sharegroup_launcher::{Kafka, Tools};

use super::drain::VALUE_BYTES;
use super::process::{Usage, median, read};
use crate::run::{Context, Count};

const RECORDS: u64 = 2_000_000;
const BYTES: u64 = RECORDS * (VALUE_BYTES + 1);
const ROUNDS: u32 = 3;
/// The version whose file sink is compared.
const CONNECT: &str = "4.3.1";
const WITHIN: Duration = Duration::from_secs(300);
const STRING: &str = "org.apache.kafka.connect.storage.StringConverter";

/// One worker, from its start to its last line.
#[derive(Debug, Clone, Copy)]
struct Drained {
    records_per_second: f64,
    whole: Usage,
    /// What had been used when the first line was there.
    start: Usage,
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
    let connect = Tools::fetch(CONNECT)?;
    let plugins = connect.plugin("connect-file")?;
    let folder = kafka.dir().join("connect");
    fs::create_dir_all(&folder)?;
    fill(&kafka)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let name = format!("ours-{round}");
        let settings = settings(&kafka, &folder, &name, "consumer.group.protocol=share\n")?;
        let mut command = Command::new(&program);
        command.arg("run").args(&settings);
        ours.push(drained(&mut command, &folder.join(&name))?);

        let name = format!("theirs-{round}");
        let more = format!(
            "plugin.path={}\noffset.storage.file.filename={}\nlisteners=HTTP://127.0.0.1:0\n",
            plugins.display(),
            folder.join(format!("{name}.offsets")).display()
        );
        let settings = self::settings(&kafka, &folder, &name, &more)?;
        let class = "org.apache.kafka.connect.cli.ConnectStandalone";
        theirs.push(drained(
            &mut connect.service(class, settings),
            &folder.join(&name),
        )?);
    }
    println!(
        "{RECORDS} records of {VALUE_BYTES} bytes, 4 partitions, one task, {ROUNDS} rounds in turn, medians:"
    );
    let ours = Figures::of("sharegroup run", &ours)?;
    let theirs = Figures::of("Kafka Connect", &theirs)?;
    let rate = ours.rate / theirs.rate;
    let cpu = [theirs.cpu / ours.cpu, theirs.cpu_of_work / ours.cpu_of_work];
    let memory = theirs.memory / ours.memory;
    println!(
        "ratios: records/s {rate:.2}; CPU 1/{:.1} with start-up, 1/{:.1} without; peak memory 1/{memory:.1}",
        cpu[0], cpu[1]
    );
    ensure!(rate >= 1.0, "slower than Kafka Connect");
    ensure!(
        cpu[0] >= 5.0 && cpu[1] >= 5.0,
        "more than a fifth of its CPU"
    );
    ensure!(memory >= 10.0, "more than a tenth of its memory");
    Ok(Count::ONE)
}

fn fill(kafka: &Kafka) -> anyhow::Result<()> {
    let servers = kafka.bootstrap_servers();
    let topic = [
        "--bootstrap-server",
        &servers,
        "--create",
        "--topic",
        "lines",
        "--partitions",
        "4",
    ];
    kafka.tool("org.apache.kafka.tools.TopicCommand", topic)?;
    let (records, bytes) = (RECORDS.to_string(), VALUE_BYTES.to_string());
    let values = [
        "--bootstrap-server",
        &servers,
        "--topic",
        "lines",
        "--num-records",
        &records,
        "--record-size",
        &bytes,
        "--throughput",
        "-1",
    ];
    kafka.tool("org.apache.kafka.tools.ProducerPerformance", values)?;
    Ok(())
}

/// A worker file and a connector file.
fn settings(
    kafka: &Kafka,
    folder: &Path,
    name: &str,
    more: &str,
) -> anyhow::Result<[std::path::PathBuf; 2]> {
    let worker = folder.join(format!("{name}.worker"));
    let sink = folder.join(format!("{name}.properties"));
    let servers = kafka.bootstrap_servers();
    fs::write(
        &worker,
        format!(
            "bootstrap.servers={servers}\nkey.converter={STRING}\nvalue.converter={STRING}\n{more}"
        ),
    )?;
    fs::write(
        &sink,
        format!(
            "name={name}\nconnector.class=FileStreamSink\ntopics=lines\ntasks.max=1\nfile={}\n",
            folder.join(name).display()
        ),
    )?;
    Ok([worker, sink])
}

/// Runs a worker until its file has all lines.
fn drained(command: &mut Command, file: &Path) -> anyhow::Result<Drained> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn()?;
    let measured = measured(&mut child, file);
    child.kill()?;
    child.wait()?;
    fs::remove_file(file)?;
    measured
}

fn measured(child: &mut Child, file: &Path) -> anyhow::Result<Drained> {
    let deadline = Instant::now() + WITHIN;
    let mut first: Option<(Instant, u64, Usage)> = None;
    loop {
        let size = fs::metadata(file).map_or(0, |file| file.len());
        let now = Instant::now();
        if size > 0 {
            let usage = read(child.id()).context("the worker has ended")?;
            let (at, size_then, start) = *first.get_or_insert((now, size, usage));
            ensure!(size <= BYTES, "{size} bytes of {BYTES}");
            if size == BYTES {
                let records = (BYTES - size_then) as f64 / (VALUE_BYTES + 1) as f64;
                return Ok(Drained {
                    records_per_second: records / (now - at).as_secs_f64(),
                    whole: usage,
                    start,
                });
            }
        }
        if let Some(status) = child.try_wait()? {
            anyhow::bail!("the worker ended with {status}");
        }
        ensure!(
            now < deadline,
            "{size} of {BYTES} bytes within {} s",
            WITHIN.as_secs()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Medians.
struct Figures {
    rate: f64,
    /// Seconds.
    cpu: f64,
    cpu_of_work: f64,
    /// MiB.
    memory: f64,
}

impl Figures {
    fn of(name: &str, rounds: &[Drained]) -> anyhow::Result<Self> {
        let of = |figure: fn(&Drained) -> f64| median(rounds.iter().map(figure).collect());
        let figures = Self {
            rate: of(|round| round.records_per_second)?,
            cpu: of(|round| round.whole.cpu.as_secs_f64())?,
            cpu_of_work: of(|round| (round.whole.cpu - round.start.cpu).as_secs_f64())?,
            memory: of(|round| round.whole.peak_kib as f64 / 1024.0)?,
        };
        println!(
            "  {name}: {:.0} k records/s, CPU {:.2} s with start-up, {:.2} s without, peak memory {:.0} MiB",
            figures.rate / 1000.0,
            figures.cpu,
            figures.cpu_of_work,
            figures.memory
        );
        Ok(figures)
    }
}
