//! What a test wants to go wrong.
//!
//! Two ways lead here: [`Faults::add`] says what becomes of the next requests of an API, one by one;
//! [`Rule`]s, given to [`Model::script`](super::Model::script) or written in a file
//! ([`fault_script`](super::fault_script)), say it of requests by API, partition, count and chance, and
//! let things happen to the cluster. The same seed and the same requests meet the same faults.

use std::collections::{BTreeMap, VecDeque};
use std::slice;
use std::time::Duration;

use bytes::Bytes;
use sharegroup_wire::{BrokerId, ErrorCode};

use super::damage::Damage;
use super::random::SplitMix64;
use super::topics::Place;

/// What becomes of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// Nothing: it is answered.
    #[default]
    None,
    /// It is not looked at and answered with this error, at top level or in each of its entries. In a
    /// rule for one partition only that partition fails.
    Error(ErrorCode),
    /// It is worked on at once and answered so much later; the connection waits.
    Delay(Duration),
    /// The connection is cut on receipt, before any effect.
    CutBefore,
    /// The connection is cut when the work is done, in place of the answer.
    CutAfter,
    /// It is worked on and never answered; the connection waits for ever.
    Withhold,
    /// It is answered twice.
    Duplicate,
}

/// A broker in an [`Incident`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// This one.
    Broker(BrokerId),
    /// The one behind the present one, by id; behind the last comes the first.
    Next,
}

/// Whose configuration an [`Incident`] changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// Every broker's.
    Broker,
    /// This group's.
    Group(String),
}

/// What happens to the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incident {
    /// A partition gets another leader; nothing where the topic doesn't exist.
    LeaderMove {
        /// The topic's name.
        topic: String,
        /// The partition.
        partition: i32,
        /// The new leader.
        to: Target,
    },
    /// A group or a transactional id gets another coordinator.
    CoordinatorMove {
        /// The group or the transactional id.
        key: String,
        /// The new coordinator.
        to: Target,
    },
    /// A broker is killed: connections, share sessions and locks are gone, deliveries that were never
    /// stored are forgotten, as with a real one. It starts again after `down`. It stays the leader of its
    /// partitions, as where nobody has a replica.
    Crash {
        /// Which.
        broker: BrokerId,
        /// How long it refuses connections.
        down: Duration,
    },
    /// A key gets another value, such as `share.record.lock.duration.ms`. An illegal one changes
    /// nothing.
    Change {
        /// Whose.
        owner: Owner,
        /// The key.
        key: String,
        /// Its new value.
        value: String,
    },
}

/// What a [`Rule`] waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// A request.
    Request {
        /// Its API; `None` for any.
        api_key: Option<i16>,
        /// A topic and partition that it asks about; `None` for any. Produce, Fetch, ListOffsets,
        /// ShareFetch and ShareAcknowledge tell theirs, where acknowledgements on a ShareFetch count as
        /// ShareAcknowledge, too.
        partition: Option<(String, i32)>,
    },
    /// So long after the script began.
    At(Duration),
    /// Again and again. Not zero.
    Every(Duration),
}

/// What a [`Rule`] does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// This becomes of the request that it waited for.
    Request(Fault),
    /// This happens to the records in the answer. It waits for answers with records of ShareFetch and Fetch, not
    /// for requests.
    Records(Damage),
    /// This happens, before a request that it waited for is looked at.
    Cluster(Incident),
}

/// A line of a script.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// What it waits for.
    pub when: When,
    /// How many of these it lets pass first.
    pub after: u64,
    /// How often it strikes at most; `None` for no limit.
    pub first: Option<u64>,
    /// How likely it strikes each time, from 0 to 1; `None` for always.
    pub chance: Option<f64>,
    /// What it does.
    pub what: What,
}

impl Rule {
    /// A rule that strikes each time.
    #[must_use]
    pub const fn new(when: When, what: What) -> Self {
        Self {
            when,
            after: 0,
            first: None,
            chance: None,
            what,
        }
    }
}

/// A rule at work.
#[derive(Debug, Clone)]
struct Active {
    rule: Rule,
    seen: u64,
    struck: u64,
}

impl Active {
    /// What it waited for is here: whether it strikes.
    fn strikes(&mut self, random: &mut SplitMix64) -> bool {
        let Rule {
            after,
            first,
            chance,
            ..
        } = self.rule;
        let is_over = first.is_some_and(|first| self.struck >= first);
        self.seen += 1;
        let strikes = !is_over
            && self.seen > after
            && chance.is_none_or(|chance| random.next_fraction() < chance);
        self.struck += u64::from(strikes);
        strikes
    }
}

/// A partition that a request asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Touch {
    /// The API whose rules count for it.
    pub(super) api_key: i16,
    pub(super) topic: String,
    pub(super) place: Place,
}

/// Names a rule, for timers.
pub(super) type RuleId = u64;

/// The faults that are waiting.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    requests: BTreeMap<i16, VecDeque<Fault>>,
    partitions: BTreeMap<(i16, Place), (ErrorCode, u32)>,
    rules: BTreeMap<RuleId, Active>,
    last_rule: RuleId,
    random: SplitMix64,
}

impl Faults {
    /// What becomes of the next requests of an API, in their order. Behind them all goes well again.
    pub fn add(&mut self, api_key: i16, faults: impl IntoIterator<Item = Fault>) {
        self.requests.entry(api_key).or_default().extend(faults);
    }

    /// The next `count` times that an API touches a partition it fails with this error: Produce,
    /// Fetch, ListOffsets, ShareFetch and ShareAcknowledge.
    pub fn fail(&mut self, api_key: i16, place: Place, error: ErrorCode, count: u32) {
        self.partitions.insert((api_key, place), (error, count));
    }

    /// What [`Faults::fail`] said of a partition is over.
    pub fn mend(&mut self, api_key: i16, place: Place) {
        self.partitions.remove(&(api_key, place));
    }

    /// Decides what the rules' chances come to. Default 0.
    pub const fn seed(&mut self, seed: u64) {
        self.random = SplitMix64(seed);
    }

    /// How often rules have struck.
    #[must_use]
    pub fn struck(&self) -> u64 {
        self.rules.values().map(|active| active.struck).sum()
    }

    /// All goes well again.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.partitions.clear();
        self.rules.clear();
    }

    /// Adds a rule; those that wait for a time need a timer.
    pub(super) fn add_rule(&mut self, rule: Rule) -> RuleId {
        self.last_rule += 1;
        let active = Active {
            rule,
            seen: 0,
            struck: 0,
        };
        self.rules.insert(self.last_rule, active);
        self.last_rule
    }

    /// Whether rules wait for requests about partitions.
    pub(super) fn watch_partitions(&self) -> bool {
        let mut rules = self.rules.values().map(|active| &active.rule.when);
        rules.any(|when| {
            matches!(
                when,
                When::Request {
                    partition: Some(_),
                    ..
                }
            )
        })
    }

    /// A request has come: what becomes of it, and what happens before.
    ///
    /// Each rule looks for itself; where several say what becomes of the request, the first one counts.
    pub(super) fn strike(&mut self, api_key: i16, touches: &[Touch]) -> (Fault, Vec<Incident>) {
        let queue = self.requests.get_mut(&api_key);
        let mut fault = queue.and_then(VecDeque::pop_front).unwrap_or_default();
        let mut incidents = Vec::new();
        for active in self.rules.values_mut() {
            if matches!(active.rule.what, What::Records(_)) {
                continue;
            }
            let Some(touched) = find(&active.rule.when, api_key, touches) else {
                continue;
            };
            if !active.strikes(&mut self.random) {
                continue;
            }
            match (&active.rule.what, touched) {
                (What::Cluster(incident), _) => incidents.push(incident.clone()),
                (What::Request(Fault::Error(error)), Some(touch)) => {
                    let failing = (touch.api_key, touch.place);
                    self.partitions.entry(failing).or_insert((*error, 1));
                }
                (What::Request(own), _) if fault == Fault::None => fault = *own,
                (What::Request(_) | What::Records(_), _) => {}
            }
        }
        (fault, incidents)
    }

    /// Whether rules wait for records.
    pub(super) fn damages_records(&self) -> bool {
        let mut rules = self.rules.values().map(|active| &active.rule.what);
        rules.any(|what| matches!(what, What::Records(_)))
    }

    /// Records are answered: what becomes of them.
    pub(super) fn damage(&mut self, touch: &Touch, mut records: Bytes) -> Bytes {
        for active in self.rules.values_mut() {
            if let What::Records(damage) = active.rule.what
                && find(&active.rule.when, touch.api_key, slice::from_ref(touch)).is_some()
                && active.strikes(&mut self.random)
            {
                records = damage.apply(records, &mut self.random);
            }
        }
        records
    }

    /// A rule's time has come: what happens, and when it looks again.
    pub(super) fn strike_at(&mut self, id: RuleId) -> (Option<Incident>, Option<Duration>) {
        let Some(active) = self.rules.get_mut(&id) else {
            return (None, None);
        };
        let strikes = active.strikes(&mut self.random);
        let incident = match &active.rule.what {
            What::Cluster(incident) if strikes => Some(incident.clone()),
            _ => None,
        };
        let again = match active.rule.when {
            When::Every(interval) => Some(interval),
            _ => None,
        };
        (incident, again)
    }

    /// The error of a partition that an API is about to touch.
    pub(crate) fn partition(&mut self, api_key: i16, place: Place) -> Option<ErrorCode> {
        if self.partitions.is_empty() {
            return None;
        }
        let (error, count) = self.partitions.get_mut(&(api_key, place))?;
        let error = *error;
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.partitions.remove(&(api_key, place));
        }
        Some(error)
    }

    /// Whether a partition is going to fail.
    pub(crate) fn is_failing(&self, api_key: i16, place: Place) -> bool {
        self.partitions.contains_key(&(api_key, place))
    }
}

/// Whether a rule waited for this request; with the partition, if it waited for one.
fn find<'a>(when: &When, api_key: i16, touches: &'a [Touch]) -> Option<Option<&'a Touch>> {
    let When::Request {
        api_key: wanted,
        partition,
    } = when
    else {
        return None;
    };
    let Some((topic, index)) = partition else {
        return wanted
            .is_none_or(|wanted| wanted == api_key)
            .then_some(None);
    };
    let is_it = |touch: &&Touch| {
        wanted.is_none_or(|wanted| wanted == touch.api_key)
            && touch.topic == *topic
            && touch.place.1 == *index
    };
    touches.iter().find(is_it).map(Some)
}

#[cfg(test)]
mod tests {
    use sharegroup_wire::TopicId;
    use sharegroup_wire::compress::Compression;
    use sharegroup_wire::record::RecordBatchBuilder;

    use super::*;

    const FETCH: i16 = 78;
    const ACKNOWLEDGE: i16 = 79;

    fn about(api_key: i16, index: i32) -> Touch {
        Touch {
            api_key,
            topic: "orders".to_owned(),
            place: (TopicId([1; 16]), index),
        }
    }

    fn rule(api_key: Option<i16>, partition: Option<i32>, fault: Fault) -> Rule {
        let partition = partition.map(|index| ("orders".to_owned(), index));
        Rule::new(When::Request { api_key, partition }, What::Request(fault))
    }

    /// Which of 10 requests of an API about partition 1 a rule strikes.
    fn struck(rule: Rule) -> Vec<usize> {
        let mut faults = Faults::default();
        faults.add_rule(rule);
        let touches = [about(FETCH, 1)];
        let strikes = |_: &usize| faults.strike(FETCH, &touches).0 != Fault::None;
        (0..10).filter(strikes).collect()
    }

    #[test]
    fn a_rule_strikes_by_api_partition_and_count() {
        let cut = Fault::CutAfter;
        let all: Vec<usize> = (0..10).collect();
        assert_eq!(struck(rule(None, None, cut)), all);
        assert_eq!(struck(rule(Some(FETCH), Some(1), cut)), all);
        assert_eq!(struck(rule(None, Some(1), cut)), all);
        assert!(struck(rule(Some(ACKNOWLEDGE), None, cut)).is_empty());
        assert!(struck(rule(Some(FETCH), Some(2), cut)).is_empty());
        let some = Rule {
            after: 2,
            first: Some(3),
            ..rule(Some(FETCH), None, cut)
        };
        assert_eq!(struck(some), [2, 3, 4]);
    }

    #[test]
    fn the_same_seed_gives_the_same_chances() {
        let run = |seed| {
            let mut faults = Faults::default();
            faults.seed(seed);
            faults.add_rule(Rule {
                chance: Some(0.3),
                ..rule(Some(FETCH), None, Fault::Withhold)
            });
            let strikes = |_: &usize| faults.strike(FETCH, &[]).0 != Fault::None;
            (0..1000).filter(strikes).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert!((250..350).contains(&run(1).len()), "{}", run(1).len());
    }

    #[test]
    fn the_first_rule_counts_and_all_look() {
        let mut faults = Faults::default();
        faults.add_rule(rule(Some(FETCH), None, Fault::Duplicate));
        faults.add_rule(Rule {
            first: Some(1),
            ..rule(Some(FETCH), None, Fault::Withhold)
        });
        faults.add(FETCH, [Fault::None, Fault::CutBefore]);
        let told: Vec<Fault> = (0..3).map(|_| faults.strike(FETCH, &[]).0).collect();
        let queued = [Fault::Duplicate, Fault::CutBefore, Fault::Duplicate];
        assert_eq!(told, queued);
        assert_eq!(faults.struck(), 4);
        faults.clear();
        assert_eq!(faults.strike(FETCH, &[]).0, Fault::None);
    }

    #[test]
    fn an_error_of_a_partition_is_told_where_that_partition_is_touched() {
        let mut faults = Faults::default();
        let error = ErrorCode::NotLeaderOrFollower;
        faults.add_rule(rule(Some(ACKNOWLEDGE), Some(1), Fault::Error(error)));
        let touches = [about(FETCH, 1), about(ACKNOWLEDGE, 1)];
        assert_eq!(faults.strike(FETCH, &touches).0, Fault::None);
        let place = touches[0].place;
        assert!(!faults.is_failing(FETCH, place) && faults.is_failing(ACKNOWLEDGE, place));
        assert_eq!(faults.partition(ACKNOWLEDGE, place), Some(error));
        assert_eq!(faults.partition(ACKNOWLEDGE, place), None);
    }

    #[test]
    fn a_rule_for_records_waits_for_an_answer_that_has_some() {
        let mut faults = Faults::default();
        let partition = Some(("orders".to_owned(), 1));
        let api_key = Some(FETCH);
        let when = When::Request { api_key, partition };
        faults.add_rule(Rule {
            first: Some(1),
            ..Rule::new(when, What::Records(Damage::FlipBit))
        });
        let mut batch = RecordBatchBuilder::new(Compression::None);
        batch.push(0, None, None, std::iter::empty()).unwrap();
        let records = batch.build(0).unwrap();
        // Requests use nothing of it up, nor do other partitions.
        assert_eq!(faults.strike(FETCH, &[about(FETCH, 1)]).0, Fault::None);
        let mut damaged = |index| faults.damage(&about(FETCH, index), records.clone()) != records;
        assert_eq!([2, 1, 1].map(&mut damaged), [false, true, false]);
    }
}
