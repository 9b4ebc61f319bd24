//! A test on both brokers: a real Apache Kafka, and the embedded one.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "each test uses its part, and stops at the first failure"
)]

use std::fs::OpenOptions;
use std::io::Write;
use std::process::Output;

use sharegroup_broker::Broker;
use sharegroup_launcher::{Kafka, Tools};

/// A cluster of one broker.
pub(crate) struct Cluster {
    servers: String,
    tools: Tools,
    kind: Kind,
}

enum Kind {
    Real(Kafka),
    Embedded(Broker),
}

/// What [`Kafka`] sets beyond the defaults: short locks and sessions are allowed.
const AS_LAUNCHED: [(&str, &str); 3] = [
    ("group.share.min.record.lock.duration.ms", "1000"),
    ("group.share.min.heartbeat.interval.ms", "500"),
    ("group.share.min.session.timeout.ms", "1000"),
];

/// Runs a test on both, each with these settings; on none, loudly, where a real one can't run.
pub(crate) async fn on_both(settings: &[(&str, &str)], test: impl AsyncFn(&Cluster)) {
    let mut kafka = Kafka::builder();
    let mut broker = Broker::builder();
    for (key, value) in AS_LAUNCHED {
        broker = broker.set(key, value);
    }
    for (key, value) in settings {
        (kafka, broker) = (kafka.set(*key, *value), broker.set(*key, *value));
    }
    let Some(kafka) = kafka.start_or_skip().unwrap() else {
        return;
    };
    let tools = kafka.tools().clone();
    let broker = broker.start().await.unwrap();
    println!("On the embedded broker:");
    test(&Cluster {
        servers: broker.bootstrap_servers().to_owned(),
        tools: tools.clone(),
        kind: Kind::Embedded(broker),
    })
    .await;
    println!("On a real broker:");
    test(&Cluster {
        servers: kafka.bootstrap_servers(),
        tools,
        kind: Kind::Real(kafka),
    })
    .await;
}

impl Cluster {
    /// For a client's `bootstrap.servers`.
    pub(crate) fn bootstrap_servers(&self) -> &str {
        &self.servers
    }

    /// Flips a bit of a value in the log of a topic's first partition, in the batch that holds this offset.
    pub(crate) fn spoil(&self, topic: &str, offset: i64, value: &str) {
        let flip = |bytes: &mut [u8]| {
            let mut places = bytes.windows(value.len());
            let at = places.position(|place| place == value.as_bytes());
            bytes[at.unwrap()] ^= 1;
        };
        match &self.kind {
            Kind::Real(kafka) => {
                let partition = format!("node1/data/{topic}-0/00000000000000000000.log");
                let segment = kafka.dir().join(partition);
                let mut bytes = std::fs::read(&segment).unwrap();
                flip(&mut bytes);
                // In place: the broker has the file open.
                let mut file = OpenOptions::new().write(true).open(segment).unwrap();
                file.write_all(&bytes).unwrap();
            }
            Kind::Embedded(broker) => broker.model(|model| {
                let place = (model.topics.named(topic).unwrap().id, 0);
                let partition = model.topics.partition_mut(place).unwrap();
                partition.log.rewrite(offset, flip);
            }),
        }
    }

    /// Kafka's tools.
    pub(crate) const fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Runs one of Kafka's tools to its end.
    pub(crate) async fn tool(&self, class: &'static str, args: &[&str]) -> Output {
        run_tool(&self.tools, &self.servers, class, args).await
    }
}

/// Runs one of Kafka's tools to its end, off the runtime: the embedded broker may be on it.
pub(crate) async fn run_tool(
    tools: &Tools,
    servers: &str,
    class: &'static str,
    args: &[&str],
) -> Output {
    let tools = tools.clone();
    let args = [&["--bootstrap-server", servers], args].concat();
    let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
    let run = move || tools.run(class, args).unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(output.status.success(), "{class}: {output:?}");
    output
}
