//! What operators look at: memory while a sink is slow, and CPU with many tasks and with none to do.
//!
//! Each test prints its figures.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod support;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use sharegroup::consumer::ClientConfig;
use sharegroup::consumer::admin::Admin;
use sharegroup::consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup_launcher::Kafka;
use support::{Folder, Run, address, binary, get, wait_for};
use tokio::runtime::Runtime;

const S: Duration = Duration::from_secs(1);
const MIB: usize = 1 << 20;

/// A real broker with one topic, whose group reads it from its start.
struct Cluster {
    kafka: Kafka,
    runtime: Runtime,
    folder: Folder,
}

impl Cluster {
    fn start(partitions: i32) -> Option<Self> {
        let kafka = Kafka::builder().set("message.max.bytes", "4194304");
        let cluster = Self {
            kafka: kafka.start_or_skip().unwrap()?,
            runtime: Runtime::new().unwrap(),
            folder: Folder::new("ops"),
        };
        let admin = Admin::new(cluster.client());
        cluster.runtime.block_on(async {
            admin.create_topic("in", partitions, 1, &[]).await.unwrap();
        });
        Some(cluster)
    }

    fn client(&self) -> ClientConfig {
        ClientConfig::new(&self.kafka.bootstrap_servers()).unwrap()
    }

    /// Adds records of so many bytes, in turn to each partition.
    fn produce(&self, records: usize, partitions: i32, bytes: usize) {
        self.runtime.block_on(async {
            let mut config = ProducerConfig::new(self.client());
            config.request_bytes_max = 4 * MIB;
            config.batch_bytes_max = 256 * 1024;
            let producer = Producer::new(config);
            let value = vec![b'v'; bytes];
            for partition in (0..partitions).cycle().take(records) {
                let record = ProducerRecord::new("in").partition(partition);
                drop(producer.send(record.value(value.clone())).await.unwrap());
            }
            producer.close(60 * S).await.unwrap();
        });
    }

    /// Runs the program with a sink that writes nowhere.
    fn run(&self, tasks: usize, more: &str, arguments: &[&str]) -> Run {
        let servers = self.kafka.bootstrap_servers();
        let name = format!("tasks-{tasks}");
        let worker = format!(
            "bootstrap.servers={servers}\nconsumer.group.protocol=share\nlisteners=http://127.0.0.1:0\n"
        );
        let sink = format!(
            "name={name}\nconnector.class=blackhole\ntopics=in\ntasks.max={tasks}\n\
             consumer.override.share.auto.offset.reset=earliest\n{more}\n"
        );
        let worker = self
            .folder
            .write(&format!("{name}-worker.properties"), &worker);
        let sink = self.folder.write(&format!("{name}.properties"), &sink);
        let mut command = Command::new(binary());
        command.arg("run").args([worker, sink]).args(arguments);
        Run::spawn(command, self.folder.join(&format!("{name}.log")))
    }
}

/// Ends a run; its log.
fn ended(mut run: Run) -> String {
    run.signal("-INT");
    let status = run.wait(30 * S);
    assert!(status.success(), "{status}\n{}", run.log());
    run.log()
}

/// Resident memory of a process now, in MiB.
fn resident(run: &Run) -> Option<usize> {
    let status = fs::read_to_string(format!("/proc/{}/status", run.child.id())).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: usize = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024)
}

/// User and system time of a process so far: fields 14 and 15 of proc(5), in ticks of 10 ms.
fn cpu(run: &Run) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", run.child.id())).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11);
    let ticks = fields.take(2).map(|field| field.parse::<u64>().unwrap());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// `SHAREGROUP_SLOW_RECORDS=600` works for ten minutes at 1 s a record, as `cargo xtask prove memory`.
#[test]
fn b_118_memory_stays_within_its_budget_and_flat_while_a_sink_is_slow() {
    let Some(cluster) = Cluster::start(100) else {
        return;
    };
    let long = std::env::var("SHAREGROUP_SLOW_RECORDS").ok();
    let (records, per_record) = match &long {
        Some(records) => (records.parse().unwrap(), 1_000),
        None => (300, 50),
    };
    cluster.produce(records, 100, MIB);
    // What the configuration allows: what is held, and one answer on its way.
    let (credit, answer, fixed) = (16, 8, 24);
    let settings = format!(
        "record.ms={per_record}\nshare.credit.bytes={}\nconsumer.override.fetch.max.bytes={}",
        credit * MIB,
        answer * MIB
    );
    let mut run = cluster.run(1, &settings, &["--exit-when-idle", "3s"]);
    let mut seen = Vec::new();
    while run.child.try_wait().unwrap().is_none() {
        seen.extend(resident(&run));
        thread::sleep(20 * Duration::from_millis(1));
    }
    let status = run.wait(S);
    assert!(status.success(), "{status}\n{}", run.log());
    assert!(
        run.log().contains(&format!("written={records}")),
        "{}",
        run.log()
    );
    let peak_of = |part: &[usize]| part.iter().copied().max().unwrap();
    let quarters: Vec<_> = seen.chunks(seen.len().div_ceil(4)).map(peak_of).collect();
    println!("resident memory by quarters of the run: {quarters:?} MiB");
    assert!(peak_of(&seen) <= credit + answer + fixed, "{quarters:?}");
    assert!(quarters[3] <= quarters[1] + 4, "it grows: {quarters:?}");
}

/// Records that a run has put so far, over all tasks.
fn put_by(address: &str) -> usize {
    let text = get(address, "/metrics");
    let counts = text
        .lines()
        .filter(|line| line.contains("sink_record_send_total{"));
    let counts = counts.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    counts.sum::<f64>() as usize
}

/// Records a second in the middle of what is to be put.
fn rate(run: &Run, records: usize) -> f64 {
    let address = address(run);
    let reached = |count| {
        let mut at = (0, Instant::now());
        wait_for("records are put", 120 * S, || {
            at = (put_by(&address), Instant::now());
            at.0 >= count
        });
        at
    };
    let (first, last) = (reached(records / 20), reached(records * 19 / 20));
    (last.0 - first.0) as f64 / (last.1 - first.1).as_secs_f64()
}

/// `SHAREGROUP_IDLE_SECONDS=300` looks at idle tasks for five minutes, as `cargo xtask prove idle`.
#[test]
fn b_122_eight_tasks_on_a_partition_are_not_slower_than_one_and_idle_ones_cost_nothing() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    // Beside other tests the machine isn't ours.
    let (idle, at_least) = match std::env::var("SHAREGROUP_IDLE_SECONDS") {
        Ok(seconds) => (seconds.parse().unwrap(), 1.0),
        Err(_) => (10, 0.5),
    };
    let records = 200_000;
    cluster.produce(records, 1, 256);
    let rate_of = |tasks| {
        let run = cluster.run(tasks, "", &[]);
        let rate = rate(&run, records);
        println!("{tasks} tasks: {rate:.0} records/s");
        (run, rate)
    };
    let (one, rate_of_one) = rate_of(1);
    drop(ended(one));
    let (eight, rate_of_eight) = rate_of(8);
    assert!(rate_of_eight >= at_least * rate_of_one);

    wait_for("all records are put", 60 * S, || {
        put_by(&address(&eight)) == records
    });
    let (before, started) = (cpu(&eight), Instant::now());
    thread::sleep(Duration::from_secs(idle));
    let used = (cpu(&eight) - before).as_secs_f64() / started.elapsed().as_secs_f64();
    println!("eight idle tasks: {:.2} % of a core", 100.0 * used);
    assert!(used < 0.02, "{used}");
    let summary = ended(eight);
    assert!(
        summary.contains(&format!("acknowledged={records}")),
        "{summary}"
    );
}
