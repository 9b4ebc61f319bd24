//! The cluster that the quickstart runs on.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, anyhow};
use clap::ValueEnum;
use sharegroup_broker::Broker;
use sharegroup_launcher::{DEFAULT_VERSION, Kafka, LaunchError, Tools};
use tokio::time::Instant;

use super::QuickstartArgs;
use super::steps::Steps;
use crate::embedded;
use crate::exit::Problems;
use crate::screen::Screen;
use crate::signals::{Sign, Signals};

/// Which broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// The one in this program
    Embedded,
    /// Apache Kafka; needs Java and Maven
    Kafka,
}

impl Kind {
    /// In a sentence.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Embedded => "an embedded broker",
            Self::Kafka => "a real Kafka",
        }
    }
}

/// A running cluster; dropping it ends it.
pub(super) enum Cluster {
    Embedded(Broker),
    Kafka(Kafka),
}

/// The brokers' default of 5 s would be most of the time that this takes.
const HEARTBEAT: (&str, &str) = ("group.share.heartbeat.interval.ms", "1000");

impl Cluster {
    /// Starts it, as a step. A signal breaks that off.
    pub(super) async fn start(
        args: &QuickstartArgs,
        steps: &mut Steps,
        screen: &Screen,
        signals: &Signals,
    ) -> anyhow::Result<ControlFlow<Sign, Self>> {
        match args.broker {
            Kind::Embedded => {
                let broker = start_embedded(args.port, steps).await?;
                Ok(ControlFlow::Continue(Self::Embedded(broker)))
            }
            Kind::Kafka => {
                let started = start_kafka(args, steps, screen, signals).await?;
                Ok(started.map_continue(Self::Kafka))
            }
        }
    }

    pub(super) fn bootstrap_servers(&self) -> String {
        match self {
            Self::Embedded(broker) => broker.bootstrap_servers().to_owned(),
            Self::Kafka(kafka) => kafka.bootstrap_servers(),
        }
    }

    /// Ends it; a real one's process and folder are gone then.
    pub(super) async fn stop(self) {
        drop(tokio::task::spawn_blocking(move || drop(self)).await);
    }
}

async fn start_embedded(port: Option<u16>, steps: &mut Steps) -> Result<Broker, Problems> {
    let start = Instant::now();
    let builder = Broker::builder()
        .port(port.unwrap_or(0))
        .set(HEARTBEAT.0, HEARTBEAT.1);
    let broker = embedded::start(builder, "choose another --port, or none").await?;
    let what = format!("an embedded broker runs on {}", broker.bootstrap_servers());
    steps.done(&what, start.elapsed());
    Ok(broker)
}

async fn start_kafka(
    args: &QuickstartArgs,
    steps: &mut Steps,
    screen: &Screen,
    signals: &Signals,
) -> anyhow::Result<ControlFlow<Sign, Kafka>> {
    let start = Instant::now();
    let has_jars = Arc::new(AtomicBool::new(false));
    let version = args.kafka_version.as_deref().unwrap_or(DEFAULT_VERSION);
    let port = args.port;
    let task = tokio::task::spawn_blocking({
        let (version, has_jars) = (version.to_owned(), Arc::clone(&has_jars));
        move || {
            Tools::fetch(&version)?;
            has_jars.store(true, Ordering::Relaxed);
            Kafka::builder()
                .version(version)
                .port(port)
                .set(HEARTBEAT.0, HEARTBEAT.1)
                .start()
        }
    });
    let doing = || {
        if has_jars.load(Ordering::Relaxed) {
            format!("starting Kafka {version}")
        } else {
            format!("fetching the jars of Kafka {version} through Maven, once")
        }
    };
    tokio::pin!(task);
    let started = tokio::select! {
        started = steps.wait(doing, &mut task) => started,
        sign = signals.first() => {
            screen.line(&format!("{}: stopping Kafka.", sign.name()));
            // A start can't be cut off; what it gives is dropped, and so ended.
            drop(task.await);
            return Ok(ControlFlow::Break(sign));
        }
    };
    let kafka = started.context("starting Kafka")?.map_err(advise)?;
    let what = format!("Kafka {version} runs on {}", kafka.bootstrap_servers());
    steps.done(&what, start.elapsed());
    Ok(ControlFlow::Continue(kafka))
}

fn advise(error: LaunchError) -> anyhow::Error {
    if error.is_missing_requirement() {
        return anyhow!(
            "{error}\n\
             quickstart --broker kafka starts a real Kafka and so needs Java 17 or newer and Maven \
             (Debian, Ubuntu: apt install default-jre-headless maven; macOS: brew install openjdk maven); \
             without --broker kafka it needs neither"
        );
    }
    match error {
        LaunchError::Fetch { version, output } => anyhow!(fetch_failed(&version, &output)),
        error => error.into(),
    }
}

/// Maven's words in one sentence.
fn fetch_failed(version: &str, output: &str) -> String {
    // What Maven says of a file that the repository hasn't, and what of one it remembers as such.
    let is_unknown = ["Could not find artifact", "was not found in"];
    if is_unknown.iter().any(|words| output.contains(words)) {
        return format!(
            "there is no Kafka {version} on Maven Central; 4.1.2, 4.2.1, 4.3.1 and 4.4.0 are known to work"
        );
    }
    let mut errors = output
        .lines()
        .filter_map(|line| line.split_once("[ERROR] "));
    let first = errors.next().map_or(output, |(_, text)| text);
    format!("the jars of Kafka {version} could not be fetched: {first}")
}

/// Kafka's version; share groups came with 4.0 as a preview and with 4.1 as they are read here.
pub(super) fn kafka_version(text: &str) -> Result<String, String> {
    let numbers: Option<Vec<u16>> = text.split('.').map(|part| part.parse().ok()).collect();
    match numbers.as_deref() {
        Some([major, minor, _]) if (*major, *minor) >= (4, 1) => Ok(text.to_owned()),
        Some([_, _, _]) => {
            Err("has no share groups that can be read; take 4.1.0 or newer".to_owned())
        }
        _ => Err(format!("is not written like {DEFAULT_VERSION}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_maven_says_is_told_in_one_line() {
        let maven = "\u{1b}[0m[ERROR] Failed: kafka:jar:9.9.9 was not found in central\n[ERROR] \n\u{1b}[0m";
        let unknown = fetch_failed("9.9.9", maven);
        assert!(unknown.starts_with("there is no Kafka 9.9.9"), "{unknown}");
        let offline = "\u{1b}[0m[ERROR] Failed: Unknown host repo\n[ERROR] Help\n";
        assert_eq!(
            fetch_failed("4.4.0", offline),
            "the jars of Kafka 4.4.0 could not be fetched: Failed: Unknown host repo"
        );
    }

    #[test]
    fn versions_without_share_groups_are_refused() {
        for version in ["4.1.0", "4.4.0", "5.0.1"] {
            assert_eq!(kafka_version(version).as_deref(), Ok(version));
        }
        for (version, says) in [
            ("4.0.0", "no share groups"),
            ("3.9.1", "no share groups"),
            ("4.4", "not written like"),
            ("latest", "not written like"),
            ("", "not written like"),
        ] {
            let error = kafka_version(version).unwrap_err();
            assert!(error.contains(says), "{version}: {error}");
        }
    }
}
