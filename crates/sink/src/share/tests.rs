//! Tasks over real consumers, against the model of a cluster in memory.

mod embedded;
mod lanes;

use std::path::Path;

use sharegroup_broker::Broker;
use sharegroup_testkit::memory::MemoryCluster;
use sharegroup_testkit::model::{Place, Slot};
use sharegroup_wire::net::Connector;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::*;
use crate::config::Loaded;
use crate::connector::TaskContext;
use crate::convert::Chain;
use crate::status::TaskState;
use crate::task::{Control, FailureSettings, ShareSinkTask, Sink, TaskSettings};
use crate::testing::{Keeper, LetterBox, ScriptedConnector, SinkScript, Step, load};
use crate::worker::Worker;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// An embedded broker with the topic `orders`, which the group of the connector `out` reads from its start.
async fn orders() -> Broker {
    Broker::builder()
        .in_memory()
        .topic("orders", 1)
        .group("connect-out", "share.auto.offset.reset", "earliest")
        .start()
        .await
        .unwrap()
}

/// The model has no configurations to prepare.
struct Model {
    kafka: KafkaCluster,
    delivery_count_limit: i16,
}

impl Cluster for Model {
    type Source = ShareSource;

    async fn prepare(&self, _: &ConnectorConfig) -> Result<Prepared, String> {
        let delivery_count_limit = self.delivery_count_limit;
        Ok(Prepared {
            delivery_count_limit,
            record_locks_max: 2000,
            has_dead_letters: false,
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
            driver_on_current: false,
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

/// A task of its own, without a worker.
async fn task_on(
    client: (&str, Arc<dyn Connector>),
    sink: &SinkScript,
    letters: Option<LetterBox>,
    failures: FailureSettings,
) -> Alone {
    let scripts = ScriptedConnector(vec![sink.clone()]);
    let mut config = load(scripts, "").connectors.remove(0);
    config.consumer.client.bootstrap_servers = vec![client.0.parse().unwrap()];
    config.consumer.client.connector = client.1;
    let shared = Arc::new(TaskShared::new(0, watch::Sender::new(())));
    let place = TaskPlace {
        name: "out-0",
        index: 0,
        delivery_count_limit: 2,
        shared: &shared,
    };
    let source = model().open(&config, place).await.unwrap();
    let (control, seen) = watch::channel(Control::Run);
    let task = ShareSinkTask::new(
        source,
        Sink {
            task: Box::new(sink.sink()),
            context: TaskContext::new("out", 0, 1, "g"),
            dead_letters: letters.map(|letters| Box::new(letters) as Box<_>),
        },
        seen,
        Arc::clone(&shared),
        TaskSettings {
            name: "out-0".to_owned(),
            explicit: true,
            delivery_count_limit: 2,
            tasks: 1,
            writes_at_once: false,
            flush_interval: 60 * S,
            shutdown_timeout: 5 * S,
            loss: LossLog {
                file: None,
                group_id: config.consumer.group_id.clone(),
                task: "out-0".to_owned(),
            },
            topics: vec![Arc::from("orders")],
            chain: Chain::raw(),
            failures,
        },
    );
    Alone {
        shared,
        control,
        task: tokio::spawn(task.run()),
    }
}

struct Alone {
    shared: Arc<TaskShared>,
    control: watch::Sender<Control>,
    task: tokio::task::JoinHandle<()>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_put_that_blocks_its_thread_three_locks_long_is_written_once() {
    let (cluster, place) = cluster(400 * MS, 20);
    let keeper = Keeper::default();
    let sink = SinkScript::puts([Step::BlocksThread(keeper.0.clone())]);
    let worker = start_on(model(), &cluster, &sink, None);
    until("a put", || !sink.put_offsets().is_empty()).await;
    sleep(1200 * MS).await;
    cluster.model(|model| {
        let delivered = (0..20).map(|offset| model.delivery_count(place, offset));
        assert!(delivered.max() == Some(1));
    });
    keeper.0.open();
    until("everything is accepted", || {
        count(&cluster, place, |slot| *slot == Slot::Accepted) == 20
    })
    .await;
    let totals = worker.status().totals();
    assert_eq!((totals.locks_lost, totals.may_arrive_twice()), (0, 0));
    let mut written = sink.written();
    written.sort_unstable();
    assert_eq!(written, (0..20).collect::<Vec<_>>());
    worker.stop(5 * S).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_put_that_blocks_its_thread_for_ever_fails_its_task_and_lets_its_locks_run_out() {
    let (cluster, place) = cluster(400 * MS, 20);
    let keeper = Keeper::default();
    let sink = SinkScript::puts([Step::BlocksThread(keeper.0.clone())]);
    let failures = FailureSettings {
        put_stall: S,
        ..FailureSettings::default()
    };
    let servers = cluster.bootstrap_servers();
    let client = (servers.as_ref(), cluster.connector());
    let stuck = task_on(client, &sink, None, failures).await;
    until("a put", || !sink.put_offsets().is_empty()).await;
    until("the failure", || stuck.shared.state() == TaskState::Failed).await;
    let trace = stuck.shared.status().trace.unwrap();
    assert!(trace.contains("put of orders-0 offset"), "{trace}");
    assert!(trace.contains("gave no outcome for"), "{trace}");
    until("the end of the locks", || {
        count(&cluster, place, |slot| *slot == Slot::Available) == 20
    })
    .await;
    assert!(!stuck.control.is_closed());
    keeper.0.open();
    stuck.task.await.unwrap();
    // Nothing was acquired again meanwhile.
    cluster.model(|model| {
        let delivered = (0..20).map(|offset| model.delivery_count(place, offset));
        assert!(delivered.max() == Some(1));
        assert_eq!(model.history().illegal, Vec::<String>::new());
    });
    assert_eq!(stuck.shared.state(), TaskState::Failed);
}
