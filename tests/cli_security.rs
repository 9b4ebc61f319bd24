//! TLS and SASL with the program: what works, what is said where it doesn't, and that no secret shows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "../crates/wire/tests/security/mod.rs"]
mod security;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use security::Authority;
use security::broker::{Broker, client, sasl, ssl};
use support::{Folder, Run, Written, binary, create_topic, lag, produce};

/// One broker for all tests of this file; topics, groups and folders differ. `None` = skipped.
fn broker() -> Option<&'static Broker> {
    static BROKER: OnceLock<Option<Broker>> = OnceLock::new();
    BROKER.get_or_init(Broker::start).as_ref()
}

type Keys = Vec<(&'static str, String)>;

/// Parts of passwords and keys, none of which may be in any output.
const SECRETS: [&str; 3] = ["alice-secret", "hush", "PRIVATE KEY"];

#[track_caller]
fn assert_no_secret(log: &str) {
    for secret in SECRETS {
        assert!(!log.contains(secret), "{secret} is in:\n{log}");
    }
}

/// The keys as lines of a properties file.
fn properties(keys: &Keys) -> String {
    let escaped = |value: &str| value.replace('\n', "\\n");
    let line = |(key, value): &(&str, String)| format!("{key}={}\n", escaped(value));
    keys.iter().map(line).collect()
}

/// What a user may get wrong.
struct Trouble {
    name: &'static str,
    port: u16,
    keys: Keys,
    /// What one line of the log has.
    says: Vec<&'static str>,
    ends: Ends,
}

#[derive(Clone, Copy)]
enum Ends {
    /// Before anything is started.
    Unstarted,
    /// As soon as a broker was asked: it will not change its mind.
    AtOnce,
}

impl Ends {
    const fn code(self) -> i32 {
        match self {
            Self::Unstarted => 2,
            Self::AtOnce => 1,
        }
    }
}

impl Trouble {
    /// Lets a command meet it.
    #[track_caller]
    fn meets(&self, folder: &Folder, command: &str) {
        let name = format!("{}-{command}", self.name);
        let server = format!("127.0.0.1:{}", self.port);
        let mut program = Command::new(binary());
        program.args(["--log-level", "trace"]);
        if command == "run" {
            let worker = format!(
                "bootstrap.servers={server}\nconsumer.group.protocol=share\n{}",
                properties(&self.keys)
            );
            let sink = format!(
                "name=trouble\nconnector.class=file\ntopics=trouble\nfile={}\n",
                folder.join("trouble.out").display()
            );
            program
                .arg("run")
                .arg(folder.write(&format!("{name}-worker.properties"), &worker))
                .arg(folder.write(&format!("{name}-sink.properties"), &sink));
        } else {
            let config = folder.write(&format!("{name}.properties"), &properties(&self.keys));
            program
                .args(command.split(' '))
                .args(["--bootstrap-server", &server, "--command-config"])
                .arg(config);
        }
        program.args(["--startup-timeout", "60s"]);
        let start = Instant::now();
        let mut run = Run::spawn(program, folder.join(&name));
        let status = run.wait(Duration::from_secs(30));
        let log = run.log();
        assert_eq!(status.code(), Some(self.ends.code()), "{name}:\n{log}");
        let took = start.elapsed();
        assert!(
            took < Duration::from_secs(15),
            "{name} took {took:?}:\n{log}"
        );
        let is_it = |line: &&str| self.says.iter().all(|text| line.contains(text));
        assert!(
            log.lines().any(|line| is_it(&line)),
            "{name}: {:?}\n{log}",
            self.says
        );
        let first = self.says[0];
        let most_often = log.lines().map(|line| line.matches(first).count()).max();
        assert_eq!(most_often, Some(1), "{name} says it twice:\n{log}");
        assert_no_secret(&log);
    }
}

/// Connections that are refused.
fn refused(broker: &Broker, folder: &Folder) -> Vec<Trouble> {
    let trouble = |name, port, keys, says: &[&'static str]| Trouble {
        name,
        port,
        keys,
        says: says.to_vec(),
        ends: Ends::AtOnce,
    };
    let other = folder.write("other-ca.pem", &Authority::new("other").pem);
    let other = (
        "ssl.truststore.location",
        other.to_str().unwrap().to_owned(),
    );
    let user = |protocol, mechanism, password| {
        let mut keys = sasl(protocol, mechanism, password);
        keys.push(broker.trust());
        keys
    };
    let wrong = "wrong-hush";
    vec![
        trouble(
            "plain-on-tls",
            broker.ssl,
            vec![],
            &["expects TLS", "security.protocol"],
        ),
        trouble(
            "tls-on-plain",
            broker.plaintext,
            vec![ssl(), broker.trust()],
            &["port is a plaintext one", "security.protocol"],
        ),
        trouble(
            "no-sasl-on-sasl",
            broker.sasl_plaintext,
            vec![],
            &["asks for SASL", "SCRAM-SHA-512", "security.protocol"],
        ),
        trouble(
            "wrong-ca",
            broker.ssl,
            vec![ssl(), other],
            &["unknown issuer", "other-ca.pem", "ssl.truststore.location"],
        ),
        trouble(
            "wrong-host",
            broker.other_host,
            vec![ssl(), broker.trust()],
            &[
                "not for 127.0.0.1, but for other.example",
                "ssl.endpoint.identification.algorithm",
            ],
        ),
        trouble(
            "expired",
            broker.expired,
            vec![ssl(), broker.trust()],
            &["certificate has expired", "days ago"],
        ),
        trouble(
            "no-client-certificate",
            broker.mtls,
            vec![ssl(), broker.trust()],
            &["without a client certificate", "ssl.keystore.location"],
        ),
        trouble(
            "wrong-password-scram",
            broker.sasl_ssl,
            user("SASL_SSL", "SCRAM-SHA-512", wrong),
            &["SASL_AUTHENTICATION_FAILED"],
        ),
        trouble(
            "wrong-password-plain",
            broker.sasl_plaintext,
            user("SASL_PLAINTEXT", "PLAIN", wrong),
            &["SASL_AUTHENTICATION_FAILED"],
        ),
        trouble(
            "sasl-on-a-port-without",
            broker.ssl,
            user("SASL_SSL", "PLAIN", wrong),
            &["does not ask for SASL", "security.protocol"],
        ),
    ]
}

/// What can be known without a broker.
fn unusable(broker: &Broker, folder: &Folder) -> Vec<Trouble> {
    let trouble = |name, keys, says: &[&'static str]| Trouble {
        name,
        port: broker.sasl_ssl,
        keys,
        says: says.to_vec(),
        ends: Ends::Unstarted,
    };
    let key = |key, value: &str| (key, value.to_owned());
    let jks = folder.join("trust.jks");
    std::fs::write(&jks, [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 0]).unwrap();
    let jks = jks.to_str().unwrap();
    vec![
        trouble(
            "no-mechanism",
            vec![key("security.protocol", "SASL_SSL"), broker.trust()],
            &["sasl.mechanism is not set", "SCRAM-SHA-512"],
        ),
        trouble(
            "gssapi",
            sasl("SASL_SSL", "GSSAPI", "hush"),
            &["must be PLAIN", "GSSAPI"],
        ),
        trouble(
            "another-module",
            vec![
                key("security.protocol", "SASL_SSL"),
                key("sasl.mechanism", "PLAIN"),
                key(
                    "sasl.jaas.config",
                    "ScramLoginModule required username=\"u\" password=\"hush\";",
                ),
            ],
            &["PlainLoginModule", "sasl.jaas.config"],
        ),
        trouble(
            "jks",
            vec![
                ssl(),
                key("ssl.truststore.location", jks),
                key("ssl.truststore.password", "hush"),
            ],
            &[
                "keytool -importkeystore -srckeystore",
                "-deststoretype PKCS12",
            ],
        ),
        trouble(
            "no-file",
            vec![ssl(), key("ssl.truststore.location", "/no/such.pem")],
            &["No such file", "ssl.truststore.location=/no/such.pem"],
        ),
        trouble(
            "provider",
            vec![ssl(), key("ssl.provider", "BCFIPS")],
            &["remove this key", "ssl.provider"],
        ),
    ]
}

#[test]
fn each_trouble_is_one_line_that_says_what_to_do() {
    let Some(broker) = broker() else { return };
    let folder = Folder::new("cli-security-trouble");
    for trouble in unusable(broker, &folder)
        .iter()
        .chain(&refused(broker, &folder))
    {
        for command in ["topics list", "consume --topic trouble", "run"] {
            trouble.meets(&folder, command);
        }
    }
}

/// The example's worker file, for this broker and with the prefix before its security keys.
fn example(broker: &Broker, prefix: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/worker-sasl-ssl.properties");
    let text = std::fs::read_to_string(file).unwrap();
    let trust = broker.trust().1;
    assert!(text.contains("password=\"alice-secret\""));
    text.replace(
        "kafka.example.com:9093",
        &format!("127.0.0.1:{}", broker.sasl_ssl),
    )
    .replace("/etc/sharegroup/ca.pem", &trust)
    .replace("\nsecurity.", &format!("\n{prefix}security."))
    .replace("\nsasl.", &format!("\n{prefix}sasl."))
    .replace("\nssl.", &format!("\n{prefix}ssl."))
}

/// The example's connector file, writing into the folder.
fn sink(folder: &Folder, name: &str, more: &str) -> PathBuf {
    let file = folder.join(&format!("{name}-${{task}}.out"));
    let text = format!(
        "name={name}\nconnector.class=file\ntopics={name}\ntasks.max=2\nfile={}\nconsumer.override.group.protocol=share\n{more}",
        file.display()
    );
    folder.write(&format!("{name}.properties"), &text)
}

#[test]
fn run_drains_a_topic_over_sasl_ssl_and_shows_no_secret() {
    let Some(broker) = broker() else { return };
    let records = 20_000;
    // The worker's own keys are for all clients; keys of the consumers alone are enough, too.
    for (name, prefix) in [("secured", ""), ("secured-consumers", "consumer.")] {
        let folder = Folder::new("cli-security-run");
        create_topic(&broker.kafka, name, 2, 1);
        produce(&broker.kafka, &folder, name, records);
        let worker = folder.write("worker.properties", &example(broker, prefix));
        let mut program = Command::new(binary());
        program
            .args(["--log-level", "trace", "run"])
            .args([worker, sink(&folder, name, "")])
            .args(["--exit-when-idle", "2s"]);
        let mut run = Run::spawn(program, folder.join("log"));
        let status = run.wait(Duration::from_secs(120));
        let log = run.log();
        assert!(status.success(), "{status}\n{log}");
        let written = Written::read(&folder);
        assert_eq!((written.distinct(), written.duplicates()), (records, 0));
        assert_eq!(lag(&broker.kafka, &format!("connect-{name}")), Some(0));
        assert!(log.contains("sasl.jaas.config=[hidden]"), "{log}");
        assert_no_secret(&log);
    }
}

#[test]
fn consume_and_produce_show_a_client_certificate() {
    let Some(broker) = broker() else { return };
    let folder = Folder::new("cli-security-mtls");
    let [chain, key] = client(&broker.authority.client("alice"));
    let config = properties(&vec![ssl(), broker.trust(), chain, key]);
    let config = folder.write("client.properties", &config);
    let server = format!("127.0.0.1:{}", broker.mtls);
    let lines = folder.write("lines", "one\ntwo\nthree\n");
    let run = |arguments: &[&str], option: &str| {
        let mut command = Command::new(binary());
        command
            .args(["--log-level", "trace"])
            .args(arguments)
            .args(["--bootstrap-server", &server, option])
            .arg(&config);
        let output = command.output().unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{arguments:?}: {log}");
        assert_no_secret(&log);
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["topics", "create", "--topic", "mtls"], "--command-config");
    let file = lines.to_str().unwrap();
    run(
        &["produce", "--topic", "mtls", "--file", file],
        "--producer.config",
    );
    let consume = [
        "consume",
        "--topic",
        "mtls",
        "--from-beginning",
        "--max-messages",
        "3",
    ];
    let consumed = run(&consume, "--consumer.config");
    assert_eq!(consumed, "one\ntwo\nthree\n");
}
