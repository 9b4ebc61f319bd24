//! `produce`: lines become records.

mod lines;
mod sender;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use sharegroup_broker::Broker;
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::producer::{ProduceError, ProducerConfig, ProducerRecord};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::args::key_value;
use crate::client::ClientArgs;
use crate::duration;
use crate::embedded::{self, Place};
use crate::exit::{Exit, Problems};
use crate::number::{count, per_second, plural};
use crate::screen::Screen;
use crate::signals::Signals;
use crate::topics::{creation, find_soon, missing};

use lines::{Chunk, LineFormat};
pub(crate) use sender::Sender;

/// Write lines of standard input, or of a file, to a topic: one record each
///
/// Every record is confirmed by all in-sync replicas (acks=all) and written once (idempotent).
/// Ctrl-C stops reading; what was read is written, as far as 5 seconds allow.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, after_help = EXAMPLES)]
pub(crate) struct ProduceArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// The topic
    #[arg(long)]
    topic: String,
    /// Read this file instead of standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Each line is a key, this text, and a value; \t is a tab
    #[arg(long, value_name = "TEXT")]
    key_separator: Option<String>,
    /// How lines are split: parse.key=true, key.separator=, ignore.error=true, null.marker=
    #[arg(long = "property", value_name = "KEY=VALUE", value_parser = key_value, alias = "reader-property")]
    properties: Vec<(String, String)>,
    /// Codec of record batches
    #[arg(
        long,
        value_enum,
        value_name = "CODEC",
        alias = "compression-codec",
        num_args = 0..=1,
        require_equals = false,
        default_missing_value = "gzip"
    )]
    compression: Option<Codec>,
    /// Only `all` (-1) is offered: a record counts when all in-sync replicas have it
    #[arg(long, value_name = "all", default_value = "all", alias = "request-required-acks", value_parser = ["all", "-1"], allow_hyphen_values = true)]
    acks: String,
    /// Be the cluster, too, to try things out without one: an embedded broker with the topic
    ///
    /// It listens where --bootstrap-server says, on this machine, with 4 partitions. When
    /// everything is written it runs on until Ctrl-C, so that it can be read from another
    /// terminal with `sharegroup consume --topic TOPIC --from-beginning`; then it is gone.
    #[arg(long, verbatim_doc_comment)]
    embedded: bool,
}

const EXAMPLES: &str = "\
Examples:
  sharegroup produce --topic orders --file orders.jsonl --compression zstd
  seq 1000000 | sharegroup produce --topic numbers
  printf 'k1:v1\\nk2:v2\\n' | sharegroup produce --topic pairs --key-separator :
  sharegroup produce --topic orders --producer-property linger.ms=0 < orders.jsonl
  seq 1000 | sharegroup produce --topic numbers --embedded     needs no cluster; read it from another terminal";

/// A codec, as Kafka's compression.type names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// Larger than Kafka's 16 KiB: whoever pipes lines wants throughput.
const BATCH_BYTES: usize = 64 * 1024;

/// How long a signal leaves what is on its way.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Runs the command.
pub(crate) async fn run(
    args: ProduceArgs,
    screen: &'static Screen,
    signals: Signals,
) -> anyhow::Result<Exit> {
    let config = config(&args, screen, &signals).await?;
    let mut problems = Problems {
        errors: Vec::new(),
        warnings: Vec::new(),
    };
    let format = LineFormat::parse(
        args.key_separator.as_deref(),
        &args.properties,
        config.request_bytes_max,
        &mut problems,
    );
    if !problems.errors.is_empty() {
        return Err(problems.into());
    }
    problems.show(screen);
    let broker = if args.embedded {
        let place = Place {
            client: &config.client,
            setting: "--bootstrap-server",
        };
        let topics = std::slice::from_ref(&args.topic);
        Some(embedded::start_for(&place, topics, |builder| builder, screen).await?)
    } else {
        None
    };
    let admin = Admin::new(config.client.clone());
    let found = tokio::select! {
        found = find_soon(&admin, &args.topic) => found?,
        sign = signals.first() => return Ok(Exit::CutOff(sign)),
    };
    if found.is_none() {
        bail!(
            "{}; {}",
            missing(&args.topic),
            creation(&args.topic, args.client.servers())
        );
    }
    let chunks = lines::read(args.file.as_deref(), format).with_context(|| {
        let file = args
            .file
            .as_deref()
            .unwrap_or_else(|| "standard input".as_ref());
        format!("{} can't be read", file.display())
    })?;
    let finish_within = config.delivery_timeout;
    let is_typed = args.file.is_none() && io::stdin().is_terminal();
    if is_typed {
        screen.note("Each line is a record; Ctrl-D ends.");
    }
    let mut feed = Feed {
        sender: Sender::new(config),
        topic: args.topic.clone(),
        start: Instant::now(),
        screen,
        shows_progress: !is_typed,
    };
    let exit = feed.run(chunks, &signals, finish_within).await?;
    if let Some(broker) = broker {
        keep_running(&broker, &args.topic, screen, &signals).await;
    }
    Ok(exit)
}

/// What was produced can be read as long as this lasts.
async fn keep_running(broker: &Broker, topic: &str, screen: &Screen, signals: &Signals) {
    screen.note("The embedded broker runs on until Ctrl-C.");
    let command = format!("consume --topic {topic} --from-beginning");
    embedded::note_commands([command], broker, screen);
    signals.first().await;
}

async fn config(
    args: &ProduceArgs,
    screen: &Screen,
    signals: &Signals,
) -> anyhow::Result<ProducerConfig> {
    let keys = ProducerConfig::keys();
    let settings = args.client.settings(keys, screen, signals).await?;
    let mut config = ProducerConfig::new(settings.client);
    config.batch_bytes_max = BATCH_BYTES;
    let compression = args.compression.and_then(|codec| codec.to_possible_value());
    let compression =
        compression.map(|codec| ("compression.type".to_owned(), codec.get_name().to_owned()));
    let mut errors = Vec::new();
    for (key, value) in settings.own.into_iter().chain(compression) {
        if let Err(error) = config.set(&key, &value) {
            errors.push(settings.layers.at(&key, error.to_string()));
        }
    }
    if errors.is_empty() {
        Ok(config)
    } else {
        Err(Problems {
            errors,
            warnings: Vec::new(),
        }
        .into())
    }
}

/// From lines to confirmed records.
struct Feed {
    sender: Sender,
    topic: String,
    start: Instant,
    screen: &'static Screen,
    shows_progress: bool,
}

impl Feed {
    async fn run(
        &mut self,
        mut chunks: mpsc::Receiver<Chunk>,
        signals: &Signals,
        finish_within: Duration,
    ) -> anyhow::Result<Exit> {
        let read = self.send_all(&mut chunks, signals).await;
        // What was sent before a failure is confirmed, or fails on its own.
        let finished = self.finish(signals, finish_within).await;
        self.screen.clear();
        self.summary(read.is_ok() && finished.is_ok());
        read?;
        finished.map_err(|error| anyhow!(error))?;
        Ok(Exit::Done)
    }

    async fn send_all(
        &mut self,
        chunks: &mut mpsc::Receiver<Chunk>,
        signals: &Signals,
    ) -> anyhow::Result<()> {
        let mut ticks = interval(Duration::from_millis(250));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut stop = pin!(signals.first());
        loop {
            let chunk = tokio::select! {
                biased;
                _ = &mut stop => return Ok(()),
                _ = ticks.tick() => {
                    self.sender.look()?;
                    self.progress();
                    continue;
                }
                chunk = chunks.recv() => chunk,
            };
            let Some(chunk) = chunk else { return Ok(()) };
            for line in chunk.lines {
                let mut record = ProducerRecord::new(self.topic.as_str());
                record.key = line.key;
                record.value = line.value;
                tokio::select! {
                    biased;
                    sent = self.sender.send(record) => sent?,
                    // The buffer is full, and nothing is confirmed.
                    _ = &mut stop => return Ok(()),
                }
            }
            if let Some(error) = chunk.error {
                bail!(error);
            }
        }
    }

    /// Waits for what is on its way; after a signal not for long.
    async fn finish(&mut self, signals: &Signals, within: Duration) -> Result<(), ProduceError> {
        tokio::select! {
            biased;
            finished = self.sender.finish(within) => return finished,
            _ = signals.first() => {}
        }
        self.screen.clear();
        self.screen.note(&format!(
            "Stopping: waiting up to {} for what is not confirmed; a second signal ends at once.",
            duration::show(STOP_WITHIN)
        ));
        self.sender.finish(within.min(STOP_WITHIN)).await
    }

    fn progress(&self) {
        if self.shows_progress {
            let confirmed = self.sender.confirmed();
            self.screen.progress(&format!(
                "{} records/s · written {}",
                count(per_second(confirmed, self.start.elapsed())),
                count(confirmed)
            ));
        }
    }

    fn summary(&self, all: bool) {
        let (confirmed, time) = (self.sender.confirmed(), self.start.elapsed());
        let others = self.sender.sent() - confirmed;
        self.screen.note(&format!(
            "Wrote {} to {} in {} ({} records/s){}.",
            plural(confirmed, "record"),
            self.topic,
            duration::show(time),
            count(per_second(confirmed, time)),
            match (all, others) {
                (true, _) => ", all confirmed".to_owned(),
                (false, 0) => ", then failed".to_owned(),
                (false, _) => format!("; {} more not confirmed", count(others)),
            }
        ));
    }
}
