//! Where the cluster is, and what else is told to a client on the command line.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::error::ConfigError;
use sharegroup_sink::config::{
    Properties, Unsupported, nearest, unsupported_key, without_passwords,
};

use crate::args::key_value;
use crate::exit::Problems;
use crate::signals::Signals;
use crate::{duration, screen::Screen};

/// How a command finds its cluster.
#[derive(Debug, Args)]
pub(crate) struct ClientArgs {
    /// The cluster's first contacts
    #[arg(
        long,
        value_name = "HOST:PORT,...",
        default_value = "localhost:9092",
        visible_alias = "bootstrap-servers"
    )]
    bootstrap_server: String,
    /// A file of client settings, properties or JSON (also --consumer-config, --producer-config)
    #[arg(long, value_name = "FILE", aliases = ["consumer-config", "consumer.config", "producer-config", "producer.config"])]
    command_config: Option<PathBuf>,
    /// A client setting, over the file's (also --consumer-property, --producer-property)
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value, aliases = ["consumer-property", "producer-property"])]
    command_property: Vec<(String, String)>,
    /// Give up when the cluster can't be reached for this long
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    pub(crate) startup_timeout: Duration,
}

/// Settings of a command's client, all layers together.
#[derive(Debug)]
pub(crate) struct ClientSettings {
    /// What every client has.
    pub(crate) client: ClientConfig,
    /// The command's own keys.
    pub(crate) own: BTreeMap<String, String>,
}

impl ClientArgs {
    /// The servers, as written.
    pub(crate) fn servers(&self) -> &str {
        &self.bootstrap_server
    }

    /// Everything from the file and the command line. `own` are the keys that the command knows besides the client's.
    ///
    /// # Errors
    /// [`Problems`]: all that is wrong, at once. [`Interrupted`](crate::exit::Interrupted).
    pub(crate) async fn settings(
        &self,
        own: &[&str],
        screen: &Screen,
        signals: &Signals,
    ) -> anyhow::Result<ClientSettings> {
        let mut problems = Problems {
            errors: Vec::new(),
            warnings: Vec::new(),
        };
        let mut settings = self.file_settings(signals, &mut problems).await?;
        settings.extend(self.command_property.iter().cloned());
        settings.remove("bootstrap.servers");
        let client = ClientConfig::new(&self.bootstrap_server);
        let mut client = match client {
            Ok(client) => client,
            Err(error) => {
                let problem = format!(
                    "--bootstrap-server {}: {}",
                    self.bootstrap_server,
                    cause(&error)
                );
                problems
                    .errors
                    .push(without_passwords(&problem).into_owned());
                return Err(problems.into());
            }
        };
        client.client_id = Some("sharegroup".to_owned());
        client.default_api_timeout = self.startup_timeout;
        let mut mine = BTreeMap::new();
        for (key, value) in settings {
            if let Some(unsupported) = unsupported_key(&key) {
                refuse(&key, unsupported, &mut problems);
                continue;
            }
            match client.set(&key, &value) {
                Ok(true) => {}
                Ok(false) if own.contains(&key.as_str()) => {
                    mine.insert(key, value);
                }
                Ok(false) => unknown(&key, own, &mut problems),
                Err(error) => problems.errors.push(error.to_string()),
            }
        }
        if problems.errors.is_empty() {
            client = check(client, signals, &mut problems).await?;
        }
        if !problems.errors.is_empty() {
            return Err(problems.into());
        }
        problems.show(screen);
        Ok(ClientSettings { client, own: mine })
    }

    async fn file_settings(
        &self,
        signals: &Signals,
        problems: &mut Problems,
    ) -> anyhow::Result<BTreeMap<String, String>> {
        let Some(file) = self.command_config.clone() else {
            return Ok(BTreeMap::new());
        };
        let read = move || {
            let mut found = Vec::new();
            (Properties::read(&file, &mut found), found)
        };
        let (properties, found) = signals.reading(read).await?;
        problems
            .warnings
            .extend(found.iter().map(ToString::to_string));
        Ok(match properties {
            Ok(properties) => properties
                .iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            Err(problem) => {
                problems.errors.push(problem.to_string());
                BTreeMap::new()
            }
        })
    }
}

impl ClientSettings {
    /// One of the command's own keys as a number of at least `min`.
    pub(crate) fn number<T>(&self, key: &str, min: T) -> Result<Option<T>, Problems>
    where
        T: std::str::FromStr + PartialOrd + std::fmt::Display,
    {
        let Some(value) = self.own.get(key) else {
            return Ok(None);
        };
        let number = value.trim().parse().ok().filter(|number| *number >= min);
        number.map(Some).ok_or_else(|| {
            Problems::one(format!(
                "{key}={value}: must be a whole number of at least {min}"
            ))
        })
    }
}

fn cause(error: &ConfigError) -> String {
    match error {
        ConfigError::Address { source, .. } => source.to_string(),
        error => error.to_string(),
    }
}

/// Whether the security keys work together and with the files that they name.
async fn check(
    client: ClientConfig,
    signals: &Signals,
    problems: &mut Problems,
) -> anyhow::Result<ClientConfig> {
    let read = move || (client.check(), client);
    let (checked, client) = signals.reading(read).await?;
    if let Err(error) = checked {
        problems.errors.push(error.to_string());
    }
    Ok(client)
}

fn refuse(key: &str, unsupported: Unsupported, problems: &mut Problems) {
    match unsupported {
        Unsupported::Ignored(why) => problems.warnings.push(format!("{key}: is ignored: {why}")),
        Unsupported::Refused(advice) => problems
            .errors
            .push(format!("{key}: can't be used here; {advice}")),
    }
}

fn unknown(key: &str, own: &[&str], problems: &mut Problems) {
    let known = ClientConfig::keys().iter().chain(own);
    match nearest(key, known.map(|known| Cow::Borrowed(*known))) {
        Some(right) => problems
            .errors
            .push(format!("{key}: is not a key; did you mean {right}?")),
        None => problems.warnings.push(format!(
            "{key}: is not a key of this client; it has no effect"
        )),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::LogFormat;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        client: ClientArgs,
    }

    async fn settings(arguments: &[&str]) -> Result<ClientSettings, Problems> {
        let arguments = ["test"].iter().chain(arguments);
        let command = Command::try_parse_from(arguments).unwrap();
        let screen = Screen::stderr(LogFormat::Text);
        let signals = Signals::none();
        let settings = command
            .client
            .settings(&["max.poll.records"], screen, &signals);
        settings.await.map_err(|error| error.downcast().unwrap())
    }

    #[tokio::test]
    async fn nearly_known_keys_are_errors_and_all_are_told_at_once() {
        let problems = settings(&[
            "--consumer-property",
            "max.poll.record=1",
            "--command-property",
            "request.timout.ms=1",
            "--command-property",
            "my.own.key=1",
            "--command-property",
            "request.timeout.ms=fast",
        ])
        .await
        .unwrap_err();
        let errors = problems.errors.join("\n");
        for expected in [
            "did you mean max.poll.records?",
            "did you mean request.timeout.ms?",
            "milliseconds",
        ] {
            assert!(errors.contains(expected), "{errors}");
        }
        assert_eq!(problems.errors.len(), 3);
        assert!(problems.warnings[0].contains("my.own.key"));
    }

    #[tokio::test]
    async fn own_keys_are_handed_back_and_checked() {
        let settings = settings(&[
            "--command-property",
            "max.poll.records=7",
            "--command-property",
            "request.timeout.ms=1234",
        ])
        .await
        .unwrap();
        assert_eq!(settings.client.request_timeout.as_millis(), 1234);
        assert_eq!(settings.number("max.poll.records", 1).unwrap(), Some(7));
        let error = settings.number("max.poll.records", 8).unwrap_err();
        assert!(error.errors[0].contains("max.poll.records=7"));
    }

    #[tokio::test]
    async fn unsupported_security_keys_say_what_to_do() {
        let problems = settings(&[
            "--command-property",
            "sasl.login.class=X",
            "--command-property",
            "sasl.kerberos.service.name=kafka",
        ])
        .await
        .unwrap_err();
        assert_eq!(problems.errors.len(), 1, "{problems}");
        let expected = "sasl.login.class: can't be used here; ";
        assert!(problems.errors[0].starts_with(expected), "{problems}");
        assert!(problems.warnings[0].contains("isn't spoken"));
    }

    #[cfg(feature = "tls")]
    #[tokio::test]
    async fn what_security_lacks_is_said_before_connecting() {
        let jaas = "sasl.jaas.config=ScramLoginModule required password=\"hush\"";
        let jaas = settings(&["--command-property", jaas]).await.unwrap_err();
        assert!(jaas.errors[0].contains("sasl.jaas.config"), "{jaas}");
        assert!(!jaas.to_string().contains("hush"), "{jaas}");
        let secured = ["--command-property", "security.protocol=SASL_SSL"];
        let problems = settings(&secured).await.unwrap_err();
        assert!(
            problems.errors[0].contains("sasl.mechanism is not set"),
            "{problems}"
        );
    }

    #[cfg(not(feature = "tls"))]
    #[tokio::test]
    async fn a_build_without_tls_says_so() {
        let secured = ["--command-property", "security.protocol=SASL_SSL"];
        let problems = settings(&secured).await.unwrap_err();
        assert!(
            problems.errors[0].contains("built without TLS"),
            "{problems}"
        );
    }

    #[tokio::test]
    async fn a_server_without_a_port_says_how_to_write_one() {
        let problems = settings(&["--bootstrap-server", "kafka"])
            .await
            .unwrap_err();
        assert!(
            problems.errors[0].contains("write host:port"),
            "{:?}",
            problems.errors
        );
    }
}
