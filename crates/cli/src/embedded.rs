//! The embedded broker, as `--embedded` and `quickstart` start it: in this process.

use std::io;

use sharegroup_broker::{Broker, BrokerBuilder, FolderError, StartError};
use sharegroup_consumer::client::ClientConfig;

use crate::exit::{Problems, with_causes};
use crate::number::plural;
use crate::screen::Screen;

/// Partitions of the topics that `--embedded` makes.
const PARTITIONS: i32 = 4;
/// Where clients look when nobody says otherwise.
const DEFAULT_SERVERS: [&str; 2] = ["localhost:9092", "127.0.0.1:9092"];

/// Where a client looks for its cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) client: &'a ClientConfig,
    /// The setting that says it.
    pub(crate) setting: &'a str,
}

/// Starts a broker with topics where a client looks for its cluster.
///
/// # Errors
/// [`Problems`]: the client looks elsewhere than on this machine, or in a secured way; the port is
/// taken.
pub(crate) async fn start_for(
    place: &Place<'_>,
    topics: &[String],
    change: impl FnOnce(BrokerBuilder) -> BrokerBuilder,
    screen: &Screen,
) -> anyhow::Result<Broker> {
    let port = place.port()?;
    let mut builder = Broker::builder().port(port);
    for topic in topics {
        builder = builder.topic(topic, PARTITIONS);
    }
    let elsewhere = format!("choose another port with {}", place.setting);
    let broker = start(change(builder), &elsewhere).await?;
    screen.note(&format!(
        "An embedded broker listens on {} with {} of {}; what is in it is gone when this ends.",
        broker.bootstrap_servers(),
        named(topics),
        plural(PARTITIONS.unsigned_abs().into(), "partition"),
    ));
    Ok(broker)
}

/// `topic a`, `topics a, b`.
pub(crate) fn named(topics: &[String]) -> String {
    let s = if topics.len() == 1 { "" } else { "s" };
    format!("topic{s} {}", topics.join(", "))
}

/// Names commands for another terminal, with the server where it has to be named.
pub(crate) fn note_commands(
    commands: impl IntoIterator<Item = String>,
    broker: &Broker,
    screen: &Screen,
) {
    screen.note("In another terminal try:");
    let servers = broker.bootstrap_servers();
    let servers = if DEFAULT_SERVERS.contains(&servers) {
        String::new()
    } else {
        format!(" --bootstrap-server {servers}")
    };
    for command in commands {
        screen.note(&format!("  sharegroup {command}{servers}"));
    }
}

impl Place<'_> {
    /// The port, if an embedded broker can be there.
    fn port(&self) -> Result<u16, Problems> {
        let (client, servers) = (self.client, self.setting);
        let [address] = client.bootstrap_servers.as_slice() else {
            return Err(Problems::one(format!(
                "--embedded starts one broker, and {servers} names several; name one, such as localhost:9092"
            )));
        };
        if !["localhost", "127.0.0.1"].contains(&address.host.as_str()) {
            return Err(Problems::one(format!(
                "--embedded listens on 127.0.0.1, and {servers} names {address}; \
                 write localhost and a port, such as localhost:9092"
            )));
        }
        #[cfg(feature = "tls")]
        if client.security.protocol.has_tls() || client.security.protocol.has_sasl() {
            return Err(Problems::one(
                "--embedded has neither TLS nor SASL; leave out security.protocol",
            ));
        }
        Ok(address.port)
    }
}

/// Starts a broker; says what to do where it can't be.
///
/// # Errors
/// [`Problems`]; `elsewhere` says how to choose another port.
pub(crate) async fn start(builder: BrokerBuilder, elsewhere: &str) -> Result<Broker, Problems> {
    builder
        .start()
        .await
        .map_err(|error| advise(error, elsewhere))
}

fn advise(error: StartError, elsewhere: &str) -> Problems {
    let (address, source) = match error {
        StartError::Bind {
            address, source, ..
        } => (address, source),
        StartError::Faults(lines) => {
            return Problems {
                errors: lines
                    .iter()
                    .map(|line| format!("--fault: {line}"))
                    .collect(),
                warnings: Vec::new(),
            };
        }
        StartError::Folder(error @ FolderError::InUse(_)) => {
            return Problems::one(format!("{error}; stop that one, or take another --dir"));
        }
        error => return Problems::one(with_causes(&error.into())),
    };
    let why = match source.kind() {
        io::ErrorKind::AddrInUse => {
            format!("something listens there already, a Kafka perhaps; {elsewhere}")
        }
        io::ErrorKind::PermissionDenied => {
            format!("ports below 1024 are the system's; {elsewhere}")
        }
        io::ErrorKind::AddrNotAvailable => "this machine doesn't have that address".to_owned(),
        _ => source.to_string(),
    };
    Problems::one(format!("can't listen on {address}: {why}"))
}
