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
    /// Where all of them stand.
    pub(crate) layers: Layers,
}

/// Where settings stand.
#[derive(Debug)]
pub(crate) struct Layers {
    file: Option<Properties>,
    /// The command line, over the file.
    given: BTreeMap<String, String>,
}

impl Layers {
    /// All keys with the values in force.
    fn settings(&self) -> BTreeMap<&str, &str> {
        let file = self.file.iter().flat_map(Properties::iter);
        let given = self.given.iter();
        let given = given.map(|(key, value)| (key.as_str(), value.as_str()));
        file.chain(given).collect()
    }

    /// What is to be said about a key, which it names: with file and line where it stands in one.
    pub(crate) fn at(&self, key: &str, text: impl Into<String>) -> String {
        let file = self.file.as_ref().filter(|file| file.get(key).is_some());
        let Some(file) = file.filter(|_| !self.given.contains_key(key)) else {
            return text.into();
        };
        let mut problem = file.problem(key, text);
        (problem.key, problem.value) = (None, None);
        problem.to_string()
    }

    /// The same for a text that may name any key, or one that is missing where the protocol needs it.
    fn at_named(&self, text: String) -> String {
        let settings = self.settings();
        let mut keys = settings.keys();
        let named = keys.find(|key| text.contains(**key) && ClientConfig::keys().contains(key));
        self.at(named.unwrap_or(&"security.protocol"), text)
    }
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
        let layers = Layers {
            file: self.file_settings(signals, &mut problems).await?,
            given: self.command_property.iter().cloned().collect(),
        };
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
        let settings = layers.settings();
        let settings = settings.iter();
        for (key, value) in settings.filter(|(key, _)| **key != "bootstrap.servers") {
            if let Some(unsupported) = unsupported_key(key) {
                refuse(key, unsupported, &layers, &mut problems);
                continue;
            }
            match client.set(key, value) {
                Ok(true) => {}
                Ok(false) if own.contains(key) => {
                    mine.insert((*key).to_owned(), (*value).to_owned());
                }
                Ok(false) => unknown(key, own, &layers, &mut problems),
                Err(error) => problems.errors.push(layers.at(key, error.to_string())),
            }
        }
        if problems.errors.is_empty() {
            client = check(client, &layers, signals, &mut problems).await?;
        }
        if !problems.errors.is_empty() {
            return Err(problems.into());
        }
        problems.show(screen);
        Ok(ClientSettings {
            client,
            own: mine,
            layers,
        })
    }

    async fn file_settings(
        &self,
        signals: &Signals,
        problems: &mut Problems,
    ) -> anyhow::Result<Option<Properties>> {
        let Some(file) = self.command_config.clone() else {
            return Ok(None);
        };
        let read = move || {
            let mut found = Vec::new();
            (Properties::read(&file, &mut found), found)
        };
        let (properties, found) = signals.reading(read).await?;
        problems
            .warnings
            .extend(found.iter().map(ToString::to_string));
        let properties = properties.map_err(|problem| problems.errors.push(problem.to_string()));
        Ok(properties.ok())
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
            let text = format!("{key}={value}: must be a whole number of at least {min}");
            Problems::one(self.layers.at(key, text))
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
    layers: &Layers,
    signals: &Signals,
    problems: &mut Problems,
) -> anyhow::Result<ClientConfig> {
    let read = move || (client.check(), client);
    let (checked, client) = signals.reading(read).await?;
    if let Err(error) = checked {
        problems.errors.push(layers.at_named(error.to_string()));
    }
    Ok(client)
}

fn refuse(key: &str, unsupported: Unsupported, layers: &Layers, problems: &mut Problems) {
    let (texts, text) = match unsupported {
        Unsupported::Ignored(why) => (&mut problems.warnings, format!("is ignored: {why}")),
        Unsupported::Refused(advice) => {
            let text = format!("can't be used here; {advice}");
            (&mut problems.errors, text)
        }
    };
    texts.push(layers.at(key, format!("{key}: {text}")));
}

fn unknown(key: &str, own: &[&str], layers: &Layers, problems: &mut Problems) {
    let known = ClientConfig::keys().iter().chain(own);
    let (texts, text) = match nearest(key, known.map(|known| Cow::Borrowed(*known))) {
        Some(right) => {
            let text = format!("is not a key; did you mean {right}?");
            (&mut problems.errors, text)
        }
        None => {
            let text = "is not a key of this client; it has no effect";
            (&mut problems.warnings, text.to_owned())
        }
    };
    texts.push(layers.at(key, format!("{key}: {text}")));
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
    async fn what_is_wrong_in_a_file_is_told_with_its_line() {
        let path = std::env::temp_dir().join(format!("sharegroup-client-{}", std::process::id()));
        let text =
            "request.timeout.ms=fast\n\nmax.poll.record=1\nmy.own.key=1\nmax.poll.records=x\n";
        std::fs::write(&path, text).unwrap();
        let name = path.to_str().unwrap();
        let file = ["--command-config", name];
        let problems = settings(&file).await.unwrap_err();
        let texts = [problems.errors, problems.warnings].concat().join("\n");
        for (line, key) in [
            (1, "`request.timeout.ms`"),
            (3, "max.poll.record:"),
            (4, "my.own.key:"),
        ] {
            let expected = format!("{name}:{line}: {key}");
            assert!(texts.contains(&expected), "{expected} is not in {texts}");
        }
        // The command line is over the file.
        let over = ["--command-property", "request.timeout.ms=slow"];
        let problems = settings(&[file, over].concat()).await.unwrap_err();
        let texts = problems.errors.join("\n");
        assert!(texts.contains("`slow`"), "{texts}");
        assert!(!texts.contains(&format!("{name}:1")), "{texts}");

        std::fs::write(&path, "\nmax.poll.records=x\n").unwrap();
        let settings = settings(&file).await.unwrap();
        let error = settings.number("max.poll.records", 1).unwrap_err();
        let expected = format!("{name}:2: max.poll.records=x: must be");
        assert!(error.errors[0].starts_with(&expected), "{error}");
        std::fs::remove_file(&path).unwrap();
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
