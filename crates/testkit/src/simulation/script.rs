//! What a run begins with and what is done to it, made from a seed.

use std::fmt;
use std::time::Duration;

use sharegroup_broker::model::faults::Fault;
use sharegroup_wire::ErrorCode;

use super::random::Random;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Brokers of every run.
pub const BROKERS: i32 = 3;

/// Records of one producer batch, at most.
const BATCH_RECORDS_MAX: u64 = 60;

/// A run: where it begins, and what is done to it when.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// The seed that it was made from; decides latencies and handlers too.
    pub seed: u64,
    /// Where it begins.
    pub setup: Setup,
    /// What is done, each at a time after the start, ascending.
    pub steps: Vec<(Duration, Step)>,
}

/// Where a run begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// Partitions of the topic.
    pub partitions: i32,
    /// Members that join at the start.
    pub members: usize,
    /// `share.record.lock.duration.ms`.
    pub lock: Duration,
    /// `share.delivery.count.limit`.
    pub delivery_count_limit: i16,
    /// `share.renew.acknowledge.enable`.
    pub renewals: bool,
    /// Longest way between a member and a broker.
    pub latency_max: Duration,
    /// Longest time of a handler.
    pub handling_max: Duration,
    /// Of a hundred records, those that handlers give back, reject, and drop.
    pub unhappy_percent: [u64; 3],
    /// How long things are done to it.
    pub length: Duration,
}

/// Something that is done to a run. Members are named by the order in which they started, brokers by id.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// A producer writes a batch; `holes` of a hundred offsets have no record, as after compaction.
    Produce {
        /// Partition index.
        partition: i32,
        /// Offsets.
        offsets: u64,
        /// Of a hundred.
        holes: u64,
    },
    /// Another member joins.
    Start,
    /// A member closes.
    Close(usize),
    /// A member's process is killed: its sockets are closed for it.
    Kill(usize),
    /// A member's machine is gone: nobody is told.
    PowerOff(usize),
    /// A member's handlers and its poll loop stand still; its driver goes on.
    Hang(usize, Duration),
    /// A member acquires nothing for a while.
    Pause(usize, Duration),
    /// A member commits.
    Commit(usize),
    /// The connections between a member and a broker end.
    Cut(usize, i32),
    /// The connections between a member and a broker carry nothing any more, and nobody is told.
    HalfOpen(usize, i32),
    /// What a member and a broker send each other arrives when this is over.
    Isolate(usize, i32, Duration),
    /// A broker stops, and is back after a while.
    Restart(i32, Duration),
    /// Another broker leads a partition.
    MoveLeader(i32, i32),
    /// Another broker coordinates the group.
    MoveCoordinator(i32),
    /// The next request of an API meets a fault.
    Fault(i16, Fault),
    /// The next requests of an API fail on a partition.
    PartitionError(i16, i32, ErrorCode, u32),
    /// The group's lock duration changes.
    Lock(Duration),
    /// The group refuses renewals for a while.
    RefuseRenewals(Duration),
    /// The coordinator forgets a member.
    Expel(usize),
    /// Some locks of a partition end early: every `n`th of what is acquired.
    TakeLocks(i32, i64),
}

impl Step {
    /// Whether something goes wrong.
    #[must_use]
    pub const fn is_trouble(&self) -> bool {
        !matches!(self, Self::Produce { .. } | Self::Start | Self::Commit(_))
    }
}

impl Script {
    /// The script of a seed: three brokers, at least four members, 2,000 records, five troubles and
    /// three lock times of duration.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut random = Random::of(seed, 1);
        let setup = Setup::draw(&mut random);
        let mut steps = Vec::new();
        let mut records = 2_000 + random.below(1_000);
        while records > 0 {
            let offsets = (1 + random.below(BATCH_RECORDS_MAX)).min(records);
            records -= offsets;
            let at = if random.percent(50) {
                Duration::ZERO
            } else {
                random.duration(Duration::ZERO, setup.length)
            };
            let partition = below(&mut random, setup.partitions);
            let holes = random.one_of(0, &[0, 0, 0, 10, 50]);
            let step = Step::Produce {
                partition,
                offsets,
                holes,
            };
            steps.push((at, step));
        }
        for _ in 0..5 + random.below(20) {
            let at = random.duration(Duration::ZERO, setup.length);
            steps.push((at, trouble(&mut random, &setup)));
        }
        for _ in 0..random.below(4) {
            let at = random.duration(Duration::ZERO, setup.length);
            let member = usize::try_from(random.below(6)).unwrap_or(0);
            let step = random.one_of(Step::Start, &[Step::Commit(member)]);
            steps.push((at, step));
        }
        steps.sort_by_key(|(at, _)| *at);
        Self { seed, setup, steps }
    }
}

impl Setup {
    fn draw(random: &mut Random) -> Self {
        let lock = random.duration(2 * SECOND, 15 * SECOND);
        let locks = 1 + u32::try_from(random.below(3)).unwrap_or(0);
        let slow = random.percent(30);
        Self {
            partitions: 1 + below(random, 6),
            members: 4 + usize::try_from(random.below(3)).unwrap_or(0),
            lock,
            delivery_count_limit: random.one_of(5, &[5, 10, 2]),
            renewals: !random.percent(15),
            latency_max: random.duration(MS, 40 * MS),
            handling_max: if slow { lock * locks } else { lock / 8 },
            unhappy_percent: random.one_of([0, 0, 0], &[[2, 2, 2], [5, 0, 0], [0, 1, 10]]),
            length: 3 * lock + random.duration(Duration::ZERO, 3 * lock),
        }
    }
}

fn below(random: &mut Random, end: i32) -> i32 {
    let end = u64::try_from(end).unwrap_or(1);
    i32::try_from(random.below(end)).unwrap_or(0)
}

fn trouble(random: &mut Random, setup: &Setup) -> Step {
    let member = usize::try_from(random.below(setup.members as u64 + 1)).unwrap_or(0);
    let broker = 1 + below(random, BROKERS);
    let partition = below(random, setup.partitions);
    let time = random.duration(100 * MS, setup.lock * 2);
    match random.below(24) {
        0 => Step::Close(member),
        1 => Step::Kill(member),
        2 => Step::PowerOff(member),
        3 => Step::Hang(member, time),
        4 => Step::Pause(member, time),
        5..=7 => Step::Cut(member, broker),
        8 => Step::HalfOpen(member, broker),
        9 | 10 => Step::Isolate(member, broker, time),
        11 => Step::Restart(broker, time),
        12 | 13 => Step::MoveLeader(partition, broker),
        14 => Step::MoveCoordinator(broker),
        15..=17 => Step::Fault(random.one_of(78, &[79, 76, 3, 10]), fault(random)),
        18 | 19 => {
            let errors = [
                ErrorCode::UnknownTopicOrPartition,
                ErrorCode::UnknownServerError,
                ErrorCode::CoordinatorNotAvailable,
                ErrorCode::FencedStateEpoch,
                ErrorCode::TopicAuthorizationFailed,
            ];
            let error = random.one_of(ErrorCode::NotLeaderOrFollower, &errors);
            let count = 1 + u32::try_from(random.below(4)).unwrap_or(0);
            Step::PartitionError(random.one_of(78, &[79]), partition, error, count)
        }
        20 => Step::Lock(random.duration(2 * SECOND, 15 * SECOND)),
        21 => Step::RefuseRenewals(time),
        22 => Step::Expel(member),
        _ => Step::TakeLocks(partition, random.one_of(1, &[2, 7])),
    }
}

fn fault(random: &mut Random) -> Fault {
    let errors = [
        ErrorCode::ShareSessionNotFound,
        ErrorCode::InvalidShareSessionEpoch,
        ErrorCode::CoordinatorNotAvailable,
        ErrorCode::NotCoordinator,
        ErrorCode::CoordinatorLoadInProgress,
    ];
    let error = random.one_of(ErrorCode::UnknownServerError, &errors);
    let delay = random.duration(MS, 5 * SECOND);
    let others = [
        Fault::Delay(delay),
        Fault::CutBefore,
        Fault::CutAfter,
        Fault::Withhold,
        Fault::Duplicate,
    ];
    random.one_of(Fault::Error(error), &others)
}

/// One line a step; batches of a row are one line.
impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {:?}", self.seed, self.setup)?;
        let mut produced = (0, 0);
        for (at, step) in &self.steps {
            if let Step::Produce { offsets, .. } = step {
                produced = (produced.0 + 1, produced.1 + offsets);
            } else {
                writeln!(f, "  {:>7.3} s  {step:?}", at.as_secs_f64())?;
            }
        }
        let (batches, offsets) = produced;
        write!(f, "  {offsets} offsets in {batches} batches meanwhile")
    }
}
