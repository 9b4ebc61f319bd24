//! The command line.

use std::time::Duration;

use anyhow::{Context as _, bail};

/// When acknowledgements are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The fastest way that the client has; answers are collected at the end.
    Fast,
    /// A commit is awaited after each poll.
    Commit,
}

/// What a client is to do.
#[derive(Debug, Clone)]
pub struct Args {
    /// Bootstrap servers.
    pub servers: String,
    /// The topic, whose records are there already; empty in the latency mode.
    pub topic: String,
    /// The share group, fresh and set to begin at the earliest record.
    pub group: String,
    /// Ends after so many distinct records.
    pub records: u64,
    /// Most records of a poll.
    pub poll: usize,
    /// When acknowledgements are waited for.
    pub mode: Mode,
    /// Consumers in this process.
    pub members: usize,
    /// Accept, release and reject 90 to 8 to 2.
    pub mixed: bool,
    /// What a handler takes; none: records are settled as they are read.
    pub handler: Option<Duration>,
    /// Handlers at a time.
    pub in_flight: usize,
    /// Records per second to produce in the latency mode; 0 = not that mode.
    pub rate: u64,
    /// How long the latency is measured.
    pub seconds: u64,
    /// How long the traffic flows before.
    pub warm: u64,
    /// Partitions of the topic.
    pub partitions: i32,
    /// What only one client knows: `--own key=value`.
    pub own: Vec<String>,
}

impl Args {
    /// Reads the process's arguments.
    ///
    /// # Errors
    /// An argument is unknown, lacks its value or isn't what it should be.
    pub fn read() -> anyhow::Result<Self> {
        let mut args = Self {
            servers: String::new(),
            topic: String::new(),
            group: String::new(),
            records: 0,
            poll: 500,
            mode: Mode::Fast,
            members: 1,
            mixed: false,
            handler: None,
            in_flight: 64,
            rate: 0,
            seconds: 10,
            warm: 5,
            partitions: 4,
            own: Vec::new(),
        };
        let mut given = std::env::args().skip(1);
        while let Some(name) = given.next() {
            let value = given.next().with_context(|| format!("{name} of what?"))?;
            args.set(&name, &value)
                .with_context(|| format!("{name} {value}"))?;
        }
        Ok(args)
    }

    fn set(&mut self, name: &str, value: &str) -> anyhow::Result<()> {
        match name {
            "--servers" => value.clone_into(&mut self.servers),
            "--topic" => value.clone_into(&mut self.topic),
            "--group" => value.clone_into(&mut self.group),
            "--records" => self.records = value.parse()?,
            "--poll" => self.poll = value.parse()?,
            "--mode" => {
                self.mode = match value {
                    "fast" => Mode::Fast,
                    "commit" => Mode::Commit,
                    _ => bail!("no such mode"),
                }
            }
            "--members" => self.members = value.parse()?,
            "--mixed" => self.mixed = value.parse()?,
            "--handler-ms" => {
                let ms: u64 = value.parse()?;
                self.handler = (ms > 0).then(|| Duration::from_millis(ms));
            }
            "--in-flight" => self.in_flight = value.parse()?,
            "--rate" => self.rate = value.parse()?,
            "--seconds" => self.seconds = value.parse()?,
            "--warm" => self.warm = value.parse()?,
            "--partitions" => self.partitions = value.parse()?,
            "--own" => self.own.push(value.to_owned()),
            _ => bail!("unknown"),
        }
        Ok(())
    }
}
