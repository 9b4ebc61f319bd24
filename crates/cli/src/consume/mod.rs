//! `consume`: prints records as a member of a share group.

mod format;
mod start;

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use sharegroup_broker::{Broker, BrokerBuilder};
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::{
    Acknowledge, AcquireMode, CommitReport, PollError, ShareBatch, ShareConsumer,
    ShareConsumerBuilder, ShareEvent, ShareObserver, Warning,
};
use tokio::time::timeout;

use crate::args::key_value;
use crate::client::{ClientArgs, ClientSettings};
use crate::duration;
use crate::embedded::{self, Place};
use crate::exit::{Exit, Problems};
use crate::number;
use crate::screen::Screen;
use crate::signals::Signals;
use crate::topics::{creation, missing};

pub(crate) use format::unescape;
use format::{Fields, RecordFormat};

/// Print records as a member of a share group
///
/// A record is accepted once it is printed and flushed; what is not printed is released at the
/// end and goes to the group's other members. Records are printed and accepted by batches, of
/// max.poll.records at most (500): when the reader goes (`| head`), what is accepted may be more
/// than it has read by what the pipe holds, and the batch that broke off comes again, whole.
/// Options are those of kafka-console-share-consumer.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, after_help = EXAMPLES)]
pub(crate) struct ConsumeArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// The topic; may be given several times
    #[arg(long = "topic", required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// The share group
    #[arg(long, default_value = "share", value_name = "GROUP")]
    group: String,
    /// End after so many records
    #[arg(long, value_name = "COUNT")]
    max_messages: Option<u64>,
    /// End when no record has come for so many milliseconds
    #[arg(long, value_name = "MS")]
    timeout_ms: Option<u64>,
    /// Start a new group at the first record
    ///
    /// Sets share.auto.offset.reset=earliest on the group, where nobody has set it.
    #[arg(long)]
    from_beginning: bool,
    /// What is printed, such as print.key=true
    ///
    /// print.timestamp, print.partition, print.offset, print.delivery, print.epoch,
    /// print.headers, print.key, print.value: true or false
    /// key.separator, line.separator, headers.separator, null.literal: text, \t is a tab
    #[arg(long = "property", verbatim_doc_comment, value_name = "KEY=VALUE", value_parser = key_value, alias = "formatter-property")]
    properties: Vec<(String, String)>,
    /// Reject records that can't be read, instead of ending
    #[arg(long)]
    reject_message_on_error: bool,
    /// Reject what is printed: it is archived
    #[arg(long, conflicts_with = "release")]
    reject: bool,
    /// Release what is printed: it comes again, as often as the group's delivery limit allows
    #[arg(long)]
    release: bool,
    /// Be the cluster, too, to try things out without one: an embedded broker with the topics
    ///
    /// It listens where --bootstrap-server says, on this machine, with 4 partitions a topic, and
    /// is gone when this command ends. New groups start at the first record. Write to it from
    /// another terminal with `sharegroup produce --topic TOPIC`, or with Kafka's own tools.
    #[arg(long, verbatim_doc_comment)]
    embedded: bool,
}

const EXAMPLES: &str = "\
Examples:
  sharegroup consume --topic orders --from-beginning --timeout-ms 5000
  sharegroup consume --topic orders --group billing --property print.key=true --property print.delivery=true
  sharegroup consume --topic orders --max-messages 10 | jq .customer
  sharegroup consume --topic orders --consumer-property max.poll.records=50
  sharegroup consume --topic orders --embedded         needs no cluster; write to it from another terminal";

/// Keys of `--consumer-property` besides the client's.
const KEYS: [&str; 8] = [
    "group.id",
    "client.rack",
    "max.poll.records",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "fetch.max.bytes",
    "share.acquire.mode",
    "share.acknowledgement.mode",
];

/// How long closing may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// Runs the command.
pub(crate) async fn run(
    args: ConsumeArgs,
    screen: &'static Screen,
    signals: Signals,
) -> anyhow::Result<Exit> {
    let settings = args.client.settings(&KEYS, screen, &signals).await?;
    let format = record_format(&args, screen)?;
    let group_id = group_id(&args, &settings)?;
    let builder = builder(&args, &settings, &group_id)?;
    let _broker = if args.embedded {
        Some(start_broker(&args, &settings, &group_id, screen).await?)
    } else {
        None
    };
    let opened = async {
        let admin = Admin::new(settings.client.clone());
        let notes = start::prepare(&admin, &group_id, &args.topics, args.from_beginning).await;
        for note in notes.with_context(|| format!("group {group_id} could not be looked at"))? {
            screen.note(&note);
        }
        anyhow::Ok(builder.build().await?)
    };
    let mut consumer = tokio::select! {
        consumer = opened => consumer?,
        // Nothing is held yet.
        sign = signals.first() => return Ok(Exit::CutOff(sign)),
    };
    let mut printer = Printer {
        args: &args,
        format,
        printed: 0,
    };
    let outcome = printer.print(&mut consumer, &signals).await;
    if let Ok(Ending::Stopped) = outcome {
        screen.note(&format!(
            "Stopping: releasing what is not printed and leaving the group, within {}; a second signal ends at once.",
            duration::show(CLOSE_WITHIN)
        ));
    }
    let closed = consumer.close(CLOSE_WITHIN).await;
    screen.note(&format!(
        "Processed a total of {} messages",
        printer.printed
    ));
    let ending = outcome?;
    if let Ending::Silence = ending {
        tracing::info!("No record came for --timeout-ms.");
    }
    Ok(settled(&closed?, screen))
}

/// The cluster, for `--embedded`.
async fn start_broker(
    args: &ConsumeArgs,
    settings: &ClientSettings,
    group_id: &str,
    screen: &Screen,
) -> anyhow::Result<Broker> {
    let at_the_beginning =
        |builder: BrokerBuilder| builder.group(group_id, "share.auto.offset.reset", "earliest");
    let place = Place {
        client: &settings.client,
        setting: "--bootstrap-server",
    };
    let broker = embedded::start_for(&place, &args.topics, at_the_beginning, screen).await?;
    let topics = args.topics.iter();
    let commands = topics.map(|topic| format!("produce --topic {topic}"));
    embedded::note_commands(commands, &broker, screen);
    Ok(broker)
}

/// Says which acknowledgements did not count.
fn settled(report: &CommitReport, screen: &Screen) -> Exit {
    if report.is_ok() {
        return Exit::Done;
    }
    for partition in &report.partitions {
        if partition.failed_records > 0 {
            screen.warning(&format!(
                "{} of {}-{} may come again: their acknowledgements did not count",
                number::plural(partition.failed_records, "record"),
                partition.topic,
                partition.partition
            ));
        }
    }
    Exit::Failed
}

fn record_format(args: &ConsumeArgs, screen: &Screen) -> Result<RecordFormat, Problems> {
    let mut problems = Problems {
        errors: Vec::new(),
        warnings: Vec::new(),
    };
    let format = RecordFormat::parse(
        &args.properties,
        &mut problems.errors,
        &mut problems.warnings,
    );
    if problems.errors.is_empty() {
        problems.show(screen);
        Ok(format)
    } else {
        Err(problems)
    }
}

/// `--group` or the property `group.id`, which must not differ.
fn group_id(args: &ConsumeArgs, settings: &ClientSettings) -> Result<String, Problems> {
    match settings.own.get("group.id").map(|group| group.trim()) {
        Some(property) if args.group == DEFAULT_GROUP || property == args.group => {
            Ok(property.to_owned())
        }
        Some(property) => Err(Problems::one(format!(
            "group.id={property} and --group {} differ; give one of them",
            args.group
        ))),
        None => Ok(args.group.clone()),
    }
}

const DEFAULT_GROUP: &str = "share";

fn builder(
    args: &ConsumeArgs,
    settings: &ClientSettings,
    group_id: &str,
) -> Result<ShareConsumerBuilder, Problems> {
    let mut builder = ShareConsumer::builder_with(settings.client.clone())
        .group_id(group_id)
        .topics(&args.topics)
        .startup_timeout(args.client.startup_timeout)
        .observer(Arc::new(Troubles {
            servers: args.client.servers().to_owned(),
        }));
    if let Some(records) = settings.number("max.poll.records", 1_usize)? {
        builder = builder.max_poll_records(records);
    }
    if let Some(records) = args
        .max_messages
        .and_then(|records| u32::try_from(records).ok())
        .filter(|records| *records < RECORDS_HELD)
    {
        // What is acquired and not printed would cost others a delivery.
        builder = builder
            .max_poll_records(records as usize)
            .records_held_max(records);
    }
    if let Some(rack) = settings.own.get("client.rack") {
        builder = builder.client_rack(rack.as_str());
    }
    if let Some(milliseconds) = settings.number("fetch.max.wait.ms", 0)? {
        builder = builder.fetch_max_wait(Duration::from_millis(milliseconds));
    }
    if let Some(bytes) = settings.number("fetch.min.bytes", 0)? {
        builder = builder.fetch_min_bytes(bytes);
    }
    if let Some(bytes) = settings.number("fetch.max.bytes", 1)? {
        builder = builder.fetch_max_bytes(bytes);
    }
    if let Some(mode) = settings.own.get("share.acquire.mode") {
        builder = builder.acquire_mode(match mode.trim().to_ascii_lowercase().as_str() {
            "auto" => AcquireMode::Auto,
            "batch_optimized" => AcquireMode::BatchOptimized,
            "record_limit" => AcquireMode::RecordLimit,
            _ => {
                let text = format!(
                    "share.acquire.mode={mode}: must be auto, batch_optimized or record_limit"
                );
                return Err(Problems::one(
                    settings.layers.at("share.acquire.mode", text),
                ));
            }
        });
    }
    Ok(builder)
}

/// The consumer's own default.
const RECORDS_HELD: u32 = 1_000;

/// Why printing ended.
enum Ending {
    /// `--max-messages`.
    Enough,
    /// `--timeout-ms`.
    Silence,
    /// A signal.
    Stopped,
    /// The reader of standard output is gone.
    NobodyReads,
}

struct Printer<'a> {
    args: &'a ConsumeArgs,
    format: RecordFormat,
    printed: u64,
}

impl Printer<'_> {
    async fn print(
        &mut self,
        consumer: &mut ShareConsumer,
        signals: &Signals,
    ) -> anyhow::Result<Ending> {
        let silence = self
            .args
            .timeout_ms
            .map_or(Duration::MAX, Duration::from_millis);
        loop {
            let left = self.args.max_messages.map(|max| max - self.printed);
            if left == Some(0) {
                return Ok(Ending::Enough);
            }
            let polled = tokio::select! {
                biased;
                _ = signals.first() => return Ok(Ending::Stopped),
                polled = timeout(silence, consumer.poll()) => polled,
            };
            let batch = match polled {
                Err(_) => return Ok(Ending::Silence),
                Ok(Ok(Some(batch))) => batch,
                Ok(Ok(None)) => bail!("the consumer was closed"),
                Ok(Err(PollError::CorruptBatch(corrupt))) if self.args.reject_message_on_error => {
                    tracing::warn!(error = %corrupt, "Rejecting records that can't be read.");
                    corrupt.reject();
                    continue;
                }
                Ok(Err(error @ PollError::CorruptBatch(_))) => {
                    // What is dropped here is released.
                    bail!("{error}; --reject-message-on-error rejects such records and goes on");
                }
                Ok(Err(error)) => return Err(error.into()),
            };
            let count = left.map_or(batch.len(), |left| {
                usize::try_from(left).map_or(batch.len(), |left| left.min(batch.len()))
            });
            let text = self.text(&batch, count);
            let written = tokio::select! {
                biased;
                written = write_out(text) => written,
                // The reader doesn't read: nobody knows what of this it will see, so it comes again.
                _ = signals.first() => return Ok(Ending::Stopped),
            };
            match written {
                Ok(()) => self.settle(batch, count)?,
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Ok(Ending::NobodyReads);
                }
                Err(error) => return Err(error).context("standard output can't be written"),
            }
        }
    }

    fn text(&self, batch: &ShareBatch, count: usize) -> Vec<u8> {
        let mut text = Vec::new();
        for record in batch.records().take(count) {
            let fields = Fields {
                timestamp: record.timestamp,
                timestamp_type: record.timestamp_type,
                partition: batch.partition(),
                offset: record.offset,
                delivery_count: record.delivery_count,
                key: record.key,
                value: record.value,
            };
            let headers = record.headers();
            let headers = headers.map(|header| (header.key, header.value));
            self.format.write(&fields, headers, &mut text);
        }
        text
    }

    fn settle(&mut self, mut batch: ShareBatch, count: usize) -> anyhow::Result<()> {
        let how = if self.args.reject {
            Acknowledge::Reject
        } else if self.args.release {
            Acknowledge::Release
        } else {
            Acknowledge::Accept
        };
        batch.settle_indexes(0..count, how)?;
        self.printed += count as u64;
        batch.release();
        Ok(())
    }
}

/// Writes and flushes on a thread that may wait for the reader.
async fn write_out(text: Vec<u8>) -> io::Result<()> {
    let write = move || {
        let mut stdout = io::stdout().lock();
        stdout.write_all(&text)?;
        stdout.flush()
    };
    tokio::task::spawn_blocking(write)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Logs what is retried, and which records come again.
#[derive(Debug)]
struct Troubles {
    servers: String,
}

impl ShareObserver for Troubles {
    fn event(&self, event: &ShareEvent) {
        match event {
            ShareEvent::Warning(Warning::TopicMissing { topic }) => tracing::warn!(
                "{}; waiting for it; {}.",
                missing(topic),
                creation(topic, &self.servers)
            ),
            ShareEvent::Warning(warning) => tracing::warn!("{warning}."),
            ShareEvent::LockLost { topic, loss } => tracing::warn!(
                %topic,
                partition = loss.partition.partition,
                first_offset = loss.first_offset,
                last_offset = loss.last_offset,
                why = %loss.why,
                "Records lost their lock before they were printed; they come again."
            ),
            _ => {}
        }
    }
}
