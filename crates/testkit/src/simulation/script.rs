//! What a run begins with and what is done to it, made from a seed.

use std::fmt;
use std::time::Duration;

use sharegroup_broker::model::faults::Fault;
use sharegroup_wire::ErrorCode;

use crate::random::Random;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Brokers of every run.
pub const BROKERS: i32 = 3;

/// Topics of every run, by the number that steps name them with.
pub(super) const TOPICS: [&str; 2] = ["orders", "refunds"];

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
    /// Partitions of the first topic.
    pub partitions: i32,
    /// Partitions of the second topic; 0 = there is none.
    pub partitions_of_second: i32,
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

/// What a member subscribes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subscription {
    /// The first topic.
    First,
    /// The second topic.
    Second,
    /// Both.
    Both,
}

impl Subscription {
    /// The topics' names.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        let topics = match self {
            Self::First => &TOPICS[..1],
            Self::Second => &TOPICS[1..],
            Self::Both => &TOPICS[..],
        };
        topics.iter().map(|name| (*name).to_owned()).collect()
    }
}

/// Something that is done to a run. Members are named by the order in which they started, brokers by id, topics by
/// their number, partitions by the order in which they came to be: those of the first topic, of the second, and
/// those that were added.
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
    /// The group refuses renewals for a while, or allows them where it refused them.
    SwitchRenewals(Duration),
    /// The coordinator forgets a member.
    Expel(usize),
    /// Some locks of a partition end early: every `n`th of what is acquired.
    TakeLocks(i32, i64),
    /// A topic is deleted with its records, and made again under its name after a while.
    RecreateTopic(usize, Duration),
    /// A topic gets so many partitions more.
    AddPartitions(usize, i32),
    /// A member subscribes to other topics.
    Subscribe(usize, Subscription),
    /// For a while each broker takes no more than so many share sessions; those that it has go on.
    SessionLimit(u32, Duration),
    /// For a while the group takes nobody in, and another member wants to join.
    GroupFull(Duration),
    /// For a while a broker says that a member fetches too much, and reads nothing from a connection on which it
    /// said so.
    Throttle(usize, i32, Duration),
    /// For a while nobody may read a topic.
    Deny(usize, Duration),
    /// For a while a member's application drops what it is given.
    DropDeliveries(usize, Duration),
}

impl Step {
    /// Whether something goes wrong.
    #[must_use]
    pub const fn is_trouble(&self) -> bool {
        !matches!(self, Self::Produce { .. } | Self::Start | Self::Commit(_))
    }

    /// How long it goes on; zero where it is done at once.
    #[must_use]
    pub const fn lasts(&self) -> Duration {
        match self {
            Self::Hang(_, time)
            | Self::Pause(_, time)
            | Self::Isolate(_, _, time)
            | Self::Restart(_, time)
            | Self::SwitchRenewals(time)
            | Self::RecreateTopic(_, time)
            | Self::SessionLimit(_, time)
            | Self::GroupFull(time)
            | Self::Throttle(_, _, time)
            | Self::Deny(_, time)
            | Self::DropDeliveries(_, time) => *time,
            _ => Duration::ZERO,
        }
    }

    /// For how long it keeps members from renewing their locks, at least; `None`: that is no excuse.
    #[must_use]
    pub const fn hinders(&self) -> Option<Duration> {
        match self {
            Self::Produce { .. }
            | Self::Start
            | Self::Commit(_)
            | Self::RecreateTopic(..)
            | Self::AddPartitions(..)
            | Self::Subscribe(..)
            | Self::SessionLimit(..)
            | Self::GroupFull(_)
            | Self::DropDeliveries(..) => None,
            Self::Pause(..) => Some(Duration::ZERO),
            _ => Some(self.lasts()),
        }
    }

    /// Its name, for counts: that of a fault besides.
    #[must_use]
    pub fn name(&self) -> String {
        let first_word = |text: String| {
            let end = text.find(|c: char| !c.is_alphanumeric());
            let end = end.unwrap_or(text.len());
            text.get(..end).unwrap_or_default().to_owned()
        };
        let name = first_word(format!("{self:?}"));
        match self {
            Self::Fault(_, fault) => format!("{name}:{}", first_word(format!("{fault:?}"))),
            _ => name,
        }
    }
}

impl Script {
    /// The script of a seed: three brokers, at least four members, 2,000 records, five troubles and
    /// three lock times of duration.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut random = Random::of(seed, 1);
        let mut setup = Setup::draw(&mut random);
        let mut steps = Vec::new();
        let records = 2_000 + random.below(1_000);
        produce(
            &mut random,
            &setup,
            (0, setup.partitions),
            records,
            &mut steps,
        );
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
        // What came later to the simulator draws from numbers of its own: seeds keep what they had.
        let mut random = Random::of(seed, 3);
        steps.extend(of_topics_and_limits(&mut random, &mut setup));
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
            partitions_of_second: 0,
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

/// Producer batches of so many records in all, for partitions from one number up to another.
fn produce(
    random: &mut Random,
    setup: &Setup,
    (first, end): (i32, i32),
    mut records: u64,
    steps: &mut Vec<(Duration, Step)>,
) {
    while records > 0 {
        let offsets = (1 + random.below(BATCH_RECORDS_MAX)).min(records);
        records -= offsets;
        let at = if random.percent(50) {
            Duration::ZERO
        } else {
            random.duration(Duration::ZERO, setup.length)
        };
        let partition = first + below(random, end - first);
        let holes = random.one_of(0, &[0, 0, 0, 10, 50]);
        let step = Step::Produce {
            partition,
            offsets,
            holes,
        };
        steps.push((at, step));
    }
}

/// A second topic, and troubles of topics, subscriptions, rights and limits.
fn of_topics_and_limits(random: &mut Random, setup: &mut Setup) -> Vec<(Duration, Step)> {
    setup.partitions_of_second = 1 + below(random, 3);
    let mut partitions = setup.partitions + setup.partitions_of_second;
    let mut steps = Vec::new();
    let second = (setup.partitions, partitions);
    let records = 100 + random.below(300);
    produce(random, setup, second, records, &mut steps);
    let mut at = Duration::ZERO;
    for _ in 0..1 + random.below(4) {
        // Limits matter most where everybody begins.
        if !random.percent(20) {
            at = random.duration(at, setup.length);
        }
        let step = trouble_of_topics_and_limits(random, setup);
        if let Step::AddPartitions(_, count) = step {
            let until = setup.length.saturating_sub(at);
            let added = (partitions, partitions + count);
            let mut produced = Vec::new();
            produce(random, setup, added, 60, &mut produced);
            let later = produced.into_iter();
            steps.extend(later.map(|(after, step)| (at + after.min(until), step)));
            partitions += count;
        }
        steps.push((at, step));
    }
    steps
}

fn trouble_of_topics_and_limits(random: &mut Random, setup: &Setup) -> Step {
    let member = usize::try_from(random.below(setup.members as u64)).unwrap_or(0);
    let broker = 1 + below(random, BROKERS);
    let topic = random.one_of(0, &[1]);
    let time = random.duration(100 * MS, setup.lock * 2);
    match random.below(10) {
        0 | 9 => Step::RecreateTopic(topic, time / 4),
        1 => Step::AddPartitions(topic, 1 + below(random, 2)),
        2 | 3 => {
            let others = [Subscription::Second, Subscription::Both];
            Step::Subscribe(member, random.one_of(Subscription::First, &others))
        }
        4 => Step::SessionLimit(1 + u32::try_from(random.below(3)).unwrap_or(0), time),
        5 => Step::GroupFull(time),
        6 => Step::Throttle(member, broker, time),
        7 => Step::Deny(topic, time),
        _ => Step::DropDeliveries(member, time),
    }
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
        21 => Step::SwitchRenewals(time),
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
