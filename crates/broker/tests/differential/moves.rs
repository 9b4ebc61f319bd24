//! Histories on three brokers, in which all partitions get another leader now and then.

use std::fs;
use std::thread;
use std::time::Duration;

use sharegroup_launcher::Kafka;
use sharegroup_wire::BrokerId;

use crate::target::{Fetch, PARTITIONS};
use crate::{Both, History, MEMBERS, batch, number};

/// Longer than a history: with a move in between, no lock ends at the same time on both.
const LOCK: Duration = Duration::from_secs(60);
const STEPS: usize = 12;

impl History {
    /// Everybody asks the old leader once more, then goes to the new one with what it has.
    fn follow(&mut self, leader: i32) -> Result<(), String> {
        for member in 0..MEMBERS {
            self.fetch_from_both(member, &Fetch::default())?;
            let partition = self.partition();
            self.both(|target| {
                target.acknowledge(member, partition, vec![batch(0, 0, vec![1])], false, false)
            })?;
        }
        self.log.push(format!("leader {leader}"));
        self.real.follow(leader);
        self.ours.follow(leader);
        self.ends.clear();
        for partition in 0..PARTITIONS {
            let loader = self.real.begin_loading(partition);
            self.ours.begin_loading(partition);
            let fetch = Fetch {
                max_wait_ms: 3000,
                ..Fetch::default()
            };
            self.fetch_from_both(loader, &fetch)?;
            self.real.end_loading();
            self.ours.end_loading();
        }
        Ok(())
    }
}

/// Makes a broker the leader of all partitions of some topics.
fn move_leaders(kafka: &Kafka, topics: &[String], leader: i32) {
    let mut replicas = vec![1, 2, 3];
    replicas.rotate_left(usize::try_from(leader - 1).unwrap());
    let partition = |topic: &String, index| {
        format!(r#"{{"topic":"{topic}","partition":{index},"replicas":{replicas:?}}}"#)
    };
    let partitions = topics
        .iter()
        .flat_map(|topic| (0..PARTITIONS).map(move |index| partition(topic, index)));
    let partitions = partitions.collect::<Vec<_>>().join(",");
    let file = kafka.dir().join("moves.json");
    fs::write(
        &file,
        format!(r#"{{"version":1,"partitions":[{partitions}]}}"#),
    )
    .unwrap();
    let servers = kafka.bootstrap_servers();
    let file = file.to_string_lossy().into_owned();
    let tool = |class: &str, args: &[&str]| {
        let class = format!("org.apache.kafka.tools.{class}");
        let servers = ["--bootstrap-server", &servers];
        let output = kafka.tool(&class, servers.iter().chain(args)).unwrap();
        assert!(output.status.success(), "{class}: {output:?}");
    };
    let reassign = "reassign.ReassignPartitionsCommand";
    tool(reassign, &["--reassignment-json-file", &file, "--execute"]);
    let elect = ["--election-type", "preferred", "--all-topic-partitions"];
    tool("LeaderElectionCommand", &elect);
    // What an old leader leads no more it hears a moment later.
    thread::sleep(Duration::from_secs(2));
}

#[test]
fn histories_with_moving_leaders_agree_with_three_real_brokers() {
    let Some(both) = Both::start(3) else { return };
    let real = both.kafka.bootstrap_servers();
    let count = number("SHAREGROUP_MOVES").unwrap_or(6);
    let name = |seed| format!("moves-{seed}");
    let names: Vec<String> = (1..=count).map(name).collect();
    let each = |histories: &mut Vec<History>,
                step: fn(&mut History, i32) -> Result<(), String>,
                leader| {
        thread::scope(|scope| {
            let threads = histories
                .iter_mut()
                .map(|history| scope.spawn(move || step(history, leader)));
            let threads: Vec<_> = threads.collect();
            let results = threads.into_iter().map(|thread| thread.join().unwrap());
            results.filter_map(Result::err).collect::<Vec<String>>()
        })
    };
    let new = |seed| History::new(seed, &name(seed), LOCK, &real, &both.broker);
    let mut histories: Vec<History> = (1..=count).map(new).collect();
    let mut failures = each(&mut histories, |history, _| history.steps(STEPS), 1);
    for leader in [2, 1] {
        if !failures.is_empty() {
            break;
        }
        move_leaders(&both.kafka, &names, leader);
        let places = both
            .broker
            .model(|model| model.topics.places().collect::<Vec<_>>());
        for place in places {
            both.broker.move_leader(place, BrokerId(leader));
        }
        failures = each(
            &mut histories,
            |history, leader| {
                history.follow(leader)?;
                history.steps(STEPS)
            },
            leader,
        );
    }
    println!(
        "histories with moves that agree: {} of {count}",
        count as usize - failures.len()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
