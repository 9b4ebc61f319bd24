//! Tasks over real consumers, against the model of a cluster in memory.

use std::path::Path;

use sharegroup_testkit::memory::MemoryCluster;
use sharegroup_testkit::model::{Place, Slot};
use tokio::time::sleep;

use super::*;
use crate::config::Loaded;
use crate::testing::{Keeper, ScriptedConnector, SinkScript, Step, load};
use crate::worker::Worker;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// The model has no configurations to prepare.
struct Model {
    kafka: KafkaCluster,
    delivery_count_limit: i16,
}

impl Cluster for Model {
    type Source = ShareSource;

    async fn prepare(&self, _: &ConsumerSettings) -> Result<Prepared, String> {
        let delivery_count_limit = self.delivery_count_limit;
        Ok(Prepared {
            delivery_count_limit,
        })
    }

    async fn open(
        &self,
        connector: &ConnectorConfig,
        task: TaskPlace<'_>,
    ) -> Result<ShareSource, String> {
        self.kafka.open(connector, task).await
    }
}

/// A cluster with one partition of `orders`, whose records are delivered twice at most.
fn cluster(lock: Duration, records: usize) -> (MemoryCluster, Place) {
    let cluster = MemoryCluster::new(1);
    let place = cluster.model(|model| {
        model.settings.lock = lock;
        model.settings.delivery_count_limit = 2;
        let place = (model.create_topic("orders", 1), 0);
        model.produce(place, records);
        place
    });
    (cluster, place)
}

fn model() -> Model {
    Model {
        kafka: KafkaCluster {
            startup_timeout: 10 * S,
        },
        delivery_count_limit: 2,
    }
}

/// One task with a scripted sink.
fn start_on(
    model: Model,
    cluster: &MemoryCluster,
    sink: &SinkScript,
    loss_file: Option<&Path>,
) -> Worker {
    let mut loaded: Loaded = load(ScriptedConnector(vec![sink.clone()]), "tasks.max=1\n");
    for connector in &mut loaded.connectors {
        let client = &mut connector.consumer.client;
        client.bootstrap_servers = vec![cluster.bootstrap_servers().parse().unwrap()];
        client.connector = cluster.connector();
        connector.consumer.loss_file = loss_file.map(Path::to_owned);
    }
    Worker::start_on(Arc::new(model), &loaded.worker, loaded.connectors)
}

/// Waits, at most ten seconds of real time.
async fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..1000 {
        if done() {
            return;
        }
        sleep(10 * MS).await;
    }
    panic!("{what} did not happen");
}

fn count(cluster: &MemoryCluster, place: Place, filter: impl Fn(&Slot) -> bool) -> usize {
    cluster.model(|model| {
        model.pass_time(Instant::now().into_std());
        model.offsets(place, filter).len()
    })
}

// Real time: a blocked thread stops a paused clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_put_that_blocks_its_thread_costs_each_record_one_delivery() {
    let (cluster, place) = cluster(400 * MS, 20);
    cluster.model(|model| model.settings.renew_enabled = false);
    let keeper = Keeper::default();
    let sink = SinkScript::puts([Step::BlocksThread(keeper.0.clone())]);
    let worker = start_on(model(), &cluster, &sink, None);
    until("a put", || !sink.put_offsets().is_empty()).await;
    until("the end of the locks", || {
        count(&cluster, place, |slot| *slot == Slot::Available) == 20
    })
    .await;
    // Five lock times, in which a client that goes on acquiring burns every delivery.
    sleep(2 * S).await;
    cluster.model(|model| {
        let delivered = (0..20).map(|offset| model.delivery_count(place, offset));
        assert!(delivered.max() == Some(1));
        assert_eq!(
            model.offsets(place, |slot| *slot == Slot::Available).len(),
            20
        );
    });
    keeper.0.open();
    until("everything is accepted", || {
        count(&cluster, place, |slot| *slot == Slot::Accepted) == 20
    })
    .await;
    let status = worker.status();
    assert_eq!(status.failed().count(), 0);
    assert!(status.totals().duplicates_expected > 0);
    worker.stop(5 * S).await;
    cluster.model(|model| assert_eq!(model.history().illegal, Vec::<String>::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_is_lost_on_its_last_delivery_is_named_though_the_task_is_stuck() {
    let (cluster, place) = cluster(400 * MS, 20);
    cluster.model(|model| {
        model.settings.renew_enabled = false;
        model.settings.delivery_count_limit = 1;
    });
    let file = std::env::temp_dir().join(format!("share-loss-{}", std::process::id()));
    let keeper = Keeper::default();
    let sink = SinkScript::puts([Step::BlocksThread(keeper.0.clone())]);
    let mut model = model();
    model.delivery_count_limit = 1;
    let worker = start_on(model, &cluster, &sink, Some(&file));
    until("the end of the locks", || {
        let archived = |slot: &Slot| matches!(slot, Slot::Archived { .. });
        count(&cluster, place, archived) == 20
    })
    .await;
    until("the names", || worker.status().totals().named_as_lost == 20).await;
    keeper.0.open();
    worker.stop(5 * S).await;
    let lines = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let mut named: Vec<i64> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|line| line["offset"].as_i64().unwrap())
        .collect();
    named.sort_unstable();
    assert_eq!(named, (0..20).collect::<Vec<_>>());
}

#[test]
fn ranges_are_listed_without_end_only_in_number() {
    assert_eq!(
        list(&[(0, 4), (5, 5), (9, i64::MAX)]),
        format!("0-5, 9-{}", i64::MAX)
    );
    let many: Vec<_> = (0..100).map(|n| (3 * n, 3 * n)).collect();
    let text = list(&many);
    assert!(text.ends_with("57-57 and 80 ranges more"), "{text}");
}
