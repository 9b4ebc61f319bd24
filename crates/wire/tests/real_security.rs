//! Every way to secure a connection, against a real broker: each connects and asks for metadata,
//! and each wrong thing has its own error.
#![cfg(feature = "tls")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod security;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use security::{Authority, Folder, Log, Pair};
use sharegroup_launcher::Kafka;
use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::metadata::MetadataRequest;
use sharegroup_wire::net::sasl::SaslError;
use sharegroup_wire::net::tls::TlsError;
use sharegroup_wire::net::{
    Address, ConnectError, Connection, ConnectionOptions, SecurityConfig, TcpConnector,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const MECHANISMS: [&str; 4] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"];

/// A broker with all listeners.
struct Broker {
    kafka: Kafka,
    folder: Folder,
    authority: Authority,
    plaintext: u16,
    ssl: u16,
    mtls: u16,
    sasl_plaintext: u16,
    sasl_ssl: u16,
    /// TLS with certificates that are wrong in one way each.
    expired: u16,
    other_host: u16,
}

/// Ports below the range of outgoing connections, all different.
fn free_ports<const N: usize>() -> [u16; N] {
    let start = 15_000 + (std::process::id() % 8000) as u16 * 2;
    let mut ports = (start..32_000)
        .chain(15_000..start)
        .filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    std::array::from_fn(|_| ports.next().unwrap())
}

fn pem(folder: &Folder, name: &str, pair: &Pair, authority: &Authority) -> String {
    folder.write(
        name,
        format!("{}{}{}", pair.key, pair.certificate, authority.pem),
    )
}

impl Broker {
    fn start() -> Option<Self> {
        let folder = Folder::new();
        let authority = Authority::new("test-ca");
        let ca = folder.write("ca.pem", &authority.pem);
        let server = pem(&folder, "server.pem", &authority.server(), &authority);
        let expired = pem(
            &folder,
            "expired.pem",
            &authority.expired_server(),
            &authority,
        );
        let other = authority.server_for(&["other.example"]);
        let other = pem(&folder, "other.pem", &other, &authority);
        let [
            plaintext,
            controller,
            ssl,
            mtls,
            sasl_plaintext,
            sasl_ssl,
            expired_port,
            other_host,
        ] = free_ports();
        let listeners = [
            ("PLAINTEXT", "PLAINTEXT", plaintext),
            ("SSL", "SSL", ssl),
            ("MTLS", "SSL", mtls),
            ("SASL_PLAINTEXT", "SASL_PLAINTEXT", sasl_plaintext),
            ("SASL_SSL", "SASL_SSL", sasl_ssl),
            ("EXPIRED", "SSL", expired_port),
            ("OTHER_HOST", "SSL", other_host),
        ];
        let join = |of: &dyn Fn(&(&str, &str, u16)) -> String| {
            listeners.iter().map(of).collect::<Vec<_>>().join(",")
        };
        let addresses = join(&|(name, _, port)| format!("{name}://127.0.0.1:{port}"));
        let map = join(&|(name, protocol, _)| format!("{name}:{protocol}"));
        let mut builder = Kafka::builder()
            .port(plaintext)
            .set(
                "listeners",
                format!("{addresses},CONTROLLER://127.0.0.1:{controller}"),
            )
            .set("advertised.listeners", addresses)
            .set(
                "listener.security.protocol.map",
                format!("{map},CONTROLLER:PLAINTEXT"),
            )
            .set("inter.broker.listener.name", "PLAINTEXT")
            .set(
                "controller.quorum.voters",
                format!("1@127.0.0.1:{controller}"),
            )
            .set("ssl.keystore.type", "PEM")
            .set("ssl.keystore.location", server)
            .set("ssl.truststore.type", "PEM")
            .set("ssl.truststore.location", ca)
            .set("listener.name.mtls.ssl.client.auth", "required")
            .set("listener.name.expired.ssl.keystore.location", expired)
            .set("listener.name.other_host.ssl.keystore.location", other)
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
        let kafka = builder.start_or_skip().unwrap()?;
        let broker = Self {
            kafka,
            folder,
            authority,
            plaintext,
            ssl,
            mtls,
            sasl_plaintext,
            sasl_ssl,
            expired: expired_port,
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

    fn trust(&self) -> (&'static str, String) {
        let file = self.folder.path().join("ca.pem");
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

fn config(keys: &[(&str, String)]) -> SecurityConfig {
    let mut config = SecurityConfig::default();
    for (key, value) in keys {
        assert!(config.set(key, value).unwrap(), "{key}");
    }
    config.check().unwrap();
    config
}

fn sasl(protocol: &str, mechanism: &str, password: &str) -> Vec<(&'static str, String)> {
    vec![
        ("security.protocol", protocol.to_owned()),
        ("sasl.mechanism", mechanism.to_owned()),
        ("sasl.jaas.config", jaas(mechanism, password)),
    ]
}

async fn open(port: u16, keys: &[(&str, String)]) -> Result<Connection, ConnectError> {
    let config = config(keys);
    let connector = config.connector(Arc::new(TcpConnector::default()));
    let options = ConnectionOptions {
        sasl: config.credentials().unwrap(),
        ..Default::default()
    };
    let opened = Connection::open(&*connector, &Address::new("localhost", port), &options).await;
    let shown = format!("{config:?} {connector:?} {options:?} {opened:?}");
    assert!(
        !shown.contains("secret") && !shown.contains("PRIVATE"),
        "{shown}"
    );
    opened
}

async fn works(name: &str, port: u16, keys: &[(&str, String)]) {
    let connection = open(port, keys)
        .await
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let metadata = connection.call(&MetadataRequest::default()).await;
    let metadata = metadata.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(metadata.brokers.len(), 1, "{name}");
}

async fn refused(port: u16, keys: &[(&str, String)]) -> ConnectError {
    let error = open(port, keys).await.unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
    error
}

async fn tls_refused(port: u16, keys: &[(&str, String)]) -> TlsError {
    match refused(port, keys).await {
        ConnectError::Tls { source, .. } => *source,
        other => panic!("{other:?}"),
    }
}

async fn sasl_refused(port: u16, keys: &[(&str, String)]) -> SaslError {
    match refused(port, keys).await {
        ConnectError::Authentication { source, .. } => *source,
        other => panic!("{other:?}"),
    }
}

fn ssl() -> (&'static str, String) {
    ("security.protocol", "SSL".to_owned())
}

fn client(pair: &Pair) -> [(&'static str, String); 2] {
    [
        ("ssl.keystore.certificate.chain", pair.certificate.clone()),
        ("ssl.keystore.key", pair.key.clone()),
    ]
}

#[tokio::test]
async fn every_way_to_secure_a_connection_works_with_a_real_broker() {
    let Some(broker) = Broker::start() else {
        return;
    };
    works("PLAINTEXT", broker.plaintext, &[]).await;
    works("SSL", broker.ssl, &[ssl(), broker.trust()]).await;
    let [chain, key] = client(&broker.authority.client("alice"));
    works("mTLS", broker.mtls, &[ssl(), broker.trust(), chain, key]).await;
    for mechanism in MECHANISMS {
        let keys = sasl("SASL_PLAINTEXT", mechanism, "alice-secret");
        works(
            &format!("SASL_PLAINTEXT {mechanism}"),
            broker.sasl_plaintext,
            &keys,
        )
        .await;
        let mut keys = sasl("SASL_SSL", mechanism, "alice-secret");
        keys.push(broker.trust());
        works(&format!("SASL_SSL {mechanism}"), broker.sasl_ssl, &keys).await;
    }
    wrong_certificates(&broker).await;
    wrong_credentials(&broker).await;
    sessions(&broker).await;
}

async fn wrong_certificates(broker: &Broker) {
    let wrong = broker
        .folder
        .write("wrong-ca.pem", Authority::new("wrong-ca").pem);
    let error = tls_refused(
        broker.ssl,
        &[ssl(), ("ssl.truststore.location", wrong.clone())],
    )
    .await;
    assert_eq!(error, TlsError::UnknownIssuer { trusted: wrong });
    let error = tls_refused(broker.other_host, &[ssl(), broker.trust()]).await;
    assert!(matches!(error, TlsError::WrongHostName { .. }), "{error}");
    let off = ("ssl.endpoint.identification.algorithm", String::new());
    works(
        "another host name",
        broker.other_host,
        &[ssl(), broker.trust(), off],
    )
    .await;
    let error = tls_refused(broker.expired, &[ssl(), broker.trust()]).await;
    assert!(matches!(error, TlsError::Expired { .. }), "{error}");

    // B-109.
    let error = tls_refused(broker.mtls, &[ssl(), broker.trust()]).await;
    assert!(
        matches!(
            error,
            TlsError::ClientCertificateRefused { sent: false, .. }
        ),
        "{error}"
    );
    let [chain, key] = client(&Authority::new("foreign-ca").client("mallory"));
    let error = tls_refused(broker.mtls, &[ssl(), broker.trust(), chain, key]).await;
    assert!(
        matches!(error, TlsError::ClientCertificateRefused { sent: true, .. }),
        "{error}"
    );

    // B-104, both ways.
    let error = tls_refused(broker.plaintext, &[ssl(), broker.trust()]).await;
    assert_eq!(error, TlsError::ClosedInHandshake);
    let error = refused(broker.ssl, &[]).await;
    assert!(error.to_string().contains("TLS"), "{error}");
}

async fn wrong_credentials(broker: &Broker) {
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let keys = sasl("SASL_PLAINTEXT", mechanism, "wrong-secret");
        let error = sasl_refused(broker.sasl_plaintext, &keys).await;
        assert!(
            matches!(
                &error,
                SaslError::Refused {
                    code: ErrorCode::SaslAuthenticationFailed,
                    ..
                }
            ),
            "{mechanism}: {error:?}"
        );
        assert!(!error.is_retriable());
    }
    // A token that has expired.
    let mut keys = sasl("SASL_PLAINTEXT", "OAUTHBEARER", "");
    keys[2].1 = "OAuthBearerLoginModule required token=\"eyJhbGciOiJub25lIn0.eyJpYXQiOjEsImV4cCI6Miwic3ViIjoiYWxpY2UifQ.\";".to_owned();
    let error = sasl_refused(broker.sasl_plaintext, &keys).await;
    assert!(matches!(error, SaslError::Refused { .. }), "{error}");
    // SASL where there is none.
    let keys = sasl("SASL_PLAINTEXT", "PLAIN", "alice-secret");
    let error = sasl_refused(broker.plaintext, &keys).await;
    assert_eq!(error, SaslError::NotSasl);
}

/// B-110: sessions of 3 s, used for 7 s, all mechanisms at once.
async fn sessions(broker: &Broker) {
    let (log, _guard) = Log::start();
    let mut users = JoinSet::new();
    for mechanism in MECHANISMS {
        let port = broker.sasl_plaintext;
        users.spawn(async move {
            let keys = sasl("SASL_PLAINTEXT", mechanism, "alice-secret");
            let connection = open(port, &keys).await.unwrap();
            let started = Instant::now();
            // Real time: the broker's clock can't be paused.
            while started.elapsed() < Duration::from_secs(7) {
                let answer = connection.call(&MetadataRequest::default()).await;
                answer.unwrap_or_else(|error| panic!("{mechanism}: {error}"));
                sleep(Duration::from_millis(50)).await;
            }
        });
    }
    while let Some(user) = users.join_next().await {
        user.unwrap();
    }
    let renewals = log.count("Authenticated again.");
    assert!(renewals >= 2 * MECHANISMS.len(), "{renewals} renewals");
}
