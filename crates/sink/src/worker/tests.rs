use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::{Instant, sleep};

use super::join::JOIN_MAX;
use super::*;
use crate::prepare::Prepared;
use crate::testing::{Broker, Call, ScriptedConnector, ScriptedSource, SinkScript, Step, load};

/// One scripted broker per task.
struct FakeCluster {
    brokers: Vec<Broker>,
    prepared: AtomicUsize,
    /// How long preparing takes, and what it says.
    preparing: (Duration, Result<Prepared, String>),
}

impl Cluster for FakeCluster {
    type Source = ScriptedSource;

    async fn prepare(&self, _: &ConnectorConfig) -> Result<Prepared, String> {
        self.prepared.fetch_add(1, Ordering::SeqCst);
        sleep(self.preparing.0).await;
        self.preparing.1.clone()
    }

    async fn open(
        &self,
        _: &ConnectorConfig,
        task: TaskPlace<'_>,
    ) -> Result<ScriptedSource, String> {
        Ok(self.brokers[task.index as usize].source())
    }
}

struct Setup {
    cluster: Arc<FakeCluster>,
    scripts: Vec<SinkScript>,
    worker: Worker,
}

fn start(
    scripts: Vec<SinkScript>,
    tasks: usize,
    preparing: (Duration, Result<Prepared, String>),
) -> Setup {
    start_with(scripts, tasks, preparing, "")
}

/// The same with further lines in the connector's file.
fn start_with(
    scripts: Vec<SinkScript>,
    tasks: usize,
    preparing: (Duration, Result<Prepared, String>),
    lines: &str,
) -> Setup {
    let loaded = load(
        ScriptedConnector(scripts.clone()),
        &format!("tasks.max={tasks}\n{lines}"),
    );
    let cluster = Arc::new(FakeCluster {
        brokers: (0..tasks.max(scripts.len()))
            .map(|_| Broker::default())
            .collect(),
        prepared: AtomicUsize::new(0),
        preparing,
    });
    let worker = Worker::start_on(Arc::clone(&cluster), &loaded.worker, loaded.connectors);
    Setup {
        cluster,
        scripts,
        worker,
    }
}

fn at_once() -> (Duration, Result<Prepared, String>) {
    (
        Duration::ZERO,
        Ok(Prepared {
            delivery_count_limit: 10,
            record_locks_max: 2000,
            has_dead_letters: false,
        }),
    )
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_or_panics_takes_no_other_with_it() {
    let scripts = vec![
        SinkScript::puts([Step::Panics]),
        SinkScript::default(),
        SinkScript::puts([Step::Broken]),
    ];
    let setup = start(scripts, 4, at_once());
    for broker in &setup.cluster.brokers {
        broker.deliver(0..3, 1);
    }
    setup.worker.any_failed().await;
    sleep(Duration::from_secs(10)).await;
    let status = setup.worker.status();
    let states: Vec<_> = status.tasks().map(|task| task.state).collect();
    let (failed, running) = (TaskState::Failed, TaskState::Running);
    assert_eq!(states, [failed, running, failed, failed]);
    assert_eq!(
        status.connectors[0].tasks[3].trace.as_deref(),
        Some("there is no script for this task")
    );
    assert_eq!(status.failed().count(), 3);
    assert_eq!(setup.cluster.brokers[0].released(), [0, 1, 2]);
    assert_eq!(setup.cluster.brokers[1].accepted(), [0, 1, 2]);
    assert_eq!(status.totals().written, 3);
    assert_eq!(
        setup.worker.stop(Duration::from_secs(5)).await,
        StopReport::default()
    );
    setup.worker.all_ended().await;
    assert_eq!(setup.worker.status().count(TaskState::Stopped), 1);
}

#[tokio::test(start_paused = true)]
async fn the_group_is_prepared_once_and_before_anybody_joins() {
    let (prepared_in, limit) = (
        Duration::from_secs(3),
        Ok(Prepared {
            delivery_count_limit: 10,
            record_locks_max: 2000,
            has_dead_letters: false,
        }),
    );
    let setup = start(
        (0..3).map(|_| SinkScript::default()).collect(),
        3,
        (prepared_in, limit),
    );
    sleep(Duration::from_secs(1)).await;
    let status = setup.worker.status();
    assert_eq!(status.count(TaskState::Unassigned), 3);
    let note = status.connectors[0].tasks[0].note.clone().unwrap();
    assert_eq!(note, "waiting for the cluster at localhost:9092");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(setup.worker.status().count(TaskState::Running), 3);
    assert_eq!(setup.cluster.prepared.load(Ordering::SeqCst), 1);
    setup.worker.stop(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_group_that_cannot_be_used_fails_every_task_and_stops_its_sink() {
    let no = Err("group id connect-out belongs to a consumer group".to_owned());
    let setup = start(
        vec![SinkScript::default(), SinkScript::default()],
        2,
        (Duration::ZERO, no),
    );
    setup.worker.all_ended().await;
    for (_, task) in setup.worker.status().failed() {
        assert!(
            task.trace
                .as_deref()
                .unwrap()
                .contains("belongs to a consumer group")
        );
    }
    for script in &setup.scripts {
        assert_eq!(script.calls(), [Call::Start, Call::Stop]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_stops_while_it_waits_for_the_cluster() {
    let never = (Duration::from_secs(10_000), Err(String::new()));
    let setup = start(vec![SinkScript::default()], 1, never);
    sleep(Duration::from_secs(1)).await;
    let told = Instant::now();
    assert_eq!(
        setup.worker.stop(Duration::from_secs(5)).await,
        StopReport::default()
    );
    assert!(told.elapsed() <= JOIN_MAX);
    assert_eq!(setup.worker.status().count(TaskState::Stopped), 1);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_stopped_while_it_joins_leaves_the_group() {
    let (_, prepared) = at_once();
    let joins_late = (Duration::from_millis(500), prepared);
    let setup = start(vec![SinkScript::default()], 1, joins_late);
    sleep(Duration::from_millis(100)).await;
    let report = setup.worker.stop(Duration::from_secs(5)).await;
    assert_eq!(report, StopReport::default());
    assert!(setup.cluster.brokers[0].seen(|seen| seen.closed));
}

#[tokio::test(start_paused = true)]
async fn stopping_takes_no_longer_than_its_budget() {
    let setup = start(
        vec![SinkScript::puts([Step::Hangs]), SinkScript::default()],
        2,
        at_once(),
    );
    setup.cluster.brokers[0].deliver(0..3, 1);
    sleep(Duration::from_secs(1)).await;
    let told = Instant::now();
    assert_eq!(
        setup.worker.stop(Duration::from_secs(5)).await,
        StopReport::default()
    );
    assert!(told.elapsed() <= Duration::from_secs(5));
    assert_eq!(setup.cluster.brokers[0].released(), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_dropped_worker_stop_by_themselves() {
    let setup = start(vec![SinkScript::puts(vec![Step::Fails; 100])], 1, at_once());
    let broker = setup.cluster.brokers[0].clone();
    broker.deliver(0..3, 1);
    sleep(Duration::from_secs(20)).await;
    drop(setup.worker);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(broker.released(), [0, 1, 2]);
    assert!(broker.seen(|seen| seen.closed));
}

#[tokio::test(start_paused = true)]
async fn a_connector_is_paused_and_resumed_by_name() {
    let setup = start(vec![SinkScript::default()], 1, at_once());
    sleep(Duration::from_secs(1)).await;
    assert!(!setup.worker.pause("other"));
    assert!(setup.worker.pause("out"));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(setup.worker.status().count(TaskState::Paused), 1);
    assert!(setup.worker.resume("out"));
    setup.worker.changed().await;
    assert_eq!(setup.worker.status().count(TaskState::Running), 1);
    setup.worker.stop(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn tasks_are_added_and_removed_while_the_others_work_on() {
    let scripts: Vec<_> = (0..6).map(|_| SinkScript::default()).collect();
    let setup = start(scripts, 2, at_once());
    let running = || setup.worker.status().count(TaskState::Running);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(running(), 2);
    let report = setup.worker.set_tasks("out", 6).await.unwrap();
    assert_eq!(report, StopReport::default());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(running(), 6);
    for (broker, first) in setup.cluster.brokers.iter().zip(0..) {
        broker.deliver(first * 10..first * 10 + 3, 1);
    }
    sleep(Duration::from_secs(1)).await;
    setup.worker.set_tasks("out", 1).await.unwrap();
    let status = setup.worker.status();
    assert_eq!((running(), status.tasks().count()), (1, 1));
    assert_eq!(status.connectors[0].tasks_destroyed, 5);
    assert_eq!(status.totals().written, 18, "what is gone still counts");
    for broker in &setup.cluster.brokers[1..] {
        assert!(broker.seen(|seen| seen.closed));
    }
    assert!(setup.cluster.brokers[0].seen(|seen| !seen.closed));
    assert_eq!(setup.scripts[0].calls().last(), Some(&Call::Tick));
    setup.worker.stop(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_task_finishes_its_put_and_releases_the_rest() {
    let slow = SinkScript::puts([Step::Slow(Duration::from_secs(2))]);
    let setup = start(vec![SinkScript::default(), slow], 2, at_once());
    let broker = setup.cluster.brokers[1].clone();
    broker.deliver(0..3, 1);
    sleep(Duration::from_secs(1)).await;
    broker.deliver(3..6, 1);
    assert!(broker.accepted().is_empty());
    let report = setup.worker.set_tasks("out", 1).await;
    assert_eq!(report, Ok(StopReport::default()));
    assert_eq!(broker.accepted()[..3], [0, 1, 2]);
    assert_eq!(broker.accepted().len() + broker.released().len(), 6);
    assert_eq!(
        setup.worker.status().totals().written,
        broker.accepted().len() as u64
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_task_is_started_again_as_often_as_the_policy_says() {
    let script = SinkScript::puts([Step::Broken, Step::Broken]);
    let setup = start_with(
        vec![script],
        1,
        at_once(),
        "task.restart.max=2\ntask.restart.backoff.ms=4000\n",
    );
    let broker = setup.cluster.brokers[0].clone();
    let state = || setup.worker.status().connectors[0].tasks[0].state;
    broker.deliver(0..1, 1);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(state(), TaskState::Restarting);
    let trace = setup.worker.status().connectors[0].tasks[0].trace.clone();
    assert!(trace.is_some());
    broker.deliver(1..2, 1);
    sleep(Duration::from_secs(4)).await;
    assert_eq!(state(), TaskState::Restarting);
    broker.deliver(2..3, 1);
    sleep(Duration::from_secs(9)).await;
    let status = setup.worker.status();
    let task = &status.connectors[0].tasks[0];
    assert_eq!((task.state, task.restarts), (TaskState::Running, 2));
    assert_eq!(task.trace, None);
    assert_eq!(broker.accepted(), [2]);
    assert_eq!(status.totals().put_failures, 2, "it goes on counting");
    setup.worker.stop(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn no_restart_takes_a_record_to_its_last_delivery_and_the_trace_says_what_to_do() {
    // Of ten. Each task beside it may fail for the same record.
    for (tasks, delivery, state) in [
        (1, 8, TaskState::Restarting),
        (1, 9, TaskState::Failed),
        (3, 6, TaskState::Restarting),
        (3, 7, TaskState::Failed),
    ] {
        let lines = "task.restart.max=100\ntask.restart.backoff.ms=50000\n";
        let mut scripts = vec![SinkScript::puts([Step::Broken])];
        scripts.resize_with(tasks, SinkScript::default);
        let setup = start_with(scripts, tasks, at_once(), lines);
        let broker = setup.cluster.brokers[0].clone();
        broker.deliver(5..6, delivery);
        sleep(Duration::from_secs(1)).await;
        let status = setup.worker.status();
        let task = &status.connectors[0].tasks[0];
        assert_eq!((task.state, task.restarts), (state, 0));
        let advice =
            "the connector's tasks could take orders-3 offset 5 to its last allowed delivery";
        let trace = task.trace.as_deref().unwrap();
        assert_eq!(
            trace.contains(advice),
            state == TaskState::Failed,
            "{trace}"
        );
        assert_eq!(broker.released(), [5]);
        setup.worker.stop(Duration::from_secs(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_waits_for_no_restart() {
    let script = SinkScript::puts([Step::Broken]);
    let lines = "task.restart.max=2\ntask.restart.backoff.ms=50000\n";
    let setup = start_with(vec![script], 1, at_once(), lines);
    setup.cluster.brokers[0].deliver(0..1, 1);
    sleep(Duration::from_secs(1)).await;
    let told = Instant::now();
    let report = setup.worker.stop(Duration::from_secs(5)).await;
    assert_eq!(report, StopReport::default());
    assert_eq!(told.elapsed(), Duration::ZERO);
    assert_eq!(setup.worker.status().count(TaskState::Failed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_could_not_be_prepared_is_prepared_anew_at_the_restart() {
    let no = (Duration::ZERO, Err("no broker".to_owned()));
    let lines = "task.restart.max=1\ntask.restart.backoff.ms=1000\n";
    let setup = start_with(vec![SinkScript::default()], 1, no, lines);
    setup.worker.all_ended().await;
    assert_eq!(setup.cluster.prepared.load(Ordering::SeqCst), 2);
    let status = setup.worker.status();
    assert_eq!(status.connectors[0].tasks[0].restarts, 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_task_is_started_again_by_hand_while_the_others_work_on() {
    let scripts = vec![SinkScript::puts([Step::Broken]), SinkScript::default()];
    let setup = start(scripts, 2, at_once());
    let broker = setup.cluster.brokers[0].clone();
    broker.deliver(0..1, 1);
    setup.worker.any_failed().await;
    setup.worker.restart("out", true).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(setup.worker.status().count(TaskState::Running), 2);
    broker.deliver(1..2, 1);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(broker.accepted(), [1]);
    let calls = setup.scripts[1].calls();
    assert_eq!(calls.iter().filter(|call| **call == Call::Start).count(), 1);
    assert!(setup.cluster.brokers[1].seen(|seen| !seen.closed));
}

#[tokio::test(start_paused = true)]
async fn a_connector_that_is_reconfigured_is_not_at_an_end() {
    let setup = start(vec![SinkScript::default()], 1, at_once());
    sleep(Duration::from_secs(1)).await;
    let changed = load(ScriptedConnector(setup.scripts.clone()), "tasks.max=1\n");
    let connector = changed.connectors.into_iter().next().unwrap();
    tokio::select! {
        biased;
        () = setup.worker.all_ended() => panic!("it goes on"),
        report = setup.worker.reconfigure(connector) => assert_eq!(report, Ok(StopReport::default())),
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(setup.worker.status().count(TaskState::Running), 1);
    let starts = setup.scripts[0].calls();
    assert_eq!(
        starts.iter().filter(|call| **call == Call::Start).count(),
        2
    );
    setup.worker.stop(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn connectors_come_and_go_and_what_they_did_still_counts() {
    let setup = start(vec![SinkScript::default()], 1, at_once());
    let connector = || {
        let loaded = load(ScriptedConnector(setup.scripts.clone()), "");
        loaded.connectors.into_iter().next().unwrap()
    };
    setup.cluster.brokers[0].deliver(0..3, 1);
    sleep(Duration::from_secs(1)).await;
    let exists = setup.worker.add(connector()).await.unwrap_err();
    assert_eq!(exists.to_string(), "there is a connector out already");
    setup.worker.remove("out").await.unwrap();
    let status = setup.worker.status();
    assert_eq!((status.connectors.len(), status.totals().written), (0, 3));
    let missing = setup.worker.remove("out").await.unwrap_err();
    assert_eq!(missing, WorkerError::NoSuchConnector("out".to_owned()));
    setup.worker.add(connector()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(setup.worker.status().count(TaskState::Running), 1);
    setup.worker.stop(Duration::from_secs(5)).await;
    let stopping = setup.worker.add(connector()).await.unwrap_err();
    assert_eq!(stopping, WorkerError::Stopping);
}
