//! From a sink of Kafka Connect to ours: `share.start.from.group` on a real broker.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::client::ClientConfig;
use sharegroup_launcher::{Kafka, Tools};
use support::{Folder, Run, RunPlan, Written, create_topic, lines, produce, wait_for};

const RECORDS: u64 = 300_000;

/// A worker of Kafka Connect, killed when dropped.
struct Connect(Child);

impl Connect {
    /// With its file sink, which writes `old-0.out` and commits once a second.
    fn start(connect: &Tools, plugins: &Path, kafka: &Kafka, folder: &Folder) -> Self {
        let worker = format!(
            "bootstrap.servers={}\nkey.converter=org.apache.kafka.connect.storage.StringConverter\n\
             value.converter=org.apache.kafka.connect.storage.StringConverter\noffset.flush.interval.ms=1000\n\
             offset.storage.file.filename={}\nplugin.path={}\nlisteners=HTTP://127.0.0.1:0\n\
             consumer.session.timeout.ms=6000\nconsumer.heartbeat.interval.ms=1000\n",
            kafka.bootstrap_servers(),
            folder.join("offsets").display(),
            plugins.display(),
        );
        let sink = format!(
            "name=old\nconnector.class=FileStreamSink\ntasks.max=1\ntopics=moved\nfile={}\n",
            folder.join("old-0.out").display(),
        );
        let worker = folder.write("connect.properties", &worker);
        let sink = folder.write("old.properties", &sink);
        let class = "org.apache.kafka.connect.cli.ConnectStandalone";
        let mut command: Command = connect.command(class, [worker, sink]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Connect {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connect_sink_killed_at_half_is_gone_on_with_and_only_what_it_had_not_committed_comes_again()
 {
    let Some(kafka) = Kafka::builder().start_or_skip().unwrap() else {
        return;
    };
    let connect = Tools::fetch("4.3.1").unwrap();
    let plugins = match connect.plugin("connect-file") {
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: Kafka Connect's file sink is needed: {error}");
            return;
        }
        plugins => plugins.unwrap(),
    };
    let folder = Folder::new("migration");
    create_topic(&kafka, "moved", 4, 1);
    produce(&kafka, &folder, "moved", RECORDS);

    let old = Connect::start(&connect, &plugins, &kafka, &folder);
    wait_for("a part", Duration::from_secs(120), || {
        lines(&folder, "old") > RECORDS / 10
    });
    let admin = Admin::new(ClientConfig::new(&kafka.bootstrap_servers()).unwrap());
    let committed = async || {
        let committed = admin.consumer_group_offsets("connect-old").await.unwrap();
        committed.iter().map(|committed| committed.offset).sum()
    };
    // On a busy machine it writes all of that before its first commit.
    let deadline = Instant::now() + Duration::from_secs(60);
    while committed().await == 0 {
        assert!(Instant::now() < deadline, "the old sink commits nothing");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(old);
    let by_old = Written::read(&folder);
    println!("The old sink wrote {} of {RECORDS}.", by_old.distinct());
    assert_eq!(by_old.duplicates(), 0);

    // Its member has not timed out yet.
    let plan = RunPlan {
        name: "new",
        kafka: &kafka,
        folder: &folder,
        topic: "moved",
        group: "new",
        tasks: 2,
        more: "share.start.from.group=connect-old",
        arguments: &["--exit-when-idle", "3s"],
    };
    let mut refused = Run::start(&plan);
    assert_eq!(refused.wait(Duration::from_secs(30)).code(), Some(1));
    let log = refused.log();
    assert!(log.contains("the consumer group connect-old"), "{log}");
    assert!(log.contains("has members"), "{log}");

    let state = async || {
        admin
            .find_group("connect-old")
            .await
            .unwrap()
            .unwrap()
            .state
    };
    while state().await != "Empty" {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let committed: i64 = committed().await;
    let committed = u64::try_from(committed).unwrap();

    let mut run = Run::start(&plan);
    let status = run.wait(Duration::from_secs(180));
    assert!(status.success(), "{status}\n{}", run.log());
    let written = Written::read(&folder);
    assert_eq!(written.missing(RECORDS), Vec::<u64>::new());
    let overlap = by_old.distinct() - committed;
    println!("Of these {committed} were committed: {overlap} came again.");
    assert_eq!(written.duplicates(), overlap);
}
