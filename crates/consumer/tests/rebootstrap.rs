//! A cluster whose brokers move: clients start again from their bootstrap servers (KIP-899, KIP-1102).
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sharegroup_broker::Broker;
use sharegroup_broker::model::faults::Fault;
use sharegroup_consumer::ShareConsumer;
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::{ClientConfig, MetadataRecovery};
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_wire::net::{Address, ConnectFuture, Connector};
use sharegroup_wire::{BrokerId, ErrorCode};
use tokio::time::{Instant, timeout};

const SECOND: Duration = Duration::from_secs(1);
const METADATA: i16 = 3;
const API_VERSIONS: i16 = 18;

/// A network in which the name `bootstrap` leads to the cluster wherever it is.
#[derive(Debug)]
struct Net {
    cluster: Arc<dyn Connector>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bootstrap: Address,
    /// What has nobody behind it any more keeps silent instead of refusing.
    is_silent: bool,
    /// How often the bootstrap server was connected to.
    bootstraps: usize,
}

impl Net {
    fn bootstraps(&self) -> usize {
        self.state.lock().unwrap().bootstraps
    }
}

impl Connector for Net {
    fn connect<'a>(&'a self, address: &'a Address) -> ConnectFuture<'a> {
        Box::pin(async move {
            let (address, is_silent) = {
                let mut state = self.state.lock().unwrap();
                let is_bootstrap = address.host == "bootstrap";
                state.bootstraps += usize::from(is_bootstrap);
                let target = if is_bootstrap {
                    &state.bootstrap
                } else {
                    address
                };
                (target.clone(), state.is_silent)
            };
            match self.cluster.connect(&address).await {
                Err(error) if is_silent && error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::future::pending().await
                }
                connected => connected,
            }
        })
    }
}

/// Three brokers at `old-N`, with a topic `orders` that the group `orders` reads from its start.
async fn cluster(is_silent: bool) -> (Broker, Arc<Net>, ClientConfig) {
    let broker = Broker::builder()
        .in_memory()
        .brokers(3)
        .topic("orders", 3)
        .group("orders", "share.auto.offset.reset", "earliest")
        .start()
        .await
        .unwrap();
    move_to(&broker, "old");
    let net = Arc::new(Net {
        cluster: broker.connector(),
        state: Mutex::new(State {
            bootstrap: Address::new("old-1", 9092),
            is_silent,
            bootstraps: 0,
        }),
    });
    let mut config = ClientConfig::new("bootstrap:9092").unwrap();
    config.connector = Arc::clone(&net) as _;
    config.seed = 7;
    (broker, net, config)
}

fn move_to(broker: &Broker, place: &str) {
    for id in 1..=3 {
        broker.readdress(BrokerId(id), &format!("{place}-{id}"), 9092);
    }
}

async fn open(config: &ClientConfig) -> ShareConsumer {
    let builder = ShareConsumer::builder_with(config.clone()).group_id("orders");
    let builder = builder.topics(["orders"]).driver_on_current();
    builder.build().await.unwrap()
}

/// A producer of its own, which knows nothing of old addresses.
async fn produce(config: &ClientConfig) {
    let producer = Producer::new(ProducerConfig::new(config.clone()));
    let sent = producer
        .send(ProducerRecord::new("orders").value("v"))
        .await;
    sent.unwrap().await.unwrap();
    producer.close(SECOND).await.unwrap();
}

async fn accept_one(consumer: &mut ShareConsumer, within: Duration) {
    let batch = timeout(within, consumer.poll()).await.unwrap();
    batch.unwrap().unwrap().accept();
    assert!(consumer.commit().await.unwrap().is_ok());
}

/// All brokers move while a consumer reads; it goes on within the given time.
async fn all_brokers_move(is_silent: bool, within: Duration) {
    let (broker, net, config) = cluster(is_silent).await;
    let mut consumer = open(&config).await;
    produce(&config).await;
    accept_one(&mut consumer, 60 * SECOND).await;
    move_to(&broker, "new");
    net.state.lock().unwrap().bootstrap = Address::new("new-2", 9092);
    produce(&config).await;
    let moved = Instant::now();
    accept_one(&mut consumer, within).await;
    println!("at work again after {:.1?}", moved.elapsed());
    let report = consumer.close(10 * SECOND).await.unwrap();
    assert!(report.is_ok(), "{report:?}");
    assert_eq!(consumer.metrics().accepted, 2);
}

#[tokio::test(start_paused = true)]
async fn b_115_consumer_follows_brokers_that_all_move_within_ten_seconds() {
    all_brokers_move(false, 10 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn brokers_that_moved_without_a_word_are_given_up_before_long() {
    all_brokers_move(true, 30 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn b_115_broker_that_comes_back_elsewhere_is_found_there_within_ten_seconds() {
    let (broker, net, config) = cluster(false).await;
    let mut consumer = open(&config).await;
    for id in 1..=3 {
        produce(&config).await;
        accept_one(&mut consumer, 60 * SECOND).await;
        broker.readdress(BrokerId(id), &format!("new-{id}"), 9092);
        net.state.lock().unwrap().bootstrap = Address::new("new-1", 9092);
    }
    produce(&config).await;
    accept_one(&mut consumer, 10 * SECOND).await;
    drop(consumer.close(10 * SECOND).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn broker_that_demands_it_is_left_for_the_bootstrap_servers() {
    for api_key in [METADATA, API_VERSIONS] {
        let (broker, net, config) = cluster(false).await;
        let admin = Admin::new(config.clone());
        admin.list_topics().await.unwrap();
        // The next calls go to brokers that are known.
        admin.list_topics().await.unwrap();
        assert_eq!(net.bootstraps(), 1);
        if api_key == API_VERSIONS {
            (1..=3).for_each(|id| broker.cut(BrokerId(id)));
        }
        broker.faults(api_key, [Fault::Error(ErrorCode::RebootstrapRequired)]);
        let started = Instant::now();
        admin.list_topics().await.unwrap();
        assert_eq!(net.bootstraps(), 2, "API key {api_key}");
        assert!(started.elapsed() < SECOND, "{:?}", started.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn without_recovery_the_bootstrap_servers_are_asked_only_once() {
    let (broker, net, mut config) = cluster(false).await;
    config.metadata_recovery = MetadataRecovery::None;
    let admin = Admin::new(config);
    admin.list_topics().await.unwrap();
    move_to(&broker, "new");
    net.state.lock().unwrap().bootstrap = Address::new("new-2", 9092);
    let started = Instant::now();
    while started.elapsed() < 600 * SECOND {
        admin.list_topics().await.unwrap_err();
    }
    assert_eq!(net.bootstraps(), 1);
    // A broker that says so is none of those that can't be reached.
    move_to(&broker, "old");
    broker.faults(METADATA, [Fault::Error(ErrorCode::RebootstrapRequired)]);
    let error = admin.list_topics().await.unwrap_err().to_string();
    assert!(error.contains("REBOOTSTRAP_REQUIRED"), "{error}");
    admin.list_topics().await.unwrap();
    assert_eq!(net.bootstraps(), 1);
}
