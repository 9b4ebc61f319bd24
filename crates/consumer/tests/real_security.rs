//! Consuming from a real broker over every way to secure a connection.
#![cfg(feature = "tls")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod group;
#[path = "../../wire/tests/security/mod.rs"]
mod security;

use std::time::Duration;

use security::Authority;
use security::broker::{Broker, MECHANISMS, client, sasl, ssl};
use security::log::Log;
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_consumer::{OpenError, ShareConsumer};
use sharegroup_wire::ErrorCode;
use sharegroup_wire::net::ConnectError;
use sharegroup_wire::net::sasl::SaslError;
use sharegroup_wire::net::tls::TlsError;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const RECORDS: usize = 100;

/// One every fifth of a session.
const SLOW_RECORDS: usize = 30;

/// Length of the broker's sessions in B-110, in milliseconds. Default 3000; `cargo xtask prove sessions`
/// sets 10,000.
const SESSION_MS: &str = "SESSION_MS";

fn config(port: u16, keys: &[(&'static str, String)]) -> ClientConfig {
    let mut config = ClientConfig::new(&format!("127.0.0.1:{port}")).unwrap();
    for (key, value) in keys {
        assert!(config.set(key, value).unwrap(), "{key}");
    }
    assert!(!format!("{config:?}").contains("-secret"));
    config
}

/// A topic, and a group that begins at its start.
async fn create(admin: &Admin, topic: &str) {
    admin.create_topic(topic, 1, -1, &[]).await.unwrap();
    group::set_group(admin, topic, &[("share.auto.offset.reset", "earliest")]).await;
}

async fn produce(config: ClientConfig, topic: &str, records: usize) {
    let producer = Producer::new(ProducerConfig::new(config));
    for number in 0..records {
        let record = ProducerRecord::new(topic).value(format!("{number}"));
        drop(producer.send(record).await.unwrap());
    }
    producer.close(Duration::from_secs(30)).await.unwrap();
}

/// Produces and consumes over one way, and sees each record acknowledged.
async fn consumes(name: String, config: ClientConfig, admin: Admin) {
    let topic = name.to_lowercase().replace(' ', "-");
    create(&admin, &topic).await;
    produce(config.clone(), &topic, RECORDS).await;

    let builder = ShareConsumer::builder_with(config).group_id(&topic);
    let mut consumer = builder.topics([&topic]).build().await;
    let consumer = consumer
        .as_mut()
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut seen = 0;
    while seen < RECORDS {
        let batch = timeout(Duration::from_secs(60), consumer.poll()).await;
        let batch = batch
            .unwrap_or_else(|_| panic!("{name}: {seen} records"))
            .unwrap()
            .unwrap();
        seen += batch.len();
        batch.accept();
        let report = consumer.commit().await.unwrap();
        assert!(report.is_ok(), "{name}: {report:?}");
    }
    assert_eq!(seen, RECORDS, "{name}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_secure_a_connection_consumes_and_acknowledges() {
    let Some(broker) = Broker::start() else {
        return;
    };
    let admin = Admin::new(config(broker.plaintext, &[]));
    let [chain, key] = client(&broker.authority.client("alice"));
    let mut ways = vec![
        ("PLAINTEXT".to_owned(), config(broker.plaintext, &[])),
        (
            "SSL".to_owned(),
            config(broker.ssl, &[ssl(), broker.trust()]),
        ),
        (
            "MTLS".to_owned(),
            config(broker.mtls, &[ssl(), broker.trust(), chain, key]),
        ),
    ];
    for mechanism in MECHANISMS {
        let keys = sasl("SASL_PLAINTEXT", mechanism, "alice-secret");
        ways.push((
            format!("SASL_PLAINTEXT {mechanism}"),
            config(broker.sasl_plaintext, &keys),
        ));
        let mut keys = sasl("SASL_SSL", mechanism, "alice-secret");
        keys.push(broker.trust());
        ways.push((
            format!("SASL_SSL {mechanism}"),
            config(broker.sasl_ssl, &keys),
        ));
    }
    let mut running = JoinSet::new();
    for (name, config) in ways {
        running.spawn(consumes(name, config, admin.clone()));
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
    wrong_credentials_are_named(&broker).await;
    wrong_protocols_are_named(&broker).await;
    wrong_certificates_are_named(&broker).await;
}

/// Opens a consumer that has a minute to start, and is refused at once.
async fn refused(port: u16, keys: &[(&'static str, String)]) -> ConnectError {
    let started = Instant::now();
    let builder = ShareConsumer::builder_with(config(port, keys)).group_id("g");
    let error = builder.topics(["t"]).build().await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(5), "{error}");
    assert!(!error.is_retriable(), "{error}");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("-secret"), "{shown}");
    match error {
        OpenError::Refused { source, .. } => source,
        other => panic!("{other:?}"),
    }
}

async fn tls_refused(port: u16, keys: &[(&'static str, String)]) -> TlsError {
    match refused(port, keys).await {
        ConnectError::Tls { source, .. } => *source,
        other => panic!("{other:?}"),
    }
}

async fn sasl_refused(port: u16, keys: &[(&'static str, String)]) -> SaslError {
    match refused(port, keys).await {
        ConnectError::Authentication { source, .. } => *source,
        other => panic!("{other:?}"),
    }
}

/// OAUTHBEARER with this token.
fn token(token: &str) -> Vec<(&'static str, String)> {
    let mut keys = sasl("SASL_PLAINTEXT", "OAUTHBEARER", "");
    keys[2].1 = format!("OAuthBearerLoginModule required token=\"{token}\";");
    keys
}

async fn wrong_credentials_are_named(broker: &Broker) {
    let passwords = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        .map(|mechanism| sasl("SASL_PLAINTEXT", mechanism, "wrong-secret"));
    // Expired in 1970; no token at all; one that the broker takes apart, without a subject.
    let expired = "eyJhbGciOiJub25lIn0.eyJpYXQiOjEsImV4cCI6Miwic3ViIjoiYWxpY2UifQ.";
    let no_subject = "eyJhbGciOiJub25lIn0.eyJpYXQiOjEsImV4cCI6OTk5OTk5OTk5OX0.";
    let tokens = [expired, "garbage-secret", no_subject].map(token);
    for keys in passwords.into_iter().chain(tokens) {
        let error = sasl_refused(broker.sasl_plaintext, &keys).await;
        let code = ErrorCode::SaslAuthenticationFailed;
        assert!(
            matches!(&error, SaslError::Refused { code: c, .. } if *c == code),
            "{keys:?}: {error}"
        );
        assert!(!error.to_string().contains("eyJ"), "{error}");
    }
}

/// B-104 and its siblings: a protocol that is not the port's. All are told at once, for good, and name
/// the key.
async fn wrong_protocols_are_named(broker: &Broker) {
    let plain = || sasl("SASL_PLAINTEXT", "PLAIN", "alice-secret");
    for port in [broker.plaintext, broker.sasl_plaintext] {
        let error = tls_refused(port, &[ssl(), broker.trust()]).await;
        assert_eq!(error, TlsError::PlaintextPort);
    }
    for keys in [Vec::new(), plain()] {
        let error = refused(broker.ssl, &keys).await;
        assert!(error.to_string().contains("port expects TLS"), "{error}");
    }
    let error = sasl_refused(broker.plaintext, &plain()).await;
    assert_eq!(error, SaslError::NotSasl);
    for (port, keys) in [
        (broker.sasl_plaintext, Vec::new()),
        (broker.sasl_ssl, vec![ssl(), broker.trust()]),
    ] {
        let enabled = MECHANISMS.map(str::to_owned).to_vec();
        let error = sasl_refused(port, &keys).await;
        assert_eq!(error, SaslError::Required { enabled });
    }
}

async fn wrong_certificates_are_named(broker: &Broker) {
    let wrong_ca = broker
        .folder
        .write("wrong.pem", Authority::new("wrong").pem);
    let trust = ("ssl.truststore.location", wrong_ca.clone());
    let error = tls_refused(broker.ssl, &[ssl(), trust]).await;
    assert_eq!(error, TlsError::UnknownIssuer { trusted: wrong_ca });
    let error = tls_refused(broker.other_host, &[ssl(), broker.trust()]).await;
    assert!(matches!(error, TlsError::WrongHostName { .. }), "{error}");
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
    // What can be known before connecting is said at once.
    let keys = [
        ssl(),
        ("ssl.truststore.location", "/no/such/file".to_owned()),
    ];
    let builder = ShareConsumer::builder_with(config(broker.ssl, &keys)).group_id("g");
    let error = builder.topics(["t"]).build().await.unwrap_err();
    assert!(matches!(error, OpenError::Config(_)), "{error}");
}

/// Each connection authenticates again at least five times, none is cut, and no record comes twice.
#[tokio::test]
async fn b_110_slow_consumption_outlives_the_sessions_of_its_connections() {
    let session_ms = std::env::var(SESSION_MS).unwrap_or_else(|_| "3000".to_owned());
    let session = Duration::from_millis(session_ms.parse().unwrap());
    let started = Broker::start_with(|kafka| kafka.set("connections.max.reauth.ms", &*session_ms));
    let Some(broker) = started else {
        return;
    };
    let keys = sasl("SASL_PLAINTEXT", "SCRAM-SHA-512", "alice-secret");
    let config = config(broker.sasl_plaintext, &keys);
    create(&Admin::new(config.clone()), "slow").await;
    produce(config.clone(), "slow", SLOW_RECORDS).await;

    let (log, _guard) = Log::start();
    let builder = ShareConsumer::builder_with(config).group_id("slow");
    let builder = builder.topics(["slow"]).max_poll_records(1);
    // On this thread, whose log is kept.
    let mut consumer = builder.driver_on_current().build().await.unwrap();
    for offset in 0..SLOW_RECORDS {
        let batch = consumer.poll().await.unwrap().unwrap();
        let record = batch.record(0).unwrap();
        assert_eq!((record.offset, record.delivery_count), (offset as i64, 1));
        // The broker's clock can't be paused.
        sleep(session / 5).await;
        batch.accept();
        assert!(consumer.commit().await.unwrap().is_ok());
    }
    let renewals = log.lines("Authenticated again.").len();
    let connections = log.lines(" message=Connected.").len();
    println!("{connections} connections authenticated again {renewals} times");
    assert!(connections <= 3, "{connections} connections");
    assert!(renewals >= 5 * connections, "{renewals} renewals");
    drop(consumer.close(Duration::from_secs(10)).await.unwrap());
}
