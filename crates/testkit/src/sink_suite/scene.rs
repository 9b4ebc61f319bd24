//! What a check has at hand: the target, a topic of its own, a cluster, workers.

use std::error::Error;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use sharegroup_consumer::TopicPartition;
use sharegroup_consumer::admin::{Admin, LogPosition};
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerHeader, ProducerRecord};
use sharegroup_sink::config::{ConfigProblem, Loaded, Properties, load_properties};
use sharegroup_sink::worker::{TaskStatus, Worker, WorkerOptions, WorkerStatus};
use sharegroup_sink::{ConnectorConfig, OwnedRecord};
use tokio::time::{Instant, sleep, timeout};

use super::heard::Heard;
use super::judge::Found;
use super::report::{Checked, Ended, ensure};
use super::target::{Recipe, Target};

/// One check's world.
#[derive(Debug)]
pub(super) struct Scene<'a, T> {
    pub(super) target: &'a mut T,
    /// The check's own.
    pub(super) topic: String,
    pub(super) servers: &'a str,
    pub(super) heard: &'a Heard,
    /// Longest wait for anything that has to happen.
    pub(super) patience: Duration,
}

impl<'a, T: Target> Scene<'a, T> {
    /// The files of a worker with the sink under test. `more` goes before everything else.
    pub(super) fn files(&self, more: &[(&str, &str)]) -> (Properties, Properties) {
        let mut worker = Properties::new("worker.properties");
        worker.set("bootstrap.servers", self.servers);
        worker.set("consumer.group.protocol", "share");
        let mut connector = Properties::new("connector.properties");
        for (key, value) in [
            ("name", SINK),
            ("topics", &self.topic),
            ("share.group.id", &self.topic),
            // Several puts, also of few records.
            ("consumer.override.max.poll.records", "20"),
        ] {
            connector.set(key, value);
        }
        for (key, value) in self.target.properties() {
            connector.set(key, value);
        }
        for &(key, value) in more {
            connector.set(key, value);
        }
        (worker, connector)
    }

    /// The settings of a worker with the sink under test.
    pub(super) fn load(&self, more: &[(&str, &str)]) -> Checked<Loaded> {
        let (worker, connector) = self.files(more);
        let loaded = load_properties(worker, vec![connector], false, &self.target.registry());
        let text = |problems: &[ConfigProblem]| {
            let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
            lines.join("; ")
        };
        let problems = loaded.as_ref().map_or_else(
            |errors| text(errors),
            |loaded| format!("{} {loaded:?}", text(&loaded.warnings)),
        );
        self.heard
            .hear("what is said of the configuration", &problems);
        loaded.map_err(|errors| {
            let promised = "the keys of the target are a configuration of the sink";
            Ended::broken(promised, text(&errors))
        })
    }

    /// The settings of the connector alone.
    pub(super) fn connector(&self, more: &[(&str, &str)]) -> Checked<ConnectorConfig> {
        let connector = self.load(more)?.connectors.into_iter().next();
        connector.ok_or_else(|| Ended::broken("the suite configures a connector", "there is none"))
    }

    pub(super) fn record(&self, recipe: &Recipe) -> OwnedRecord {
        self.target.good_record(recipe)
    }

    /// What is in the destination.
    pub(super) async fn found(&mut self) -> Checked<Found> {
        let arrived = timeout(self.patience, self.target.read_back());
        let arrived = arrived.await.map_err(|_| {
            Ended::broken("the target can be read back", "it doesn't answer in time")
        })?;
        Ok(Found::new(arrived?))
    }

    /// Whether the destination holds what it has to hold of records that were written in this order.
    pub(super) async fn judge(&mut self, written: &[Recipe]) -> Checked {
        let delivery = self.target.promises().delivery;
        self.found().await?.judge(delivery, written)
    }

    pub(super) fn admin(&self) -> Checked<Admin> {
        Ok(Admin::new(self.client()?))
    }

    fn client(&self) -> Checked<ClientConfig> {
        ClientConfig::new(self.servers).map_err(cluster)
    }

    /// Makes the check's topic.
    pub(super) async fn create_topic(&self, partitions: i32) -> Checked {
        let admin = self.admin()?;
        let created = admin.create_topic(&self.topic, partitions, -1, &[]).await;
        created.map(drop).map_err(cluster)
    }

    pub(super) async fn create_letters_topic(&self) -> Checked {
        let admin = self.admin()?;
        let created = admin.create_topic(&self.letters_topic(), 1, -1, &[]).await;
        created.map(drop).map_err(cluster)
    }

    /// Writes records to the check's topic.
    pub(super) async fn produce(&self, records: impl IntoIterator<Item = OwnedRecord>) -> Checked {
        let producer = Producer::new(ProducerConfig::new(self.client()?));
        for owned in records {
            let mut record = ProducerRecord::new(self.topic.as_str());
            (record.key, record.value) = (owned.key, owned.value);
            let headers = owned.headers.into_iter();
            record.headers = headers
                .map(|(key, value)| ProducerHeader {
                    key: key.into(),
                    value,
                })
                .collect();
            // Whether all were written is what the flush says.
            drop(producer.send(record).await.map_err(cluster)?);
        }
        producer.flush().await.map_err(cluster)?;
        producer.close(self.patience).await.map_err(cluster)
    }

    /// The same with good records.
    pub(super) async fn produce_good(&self, recipes: &[Recipe]) -> Checked {
        let records = recipes.iter().map(|recipe| self.record(recipe));
        self.produce(records.collect::<Vec<_>>()).await
    }

    /// Records that the group has not settled; `None` = it hasn't begun.
    pub(super) async fn unsettled(&self, admin: &Admin) -> Checked<Option<i64>> {
        let offsets = admin.share_group_offsets(&self.topic, None).await;
        let offsets = offsets.map_err(cluster)?;
        let lags: Option<Vec<i64>> = offsets.iter().map(|partition| partition.lag).collect();
        let lags = lags.filter(|lags| !lags.is_empty());
        Ok(lags.map(|lags| lags.iter().sum()))
    }

    /// Waits until the group has settled every record.
    pub(super) async fn settled(&self, status: impl Fn() -> String) -> Checked {
        self.settled_within(self.patience, status).await
    }

    /// The same with another patience.
    pub(super) async fn settled_within(
        &self,
        patience: Duration,
        status: impl Fn() -> String,
    ) -> Checked {
        let admin = self.admin()?;
        let give_up_at = Instant::now() + patience;
        loop {
            let unsettled = self.unsettled(&admin).await?;
            if unsettled == Some(0) {
                return Ok(());
            }
            ensure(
                Instant::now() < give_up_at,
                "every record is settled",
                || {
                    let left = unsettled.map(|count| format!("{count} are not, in time"));
                    let left = left.unwrap_or("the group has not begun, in time".to_owned());
                    format!("{left}. {}", status())
                },
            )?;
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Topic of dead letters.
    pub(super) fn letters_topic(&self) -> String {
        format!("{}_letters", self.topic)
    }

    /// How many dead letters there are.
    pub(super) async fn letters(&self) -> Checked<i64> {
        let place = TopicPartition::new(self.letters_topic(), 0);
        let end = self
            .admin()?
            .log_offsets(&[place], LogPosition::Latest)
            .await;
        Ok(end.map_err(cluster)?.iter().map(|end| end.offset).sum())
    }

    /// Starts a worker.
    pub(super) fn start_worker(&self, loaded: Loaded) -> Running<'a> {
        let options = WorkerOptions::default();
        let worker = Worker::start(&loaded.worker, loaded.connectors, &options);
        Running {
            worker: Arc::new(worker),
            heard: self.heard,
            patience: self.patience,
        }
    }
}

/// A worker at work.
pub(super) struct Running<'a> {
    pub(super) worker: Arc<Worker>,
    heard: &'a Heard,
    patience: Duration,
}

impl Running<'_> {
    pub(super) fn status(&self) -> WorkerStatus {
        self.worker.status()
    }

    /// How its tasks stand, for a person.
    pub(super) fn told(&self) -> String {
        told(&self.status())
    }

    /// Waits until the worker stands so.
    pub(super) async fn until(&self, what: &str, is_so: impl Fn(&WorkerStatus) -> bool) -> Checked {
        let reached = async {
            while !is_so(&self.status()) {
                sleep(LOOK_AGAIN).await;
            }
        };
        let reached = timeout(self.patience, reached).await;
        ensure(reached.is_ok(), what, || {
            format!("not within {:?}. {}", self.patience, self.told())
        })
    }

    /// Ends it, and listens to what it has to say.
    pub(super) async fn stop(self) -> Checked {
        self.listen();
        let budget = self.patience / 3;
        let report = self.worker.stop(budget).await;
        self.listen();
        ensure(report.late.is_empty(), "a worker stops in time", || {
            format!(
                "after {budget:?} these tasks are still at work: {:?}",
                report.late
            )
        })
    }

    pub(super) fn listen(&self) {
        let status = self.status();
        self.heard.hear("a task's status", &format!("{status:?}"));
        self.heard.hear("the metrics", &self.worker.metrics());
    }
}

/// How tasks stand, for a person.
fn told(status: &WorkerStatus) -> String {
    let task = |task: &TaskStatus| {
        let why = task.trace.as_ref().or(task.note.as_ref());
        format!(
            "task {} is {:?}{}",
            task.index,
            task.state,
            why.map_or(String::new(), |why| format!(": {why}"))
        )
    };
    let tasks: Vec<_> = status.tasks().map(task).collect();
    tasks.join("; ")
}

/// Something went wrong with Kafka, which is not the sink's fault.
pub(super) fn cluster(error: impl Display) -> Ended {
    Ended::broken(
        "the cluster does what the suite asks of it",
        error.to_string(),
    )
}

/// An error with its causes.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// Recipes of small records, each with a key of its own.
pub(super) fn recipes(numbers: std::ops::Range<u64>) -> Vec<Recipe> {
    numbers.map(Recipe::of).collect()
}

/// The connector's name.
pub(super) const SINK: &str = "suite";
/// Between two looks at something that changes.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(50);
