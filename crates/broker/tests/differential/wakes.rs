//! Who is answered when: a fetch that waits, and what others or it itself do meanwhile.

use std::thread;
use std::time::{Duration, Instant};

use sharegroup_wire::message::share_fetch::AcknowledgementBatch;

use crate::target::{Fetch, Target};
use crate::{Both, batch, create_topic};

const WAIT: Duration = Duration::from_millis(4000);
const LOCK: Duration = Duration::from_secs(20);
const RELEASE: i8 = 2;

fn waits(acks: Vec<(i32, Vec<AcknowledgementBatch>)>) -> Fetch {
    Fetch {
        max_wait_ms: i32::try_from(WAIT.as_millis()).unwrap(),
        max_records: 10,
        acks,
        ..Fetch::default()
    }
}

/// Whether the answer came before the wait was over, and the answer.
fn outcome(target: &mut Target, member: usize, began: Instant) -> String {
    let (line, _) = target.receive_fetch(member);
    let when = if began.elapsed() < WAIT * 3 / 4 {
        "at once"
    } else {
        "in the end"
    };
    format!("{when}: {line}")
}

/// Member 0 holds a record of partition 0; member 2 waits.
fn one_holds_one_waits(target: &mut Target) {
    target.produce(0, 1);
    target.fetch(0, &waits(Vec::new()));
}

fn released_by_another(target: &mut Target) -> String {
    one_holds_one_waits(target);
    let began = Instant::now();
    target.send_fetch(2, &waits(Vec::new()));
    thread::sleep(Duration::from_millis(300));
    target.acknowledge(0, 0, vec![batch(0, 0, vec![RELEASE])], false, false);
    outcome(target, 2, began)
}

fn released_by_anothers_fetch(target: &mut Target) -> String {
    one_holds_one_waits(target);
    let began = Instant::now();
    target.send_fetch(2, &waits(Vec::new()));
    thread::sleep(Duration::from_millis(300));
    target.send_fetch(0, &waits(vec![(0, vec![batch(0, 0, vec![RELEASE])])]));
    // Which of the two gets the record is up to the broker's threads.
    let outcomes = [outcome(target, 2, began), outcome(target, 0, began)];
    let again = outcomes.iter().filter(|line| line.ends_with("[ 0-0x2]"));
    format!("{} of two have it again", again.count())
}

fn released_by_itself(target: &mut Target) -> String {
    one_holds_one_waits(target);
    let began = Instant::now();
    target.send_fetch(0, &waits(vec![(0, vec![batch(0, 0, vec![RELEASE])])]));
    outcome(target, 0, began)
}

fn released_by_itself_then_produced(target: &mut Target) -> String {
    one_holds_one_waits(target);
    let began = Instant::now();
    target.send_fetch(0, &waits(vec![(0, vec![batch(0, 0, vec![RELEASE])])]));
    thread::sleep(Duration::from_millis(300));
    target.produce(0, 1);
    outcome(target, 0, began)
}

fn accepted_and_released_by_another(target: &mut Target) -> String {
    target.produce(0, 1);
    one_holds_one_waits(target);
    let began = Instant::now();
    target.send_fetch(2, &waits(Vec::new()));
    thread::sleep(Duration::from_millis(300));
    target.acknowledge(0, 0, vec![batch(0, 1, vec![1, RELEASE])], false, false);
    outcome(target, 2, began)
}

fn out_of_time(target: &mut Target) -> String {
    target.configure("share.record.lock.duration.ms", "1000");
    one_holds_one_waits(target);
    let began = Instant::now();
    target.send_fetch(2, &waits(Vec::new()));
    outcome(target, 2, began)
}

fn cut_off(target: &mut Target) -> String {
    one_holds_one_waits(target);
    let began = Instant::now();
    target.send_fetch(2, &waits(Vec::new()));
    thread::sleep(Duration::from_millis(300));
    target.cut(0);
    outcome(target, 2, began)
}

fn closed(target: &mut Target) -> String {
    one_holds_one_waits(target);
    let began = Instant::now();
    target.send_fetch(2, &waits(Vec::new()));
    thread::sleep(Duration::from_millis(300));
    target.acknowledge(0, 0, Vec::new(), false, true);
    outcome(target, 2, began)
}

#[test]
fn fetches_that_wait_are_answered_when_a_real_broker_answers_them() {
    type Scene = fn(&mut Target) -> String;
    let scenes: [(&str, Scene); 8] = [
        ("released-by-another", released_by_another),
        ("released-by-anothers-fetch", released_by_anothers_fetch),
        ("released-by-itself", released_by_itself),
        (
            "released-by-itself-then-produced",
            released_by_itself_then_produced,
        ),
        (
            "accepted-and-released-by-another",
            accepted_and_released_by_another,
        ),
        ("out-of-time", out_of_time),
        ("cut-off", cut_off),
        ("closed", closed),
    ];
    let Some(both) = Both::start(1) else { return };
    let servers = both.kafka.bootstrap_servers();
    let play = |(name, scene): (&str, Scene)| {
        let mut real = Target::new(&servers, name, None, LOCK, 3);
        create_topic(&both.broker, name, real.topic_id());
        let ours = both.broker.bootstrap_servers();
        let mut ours = Target::new(ours, name, Some(real.topic_id()), LOCK, 3);
        let (real, ours) = (scene(&mut real), scene(&mut ours));
        println!("{name}\nreal  {real}\nours  {ours}");
        (real != ours).then(|| name.to_owned())
    };
    let differences: Vec<String> = thread::scope(|scope| {
        let scenes = scenes.map(|scene| scope.spawn(move || play(scene)));
        let scenes = scenes.into_iter().filter_map(|scene| scene.join().unwrap());
        scenes.collect()
    });
    assert!(differences.is_empty(), "{differences:?}");
}
