//! Plays a script: starts, stops and kills workers, writes records, and in the end heals everything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sharegroup_broker::Broker;
use sharegroup_broker::model::fault_script::FaultScript;
use sharegroup_broker::model::share_partition::RecordState;
use sharegroup_consumer::ShareConsumer;
use sharegroup_consumer::admin::LogPosition;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_wire::TopicId;
use tokio::time::{Duration, Instant, sleep, sleep_until};

use super::judge::{Judge, Verdict};
use super::network::Network;
use super::script::{Script, Step};
use super::target::{Place, Target, TroubledConnector};
use crate::config::{Properties, load_properties};
use crate::connector::Registry;
use crate::share::KafkaCluster;
use crate::status::TaskState;
use crate::worker::Worker;

const S: Duration = Duration::from_secs(1);
pub(super) const GROUP: &str = "connect-out";
pub(super) const TOPIC: &str = "orders";
pub(super) const LETTERS: &str = "letters";
/// Time to stop in.
const STOP: Duration = Duration::from_secs(60);
/// Longest time until all is settled once everything is healed.
const DRAIN: Duration = Duration::from_secs(900);
/// Workers at a time.
const WORKERS_MAX: usize = 4;

/// A worker, and its way to the brokers.
struct Process {
    number: usize,
    worker: Worker,
    network: Arc<Network>,
}

struct Operator<'a> {
    script: &'a Script,
    broker: Broker,
    target: Target,
    topic: TopicId,
    producer: Producer,
    /// Records of each partition.
    produced: BTreeMap<i32, i64>,
    running: Vec<Process>,
    /// Killed ones: what they do has no effect, and must not be dropped before the end.
    dead: Vec<Process>,
    started: usize,
    paused: bool,
    /// Where lost records are named.
    losses: PathBuf,
    judge: Judge,
}

/// Plays a script to its end.
pub(super) async fn play(script: &Script) -> Verdict {
    let mut operator = Operator::new(script).await;
    let start = Instant::now();
    let mut steps = script.steps.iter().peekable();
    loop {
        let next = steps.peek().map_or(script.length, |(at, _)| *at);
        operator.watch_until(start + next).await;
        match steps.next() {
            Some((_, step)) => operator.step(*step).await,
            None => break,
        }
    }
    operator.finish().await
}

impl<'a> Operator<'a> {
    async fn new(script: &'a Script) -> Self {
        let lock_ms = script.lock.as_millis().to_string();
        let broker = Broker::builder()
            .in_memory()
            .brokers(3)
            .topic(TOPIC, script.partitions)
            .topic(LETTERS, 1)
            .set("group.share.min.record.lock.duration.ms", "1000")
            .set("group.share.min.heartbeat.interval.ms", "500")
            .set("group.share.min.session.timeout.ms", "1000")
            .group(GROUP, "share.record.lock.duration.ms", lock_ms)
            .group(GROUP, "share.heartbeat.interval.ms", "500");
        let broker = broker.start().await.unwrap();
        let faults = FaultScript::parse(&script.faults).unwrap();
        let topic = broker.model(|model| {
            model.record_history();
            model.topics.named(TOPIC).unwrap().id
        });
        broker.script(faults.rules.into_iter().map(|(_, rule)| rule));
        let target = Target::new(script);
        let mut client = ClientConfig::new(broker.bootstrap_servers()).unwrap();
        client.connector = broker.connector();
        Self {
            script,
            judge: Judge::new(script, target.clone(), topic),
            broker,
            target,
            topic,
            producer: Producer::new(ProducerConfig::new(client)),
            produced: BTreeMap::new(),
            running: Vec::new(),
            dead: Vec::new(),
            started: 0,
            paused: false,
            losses: loss_file(),
        }
    }

    /// Lets time pass, and looks at what happens.
    async fn watch_until(&mut self, until: Instant) {
        loop {
            self.look();
            self.restart_failed().await;
            let now = Instant::now();
            if now >= until {
                return;
            }
            sleep_until(until.min(now + S / 4)).await;
        }
    }

    fn look(&mut self) {
        let events = self.broker.model(|model| model.history.take());
        self.judge.events(events);
        for process in &self.running {
            for task in process.worker.status().tasks() {
                self.judge.held(task.records_held);
            }
        }
    }

    /// A worker with a failed task is started anew, as somebody would who has read why.
    async fn restart_failed(&mut self) {
        let failed = |process: &Process| {
            let status = process.worker.status();
            status.tasks().any(|task| task.state == TaskState::Failed)
        };
        while let Some(index) = self.running.iter().position(failed) {
            for (_, task) in self.running[index].worker.status().failed() {
                self.judge.task_failed(task.trace.as_deref());
            }
            self.stop(index).await;
            self.start();
        }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Produce(partition, records) => self.produce(partition, records).await,
            Step::Start if self.running.len() < WORKERS_MAX => self.start(),
            Step::Stop if self.running.len() > 1 => self.stop(0).await,
            Step::Kill if self.running.len() > 1 => self.kill(),
            Step::Start | Step::Stop | Step::Kill => {}
            Step::Pause => self.pause(true),
            Step::Resume => self.pause(false),
            Step::Down(time) => self.target.down(time),
        }
    }

    async fn produce(&mut self, partition: i32, records: u64) {
        let mut sent = Vec::new();
        for number in 0..records {
            let record = ProducerRecord::new(TOPIC).partition(partition);
            let record = record.value(format!("{partition}-{number}"));
            sent.push(self.producer.send(record).await.unwrap());
        }
        self.producer.flush().await.unwrap();
        for delivery in sent {
            delivery.await.unwrap();
        }
        let end = self.broker.model(|model| {
            let partition = model.topics.partition((self.topic, partition)).unwrap();
            partition.log.end_offset()
        });
        self.produced.insert(partition, end);
    }

    fn start(&mut self) {
        let number = self.started;
        self.started += 1;
        let network = Arc::new(Network::new(self.broker.connector()));
        let connector = TroubledConnector {
            target: self.target.clone(),
            worker: number,
        };
        let mut loaded = self.load(connector);
        for connector in &mut loaded.connectors {
            let settings = &mut connector.consumer;
            for client in [
                &mut settings.client,
                &mut settings.admin,
                &mut connector.producer.client,
            ] {
                client.connector = Arc::clone(&network) as _;
                client.seed = self.script.seed ^ (number as u64) << 32;
            }
        }
        let cluster = KafkaCluster {
            startup_timeout: 60 * S,
            driver_on_current: true,
        };
        let worker = Worker::start_on(Arc::new(cluster), &loaded.worker, loaded.connectors);
        if self.paused {
            worker.pause("out");
        }
        self.running.push(Process {
            number,
            worker,
            network,
        });
    }

    fn load(&self, connector: TroubledConnector) -> crate::config::Loaded {
        let script = self.script;
        let mut worker = Properties::new("worker.properties");
        worker.set("bootstrap.servers", self.broker.bootstrap_servers());
        worker.set("consumer.group.protocol", "share");
        let mode = if script.explicit {
            "explicit"
        } else {
            "implicit"
        };
        let mut text = format!(
            "name=out\nconnector.class=troubled\ntopics={TOPIC}\ntasks.max={}\n\
             share.concurrency={}\nshare.credit.records={}\nconsumer.override.max.poll.records={}\n\
             consumer.override.share.acknowledgement.mode={mode}\nshare.put.stall.ms={}\n",
            script.tasks,
            script.concurrency,
            script.credit,
            script.max_poll_records,
            script.sink.stall.as_millis(),
        );
        text.push_str(&format!("share.loss.file={}\n", self.losses.display()));
        if script.by_record {
            text.push_str("consumer.override.share.acquire.mode=record_limit\n");
        }
        if script.tolerates {
            text.push_str(&format!(
                "errors.tolerance=all\nerrors.deadletterqueue.topic.name={LETTERS}\n\
                 errors.deadletterqueue.context.headers.enable=true\n"
            ));
        }
        let path = Path::new("out.properties");
        let file = Properties::parse(path, &text, &mut Vec::new()).unwrap();
        load_properties(worker, vec![file], false, &Registry::new().with(connector)).unwrap()
    }

    async fn stop(&mut self, index: usize) {
        let process = self.running.remove(index);
        let ids = member_ids(&process);
        let report = process.worker.stop(STOP).await;
        for (_, task) in process.worker.status().failed() {
            self.judge.ended_failed(task.trace.as_deref());
        }
        self.look();
        if report.late.is_empty() {
            self.judge.left_behind(self.held_by(&ids));
        }
    }

    /// What the broker holds for these members.
    fn held_by(&self, ids: &BTreeSet<String>) -> usize {
        self.broker.model(|model| {
            let group = model.groups.get(GROUP);
            let loaded = group.into_iter().flat_map(|group| group.loaded.values());
            let records = loaded.flat_map(|loaded| loaded.partition.records());
            let held = records.filter(|(_, record)| match &record.state {
                RecordState::Acquired { member_id, .. } => ids.contains(&**member_id),
                _ => false,
            });
            held.count()
        })
    }

    fn kill(&mut self) {
        self.look();
        let process = self.running.remove(0);
        self.judge.killed(member_ids(&process));
        self.target.kill(process.number);
        process.network.kill();
        self.dead.push(process);
    }

    fn pause(&mut self, paused: bool) {
        self.paused = paused;
        for process in &self.running {
            if paused {
                process.worker.pause("out");
            } else {
                process.worker.resume("out");
            }
        }
    }

    /// Everything is healed, and what is there is written.
    async fn finish(mut self) -> Verdict {
        self.broker.model(|model| model.faults.clear());
        self.target.heal();
        self.pause(false);
        if self.running.is_empty() {
            self.start();
        }
        let deadline = Instant::now() + DRAIN;
        while !self.is_drained() && Instant::now() < deadline {
            self.watch_until(Instant::now() + S).await;
        }
        if !self.is_drained() {
            let status = self.running.iter().map(|process| process.worker.status());
            let status: Vec<_> = status.collect();
            self.judge.stuck(format!("{:?}: {status:?}", self.open()));
        }
        while !self.running.is_empty() {
            self.stop(0).await;
        }
        drop(self.producer.close(S).await);
        for process in self.dead {
            process.worker.stop(Duration::ZERO).await;
        }
        sleep(S).await;
        let events = self.broker.model(|model| model.history.take());
        self.judge.events(events);
        let letters = letters(&self.broker).await;
        let named = named(&self.losses);
        self.judge.end(&self.produced, &letters, &named)
    }

    fn is_drained(&self) -> bool {
        self.open().is_empty()
    }

    /// Where share partitions begin that are not at the end of their log.
    fn open(&self) -> Vec<(i32, i64)> {
        self.broker.model(|model| {
            let group = model.groups.get(GROUP);
            let start = |partition: &i32| {
                let loaded = group.and_then(|group| group.loaded.get(&(self.topic, *partition)));
                loaded.map_or(0, |loaded| loaded.partition.start_offset())
            };
            let ends = self.produced.iter();
            let open = ends.filter(|(partition, end)| start(partition) < **end);
            open.map(|(partition, _)| (*partition, start(partition)))
                .collect()
        })
    }
}

fn member_ids(process: &Process) -> BTreeSet<String> {
    let status = process.worker.status();
    let ids = status.tasks().filter_map(|task| task.member_id.clone());
    ids.collect()
}

/// One for each run.
fn loss_file() -> PathBuf {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("sink-simulation-{}-{run}", std::process::id()))
}

/// Which records are named as lost. The file is taken away.
fn named(file: &Path) -> BTreeSet<Place> {
    let lines = std::fs::read_to_string(file).unwrap_or_default();
    drop(std::fs::remove_file(file));
    let place = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let number = |name: &str| line[name].as_i64().unwrap();
        (number("partition") as i32, number("offset"))
    };
    lines.lines().map(place).collect()
}

/// Which record each dead letter is of.
async fn letters(broker: &Broker) -> Vec<Place> {
    let count = broker.model(|model| {
        let id = model.topics.named(LETTERS).unwrap().id;
        model.topics.partition((id, 0)).unwrap().log.end_offset()
    });
    let mut client = ClientConfig::new(broker.bootstrap_servers()).unwrap();
    client.connector = broker.connector();
    let reader = ShareConsumer::builder_with(client).group_id("reader");
    let reader = reader
        .topics([LETTERS])
        .begin_at(LogPosition::Earliest)
        .driver_on_current();
    let mut reader = reader.build().await.unwrap();
    let mut letters = Vec::new();
    while (letters.len() as i64) < count {
        let batch = reader.poll().await.unwrap().unwrap();
        letters.extend(batch.records().map(|letter| {
            let header = |name: &str| {
                let name = format!("__connect.errors.{name}");
                let found = letter
                    .headers()
                    .find(|header| header.key == name.as_bytes());
                let text = found.and_then(|header| header.value).unwrap();
                std::str::from_utf8(text).unwrap().parse::<i64>().unwrap()
            };
            (header("partition") as i32, header("offset"))
        }));
        batch.accept();
    }
    drop(reader.close(S).await);
    letters
}
