//! What a run begins with and what is done to it, made from a seed.

use std::time::Duration;

use sharegroup_testkit::random::Random;

use super::target::Planted;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// A run.
#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) seed: u64,
    /// Nothing happens but what a sink may answer: everything is written once.
    pub(super) calm: bool,
    pub(super) partitions: i32,
    /// `share.record.lock.duration.ms`.
    pub(super) lock: Duration,
    pub(super) tasks: u32,
    /// `share.concurrency`.
    pub(super) concurrency: u32,
    /// `share.credit.records`.
    pub(super) credit: u32,
    pub(super) max_poll_records: u64,
    /// `share.acquire.mode=record_limit`.
    pub(super) by_record: bool,
    /// `errors.tolerance=all` with a dead-letter topic; else `none`.
    pub(super) tolerates: bool,
    /// `share.acknowledgement.mode=explicit`.
    pub(super) explicit: bool,
    pub(super) sink: SinkScript,
    /// Of the cluster, as a fault script.
    pub(super) faults: String,
    /// What is done, each at a time after the start, ascending.
    pub(super) steps: Vec<(Duration, Step)>,
    /// Behind it everything is healed.
    pub(super) length: Duration,
    pub(super) planted: Option<Planted>,
}

/// How the sink and its target behave.
#[derive(Debug, Clone)]
pub(super) struct SinkScript {
    /// Longest time of a put, and of a flush.
    pub(super) put_max: Duration,
    pub(super) flush_max: Duration,
    /// Answers for a put as a whole, never for a record.
    pub(super) whole: bool,
    /// Of a thousand records: those that the target refuses for ever, refuses a few times, and says nothing of
    /// a few times.
    pub(super) poison: u64,
    pub(super) later: u64,
    pub(super) unknown: u64,
    /// Of a thousand puts: those that fail as a whole, hang for some locks, hang for ever, panic.
    pub(super) fails: u64,
    pub(super) hangs: u64,
    pub(super) never_returns: u64,
    pub(super) panics: u64,
    /// Of a thousand flushes, those that fail: nothing that was put before is there.
    pub(super) flush_fails: u64,
    /// `share.put.stall.ms`.
    pub(super) stall: Duration,
}

/// Something that is done to a run. Workers are named by the order in which they started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// So many records are written to a partition.
    Produce(i32, u64),
    /// A worker starts.
    Start,
    /// The worker that has run longest stops in time.
    Stop,
    /// The worker that has run longest is killed.
    Kill,
    /// All workers pause.
    Pause,
    /// All workers go on.
    Resume,
    /// The target is down for so long.
    Down(Duration),
}

impl Script {
    pub(super) fn from_seed(seed: u64) -> Self {
        let mut random = Random::of(seed, 1);
        let calm = random.percent(40);
        let partitions = 1 + random.below(3) as i32;
        let lock = random.duration(2 * S, 15 * S);
        let tolerates = random.percent(60);
        let length = random.duration(20 * S, 90 * S);
        Self {
            seed,
            calm,
            partitions,
            lock,
            tasks: 1 + random.below(3) as u32,
            concurrency: 1 + Random::of(seed, 6).below(3) as u32,
            credit: 20 + random.below(180) as u32,
            max_poll_records: 1 + random.below(100),
            by_record: random.percent(50),
            tolerates,
            explicit: random.percent(70),
            sink: SinkScript::of(seed, calm, tolerates, lock),
            faults: if calm {
                String::new()
            } else {
                faults(seed, partitions, length)
            },
            steps: steps(seed, calm, partitions, lock, length),
            length,
            planted: None,
        }
    }
}

impl SinkScript {
    fn of(seed: u64, calm: bool, tolerates: bool, lock: Duration) -> Self {
        let mut random = Random::of(seed, 2);
        let mut often = |percent: u64, most: u64| {
            if random.percent(percent) {
                1 + random.below(most)
            } else {
                0
            }
        };
        let mut script = Self {
            put_max: Duration::ZERO,
            flush_max: Duration::ZERO,
            whole: often(40, 1) == 1,
            // Under `none` such a record fails its task as long as it is there.
            poison: if tolerates { often(60, 30) } else { 0 },
            later: often(60, 60),
            unknown: often(40, 20),
            fails: often(50, 100),
            hangs: often(50, 20),
            never_returns: often(25, 40),
            panics: often(40, 15),
            flush_fails: often(30, 60),
            stall: 20 * S,
        };
        if calm {
            // What a sink doesn't know it has to write again, and what it hasn't ended others write.
            (script.unknown, script.never_returns, script.panics) = (0, 0, 0);
            script.stall = 20 * lock;
        }
        script.put_max = random.duration(MS, 300 * MS);
        script.flush_max = random.duration(MS, 100 * MS);
        script
    }
}

fn faults(seed: u64, partitions: i32, length: Duration) -> String {
    let mut random = Random::of(seed, 3);
    let mut lines = vec![format!("seed {seed}")];
    let mut maybe = |percent: u64, line: &dyn Fn(&mut Random) -> String| {
        if random.percent(percent) {
            lines.push(line(&mut random));
        }
    };
    maybe(50, &|r| {
        format!(
            "ShareFetch {}% first 40: delay {}ms",
            1 + r.below(20),
            1 + r.below(800)
        )
    });
    maybe(40, &|r| {
        format!("ShareAcknowledge {}% first 20: cut after", 1 + r.below(10))
    });
    maybe(40, &|r| {
        format!("any {}% first 30: cut before", 1 + r.below(3))
    });
    maybe(30, &|r| {
        format!("ShareAcknowledge {}% first 5: withhold", 1 + r.below(5))
    });
    maybe(30, &|r| {
        format!("Produce {}% first 10: cut after", 1 + r.below(20))
    });
    maybe(40, &|r| {
        let times = 1 + r.below(5);
        let every = r.duration(3 * S, 20 * S).as_secs();
        let partition = r.below(partitions as u64);
        format!("every {every}s first {times}: move leader orders-{partition} to next")
    });
    maybe(30, &|r| {
        let at = r.duration(S, length).as_secs();
        format!("at {at}s: crash {} for {}s", 1 + r.below(3), 1 + r.below(8))
    });
    maybe(20, &|r| {
        let at = r.duration(S, length).as_secs();
        format!(
            "at {at}s: move coordinator connect-out to {}",
            1 + r.below(3)
        )
    });
    lines.join("\n")
}

fn steps(
    seed: u64,
    calm: bool,
    partitions: i32,
    lock: Duration,
    length: Duration,
) -> Vec<(Duration, Step)> {
    let mut random = Random::of(seed, 4);
    let mut steps = vec![(Duration::ZERO, Step::Start)];
    let mut at = |random: &mut Random, step| {
        let when = random.duration(Duration::ZERO, length);
        steps.push((when, step));
    };
    for _ in 0..4 + random.below(12) {
        let partition = random.below(partitions as u64) as i32;
        let records = 1 + random.below(40);
        at(&mut random, Step::Produce(partition, records));
    }
    for _ in 0..random.below(3) {
        at(&mut random, Step::Start);
        let ends = if calm || random.percent(50) {
            Step::Stop
        } else {
            Step::Kill
        };
        at(&mut random, ends);
    }
    if random.percent(30) {
        at(&mut random, Step::Pause);
        at(&mut random, Step::Resume);
    }
    if random.percent(40) {
        let down = random.duration(S, 8 * lock);
        at(&mut random, Step::Down(down));
    }
    steps.sort_by_key(|(at, _)| *at);
    steps
}
