//! One run: the clock, what is due, and what the script does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sharegroup_broker::model::history::Event;
use sharegroup_broker::model::topics::Place;
use sharegroup_broker::model::{Model, ModelConfig, Output};
use sharegroup_session::{AcquireMode, SessionConfig, SessionCore};
use sharegroup_wire::{BrokerId, TopicId};

use super::judge::{End, Judge};
use super::member::{Act, Member};
use super::network::{Answer, Network, Number};
use super::planted::{Planted, Spoiler};
use super::script::{BROKERS, Script, Step, Subscription, TOPICS};
use super::tally::Tally;
use crate::random::Random;

/// The share group of every run.
pub(super) const GROUP: &str = "group";

/// Something that happens at a time.
#[derive(Debug)]
pub(super) enum Happening {
    Step(usize),
    Knocks(Number),
    Connected(Number),
    SetupOver(Number),
    ToBroker(Number, Bytes),
    ToMember(Number, i32, Option<Answer>),
    BrokerSeesEnd(Number),
    MemberSeesEnd(Number),
    TimedOut(Number, i32),
    Handle {
        member: usize,
        holding: usize,
        range: (i64, i64),
        act: Act,
    },
    /// What a step did for a while ends.
    Over(Step),
    IsClosed(usize),
}

/// A cluster, its members, and the network between them.
#[derive(Debug)]
pub(super) struct World {
    pub(super) script: Script,
    pub(super) start: Instant,
    pub(super) now: Instant,
    pub(super) model: Model,
    pub(super) network: Network,
    pub(super) members: Vec<Member>,
    pub(super) judge: Judge,
    pub(super) tally: Tally,
    pub(super) planted: Spoiler,
    pub(super) queue: BTreeMap<(Instant, u64), Happening>,
    pub(super) sequence: u64,
    pub(super) correlation: i32,
    /// Offsets that have no record.
    pub(super) holes: BTreeSet<(Place, i64)>,
    /// All is well from now on.
    pub(super) is_calm: bool,
    /// Whatever went wrong so far can't hinder anybody after this.
    pub(super) trouble_until: Instant,
    /// Print what goes over the network and what is told.
    pub(super) is_traced: bool,
    /// Every partition that ever was: its topic's number and its index there.
    pub(super) partitions: Vec<(usize, i32)>,
    /// Every topic that ever was, by its id.
    pub(super) topic_names: BTreeMap<TopicId, &'static str>,
    /// Batches for a topic that is to come back.
    pub(super) unproduced: Vec<Step>,
}

impl World {
    pub(super) fn new(script: Script, planted: Option<Planted>) -> Self {
        // The only look at a clock: all other times are counted from this one.
        #[allow(clippy::disallowed_methods)]
        let start = Instant::now();
        let address = |id| (BrokerId(id), (format!("broker-{id}"), 9092));
        let config = ModelConfig {
            brokers: (1..=BROKERS).map(address).collect(),
            seed: script.seed,
            ..ModelConfig::default()
        };
        let mut model = Model::new(start, config);
        model.record_history();
        let first = (0..script.setup.partitions).map(|index| (0, index));
        let second = (0..script.setup.partitions_of_second).map(|index| (1, index));
        let mut world = Self {
            start,
            now: start,
            network: Network::new(script.seed, script.setup.latency_max),
            members: Vec::new(),
            judge: Judge::new(start),
            tally: Tally::default(),
            planted: Spoiler::new(planted),
            queue: BTreeMap::new(),
            sequence: 0,
            correlation: 0,
            holes: BTreeSet::new(),
            is_calm: false,
            trouble_until: start,
            is_traced: false,
            partitions: first.chain(second).collect(),
            topic_names: BTreeMap::new(),
            unproduced: Vec::new(),
            model,
            script,
        };
        world.configure_group();
        (0..TOPICS.len()).for_each(|topic| world.create_topic(topic));
        for index in 0..world.script.steps.len() {
            if let Some((after, _)) = world.script.steps.get(index) {
                world.schedule(start + *after, Happening::Step(index));
            }
        }
        for _ in 0..world.script.setup.members {
            world.add_member();
        }
        world
    }

    fn configure_group(&mut self) {
        let broker = &mut self.model.configs.broker;
        let min_lock = "group.share.min.record.lock.duration.ms";
        broker.insert(min_lock.to_owned(), "1000".to_owned());
        let setup = &self.script.setup;
        let values = [
            ("share.auto.offset.reset", "earliest".to_owned()),
            (
                "share.record.lock.duration.ms",
                setup.lock.as_millis().to_string(),
            ),
            (
                "share.delivery.count.limit",
                setup.delivery_count_limit.to_string(),
            ),
            ("share.renew.acknowledge.enable", setup.renewals.to_string()),
        ];
        for (key, value) in values {
            self.set(key, value);
        }
    }

    pub(super) fn set(&mut self, key: &str, value: String) {
        let values = self.model.configs.groups.entry(GROUP.to_owned());
        values.or_default().insert(key.to_owned(), value);
    }

    pub(super) fn add_member(&mut self) {
        let index = self.members.len();
        let mut random = Random::of(self.script.seed, 100 + index as u64);
        let topics = self.first_subscription(index).names();
        let mut config = SessionConfig::new(GROUP, format!("member-{index}"), topics);
        let ms = Duration::from_millis;
        let modes = [AcquireMode::BatchOptimized, AcquireMode::RecordLimit];
        config.acquire_mode = random.one_of(AcquireMode::Auto, &modes);
        config.records_held_max = random.one_of(1_000, &[1, 7, 100]);
        config.credit_adapts = random.percent(50);
        config.acknowledge_linger = random.duration(Duration::ZERO, ms(50));
        config.request_timeout = random.duration(ms(2_000), ms(10_000));
        let version = if random.percent(10) { 1 } else { 2 };
        let limit = self.script.setup.delivery_count_limit;
        let mut random = Random::of(self.script.seed, 300 + index as u64);
        let knows_limit = self.script.setup.partitions_of_second > 0 && random.percent(50);
        let is_told = knows_limit && !self.planted.is(Planted::ReleaseLastDelivery);
        config.delivery_count_limit = is_told.then_some(limit);
        let mut core = SessionCore::new(config, self.now);
        core.take(Random::of(self.script.seed, 400 + index as u64).one_of(500, &[1, 20]));
        let mut member = Member::new(core, version, self.now);
        member.delivery_count_limit = knows_limit.then_some(limit);
        self.members.push(member);
    }

    /// What a member subscribes to at its start: those that come when all is well take what is left.
    fn first_subscription(&self, index: usize) -> Subscription {
        let mut random = Random::of(self.script.seed, 200 + index as u64);
        let others = [Subscription::Both, Subscription::Both, Subscription::Second];
        match self.script.setup.partitions_of_second {
            0 => Subscription::First,
            _ if self.is_calm => Subscription::Both,
            _ => random.one_of(Subscription::First, &others),
        }
    }

    /// All partitions that there are.
    pub(super) fn places(&self) -> Vec<Place> {
        self.model.topics.places().collect()
    }

    pub(super) fn schedule(&mut self, at: Instant, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), happening);
    }

    pub(super) fn brokers_up(&self) -> Vec<BrokerId> {
        let all = self.model.brokers();
        all.filter(|broker| self.model.is_up(*broker)).collect()
    }

    /// Prints a line of what happens to a member, where that is wanted.
    pub(super) fn trace(&self, member: usize, line: impl FnOnce() -> String) {
        if self.is_traced {
            let at = (self.now - self.start).as_secs_f64();
            println!("{at:>9.4} s  member {member}: {}", line());
        }
    }

    // ---- time

    /// Does everything until a time, or until the first violation.
    pub(super) fn run_until(&mut self, until: Instant) {
        while self.judge.violations.is_empty() {
            self.settle_now();
            match self.next_time().filter(|at| *at <= until) {
                Some(at) => self.now = self.now.max(at),
                None => break,
            }
            self.judge.now = self.now;
        }
        self.now = self.now.max(until);
        self.judge.now = self.now;
    }

    /// Everything that is due now.
    fn settle_now(&mut self) {
        loop {
            let mut is_busy = false;
            if self.model.poll_timeout().is_some_and(|at| at <= self.now) {
                self.model.handle_timeout(self.now);
            }
            self.take_outputs();
            while let Some(entry) = self.queue.first_entry()
                && entry.key().0 <= self.now
            {
                let happening = entry.remove();
                self.tally.events += 1;
                self.happen(happening);
                self.take_outputs();
                is_busy = true;
            }
            for index in 0..self.members.len() {
                let member = &self.members[index];
                let is_due = member.wake_at.is_some_and(|at| at <= self.now);
                if member.is_live() && (member.is_touched || is_due) {
                    self.pump(index);
                    is_busy = true;
                }
            }
            if !is_busy {
                return;
            }
        }
    }

    fn next_time(&self) -> Option<Instant> {
        let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
        let members = self.members.iter().filter(|member| member.is_live());
        let members = members.filter_map(|member| member.wake_at);
        let model = self.model.poll_timeout();
        members.chain(queued).chain(model).min()
    }

    /// What the model has done: first its history, so that answers find what they grant.
    pub(super) fn take_outputs(&mut self) {
        self.take_history();
        while let Some(output) = self.model.poll_output() {
            match output {
                Output::Send { link, frame } => self.send_down(link, &frame.slice(4..)),
                Output::Close { link } => self.broker_closed(link),
            }
        }
    }

    pub(super) fn take_history(&mut self) {
        for (_, event) in self.model.history.take() {
            match event {
                Event::Acquired {
                    member_id,
                    place,
                    ranges,
                    ..
                } => {
                    if let Some(member) = number_of(&member_id) {
                        self.judge.granted(member, place, &ranges);
                    }
                }
                Event::Acknowledged {
                    member_id,
                    place,
                    applied,
                    ..
                } => self.applied(&member_id, place, &applied),
                Event::Expired { place, ranges, .. } => {
                    for (first, last, _) in ranges {
                        (first..=last).for_each(|offset| self.expired(place, offset));
                    }
                }
                Event::Released { place, ranges, .. } => {
                    for (first, last, _) in ranges {
                        for offset in first..=last {
                            self.judge.end(place, offset, End::SessionEnded);
                        }
                    }
                }
                Event::Request { .. } => {}
            }
        }
    }

    fn applied(&mut self, member_id: &str, place: Place, applied: &[(i64, i64, i8)]) {
        let Some(index) = number_of(member_id) else {
            return;
        };
        let Some(member) = self.members.get(index) else {
            return;
        };
        for (first, last, wire_type) in applied {
            for offset in *first..=*last {
                let who = (index, member.holdings.as_slice());
                self.judge.applied(who, (place, offset), *wire_type);
            }
        }
    }

    /// A lock ran out: nobody to whom nothing happened may let that come to pass (S8).
    fn expired(&mut self, place: Place, offset: i64) {
        let Some(id) = self.judge.end(place, offset, End::Expired) else {
            return;
        };
        let delivery = &self.judge.deliveries[id];
        let Some(member) = self.members.get(delivery.member) else {
            return;
        };
        let hindered = delivery.acquired_at < self.trouble_until
            || member.version < 2
            || !self.script.setup.renewals
            || !member.is_live();
        if !hindered {
            let member = delivery.member;
            let what = format!("member {member} let the lock of offset {offset} run out");
            self.judge.object("S8", what);
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Step(index) => {
                if let Some((_, step)) = self.script.steps.get(index) {
                    let step = *step;
                    self.take_step(step);
                }
            }
            Happening::Knocks(number) => self.knocks(number),
            Happening::Connected(number) => self.connected(number),
            Happening::SetupOver(number) => {
                if !self.network.connections[number].is_connected {
                    self.lose(number, "no connection in time");
                }
            }
            Happening::ToBroker(number, frame) => self.reaches_broker(number, frame),
            Happening::ToMember(number, correlation, answer) => {
                self.answered(number, correlation, answer);
            }
            Happening::BrokerSeesEnd(number) => self.broker_sees_end(number),
            Happening::MemberSeesEnd(number) => self.lose(number, "connection reset"),
            Happening::TimedOut(number, correlation) => self.timed_out(number, correlation),
            Happening::Handle {
                member,
                holding,
                range,
                act,
            } => self.handle(member, holding, range, act),
            Happening::Over(step) => self.step_is_over(step),
            Happening::IsClosed(index) => self.check_closed(index),
        }
    }
}

fn number_of(member_id: &str) -> Option<usize> {
    member_id.strip_prefix("member-")?.parse().ok()
}
