//! A real broker with a listener for each way to secure a connection, and keys for all of them.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;

use sharegroup_launcher::{Kafka, KafkaBuilder, LaunchError};

use super::{Authority, Folder, Pair};

/// What the broker takes, in order of the names.
pub(crate) const MECHANISMS: [&str; 4] = ["OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];

/// The file of the authority's certificate.
const CA: &str = "ca.pem";

/// A broker with all listeners.
pub(crate) struct Broker {
    pub(crate) kafka: Kafka,
    pub(crate) folder: Folder,
    pub(crate) authority: Authority,
    pub(crate) plaintext: u16,
    pub(crate) ssl: u16,
    pub(crate) mtls: u16,
    pub(crate) sasl_plaintext: u16,
    pub(crate) sasl_ssl: u16,
    /// TLS with certificates that are wrong in one way each.
    pub(crate) expired: u16,
    pub(crate) other_host: u16,
}

/// Ports below the range of outgoing connections, all different.
fn free_ports<const N: usize>() -> [u16; N] {
    let random = RandomState::new().hash_one(std::process::id());
    let start = 15_000 + u16::try_from(random % 16_000).unwrap();
    let mut ports = (start..32_000)
        .chain(15_000..start)
        .filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    std::array::from_fn(|_| ports.next().unwrap())
}

/// Names of the listeners, and the protocols they speak.
const LISTENERS: [(&str, &str); 7] = [
    ("PLAINTEXT", "PLAINTEXT"),
    ("SSL", "SSL"),
    ("MTLS", "SSL"),
    ("SASL_PLAINTEXT", "SASL_PLAINTEXT"),
    ("SASL_SSL", "SASL_SSL"),
    ("EXPIRED", "SSL"),
    ("OTHER_HOST", "SSL"),
];

/// With [`LISTENERS`] on these ports.
fn with_listeners(builder: KafkaBuilder, ports: [u16; 7], controller: u16) -> KafkaBuilder {
    let join = |of: &dyn Fn(&str, &str, u16) -> String| {
        let listeners = LISTENERS.iter().zip(ports);
        let texts = listeners.map(|((name, protocol), port)| of(name, protocol, port));
        texts.collect::<Vec<_>>().join(",")
    };
    let addresses = join(&|name, _, port| format!("{name}://127.0.0.1:{port}"));
    let protocols = join(&|name, protocol, _| format!("{name}:{protocol}"));
    let controller = format!("127.0.0.1:{controller}");
    builder
        .port(ports[0])
        .set(
            "listeners",
            format!("{addresses},CONTROLLER://{controller}"),
        )
        .set("advertised.listeners", addresses)
        .set(
            "listener.security.protocol.map",
            format!("{protocols},CONTROLLER:PLAINTEXT"),
        )
        .set("inter.broker.listener.name", "PLAINTEXT")
        .set("controller.quorum.voters", format!("1@{controller}"))
}

/// The certificates of each listener.
fn with_certificates(
    builder: KafkaBuilder,
    folder: &Folder,
    authority: &Authority,
) -> KafkaBuilder {
    let pem = |name: &str, pair: &Pair| {
        let text = [&*pair.key, &pair.certificate, &authority.pem].concat();
        folder.write(name, text)
    };
    let other = authority.server_for(&["other.example"]);
    builder
        .set("ssl.keystore.type", "PEM")
        .set(
            "ssl.keystore.location",
            pem("server.pem", &authority.server()),
        )
        .set("ssl.truststore.type", "PEM")
        .set("ssl.truststore.location", folder.write(CA, &authority.pem))
        .set("listener.name.mtls.ssl.client.auth", "required")
        .set(
            "listener.name.expired.ssl.keystore.location",
            pem("expired.pem", &authority.expired_server()),
        )
        .set(
            "listener.name.other_host.ssl.keystore.location",
            pem("other.pem", &other),
        )
}

/// All mechanisms, with sessions of 3 s.
fn with_sasl(builder: KafkaBuilder) -> KafkaBuilder {
    let mut builder = builder
        .set("connections.max.reauth.ms", "3000")
        .set("sasl.enabled.mechanisms", MECHANISMS.join(","));
    for listener in ["sasl_plaintext", "sasl_ssl"] {
        for (mechanism, module) in [
            (
                "plain",
                "plain.PlainLoginModule required user_alice=\"alice-secret\";",
            ),
            ("scram-sha-256", "scram.ScramLoginModule required;"),
            ("scram-sha-512", "scram.ScramLoginModule required;"),
            (
                "oauthbearer",
                "oauthbearer.OAuthBearerLoginModule required;",
            ),
        ] {
            builder = builder.set(
                format!("listener.name.{listener}.{mechanism}.sasl.jaas.config"),
                format!("org.apache.kafka.common.security.{module}"),
            );
        }
    }
    builder
}

impl Broker {
    /// `None` where there is no Java.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(|builder| builder)
    }

    /// With more settings.
    pub(crate) fn start_with(change: impl Fn(KafkaBuilder) -> KafkaBuilder) -> Option<Self> {
        let (folder, authority) = (Folder::new(), Authority::new("test-ca"));
        let mut tries = 3;
        let (kafka, ports) = loop {
            let [controller, ports @ ..] = free_ports::<8>();
            let builder = with_listeners(Kafka::builder(), ports, controller);
            let builder = with_certificates(builder, &folder, &authority);
            tries -= 1;
            match change(with_sasl(builder)).start_or_skip() {
                // Somebody else may have taken one of the ports meanwhile.
                Err(LaunchError::Exited { .. } | LaunchError::PortTaken { .. }) if tries > 0 => {}
                started => break (started.unwrap()?, ports),
            }
        };
        let [
            plaintext,
            ssl,
            mtls,
            sasl_plaintext,
            sasl_ssl,
            expired,
            other_host,
        ] = ports;
        let broker = Self {
            kafka,
            folder,
            authority,
            plaintext,
            ssl,
            mtls,
            sasl_plaintext,
            sasl_ssl,
            expired,
            other_host,
        };
        broker.add_scram_user();
        Some(broker)
    }

    fn add_scram_user(&self) {
        let server = format!("127.0.0.1:{}", self.plaintext);
        // Both are credentials of one user, which the broker takes one at a time only.
        for credential in [
            "SCRAM-SHA-256=[password=alice-secret]",
            "SCRAM-SHA-512=[iterations=8192,password=alice-secret]",
        ] {
            let arguments = [
                "--bootstrap-server",
                &server,
                "--alter",
                "--entity-type",
                "users",
                "--entity-name",
                "alice",
                "--add-config",
                credential,
            ];
            let tool = "org.apache.kafka.tools.ConfigCommand";
            let output = self.kafka.tool(tool, arguments).unwrap();
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert!(output.status.success(), "adding a user failed: {said}");
        }
    }

    /// The key that makes clients trust its certificates.
    pub(crate) fn trust(&self) -> (&'static str, String) {
        let file = self.folder.path().join(CA);
        ("ssl.truststore.location", file.to_str().unwrap().to_owned())
    }
}

/// The module's configuration line.
fn jaas(mechanism: &str, password: &str) -> String {
    let user = format!("username=\"alice\" password=\"{password}\"");
    match mechanism {
        "PLAIN" => format!("org.apache.kafka.common.security.plain.PlainLoginModule required {user};"),
        "OAUTHBEARER" => "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"alice\";".to_owned(),
        _ => format!("org.apache.kafka.common.security.scram.ScramLoginModule required {user};"),
    }
}

pub(crate) fn sasl(protocol: &str, mechanism: &str, password: &str) -> Vec<(&'static str, String)> {
    vec![
        ("security.protocol", protocol.to_owned()),
        ("sasl.mechanism", mechanism.to_owned()),
        ("sasl.jaas.config", jaas(mechanism, password)),
    ]
}

pub(crate) fn ssl() -> (&'static str, String) {
    ("security.protocol", "SSL".to_owned())
}

pub(crate) fn client(pair: &Pair) -> [(&'static str, String); 2] {
    [
        ("ssl.keystore.certificate.chain", pair.certificate.clone()),
        ("ssl.keystore.key", pair.key.clone()),
    ]
}
