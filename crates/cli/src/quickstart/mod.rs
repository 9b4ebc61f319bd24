//! `quickstart`: a broker, orders, a share group, files, and a count that matches.

mod cluster;
mod orders;
mod steps;

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{ProducerConfig, ProducerRecord};
use sharegroup_sink::config::{Properties, load_properties};
use tokio::time::Instant;

use crate::duration;
use crate::exit::{Exit, Problems};
use crate::number::{count, per_second, plural};
use crate::process;
use crate::produce::Sender;
use crate::run::{self, Ended, Ending, IdleOptions, Job, drive};
use crate::screen::Screen;
use crate::signals::Signals;

use cluster::{Cluster, Kind, kafka_version};
use orders::{Orders, Tally};
use steps::Steps;

/// See it work: a broker, seeded orders, two tasks that write files, and the count
///
/// The broker is the embedded one: in this process, in memory, on 127.0.0.1 only. With
/// --broker kafka it is a real Apache Kafka in a temporary folder; that needs Java 17 or newer,
/// and Maven for Kafka's jars, which are fetched once and kept in ~/.cache/sharegroup. Either is
/// gone afterwards; the files stay. Ctrl-C ends it with code 130, and removes a temporary folder.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, after_help = EXAMPLES)]
pub(crate) struct QuickstartArgs {
    /// The folder for the files, without files of an earlier run; a new temporary one when not given
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// How many orders
    #[arg(long, default_value_t = 200_000, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    records: u64,
    /// The orders' seed: the same one gives the same orders
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Partitions of the topic
    #[arg(long, default_value_t = 4, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(1..=100))]
    partitions: i32,
    /// Tasks, each a member of the share group
    #[arg(long, default_value_t = 2, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    tasks: u32,
    /// The broker
    #[arg(long, value_enum, default_value_t = Kind::Embedded, value_name = "BROKER")]
    broker: Kind,
    /// With --broker kafka, its version: 4.1.2, 4.2.1, 4.3.1 or 4.4.0 (default), for example
    #[arg(long, value_name = "VERSION", value_parser = kafka_version)]
    kafka_version: Option<String>,
    /// The broker's port on 127.0.0.1; a free one when not given
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Keep the broker running until Ctrl-C, to try other commands on it
    #[arg(long)]
    keep_running: bool,
}

const EXAMPLES: &str = "\
Examples:
  sharegroup quickstart
  sharegroup quickstart --dir ./orders --records 1000000 --tasks 4
  sharegroup quickstart --keep-running     and try other commands on that broker
  sharegroup quickstart --broker kafka     the same on a real Kafka; needs Java and Maven";

const TOPIC: &str = "orders";
const CONNECTOR: &str = "quickstart";
const QUIET: Duration = Duration::from_secs(1);
/// Nothing moves for so long: something is wrong.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Runs the command.
pub(crate) async fn run(
    args: QuickstartArgs,
    screen: &'static Screen,
    signals: Signals,
) -> anyhow::Result<Exit> {
    let start = Instant::now();
    if args.broker == Kind::Embedded && args.kafka_version.is_some() {
        return Err(Problems::one("--kafka-version is for --broker kafka; add that").into());
    }
    let folder = Folder::open(args.dir.as_deref())?;
    screen.line(&screen.bold(&format!(
        "{} through a share group of {} into files",
        plural(args.records, "order"),
        args.broker.name()
    )));
    let mut steps = Steps::new(screen);
    let cluster = match Cluster::start(&args, &mut steps, screen, &signals).await {
        Ok(ControlFlow::Continue(cluster)) => cluster,
        Ok(ControlFlow::Break(sign)) => {
            folder.close(Completeness::Unfinished, screen);
            return Ok(Exit::CutOff(sign));
        }
        Err(error) => {
            folder.close(Completeness::Unfinished, screen);
            return Err(error);
        }
    };
    let mut show = Show {
        orders: Orders {
            seed: args.seed,
            count: args.records,
        },
        servers: cluster.bootstrap_servers(),
        folder,
        args,
        steps,
        screen,
    };
    let outcome = tokio::select! {
        outcome = show.produce() => outcome.map(|()| None),
        sign = signals.first() => Ok(Some(sign)),
    };
    let exit = match outcome {
        Ok(None) => show.drain_and_count(start, &signals).await,
        Ok(Some(sign)) => Ok(Exit::CutOff(sign)),
        Err(error) => Err(error),
    };
    if matches!(exit, Ok(Exit::Done)) && show.args.keep_running {
        show.keep_running(&signals).await;
    }
    show.folder.close(
        match exit {
            Ok(Exit::Done) => Completeness::Complete,
            Ok(Exit::CutOff(_)) => Completeness::Unfinished,
            _ => Completeness::Failed,
        },
        screen,
    );
    cluster.stop().await;
    exit
}

/// Where the files go.
struct Folder {
    path: PathBuf,
    is_temporary: bool,
}

/// What the files are when all is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Completeness {
    Complete,
    /// Cut off.
    Unfinished,
    /// Not what they should be; somebody may want to see why.
    Failed,
}

impl Folder {
    /// Makes the folder, and sees to it that files can be made in it: better now than later.
    fn open(given: Option<&Path>) -> Result<Self, Problems> {
        let path = match given {
            Some(given) => given.to_path_buf(),
            None => {
                std::env::temp_dir().join(format!("sharegroup-quickstart-{}", std::process::id()))
            }
        };
        let unusable = |error: io::Error| {
            Problems::one(format!(
                "no files can be made in {}: {error}",
                path.display()
            ))
        };
        std::fs::create_dir_all(&path).map_err(unusable)?;
        let folder = Self {
            path: std::fs::canonicalize(&path).map_err(unusable)?,
            is_temporary: given.is_none(),
        };
        if let Some(file) = folder.files().map_err(unusable)?.first() {
            return Err(Problems::one(format!(
                "{} exists already; choose another --dir, or remove it",
                file.display()
            )));
        }
        let probe = folder.file("probe");
        std::fs::File::create_new(&probe)
            .and_then(|_| std::fs::remove_file(&probe))
            .map_err(unusable)?;
        Ok(folder)
    }

    /// Those that an earlier run, or this one, has made.
    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&format!("{TOPIC}-")) && name.ends_with(".jsonl") {
                files.push(self.path.join(&*name));
            }
        }
        files.sort();
        Ok(files)
    }

    fn file(&self, task: impl std::fmt::Display) -> PathBuf {
        self.path.join(format!("{TOPIC}-{task}.jsonl"))
    }

    /// Removes a temporary folder that nobody wants to see; says so where files are not all they should be.
    fn close(&self, files: Completeness, screen: &Screen) {
        let are_there = self.files().is_ok_and(|files| !files.is_empty());
        if self.is_temporary && (files == Completeness::Unfinished || !are_there) {
            if let Err(error) = std::fs::remove_dir_all(&self.path) {
                tracing::warn!(%error, folder = %self.path.display(), "Could not remove a folder.");
            }
        } else if are_there && files != Completeness::Complete {
            screen.line(&format!(
                "The files in {} are not complete.",
                self.path.display()
            ));
        }
    }
}

/// Everything after the broker's start.
struct Show {
    args: QuickstartArgs,
    orders: Orders,
    servers: String,
    folder: Folder,
    steps: Steps,
    screen: &'static Screen,
}

impl Show {
    fn client(&self) -> anyhow::Result<ClientConfig> {
        Ok(ClientConfig::new(&self.servers)?)
    }

    /// Creates the topic and fills it.
    async fn produce(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        let admin = Admin::new(self.client()?);
        let create = admin.create_topic(TOPIC, self.args.partitions, 1, &[]);
        self.steps
            .wait(|| format!("creating topic {TOPIC}"), create)
            .await?;
        let what = format!(
            "topic {TOPIC} has {}",
            plural(self.args.partitions.unsigned_abs().into(), "partition")
        );
        self.steps.done(&what, start.elapsed());

        let start = Instant::now();
        let confirmed = AtomicU64::new(0);
        let doing = || {
            format!(
                "producing orders: {}",
                count(confirmed.load(Ordering::Relaxed))
            )
        };
        self.steps.wait(doing, self.send_orders(&confirmed)).await?;
        let time = start.elapsed();
        let what = format!(
            "{} produced and confirmed, seed {}, {} records/s",
            plural(self.orders.count, "order"),
            self.orders.seed,
            count(per_second(self.orders.count, time))
        );
        self.steps.done(&what, time);
        Ok(())
    }

    async fn send_orders(&self, confirmed: &AtomicU64) -> anyhow::Result<()> {
        let mut config = ProducerConfig::new(self.client()?);
        config.batch_bytes_max = 64 * 1024;
        let mut sender = Sender::new(config);
        for number in 0..self.orders.count {
            let (key, value) = self.orders.order(number);
            sender
                .send(ProducerRecord::new(TOPIC).key(key).value(value))
                .await?;
            confirmed.store(sender.confirmed(), Ordering::Relaxed);
        }
        sender.finish(Duration::from_secs(60)).await?;
        Ok(())
    }

    /// Runs the sink until it is idle, then counts.
    async fn drain_and_count(&mut self, start: Instant, signals: &Signals) -> anyhow::Result<Exit> {
        let start_of_work = Instant::now();
        let ended = drive(self.job()?, self.screen, signals).await?;
        if let Ending::Stopped(sign) = ended.ending {
            return Ok(Exit::CutOff(sign));
        }
        let what = format!(
            "{} written to files by {}, {} records/s",
            plural(ended.status.totals().written, "order"),
            plural(self.args.tasks.into(), "task"),
            count(ended.records_per_second())
        );
        self.steps.done(&what, ended.time);
        let rest = start_of_work.elapsed().saturating_sub(ended.time);
        self.steps
            .done("nothing more came, and the group was left", rest);
        if ended.exit() != Exit::Done {
            run::show(&ended, self.screen);
            return Ok(ended.exit());
        }
        let counted_at = Instant::now();
        let tally = self.tally().await?;
        let lag = self.lag().await?;
        self.steps.done(
            "files compared with what was produced, byte by byte",
            counted_at.elapsed(),
        );
        self.summary(&ended, tally, lag, start.elapsed())
    }

    /// What `sharegroup run` would read from two files.
    fn job(&self) -> anyhow::Result<Job> {
        let mut worker = Properties::new("quickstart-worker.properties");
        worker.set("bootstrap.servers", self.servers.as_str());
        let mut connector = Properties::new("quickstart-sink.properties");
        connector.set("name", CONNECTOR);
        connector.set("connector.class", "file");
        connector.set("topics", TOPIC);
        connector.set("tasks.max", self.args.tasks.to_string());
        connector.set("file", self.folder.file("${task}").to_string_lossy());
        connector.set("consumer.override.group.protocol", "share");
        let registry = sharegroup_connectors::registry();
        let loaded = load_properties(worker, vec![connector], true, &registry)
            .map_err(|problems| run::split(&problems))?;
        Ok(Job {
            reloads: None,
            listener: None,
            loaded,
            idle: Some(IdleOptions {
                quiet: QUIET,
                max: STUCK_AFTER,
            }),
            startup_timeout: Duration::from_secs(60),
        })
    }

    async fn tally(&self) -> anyhow::Result<Tally> {
        let orders = self.orders;
        let files = self.folder.files()?;
        let count =
            tokio::task::spawn_blocking(move || orders.tally(files.iter().map(PathBuf::as_path)));
        let tally = self.steps.wait(|| "comparing the files".to_owned(), count);
        tally.await?.context("reading the files")
    }

    /// The group's lag on the whole topic; `None` = the broker doesn't know it (4.1).
    async fn lag(&self) -> anyhow::Result<Option<i64>> {
        let admin = Admin::new(self.client()?);
        let partitions: Vec<_> = (0..self.args.partitions).collect();
        let topic = [(TOPIC, partitions.as_slice())];
        let offsets = admin
            .share_group_offsets(&format!("connect-{CONNECTOR}"), Some(&topic))
            .await?;
        Ok(offsets.iter().map(|offset| offset.lag).sum())
    }

    fn summary(
        &self,
        ended: &Ended,
        tally: Tally,
        lag: Option<i64>,
        time: Duration,
    ) -> anyhow::Result<Exit> {
        let produced = self.orders.count;
        let matches = tally.distinct == produced
            && tally.lines == produced
            && ended.status.totals().written == produced
            && lag.is_none_or(|lag| lag == 0);
        let files = plural(tally.files, "file");
        let megabytes = tally.bytes / 1_000_000;
        let rows = [
            ("produced", count(produced), String::new()),
            (
                "written",
                count(tally.lines),
                format!("in {files}, {megabytes} MB"),
            ),
            ("distinct", count(tally.distinct), String::new()),
            ("duplicates", count(tally.duplicates), String::new()),
            (
                "lag of the group",
                lag.map_or_else(|| "unknown".to_owned(), |lag| count(lag.unsigned_abs())),
                String::new(),
            ),
            (
                "peak memory",
                process::peak_memory().map_or_else(
                    || "unknown".to_owned(),
                    |bytes| format!("{} MB", count(bytes / 1_000_000)),
                ),
                match self.args.broker {
                    Kind::Embedded => "with the broker's, all orders in it".to_owned(),
                    Kind::Kafka => "without Kafka's".to_owned(),
                },
            ),
        ];
        self.screen.line("");
        for (name, number, more) in rows {
            let line = format!("    {name:<18} {number:>11}  {more}");
            self.screen.line(line.trim_end());
        }
        self.screen.line("");
        self.screen
            .line(&format!("    files in {}", self.folder.path.display()));
        self.screen.line("");
        if !matches {
            bail!("the counts do not match; please report this with the seed and the versions");
        }
        let sentence = format!("All counts match, after {}.", duration::show(time));
        self.screen.line(&self.screen.green(&sentence));
        Ok(Exit::Done)
    }

    async fn keep_running(&self, signals: &Signals) {
        self.screen.line(&format!(
            "The broker runs on until Ctrl-C. Elsewhere try:\n  \
             sharegroup consume --bootstrap-server {} --topic {TOPIC} --from-beginning --max-messages 3",
            self.servers
        ));
        signals.first().await;
    }
}
