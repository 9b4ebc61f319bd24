//! The main job: values of Kafka's own producer leave the topic `jobs` through the group `job` and
//! arrive in files.

use std::process::Child;
use std::time::Duration;

use sharegroup::consumer::admin::{Admin, LogPosition};
use sharegroup::consumer::{ClientConfig, TopicPartition};

use sharegroup_launcher::{Kafka, KafkaBuilder};

use super::{Folder, Run, RunPlan, Written, create_topic, lag, lines, produce, producer, wait_for};

const DEAD_LETTERS: &str = "dlq.job";

/// A cluster with the topic, and a folder for the files.
#[derive(Debug)]
pub struct Job {
    pub kafka: Kafka,
    pub folder: Folder,
    records: u64,
}

impl Job {
    /// Starts Kafka, each partition with a replica on every broker; `None` where it can't run here.
    pub fn prepare(builder: KafkaBuilder, partitions: u32, records: u64) -> Option<Self> {
        let kafka = builder.start_or_skip().unwrap()?;
        let replicas = u32::try_from(kafka.brokers().len()).unwrap();
        create_topic(&kafka, "jobs", partitions, replicas);
        Some(Self {
            kafka,
            folder: Folder::new("job"),
            records,
        })
    }

    /// Writes all values.
    pub fn produce(&self) {
        produce(&self.kafka, &self.folder, "jobs", self.records);
    }

    /// What the group has no delivery left for goes to a topic of the brokers' own (KIP-1191).
    pub fn with_dead_letters_of_the_group(&self) {
        self.ask(async |admin| {
            let kept = [("errors.deadletterqueue.group.enable", "true")];
            admin.create_topic(DEAD_LETTERS, 1, 1, &kept).await.unwrap();
            for (key, value) in [
                ("errors.deadletterqueue.topic.name", DEAD_LETTERS),
                ("errors.deadletterqueue.copy.record.enable", "true"),
            ] {
                admin.set_group_config("job", key, value).await.unwrap();
            }
        });
    }

    /// Records in that topic.
    pub fn dead_letters(&self) -> i64 {
        let topic = TopicPartition::new(DEAD_LETTERS, 0);
        self.ask(async |admin| {
            let end = admin.log_offsets(&[topic], LogPosition::Latest).await;
            end.unwrap()[0].offset
        })
    }

    fn ask<T>(&self, ask: impl AsyncFnOnce(Admin) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(async {
            let servers = self.kafka.bootstrap_servers();
            ask(Admin::new(ClientConfig::new(&servers).unwrap())).await
        })
    }

    /// Begins to write the values, 15,000 a second.
    pub fn begin_to_produce(&self) -> Child {
        producer(&self.kafka, &self.folder, "jobs", self.records)
            .args(["--throughput", "15000"])
            .spawn()
            .unwrap()
    }

    /// Starts `sharegroup run` with two tasks.
    pub fn run(&self, name: &str, arguments: &[&str]) -> Run {
        Run::start(&RunPlan {
            name,
            kafka: &self.kafka,
            folder: &self.folder,
            topic: "jobs",
            group: "job",
            tasks: 2,
            more: "",
            arguments,
        })
    }

    /// Lines that a run has written so far.
    pub fn lines(&self, name: &str) -> u64 {
        lines(&self.folder, name)
    }

    /// Waits until runs have written that many lines.
    pub fn wait_for_lines(&self, names: &[&str], enough: u64) {
        let what = format!("{enough} lines of {names:?}");
        wait_for(&what, Duration::from_secs(120), || {
            names.iter().map(|name| self.lines(name)).sum::<u64>() >= enough
        });
    }

    /// Waits for the producer and for the last run, and looks at what was written: every value, and
    /// nothing is left in the group.
    pub fn finish(&self, producing: Option<Child>, mut last: Run) -> Written {
        if let Some(mut producing) = producing {
            let status = producing.wait().unwrap();
            assert!(status.success(), "VerifiableProducer ended with {status}");
        }
        let status = last.wait(Duration::from_secs(180));
        assert!(status.success(), "{status}\n{}", last.log());
        let written = Written::read(&self.folder);
        println!(
            "{} records: distinct {}, duplicates {}",
            self.records,
            written.distinct(),
            written.duplicates()
        );
        assert_eq!(written.missing(self.records), Vec::<u64>::new());
        assert_eq!(written.distinct(), self.records);
        assert_eq!(lag(&self.kafka, "job"), Some(0));
        written
    }
}
