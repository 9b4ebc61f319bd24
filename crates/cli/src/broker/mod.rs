//! `broker`: an embedded broker in the foreground.

mod settings;

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use sharegroup_broker::Broker;
use sharegroup_broker::model::Model;
use sharegroup_broker::model::fault_script::FaultScript;
use tokio::time::Instant;

use crate::args::key_value;
use crate::duration;
use crate::embedded;
use crate::exit::{Exit, Problems};
use crate::number::{count, plural};
use crate::process;
use crate::screen::{self, Screen};
use crate::signals::{Sign, Signals};

use settings::{TopicSpec, topic};

/// Run a small broker with share groups, for trying things out and for tests; no Java
///
/// It does with share groups what Apache Kafka 4.4 does, quirks included, and takes Kafka's own
/// clients and tools. Everything is kept in memory, 1 GiB of records at most, and with --dir in
/// files as well; nothing is replicated: it is no broker for data that matters. Topics are made
/// with --topic, by `sharegroup topics create`, and, as Kafka does it unless
/// --set auto.create.topics.enable=false, when one of Kafka's own clients first asks for one, to
/// write or to read. `sharegroup produce` and `consume` make none. There is neither TLS nor a password. It takes about 10 MB and its records; whatever 1,100
/// clients do, it takes no more than 0.5 GiB beside them.
///
/// When it is ready it prints a line bootstrap.servers=HOST:PORT to standard output. SIGTERM or
/// Ctrl-C ends it.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{FAULTS}"))]
pub(crate) struct BrokerArgs {
    /// The port; further brokers take those behind it; 0 takes free ones
    #[arg(long, default_value_t = 9092)]
    port: u16,
    /// The address to listen on, one that clients can reach: they are told it
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    host: String,
    /// Brokers of the cluster, all in this process
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(1..=100))]
    brokers: i32,
    /// A topic to begin with, and its partitions (1); may be given several times
    #[arg(long = "topic", value_name = "NAME[:PARTITIONS]", value_parser = topic)]
    topics: Vec<TopicSpec>,
    /// A broker's setting, as in server.properties; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
    /// A folder to keep everything in, across restarts; made where it isn't there
    ///
    /// What a client was told is written survives the end of this process, `kill -9` included:
    /// records, topics, groups with what they have settled, configurations. Members join anew.
    /// --set wins over what was altered at run time, --topic makes only what isn't there.
    #[arg(long, verbatim_doc_comment, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// What goes wrong: a file of rules, listed by --help
    #[arg(
        long,
        value_name = "FILE",
        long_help = "What goes wrong: a file of rules, as they stand below under Faults"
    )]
    fault: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  sharegroup broker                                  on 127.0.0.1:9092, where the other commands look
  sharegroup broker --topic orders:4 --topic payments:2
  sharegroup broker --port 0 --brokers 3             three brokers on free ports
  sharegroup broker --set group.share.min.record.lock.duration.ms=1000
  sharegroup broker --dir ./broker                   what is in it is there again after a restart
  sharegroup broker --topic orders:4 --fault faults.txt
  sharegroup broker --host 192.0.2.7                 for other machines, too

Then, in another terminal:
  seq 1000 | sharegroup produce --topic orders
  sharegroup consume --topic orders --from-beginning
  sharegroup run examples/worker.properties examples/file-sink.properties";

const FAULTS: &str = "\
Faults: one rule a line, when: what; # begins a comment.
  seed 7                                             decides the chances
  ShareFetch: delay 50ms                             every such request
  ShareFetch orders-1 first 3: error NOT_LEADER_OR_FOLLOWER
  ShareAcknowledge after 10 first 1: cut after       the 11th one's connection, its work done
  Produce 5%: cut before                             one of 20, nothing done
  any 1%: withhold                                   never answered
  ShareFetch 10%: duplicate                          answered twice
  ShareFetch orders-0 first 2: flip bit              in the records of two answers
  every 10s: move leader orders-0 to next
  at 8s: move coordinator billing to 2
  at 12s: crash 1 for 2s                             locks and delivery counts are forgotten
  at 20s: set group billing share.record.lock.duration.ms=20000

When: an API as Kafka names it or `any`, perhaps with TOPIC-PARTITION; `at` or `every` DURATION.
      Then perhaps `after N` (lets N pass), `first N` (N times at most), `P%` (with this chance).
What: error NAME, delay DURATION, cut before, cut after, withhold, duplicate, for requests;
      flip bit, cut batch, for answers with records (ShareFetch, Fetch);
      move leader, move coordinator, crash, set group, set broker, for requests and times.";

/// Runs the command.
pub(crate) async fn run(
    args: BrokerArgs,
    screen: &'static Screen,
    signals: Signals,
) -> anyhow::Result<Exit> {
    let start = Instant::now();
    check(&args)?;
    let mut builder = Broker::builder()
        .host(&args.host)
        .port(args.port)
        .brokers(args.brokers);
    for topic in &args.topics {
        builder = builder.topic(&topic.name, topic.partitions);
    }
    for (key, value) in &args.set {
        builder = builder.set(key, value);
    }
    if let Some(dir) = &args.dir {
        builder = builder.dir(dir);
    }
    if let Some(file) = args.fault.clone() {
        builder = builder.faults(signals.reading(move || read_faults(&file)).await??);
    }
    let broker = embedded::start(builder, "choose another --port, or 0 for a free one").await?;
    screen::print(&format!(
        "bootstrap.servers={}\n",
        broker.bootstrap_servers()
    ))?;
    say_ready(&args, &broker, start.elapsed(), screen);
    let sign = signals.first().await;
    let has_faults = args.fault.is_some();
    let unwritten = broker.unwritten_records().unwrap_or(0);
    screen
        .note(&broker.model(|model| summary(sign, start.elapsed(), model, has_faults, unwritten)));
    Ok(Exit::Done)
}

/// What is wrong with the arguments, all at once.
fn check(args: &BrokerArgs) -> Result<(), Problems> {
    let mut errors = settings::check_keys(&args.set);
    errors.extend(settings::check_topics(&args.topics));
    if args
        .host
        .parse()
        .is_ok_and(|ip: IpAddr| ip.is_unspecified())
    {
        errors.push(format!(
            "--host {}: clients are told this address, and nobody can be reached there; \
             name one of this machine's addresses",
            args.host
        ));
    }
    let last = i32::from(args.port) + args.brokers - 1;
    if args.port > 0 && last > i32::from(u16::MAX) {
        errors.push(format!(
            "--port {} --brokers {}: the last one's port would be {last}",
            args.port, args.brokers
        ));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Problems {
        errors,
        warnings: Vec::new(),
    })
}

/// Longest file of faults.
const FAULTS_BYTES_MAX: u64 = 1024 * 1024;

fn read_faults(file: &Path) -> Result<FaultScript, Problems> {
    let name = file.display();
    let mut text = String::new();
    let read =
        File::open(file).and_then(|file| file.take(FAULTS_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|error| Problems::one(format!("--fault {name} can't be read: {error}")))?;
    if text.len() as u64 == FAULTS_BYTES_MAX {
        let limit = FAULTS_BYTES_MAX / 1024;
        return Err(Problems::one(format!(
            "--fault {name} is longer than {limit} KiB"
        )));
    }
    FaultScript::parse(&text).map_err(|lines| Problems {
        errors: lines.iter().map(|line| format!("{name}, {line}")).collect(),
        warnings: Vec::new(),
    })
}

fn say_ready(args: &BrokerArgs, broker: &Broker, time: Duration, screen: &Screen) {
    let names: Vec<String> = args.topics.iter().map(|topic| topic.name.clone()).collect();
    let topics = if names.is_empty() {
        String::new()
    } else {
        format!(" with {}", embedded::named(&names))
    };
    let kept = args.dir.as_ref().map_or_else(
        || "what is in it is gone then".to_owned(),
        |dir| format!("what is in it stays in {}", dir.display()),
    );
    screen.note(&format!(
        "Ready{topics} after {}. Ctrl-C ends it; {kept}.",
        duration::show(time)
    ));
    let topic = names.first().map_or("orders", String::as_str);
    let create = format!("topics create --topic {topic} --partitions 4");
    let create = names.is_empty().then_some(create);
    let others = [
        format!("produce --topic {topic}"),
        format!("consume --topic {topic} --from-beginning"),
    ];
    embedded::note_commands(create.into_iter().chain(others), broker, screen);
}

/// What was in it when it ended; what its folder could not take is no part of it.
fn summary(
    sign: Sign,
    time: Duration,
    model: &mut Model,
    has_faults: bool,
    unwritten: u64,
) -> String {
    let partitions = model.topics.iter().flat_map(|topic| &topic.partitions);
    let records = |partition: &sharegroup_broker::model::topics::Partition| {
        partition.log.end_offset() - partition.log.start_offset()
    };
    let records: i64 = partitions.map(records).sum();
    let kept = records.unsigned_abs().saturating_sub(unwritten);
    let lost = if unwritten > 0 {
        format!(
            "\n{} could not be written to the folder: refused, not acknowledged, and lost now.",
            plural(unwritten, "record")
        )
    } else {
        String::new()
    };
    let faults = if has_faults {
        format!(", {} struck", plural(model.faults.struck(), "fault"))
    } else {
        String::new()
    };
    let memory = process::peak_memory()
        .map(|bytes| format!(", {} MB of memory at most", count(bytes / 1_000_000)));
    format!(
        "Ended by {} after {}: {} in {} ({} MB), {}{faults}{}.{lost}",
        sign.name(),
        duration::show(time),
        plural(kept, "record"),
        plural(model.topics.iter().count() as u64, "topic"),
        count(model.topics.size_bytes() as u64 / 1_000_000),
        plural(model.groups.len() as u64, "share group"),
        memory.unwrap_or_default()
    )
}
