//! Watches a worker until it is idle.

use std::time::Duration;

use sharegroup_sink::worker::WorkerStatus;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::idle::{Connector, PartitionLag, Task, Waiting, drained, joined, settled};

/// `--exit-when-idle` and `--exit-when-idle-max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdleOptions {
    /// How long nothing must have arrived; at least [`QUIET_MIN`].
    pub(crate) quiet: Duration,
    /// How long nothing may move without being idle; longer than `quiet`.
    pub(crate) max: Duration,
}

/// A status may be a quarter of a second old.
pub(crate) const QUIET_MIN: Duration = Duration::from_millis(500);

/// How a watch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Watched {
    /// Every living task is idle.
    Idle,
    /// Not idle, and nothing moved for the time allowed; what was waited for, by connector.
    Stuck(Vec<(String, Waiting)>),
}

/// What is seen of a worker at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// Connectors with living tasks.
    pub(crate) connectors: Vec<Connector>,
    pub(crate) last_record_at: Option<Instant>,
    pub(crate) last_settled_at: Option<Instant>,
}

impl Snapshot {
    /// Of a worker that is being changed: as long as that lasts it has not joined.
    pub(crate) fn of_change() -> Self {
        let joining = Task {
            is_joining: true,
            ..Task::default()
        };
        Self {
            connectors: vec![Connector {
                name: "reload".to_owned(),
                tasks: vec![joining],
            }],
            ..Self::default()
        }
    }

    pub(crate) fn new(status: &WorkerStatus) -> Self {
        let connectors = status.connectors.iter().map(Connector::new);
        Self {
            connectors: connectors
                .filter(|connector| !connector.tasks.is_empty())
                .collect(),
            last_record_at: status.last_record_at(),
            last_settled_at: status.last_settled_at(),
        }
    }
}

/// Where lags are asked for.
pub(crate) trait Lags {
    /// The group's lag on every partition of a connector's topics.
    async fn lags(&self, connector: &str) -> Result<Vec<PartitionLag>, String>;
}

/// Watches until the worker is idle, or stuck.
///
/// # Cancel safety
/// Safe.
pub(crate) async fn watch(
    snapshot: impl Fn() -> Snapshot,
    lags: &impl Lags,
    options: IdleOptions,
) -> Watched {
    let mut watch = Watch {
        snapshot,
        lags,
        quiet: options.quiet,
        ready_since: None,
        moved_at: Instant::now(),
        lag_seen: Vec::new(),
    };
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = Vec::new();
    loop {
        ticks.tick().await;
        let waiting = watch.look().await;
        if waiting.is_empty() {
            return Watched::Idle;
        }
        if waiting != last {
            for (connector, waiting) in &waiting {
                tracing::debug!(connector, "Not idle: {waiting}.");
            }
            last.clone_from(&waiting);
        }
        if watch.moved_at.elapsed() >= options.max {
            return Watched::Stuck(waiting);
        }
    }
}

const TICK: Duration = Duration::from_millis(250);
/// How long one connector's lag may be asked for.
const LAG_WITHIN: Duration = Duration::from_secs(10);

struct Watch<'a, S, L> {
    snapshot: S,
    lags: &'a L,
    quiet: Duration,
    /// Since when every connector has joined, without a break.
    ready_since: Option<Instant>,
    /// When a record arrived or was settled, here or, as the lag shows, in another process of the group.
    moved_at: Instant,
    lag_seen: Vec<(String, i64)>,
}

impl<S: Fn() -> Snapshot, L: Lags> Watch<'_, S, L> {
    /// What is still waited for, by connector; nothing = idle.
    async fn look(&mut self) -> Vec<(String, Waiting)> {
        let waiting = self.look_here();
        if self.ready_since.is_some() && self.lag_seen.is_empty() {
            // What later lags are compared with. The first question also takes a broker seconds, which pass meanwhile.
            self.ask().await;
        }
        if !waiting.is_empty() {
            return waiting;
        }
        let answers = self.ask().await;
        // Asking took time: what was true before need not be true still.
        let waiting = self.look_here();
        if !waiting.is_empty() {
            return waiting;
        }
        let now = (self.snapshot)().connectors;
        now.iter()
            .filter_map(|connector| {
                let answer = answers.iter().find(|(name, _)| *name == connector.name);
                let outcome = match answer {
                    Some((_, Ok(lags))) => drained(connector, lags),
                    Some((_, Err(error))) => Err(Waiting::LagUnreadable {
                        error: error.clone(),
                    }),
                    None => Err(Waiting::LagUnreadable {
                        error: "not asked for yet".to_owned(),
                    }),
                };
                Some((connector.name.clone(), outcome.err()?))
            })
            .collect()
    }

    async fn ask(&mut self) -> Vec<(String, Result<Vec<PartitionLag>, String>)> {
        let mut answers = Vec::new();
        for connector in (self.snapshot)().connectors {
            let asked = timeout(LAG_WITHIN, self.lags.lags(&connector.name)).await;
            let lags = asked.unwrap_or_else(|_| Err("no answer in time".to_owned()));
            if let Ok(lags) = &lags {
                self.see_lag(&connector.name, lags);
            }
            answers.push((connector.name, lags));
        }
        answers
    }

    /// The steps that need no question to the cluster.
    fn look_here(&mut self) -> Vec<(String, Waiting)> {
        let snapshot = (self.snapshot)();
        let now = Instant::now();
        let moved = [snapshot.last_record_at, snapshot.last_settled_at];
        self.moved_at = moved
            .into_iter()
            .flatten()
            .fold(self.moved_at, Instant::max);
        let of_each = |step: fn(&Connector) -> Result<(), Waiting>| -> Vec<_> {
            let connectors = snapshot.connectors.iter();
            connectors
                .filter_map(|connector| Some((connector.name.clone(), step(connector).err()?)))
                .collect()
        };
        let waiting = of_each(joined);
        if !waiting.is_empty() {
            self.ready_since = None;
            return waiting;
        }
        let ready_since = *self.ready_since.get_or_insert(now);
        let is_recent = |at: Instant| now.duration_since(at) < self.quiet;
        let too_early = if snapshot.last_record_at.is_some_and(is_recent) {
            Some(Waiting::RecordsArriving)
        } else {
            is_recent(ready_since).then_some(Waiting::JustJoined)
        };
        if let Some(waiting) = too_early {
            let names = snapshot.connectors.iter();
            return names
                .map(|connector| (connector.name.clone(), waiting.clone()))
                .collect();
        }
        of_each(settled)
    }

    /// A lag that went down: somebody in the group has settled records.
    fn see_lag(&mut self, connector: &str, lags: &[PartitionLag]) {
        let total = lags.iter().filter_map(|lag| lag.lag).sum();
        match self.lag_seen.iter_mut().find(|(name, _)| name == connector) {
            Some((_, seen)) => {
                if total < *seen {
                    self.moved_at = Instant::now();
                }
                *seen = total;
            }
            None => self.lag_seen.push((connector.to_owned(), total)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::sync::Arc;

    use tokio::time::sleep;

    use super::*;
    use crate::run::idle::{Partition, Task};

    /// A worker with one connector, one task and one partition, whose group has a lag.
    #[derive(Default)]
    struct Scene {
        task: RefCell<Task>,
        last_record_at: Cell<Option<Instant>>,
        lag: Cell<i64>,
        questions: Cell<u32>,
    }

    impl Scene {
        fn assigned() -> Self {
            let scene = Self::default();
            scene.task.borrow_mut().assignment.push(Partition {
                topic: Arc::from("t"),
                partition: 0,
                fetch_answered: true,
                last_fetch_empty: true,
                records_held: 0,
            });
            scene
        }

        fn snapshot(&self) -> Snapshot {
            Snapshot {
                connectors: vec![Connector {
                    name: "c".to_owned(),
                    tasks: vec![self.task.borrow().clone()],
                }],
                last_record_at: self.last_record_at.get(),
                last_settled_at: None,
            }
        }

        async fn watch(&self) -> (Watched, Duration) {
            let start = Instant::now();
            let options = IdleOptions {
                quiet: Duration::from_secs(5),
                max: Duration::from_secs(120),
            };
            let watched = watch(|| self.snapshot(), self, options).await;
            (watched, start.elapsed())
        }
    }

    impl Lags for Scene {
        async fn lags(&self, _: &str) -> Result<Vec<PartitionLag>, String> {
            self.questions.set(self.questions.get() + 1);
            Ok(vec![PartitionLag {
                topic: "t".to_owned(),
                partition: 0,
                lag: Some(self.lag.get()),
                start_offset: Some(0),
                log: None,
            }])
        }
    }

    fn seconds(duration: Duration) -> u64 {
        duration.as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_topic_is_idle_after_the_quiet_time() {
        let (watched, time) = Scene::assigned().watch().await;
        assert_eq!((watched, seconds(time)), (Watched::Idle, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_assignment_is_not_idle() {
        let scene = Scene::default();
        let (watched, time) = scene.watch().await;
        let waiting = vec![("c".to_owned(), Waiting::NothingAssigned)];
        assert_eq!((watched, seconds(time)), (Watched::Stuck(waiting), 120));
        assert_eq!(scene.questions.get(), 0, "the lag is asked for last");
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_starts_the_quiet_time_and_the_longest_time_anew() {
        let scene = Scene::assigned();
        scene.lag.set(1);
        let records = async {
            sleep(Duration::from_secs(100)).await;
            scene.last_record_at.set(Some(Instant::now()));
            scene.task.borrow_mut().records_held = 1;
            sleep(Duration::from_secs(100)).await;
            scene.lag.set(0);
            scene.task.borrow_mut().records_held = 0;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            (watched, time) = scene.watch() => {
                assert_eq!((watched, seconds(time)), (Watched::Idle, 200));
            }
            () = records => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn records_arrive_only_where_one_came() {
        let options = IdleOptions {
            quiet: Duration::from_secs(5),
            max: Duration::from_secs(3),
        };
        let scene = Scene::assigned();
        let stuck = |waiting| Watched::Stuck(vec![("c".to_owned(), waiting)]);
        let watched = watch(|| scene.snapshot(), &scene, options).await;
        assert_eq!(watched, stuck(Waiting::JustJoined));
        scene.last_record_at.set(Some(Instant::now()));
        let watched = watch(|| scene.snapshot(), &scene, options).await;
        assert_eq!(watched, stuck(Waiting::RecordsArriving));
    }

    #[tokio::test(start_paused = true)]
    async fn lag_that_others_work_off_keeps_the_watch_going() {
        let scene = Scene::assigned();
        scene.lag.set(3);
        let others = async {
            for lag in [2, 1, 0] {
                sleep(Duration::from_secs(100)).await;
                scene.lag.set(lag);
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            (watched, time) = scene.watch() => {
                assert_eq!((watched, seconds(time)), (Watched::Idle, 300));
            }
            () = others => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lag_that_stays_ends_the_watch() {
        let scene = Scene::assigned();
        scene.lag.set(3);
        let (watched, _) = scene.watch().await;
        let waiting = Waiting::Lag {
            partition: "t-0".to_owned(),
            records: 3,
        };
        assert_eq!(watched, Watched::Stuck(vec![("c".to_owned(), waiting)]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_without_living_tasks_is_idle_at_once() {
        let scene = Scene::default();
        let options = IdleOptions {
            quiet: Duration::from_secs(5),
            max: Duration::from_secs(120),
        };
        let start = Instant::now();
        let watched = watch(Snapshot::default, &scene, options).await;
        assert_eq!((watched, seconds(start.elapsed())), (Watched::Idle, 0));
    }
}
