//! `topics create|list|describe|delete`.

use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::json;
use sharegroup_consumer::ErrorCode;
use sharegroup_consumer::admin::{Admin, AdminError, TopicDescription};
use tokio::time::{Instant, sleep};

use crate::args::{OutputFormat, key_value};
use crate::client::ClientArgs;
use crate::exit::Exit;
use crate::screen::{Screen, print};
use crate::signals::Signals;

/// What to do with topics.
#[derive(Debug, Subcommand)]
#[command(after_help = TOPICS_EXAMPLES)]
pub(crate) enum TopicsCommand {
    /// Create topics
    Create(CreateArgs),
    /// List the topics that the cluster shows
    List(ListArgs),
    /// Show partitions, leaders, replicas and what is configured
    Describe(DescribeArgs),
    /// Delete topics and everything in them
    Delete(DeleteArgs),
}

const TOPICS_EXAMPLES: &str = "\
Examples:
  sharegroup topics create --topic orders --partitions 4 --config retention.ms=86400000
  sharegroup topics list --bootstrap-server broker:9092 -o json
  sharegroup topics describe --topic orders
  sharegroup topics delete --topic orders";

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// The topic's name; may be given several times
    #[arg(long = "topic", required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// How many partitions; the broker's default when not given
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// Replicas of each partition; the broker's default when not given
    #[arg(long, value_parser = clap::value_parser!(i16).range(1..))]
    replication_factor: Option<i16>,
    /// A setting of the topic, such as retention.ms=86400000; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    config: Vec<(String, String)>,
    /// A topic that exists already is fine
    #[arg(long)]
    if_not_exists: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// Leave out topics that Kafka made for itself
    #[arg(long)]
    exclude_internal: bool,
    /// How the list is written
    #[arg(long, short, value_enum, default_value_t = OutputFormat::Table, value_name = "FORMAT")]
    output: OutputFormat,
}

#[derive(Debug, Args)]
pub(crate) struct DescribeArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// The topic's name; may be given several times; all topics when not given
    #[arg(long = "topic", value_name = "TOPIC")]
    topics: Vec<String>,
    /// How the answer is written
    #[arg(long, short, value_enum, default_value_t = OutputFormat::Table, value_name = "FORMAT")]
    output: OutputFormat,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// The topic's name; may be given several times
    #[arg(long = "topic", required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// A topic that doesn't exist is fine
    #[arg(long)]
    if_exists: bool,
}

/// Runs one of the commands; Ctrl-C ends it.
pub(crate) async fn run(
    command: TopicsCommand,
    screen: &Screen,
    signals: Signals,
) -> anyhow::Result<Exit> {
    let work = async {
        match command {
            TopicsCommand::Create(args) => create(args, screen, &signals).await,
            TopicsCommand::List(args) => list(args, screen, &signals).await,
            TopicsCommand::Describe(args) => describe(args, screen, &signals).await,
            TopicsCommand::Delete(args) => delete(args, screen, &signals).await,
        }
    };
    tokio::select! {
        outcome = work => outcome.map(|()| Exit::Done),
        sign = signals.first() => Ok(Exit::CutOff(sign)),
    }
}

async fn admin(client: &ClientArgs, screen: &Screen, signals: &Signals) -> anyhow::Result<Admin> {
    let settings = client.settings(&[], screen, signals).await?;
    Ok(Admin::new(settings.client))
}

async fn create(args: CreateArgs, screen: &Screen, signals: &Signals) -> anyhow::Result<()> {
    let admin = admin(&args.client, screen, signals).await?;
    let configs: Vec<_> = args
        .config
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let mut failed = Vec::new();
    for topic in &args.topics {
        let created = admin
            .create_topic(
                topic,
                args.partitions.unwrap_or(-1),
                args.replication_factor.unwrap_or(-1),
                &configs,
            )
            .await;
        match created {
            Ok(created) => {
                // Whoever uses it next shall find it.
                find_soon(&admin, topic).await?;
                print(&format!(
                    "Created topic {topic}: {} partitions, replication factor {}.\n",
                    created.partition_count, created.replication_factor
                ))?;
            }
            Err(error) if error.code() == Some(ErrorCode::TopicAlreadyExists) => {
                if args.if_not_exists {
                    print(&format!("Topic {topic} exists already.\n"))?;
                } else {
                    failed.push(format!("{error}; with --if-not-exists that is fine"));
                }
            }
            Err(error) => failed.push(error.to_string()),
        }
    }
    all_done(&failed)
}

/// Each topic is looked after on its own; what failed is told in the end.
fn all_done(failed: &[String]) -> anyhow::Result<()> {
    if failed.is_empty() {
        return Ok(());
    }
    bail!("{}", failed.join("; "))
}

/// The words for a topic that isn't there, the same in each command.
pub(crate) fn missing(topic: &str) -> String {
    format!("topic {topic} does not exist")
}

/// What to do about it.
pub(crate) fn creation(topic: &str, servers: &str) -> String {
    format!("create it with: sharegroup topics create --topic {topic} --bootstrap-server {servers}")
}

fn is_missing(error: &AdminError) -> bool {
    error.code() == Some(ErrorCode::UnknownTopicOrPartition)
}

async fn delete(args: DeleteArgs, screen: &Screen, signals: &Signals) -> anyhow::Result<()> {
    let admin = admin(&args.client, screen, signals).await?;
    let mut failed = Vec::new();
    for topic in &args.topics {
        match admin.delete_topic(topic).await {
            Ok(()) => print(&format!("Deleted topic {topic}.\n"))?,
            Err(error) if is_missing(&error) && args.if_exists => {
                print(&format!("Topic {topic} does not exist.\n"))?;
            }
            Err(error) if is_missing(&error) => failed.push(missing(topic)),
            Err(error) => failed.push(error.to_string()),
        }
    }
    all_done(&failed)
}

/// A topic with all its leaders. One that was made just now is known to a broker a moment later, so one that isn't known
/// is asked for again for a while.
///
/// # Errors
/// As [`Admin::find_topic`].
///
/// # Cancel safety
/// Safe.
pub(crate) async fn find_soon(
    admin: &Admin,
    topic: &str,
) -> Result<Option<TopicDescription>, AdminError> {
    let deadline = Instant::now() + KNOWN_WITHIN;
    loop {
        let found = admin.find_topic(topic).await?;
        let is_whole = |topic: &TopicDescription| {
            let mut partitions = topic.partitions.iter();
            partitions.all(|partition| partition.leader.is_some())
        };
        if found.as_ref().is_some_and(is_whole) || Instant::now() >= deadline {
            return Ok(found);
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// A broker learns of a new topic within moments.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);

async fn list(args: ListArgs, screen: &Screen, signals: &Signals) -> anyhow::Result<()> {
    let admin = admin(&args.client, screen, signals).await?;
    let topics = admin.list_topics().await?;
    let topics: Vec<_> = topics
        .into_iter()
        .filter(|topic| !(args.exclude_internal && topic.is_internal))
        .collect();
    match args.output {
        OutputFormat::Table => {
            let rows = topics
                .iter()
                .map(|topic| [topic.name.clone(), topic.partition_count.to_string()]);
            print(&table(["TOPIC", "PARTITIONS"], rows))?;
        }
        OutputFormat::Json => {
            let topics: Vec<_> = topics
                .iter()
                .map(|topic| {
                    json!({
                        "topic": topic.name,
                        "topic_id": topic.id.to_string(),
                        "partitions": topic.partition_count,
                        "internal": topic.is_internal,
                    })
                })
                .collect();
            print(&format!("{:#}\n", json!(topics)))?;
        }
    }
    Ok(())
}

async fn describe(args: DescribeArgs, screen: &Screen, signals: &Signals) -> anyhow::Result<()> {
    let admin = admin(&args.client, screen, signals).await?;
    let mut names = args.topics;
    if names.is_empty() {
        let all = admin.list_topics().await?;
        names = all.into_iter().map(|topic| topic.name).collect();
    }
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut failed = Vec::new();
    let mut documents = Vec::new();
    for (name, topic) in admin.describe_each_topic(&names).await? {
        let topic = match topic {
            Ok(topic) => topic,
            Err(error) => {
                failed.push(if is_missing(&error) {
                    missing(&name)
                } else {
                    error.to_string()
                });
                continue;
            }
        };
        let configs = admin.topic_configs(&topic.name).await?;
        let set: Vec<_> = configs
            .into_iter()
            .filter(|(_, value)| value.is_set())
            .map(|(key, value)| (key, value.value.unwrap_or_default()))
            .collect();
        match args.output {
            OutputFormat::Table => print(&description(&topic, &set))?,
            OutputFormat::Json => documents.push(description_json(&topic, &set)),
        }
    }
    if args.output == OutputFormat::Json {
        print(&format!("{:#}\n", json!(documents)))?;
    }
    all_done(&failed)
}

fn description(topic: &TopicDescription, configs: &[(String, String)]) -> String {
    let configs: Vec<_> = configs
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let head = format!(
        "Topic: {}  id: {}  partitions: {}  configs: {}\n",
        topic.name,
        topic.id,
        topic.partitions.len(),
        if configs.is_empty() {
            "none".to_owned()
        } else {
            configs.join(",")
        }
    );
    let rows = topic.partitions.iter().map(|partition| {
        let ids = |ids: &[_]| {
            ids.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(",")
        };
        [
            partition.partition.to_string(),
            partition
                .leader
                .map_or_else(|| "none".to_owned(), |leader| leader.to_string()),
            ids(&partition.replicas),
            ids(&partition.in_sync),
        ]
    });
    head + &table(["PARTITION", "LEADER", "REPLICAS", "IN SYNC"], rows)
}

fn description_json(topic: &TopicDescription, configs: &[(String, String)]) -> serde_json::Value {
    let partitions: Vec<_> = topic
        .partitions
        .iter()
        .map(|partition| {
            json!({
                "partition": partition.partition,
                "leader": partition.leader.map(|leader| leader.0),
                "replicas": partition.replicas.iter().map(|broker| broker.0).collect::<Vec<_>>(),
                "in_sync": partition.in_sync.iter().map(|broker| broker.0).collect::<Vec<_>>(),
            })
        })
        .collect();
    let configs: serde_json::Map<_, _> = configs
        .iter()
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    json!({
        "topic": topic.name,
        "topic_id": topic.id.to_string(),
        "internal": topic.is_internal,
        "partitions": partitions,
        "configs": configs,
    })
}

/// Columns as wide as their widest cell, two blanks between them.
fn table<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<_> = std::iter::once(header.map(str::to_owned))
        .chain(rows)
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            ["a".to_owned(), "10".to_owned()],
            ["orders".to_owned(), "4".to_owned()],
        ];
        assert_eq!(
            table(["TOPIC", "N"], rows.into_iter()),
            "TOPIC   N\na       10\norders  4\n"
        );
    }
}
