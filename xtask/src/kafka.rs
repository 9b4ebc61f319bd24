//! `cargo xtask kafka`: a real Kafka in the background.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use sharegroup_launcher::{DEFAULT_VERSION, Detached, DetachedBroker, Kafka, Tools, cache_dir};

const DEFAULT_PORT: u16 = 19092;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Start Kafka in the background and print its bootstrap servers
    Start(Start),
    /// Stop what `start` left running on a port
    Stop {
        /// The first broker's port
        #[arg(long, default_value_t = DEFAULT_PORT)]
        port: u16,
    },
    /// Run one of Kafka's main classes, for example org.apache.kafka.tools.TopicCommand
    Tool {
        /// The version of the jars; without it that of the Kafka on `--port`, else the default
        #[arg(long)]
        version: Option<String>,
        /// The port of the Kafka whose version is used
        #[arg(long, default_value_t = DEFAULT_PORT)]
        port: u16,
        /// The main class
        class: String,
        /// Its arguments, as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Start {
    /// Kafka's version
    #[arg(long, default_value = DEFAULT_VERSION)]
    version: String,
    /// The first broker's port on 127.0.0.1; further brokers take the next ones
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// How many brokers: 1 or 3
    #[arg(long, default_value_t = 1)]
    brokers: u16,
    /// A broker setting
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
    /// A feature level to format with, for example share.version=0
    #[arg(long, value_name = "NAME=LEVEL", value_parser = key_value)]
    feature: Vec<(String, String)>,
    /// A release to format with, for example 4.1-IV1
    #[arg(long)]
    release_version: Option<String>,
    /// A folder that keeps the data; without it the data goes away with `stop`
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Both compilers and 1 GiB of heap, for measurements
    #[arg(long)]
    full_jit: bool,
}

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Start(start) => start_in_background(start),
        Command::Stop { port } => stop(port),
        Command::Tool {
            version,
            port,
            class,
            args,
        } => {
            let running = || anyhow::Ok(read_state(port)?.map(|state| state.version));
            let version = version.map_or_else(running, |version| Ok(Some(version)))?;
            let tools = Tools::fetch(version.as_deref().unwrap_or(DEFAULT_VERSION))?;
            let status = tools
                .command(&class, args)
                .status()
                .context("could not run java")?;
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
        }
    }
}

fn start_in_background(start: Start) -> anyhow::Result<ExitCode> {
    if let Some(state) = read_state(start.port)? {
        if state.running_count() > 0 {
            bail!(
                "Kafka {} runs already on {}; stop it first",
                state.version,
                state.bootstrap_servers
            );
        }
        // What is left of brokers that were killed.
        state.stop()?;
    }
    eprintln!(
        "Starting Kafka {} (the first start of a version fetches its jars) ...",
        start.version
    );
    let mut builder = Kafka::builder()
        .version(start.version)
        .port(start.port)
        .brokers(start.brokers)
        .data_dir(start.data_dir)
        .full_jit(start.full_jit);
    for (key, value) in start.set {
        builder = builder.set(key, value);
    }
    for (name, level) in start.feature {
        let level = level
            .parse()
            .with_context(|| format!("the level of {name} is a number"))?;
        builder = builder.feature(name, level);
    }
    if let Some(release) = start.release_version {
        builder = builder.release_version(release);
    }
    let kafka = builder.start()?;
    let servers = kafka.bootstrap_servers();
    write_state(start.port, &kafka.detach())?;
    println!("{servers}");
    Ok(ExitCode::SUCCESS)
}

fn stop(port: u16) -> anyhow::Result<ExitCode> {
    let Some(state) = read_state(port)? else {
        bail!("no Kafka was started on port {port}");
    };
    let count = state.running_count();
    state.stop()?;
    ensure!(
        state.running_count() == 0,
        "{} of {count} brokers still run",
        state.running_count()
    );
    fs::remove_file(state_file(port)?)?;
    println!("stopped {count} of {}", state.brokers.len());
    Ok(ExitCode::SUCCESS)
}

fn state_file(port: u16) -> anyhow::Result<PathBuf> {
    Ok(cache_dir()?
        .join("running")
        .join(format!("kafka-{port}.json")))
}

fn write_state(port: u16, state: &Detached) -> anyhow::Result<()> {
    let file = state_file(port)?;
    let write = || {
        fs::create_dir_all(file.with_file_name(""))?;
        fs::write(&file, to_json(state).to_string())
    };
    // Brokers nobody can find again must not stay.
    write().map_err(|error| {
        state
            .stop()
            .err()
            .map_or_else(|| error.into(), anyhow::Error::from)
    })
}

fn read_state(port: u16) -> anyhow::Result<Option<Detached>> {
    let file = state_file(port)?;
    if !file.exists() {
        return Ok(None);
    }
    let state = serde_json::from_str(&fs::read_to_string(&file)?)
        .ok()
        .as_ref()
        .and_then(from_json);
    Ok(Some(state.with_context(|| {
        format!(
            "{} is not a state of `kafka start`; remove it",
            file.display()
        )
    })?))
}

fn to_json(state: &Detached) -> Value {
    let brokers = state
        .brokers
        .iter()
        .map(|broker| json!({ "pid": broker.pid, "properties": broker.properties }));
    json!({
        "version": state.version,
        "bootstrap_servers": state.bootstrap_servers,
        "brokers": brokers.collect::<Vec<_>>(),
        "temporary_dir": state.temporary_dir,
    })
}

fn from_json(value: &Value) -> Option<Detached> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let broker = |value: &Value| {
        let pid = u32::try_from(value.get("pid")?.as_u64()?).ok()?;
        Some(DetachedBroker {
            pid,
            properties: text(value.get("properties")?)?.into(),
        })
    };
    Some(Detached {
        version: text(value.get("version")?)?,
        bootstrap_servers: text(value.get("bootstrap_servers")?)?,
        brokers: value
            .get("brokers")?
            .as_array()?
            .iter()
            .map(broker)
            .collect::<Option<_>>()?,
        temporary_dir: value.get("temporary_dir").and_then(text).map(PathBuf::from),
    })
}

fn key_value(argument: &str) -> Result<(String, String), String> {
    let (key, value) = argument.split_once('=').ok_or("has no =")?;
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_read_as_it_was_written() {
        let mut state = Detached {
            version: "4.4.0".to_owned(),
            bootstrap_servers: "127.0.0.1:1".to_owned(),
            brokers: vec![DetachedBroker {
                pid: 7,
                properties: "/d/node1/server.properties".into(),
            }],
            temporary_dir: Some("/d".into()),
        };
        assert_eq!(from_json(&to_json(&state)).as_ref(), Some(&state));
        state.temporary_dir = None;
        assert_eq!(from_json(&to_json(&state)), Some(state));
        assert_eq!(from_json(&json!({ "version": "4.4.0" })), None);
    }

    #[test]
    fn setting_keeps_further_equal_signs() {
        assert_eq!(key_value("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        key_value("a").unwrap_err();
    }
}
