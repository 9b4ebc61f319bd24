//! The cluster under test, and the helper that fills topics and reads the brokers' own counters.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use sharegroup_launcher::{Kafka, Tools};

use super::scenario::Shape;
use crate::proofs::process::read;

/// What the brokers have done so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) share_fetch: f64,
    pub(super) share_acknowledge: f64,
    pub(super) cpu: Duration,
}

#[derive(Debug)]
pub(super) struct Cluster {
    kafka: Kafka,
    helper: Child,
    to_helper: ChildStdin,
    from_helper: BufReader<ChildStdout>,
    /// What is there, with its checksum.
    topics: Vec<(Shape, Topic)>,
    names: u32,
}

/// A topic and the checksum of all of its records.
#[derive(Debug, Clone)]
pub(super) struct Topic {
    pub(super) name: String,
    pub(super) checksum: String,
}

impl Cluster {
    pub(super) fn start(brokers: u16, tools: &Tools, classes: &Path) -> anyhow::Result<Self> {
        let kafka = Kafka::builder().full_jit(true).brokers(brokers).start()?;
        let mut helper = tools
            .java(classes)
            .args(["-Xmx512m", "Helper"])
            .arg(kafka.bootstrap_servers())
            .args(pids(&kafka).map(|pid| pid.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let to_helper = helper.stdin.take().context("its input")?;
        let from_helper = BufReader::new(helper.stdout.take().context("its output")?);
        let mut cluster = Self {
            kafka,
            helper,
            to_helper,
            from_helper,
            topics: Vec::new(),
            names: 0,
        };
        let line = cluster.line()?;
        ensure!(line == "ready", "the helper said {line:?}");
        Ok(cluster)
    }

    pub(super) fn servers(&self) -> String {
        self.kafka.bootstrap_servers()
    }

    /// A name that wasn't used before.
    pub(super) fn name(&mut self, kind: &str) -> String {
        self.names += 1;
        format!("{kind}-{}", self.names)
    }

    /// A group that begins at the earliest record.
    pub(super) fn group(&mut self) -> anyhow::Result<String> {
        let group = self.name("group");
        self.ask(&format!("group {group}"))?;
        Ok(group)
    }

    /// An empty topic.
    pub(super) fn empty_topic(&mut self, partitions: u32) -> anyhow::Result<String> {
        let topic = self.name("topic");
        self.ask(&format!("topic {topic} {partitions}"))?;
        Ok(topic)
    }

    /// The topic of a shape, filled at the first call.
    pub(super) fn topic(&mut self, shape: Shape) -> anyhow::Result<Topic> {
        if let Some((_, topic)) = self.topics.iter().find(|(known, _)| *known == shape) {
            return Ok(topic.clone());
        }
        let name = self.empty_topic(shape.partitions)?;
        let Shape {
            records,
            value_bytes,
            codec,
            partitions,
        } = shape;
        let fill = format!("fill {name} {partitions} {records} {value_bytes} {codec}");
        let checksum = self.ask(&fill)?;
        let topic = Topic { name, checksum };
        self.topics.push((shape, topic.clone()));
        Ok(topic)
    }

    /// Deletes the topics of other shapes.
    pub(super) fn keep(&mut self, shapes: &[Shape]) -> anyhow::Result<()> {
        let (kept, gone) = std::mem::take(&mut self.topics)
            .into_iter()
            .partition(|(shape, _)| shapes.contains(shape));
        self.topics = kept;
        let gone: Vec<(Shape, Topic)> = gone;
        for (_, topic) in gone {
            self.ask(&format!("delete {}", topic.name))?;
        }
        Ok(())
    }

    pub(super) fn counters(&mut self) -> anyhow::Result<Counters> {
        let answer: Value = serde_json::from_str(&self.ask("counters")?)?;
        let count = |name| {
            let count = answer.get(name).and_then(Value::as_f64);
            count.context("a counter")
        };
        Ok(Counters {
            share_fetch: count("ShareFetch")?,
            share_acknowledge: count("ShareAcknowledge")?,
            cpu: pids(&self.kafka)
                .filter_map(read)
                .map(|usage| usage.cpu)
                .sum(),
        })
    }

    fn ask(&mut self, question: &str) -> anyhow::Result<String> {
        writeln!(self.to_helper, "{question}")?;
        self.to_helper.flush()?;
        let answer = self.line()?;
        ensure!(!answer.starts_with("error"), "{question}: {answer}");
        Ok(answer)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.from_helper.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the helper has ended");
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.helper.kill().and_then(|()| self.helper.wait()));
    }
}

fn pids(kafka: &Kafka) -> impl Iterator<Item = u32> {
    kafka.brokers().iter().filter_map(|broker| broker.pid())
}
