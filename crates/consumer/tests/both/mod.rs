//! A test on both brokers: a real Apache Kafka, and the embedded one.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "each test uses its part, and stops at the first failure"
)]

use std::fs::OpenOptions;
use std::future::poll_fn;
use std::io::Write;
use std::pin::Pin;
use std::process::Output;
use std::sync::{Arc, OnceLock};

use sharegroup_broker::{Broker, BrokerBuilder};
use sharegroup_launcher::{Kafka, Tools};
use sharegroup_wire::BrokerId;

/// A cluster, of one broker but for [`on_three`].
pub(crate) struct Cluster {
    servers: String,
    tools: Tools,
    kind: Kind,
}

enum Kind {
    Real(Arc<Kafka>),
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
    let mut broker = embedded();
    for (key, value) in settings {
        (kafka, broker) = (kafka.set(*key, *value), broker.set(*key, *value));
    }
    let Some(kafka) = kafka.start_or_skip().unwrap() else {
        return;
    };
    let broker = broker.start().await.unwrap();
    println!("On the embedded broker:");
    test(&Cluster::embedded(broker, kafka.tools())).await;
    println!("On a real broker:");
    test(&Cluster::real(Arc::new(kafka))).await;
}

/// Runs a test on both at the same time; the real one is the same for all tests of the process, which must
/// differ in topics and groups.
pub(crate) async fn on_shared(test: impl AsyncFn(&Cluster)) {
    static KAFKA: OnceLock<Option<Arc<Kafka>>> = OnceLock::new();
    shared(&KAFKA, 1, test).await;
}

/// As [`on_shared`], on clusters of three brokers.
pub(crate) async fn on_three(test: impl AsyncFn(&Cluster)) {
    static KAFKA: OnceLock<Option<Arc<Kafka>>> = OnceLock::new();
    shared(&KAFKA, 3, test).await;
}

async fn shared(
    kafka: &'static OnceLock<Option<Arc<Kafka>>>,
    brokers: u16,
    test: impl AsyncFn(&Cluster),
) {
    let start = move || {
        let start = || Kafka::builder().brokers(brokers).start_or_skip();
        kafka.get_or_init(|| start().unwrap().map(Arc::new)).clone()
    };
    let Some(kafka) = tokio::task::spawn_blocking(start).await.unwrap() else {
        return;
    };
    let broker = embedded().brokers(brokers.into()).start().await.unwrap();
    let embedded = Cluster::embedded(broker, kafka.tools());
    let real = Cluster::real(kafka);
    tokio::join!(
        told("embedded", Box::pin(test(&embedded))),
        told("real", Box::pin(test(&real)))
    );
}

/// Runs a test, and says of which broker it was if it panics.
async fn told(kind: &'static str, mut test: Pin<Box<impl Future<Output = ()>>>) {
    poll_fn(|cx| {
        let _told = Told(kind);
        test.as_mut().poll(cx)
    })
    .await;
}

struct Told(&'static str);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("That was on the {} broker.", self.0);
        }
    }
}

fn embedded() -> BrokerBuilder {
    let builder = Broker::builder();
    AS_LAUNCHED
        .iter()
        .fold(builder, |builder, (key, value)| builder.set(*key, *value))
}

impl Cluster {
    /// An embedded cluster alone.
    pub(crate) fn embedded(broker: Broker, tools: &Tools) -> Self {
        Self {
            servers: broker.bootstrap_servers().to_owned(),
            tools: tools.clone(),
            kind: Kind::Embedded(broker),
        }
    }

    /// A real cluster alone.
    pub(crate) fn real(kafka: Arc<Kafka>) -> Self {
        Self {
            servers: kafka.bootstrap_servers(),
            tools: kafka.tools().clone(),
            kind: Kind::Real(kafka),
        }
    }

    /// Moves the only replica of a partition, and so its leadership, to another broker.
    pub(crate) async fn move_partition(&self, topic: &str, partition: i32, to: i32) {
        let kafka = match &self.kind {
            Kind::Embedded(broker) => {
                let id = broker.model(|model| model.topics.named(topic).unwrap().id);
                return broker.move_leader((id, partition), BrokerId(to));
            }
            Kind::Real(kafka) => kafka,
        };
        let plan = format!(
            r#"{{"version":1,"partitions":[{{"topic":"{topic}","partition":{partition},"replicas":[{to}]}}]}}"#
        );
        let file = kafka.dir().join(format!("move-{topic}-{partition}.json"));
        std::fs::write(&file, plan).unwrap();
        let file = file.to_string_lossy();
        let args = ["--reassignment-json-file", &*file, "--execute"];
        let class = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand";
        self.tool(class, &args).await;
    }

    /// Kills a broker and starts it again.
    pub(crate) async fn restart(&self, broker: i32) {
        match &self.kind {
            Kind::Embedded(embedded) => embedded.restart(BrokerId(broker)),
            Kind::Real(kafka) => {
                let kafka = Arc::clone(kafka);
                let restart = move || {
                    kafka.broker(broker).kill().unwrap();
                    kafka.broker(broker).start().unwrap();
                };
                tokio::task::spawn_blocking(restart).await.unwrap();
            }
        }
    }

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
