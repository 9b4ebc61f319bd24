//! Consuming from a real broker over every way to secure a connection.
#![cfg(feature = "tls")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[path = "../../wire/tests/security/mod.rs"]
mod security;

use std::time::Duration;

use security::Authority;
use security::broker::{Broker, MECHANISMS, client, sasl, ssl};
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_consumer::{OpenError, ShareConsumer};
use tokio::task::JoinSet;
use tokio::time::timeout;

const RECORDS: usize = 100;

fn config(port: u16, keys: &[(&'static str, String)]) -> ClientConfig {
    let mut config = ClientConfig::new(&format!("127.0.0.1:{port}")).unwrap();
    for (key, value) in keys {
        assert!(config.set(key, value).unwrap(), "{key}");
    }
    assert!(!format!("{config:?}").contains("secret"));
    config
}

/// Produces and consumes over one way, and sees each record acknowledged.
async fn consumes(name: String, config: ClientConfig, admin: Admin) {
    let topic = name.to_lowercase().replace(' ', "-");
    admin.create_topic(&topic, 1, -1, &[]).await.unwrap();
    admin
        .set_group_config(&topic, "share.auto.offset.reset", "earliest")
        .await
        .unwrap();
    let producer = Producer::new(ProducerConfig::new(config.clone()));
    for number in 0..RECORDS {
        let record = ProducerRecord::new(&*topic).value(format!("{number}"));
        drop(producer.send(record).await.unwrap());
    }
    producer.close(Duration::from_secs(30)).await.unwrap();

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
    wrong_settings_are_named(&broker).await;
}

async fn wrong_settings_are_named(broker: &Broker) {
    let wrong_ca = broker
        .folder
        .write("wrong.pem", Authority::new("wrong").pem);
    for (port, keys, expected) in [
        (
            broker.sasl_plaintext,
            sasl("SASL_PLAINTEXT", "SCRAM-SHA-512", "wrong-secret"),
            "SASL_AUTHENTICATION_FAILED",
        ),
        (
            broker.ssl,
            vec![ssl(), ("ssl.truststore.location", wrong_ca)],
            "unknown issuer",
        ),
        (
            broker.mtls,
            vec![ssl(), broker.trust()],
            "client certificate",
        ),
    ] {
        let builder = ShareConsumer::builder_with(config(port, &keys)).group_id("g");
        let builder = builder
            .topics(["t"])
            .startup_timeout(Duration::from_secs(3));
        let error = builder.build().await.unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
    // What can be known before connecting is said at once.
    let keys = [
        ssl(),
        ("ssl.truststore.location", "/no/such/file".to_owned()),
    ];
    let builder = ShareConsumer::builder_with(config(broker.ssl, &keys)).group_id("g");
    let error = builder.topics(["t"]).build().await.unwrap_err();
    assert!(matches!(error, OpenError::Config(_)), "{error}");
}
