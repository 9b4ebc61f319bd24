//! Rights that are taken away and given back, on a real broker.
#![cfg(feature = "tls")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod group;
#[path = "../../wire/tests/security/mod.rs"]
mod security;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use security::broker::{Broker, sasl};
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_consumer::{ShareConsumer, ShareEvent, ShareObserver};
use sharegroup_wire::ErrorCode;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

const GROUP: &str = "access-group";
const TOPIC: &str = "access-topic";

/// Counts warnings.
#[derive(Debug, Default)]
struct Watch {
    warnings: AtomicUsize,
    warned: Notify,
}

impl Watch {
    /// Waits for more warnings than so many.
    async fn more_than(&self, count: usize) {
        while self.warnings.load(Ordering::Relaxed) <= count {
            let warned = timeout(Duration::from_secs(30), self.warned.notified());
            warned.await.unwrap();
        }
    }
}

impl ShareObserver for Watch {
    fn event(&self, event: &ShareEvent) {
        if let ShareEvent::Warning(_) = event {
            self.warnings.fetch_add(1, Ordering::Relaxed);
            self.warned.notify_one();
        }
    }
}

fn config(port: u16, keys: &[(&'static str, String)]) -> ClientConfig {
    let mut config = ClientConfig::new(&format!("127.0.0.1:{port}")).unwrap();
    for (key, value) in keys {
        assert!(config.set(key, value).unwrap(), "{key}");
    }
    config
}

/// `--add` or `--remove` READ, which brings DESCRIBE, for alice.
fn read(broker: &Broker, change: &str, kind: &str, name: &str) {
    let server = format!("127.0.0.1:{}", broker.plaintext);
    let arguments = [
        "--bootstrap-server",
        &server,
        change,
        "--force",
        "--allow-principal",
        "User:alice",
        "--operation",
        "Read",
        kind,
        name,
    ];
    let tool = "org.apache.kafka.tools.AclCommand";
    let output = broker.kafka.tool(tool, arguments).unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}

async fn produce(broker: &Broker, count: usize) {
    let producer = Producer::new(ProducerConfig::new(config(broker.plaintext, &[])));
    for number in 0..count {
        let record = ProducerRecord::new(TOPIC).value(format!("{number}"));
        drop(producer.send(record).await.unwrap());
    }
    producer.close(Duration::from_secs(30)).await.unwrap();
}

/// Takes and accepts so many records.
async fn consume(consumer: &mut ShareConsumer, count: usize) {
    let mut seen = 0;
    while seen < count {
        let batch = timeout(Duration::from_secs(60), consumer.poll()).await;
        let batch = batch.unwrap().unwrap().unwrap();
        seen += batch.len();
        batch.accept();
    }
    assert!(consumer.commit().await.unwrap().is_ok());
    assert_eq!(seen, count);
}

#[tokio::test(flavor = "multi_thread")]
async fn b_111_missing_rights_are_told_without_a_loop_and_work_goes_on_when_they_are_granted() {
    let broker = Broker::start_with(|builder| {
        let authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
        builder
            .set("authorizer.class.name", authorizer)
            // The broker itself, and this test's own clients.
            .set("super.users", "User:ANONYMOUS")
    });
    let Some(broker) = broker else {
        return;
    };
    let admin = Admin::new(config(broker.plaintext, &[]));
    admin.create_topic(TOPIC, 1, -1, &[]).await.unwrap();
    group::set_group(&admin, GROUP, &[("share.auto.offset.reset", "earliest")]).await;
    produce(&broker, 10).await;
    read(&broker, "--add", "--topic", TOPIC);

    let keys = sasl("SASL_PLAINTEXT", "PLAIN", "alice-secret");
    let alice = Admin::new(config(broker.sasl_plaintext, &keys));
    let of_topic = alice.topic_rights(TOPIC).await.unwrap().unwrap();
    assert!(of_topic.read() && !of_topic.write(), "{of_topic:?}");
    let hidden = alice.share_group_rights(GROUP).await.unwrap_err();
    assert_eq!(hidden.code(), Some(ErrorCode::GroupAuthorizationFailed));

    // No right to the group: the start goes on trying, and says so once.
    let watch = Arc::new(Watch::default());
    let started = Instant::now();
    let builder = ShareConsumer::builder_with(config(broker.sasl_plaintext, &keys))
        .group_id(GROUP)
        .topics([TOPIC])
        .observer(Arc::clone(&watch) as Arc<dyn ShareObserver>);
    let opening = tokio::spawn(builder.build());
    watch.more_than(0).await;
    // The tool takes some seconds, in which the client tries again.
    read(&broker, "--add", "--group", GROUP);
    assert!(!opening.is_finished());
    let mut consumer = opening.await.unwrap().unwrap();
    consume(&mut consumer, 10).await;
    assert_paced(&watch, started, &consumer);
    let of_group = alice.share_group_rights(GROUP).await.unwrap();
    assert!(of_group.unwrap().read(), "{of_group:?}");

    // No right to the topic any more. A fetch that was on its way may still have it.
    let before = watch.warnings.load(Ordering::Relaxed);
    read(&broker, "--remove", "--topic", TOPIC);
    watch.more_than(before).await;
    produce(&broker, 10).await;
    let nothing = timeout(Duration::from_secs(10), consumer.poll()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    let hidden = alice.topic_rights(TOPIC).await.unwrap_err();
    assert_eq!(hidden.code(), Some(ErrorCode::TopicAuthorizationFailed));
    read(&broker, "--add", "--topic", TOPIC);
    consume(&mut consumer, 10).await;
    assert_paced(&watch, started, &consumer);
    drop(consumer.close(Duration::from_secs(10)).await.unwrap());
}

/// At most one try a second, and each thing that is missing told once a minute.
fn assert_paced(watch: &Watch, started: Instant, consumer: &ShareConsumer) {
    let seconds = started.elapsed().as_secs();
    let heartbeats = consumer.metrics().heartbeats;
    assert!(
        heartbeats <= seconds + 5,
        "{heartbeats} heartbeats in {seconds} s"
    );
    // The group, then the topic as heartbeats and as fetches see it.
    let warnings = watch.warnings.load(Ordering::Relaxed);
    assert!(
        warnings <= 3 * (1 + seconds as usize / 60),
        "{warnings} warnings in {seconds} s"
    );
}
