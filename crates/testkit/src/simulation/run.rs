//! One run: the clock, what is due, and what the script does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sharegroup_broker::model::history::Event;
use sharegroup_broker::model::topics::Place;
use sharegroup_broker::model::{Model, ModelConfig, Output};
use sharegroup_session::{AcquireMode, SessionConfig, SessionCore};
use sharegroup_wire::compress::Compression;
use sharegroup_wire::frame::encode_request;
use sharegroup_wire::message::Message as _;
use sharegroup_wire::message::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use sharegroup_wire::record::{RecordBatch, RecordBatchBuilder};
use sharegroup_wire::{BrokerId, CorrelationId};

use super::judge::{End, Judge};
use super::member::{Act, Life, Member};
use super::network::{Answer, Network, Number};
use super::planted::{Planted, Spoiler};
use super::random::Random;
use super::script::{BROKERS, Script, Step};
use super::tally::Tally;
use super::{Outcome, TOPIC};

/// The share group of every run.
pub(super) const GROUP: &str = "group";

/// A run that isn't done so long after its script ended will never be.
const DRAIN_MAX: Duration = Duration::from_secs(1_200);

/// Longest close of a member to which nothing bad happens.
const CLOSE_MAX: Duration = Duration::from_secs(60);

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
    Resume(usize),
    BrokerUp(BrokerId),
    RenewalsBack,
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
    trouble_until: Instant,
    /// Print what goes over the network and what is told.
    pub(super) is_traced: bool,
    places: Vec<Place>,
    events_seen: usize,
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
        let topic = model.create_topic(TOPIC, script.setup.partitions, 3);
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
            places: (0..script.setup.partitions)
                .map(|index| (topic, index))
                .collect(),
            events_seen: 0,
            model,
            script,
        };
        world.configure_group();
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

    fn set(&mut self, key: &str, value: String) {
        let values = self.model.configs.groups.entry(GROUP.to_owned());
        values.or_default().insert(key.to_owned(), value);
    }

    pub(super) fn add_member(&mut self) {
        let index = self.members.len();
        let mut random = Random::of(self.script.seed, 100 + index as u64);
        let mut config =
            SessionConfig::new(GROUP, format!("member-{index}"), vec![TOPIC.to_owned()]);
        let ms = Duration::from_millis;
        let modes = [AcquireMode::BatchOptimized, AcquireMode::RecordLimit];
        config.acquire_mode = random.one_of(AcquireMode::Auto, &modes);
        config.records_held_max = random.one_of(1_000, &[1, 7, 100]);
        config.credit_adapts = random.percent(50);
        config.acknowledge_linger = random.duration(Duration::ZERO, ms(50));
        config.request_timeout = random.duration(ms(2_000), ms(10_000));
        let version = if random.percent(10) { 1 } else { 2 };
        let core = SessionCore::new(config, self.now);
        self.members.push(Member::new(core, version, self.now));
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
    fn run_until(&mut self, until: Instant) {
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
    fn take_outputs(&mut self) {
        self.take_history();
        while let Some(output) = self.model.poll_output() {
            match output {
                Output::Send { link, frame } => self.send_down(link, &frame.slice(4..)),
                Output::Close { link } => self.broker_closed(link),
            }
        }
    }

    fn take_history(&mut self) {
        let events = self.model.history.events();
        let new: Vec<Event> = events
            .iter()
            .skip(self.events_seen)
            .map(|(_, event)| event)
            .filter(|event| !matches!(event, Event::Request { .. }))
            .cloned()
            .collect();
        self.events_seen = events.len();
        for event in new {
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
            Happening::ToBroker(number, frame) => {
                let connection = &self.network.connections[number];
                self.judge.is_left_behind = !connection.is_open;
                if let Some(link) = connection.link.filter(|_| !connection.is_silent) {
                    self.model.handle_request(self.now, link, frame);
                    self.take_history();
                }
                self.judge.is_left_behind = false;
            }
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
            Happening::Resume(index) => {
                let member = &mut self.members[index];
                member.core.resume();
                member.is_touched = true;
            }
            Happening::BrokerUp(broker) => self.model.set_up(broker, true),
            Happening::RenewalsBack => {
                let renewals = self.script.setup.renewals.to_string();
                self.set("share.renew.acknowledge.enable", renewals);
            }
            Happening::IsClosed(index) => self.check_closed(index),
        }
    }

    // ---- the script

    fn take_step(&mut self, step: Step) {
        let now = self.now;
        self.tally.step(&step);
        if self.is_traced && !matches!(step, Step::Produce { .. }) {
            let at = (now - self.start).as_secs_f64();
            println!("{at:>9.4} s  {step:?}");
        }
        if step.is_trouble() {
            let setup = &self.script.setup;
            let effect = match step {
                Step::Hang(_, time)
                | Step::Isolate(_, _, time)
                | Step::Restart(_, time)
                | Step::RefuseRenewals(time) => time,
                _ => Duration::ZERO,
            };
            // A withheld answer is missed after at most 10 s, and a lock after one more.
            let until = now + effect + Duration::from_secs(20) + setup.lock;
            self.trouble_until = self.trouble_until.max(until);
        }
        match step {
            Step::Produce {
                partition,
                offsets,
                holes,
            } => self.produce(partition, offsets, holes),
            Step::Start => self.add_member(),
            Step::MoveLeader(partition, broker) => self.move_leader(partition, BrokerId(broker)),
            Step::MoveCoordinator(broker) => self.model.move_coordinator(GROUP, BrokerId(broker)),
            Step::Restart(broker, time) => self.restart(BrokerId(broker), time),
            Step::Fault(api, fault) => self.model.faults.add(api, [fault]),
            Step::PartitionError(api, partition, error, count) => {
                if let Some(place) = self.place(partition) {
                    self.model.faults.fail(api, place, error, count);
                }
            }
            Step::Lock(lock) => {
                let millis = lock.as_millis().to_string();
                self.set("share.record.lock.duration.ms", millis);
            }
            Step::RefuseRenewals(time) => {
                self.set("share.renew.acknowledge.enable", "false".to_owned());
                self.schedule(now + time, Happening::RenewalsBack);
            }
            Step::TakeLocks(partition, each) => self.take_locks(partition, each),
            Step::Close(_)
            | Step::Kill(_)
            | Step::PowerOff(_)
            | Step::Hang(..)
            | Step::Pause(..)
            | Step::Commit(_)
            | Step::Cut(..)
            | Step::HalfOpen(..)
            | Step::Isolate(..)
            | Step::Expel(_) => self.step_of_member(step),
        }
    }

    fn step_of_member(&mut self, step: Step) {
        let now = self.now;
        let (Step::Close(index)
        | Step::Kill(index)
        | Step::PowerOff(index)
        | Step::Hang(index, _)
        | Step::Pause(index, _)
        | Step::Commit(index)
        | Step::Cut(index, _)
        | Step::HalfOpen(index, _)
        | Step::Isolate(index, ..)
        | Step::Expel(index)) = step
        else {
            return;
        };
        let Some(member) = self.members.get_mut(index) else {
            return;
        };
        if member.life != Life::Running {
            return;
        }
        member.is_touched = true;
        match step {
            Step::Close(_) => self.close_member(index),
            Step::Kill(_) | Step::PowerOff(_) => {
                member.life = Life::Dead;
                let connections = self.network.connections.iter().enumerate();
                let own = connections.filter(|(_, c)| c.member == index && c.is_open);
                let own: Vec<Number> = own.map(|(number, _)| number).collect();
                for number in own {
                    if matches!(step, Step::PowerOff(_)) {
                        self.silence(number);
                        self.network.connections[number].is_open = false;
                    } else {
                        self.hang_up(number);
                    }
                }
            }
            Step::Hang(_, time) => member.hangs_until = now + time,
            Step::Pause(_, time) => {
                member.core.pause();
                self.schedule(now + time, Happening::Resume(index));
            }
            Step::Commit(_) => {
                member.core.commit(now);
            }
            Step::Cut(_, broker) => {
                for number in self.network.between(index, BrokerId(broker)) {
                    self.cut(number);
                }
            }
            Step::HalfOpen(_, broker) => {
                for number in self.network.between(index, BrokerId(broker)) {
                    self.silence(number);
                }
            }
            Step::Isolate(_, broker, time) => {
                let key = (index, BrokerId(broker));
                self.network.isolated.insert(key, now + time);
            }
            Step::Expel(_) => {
                let id = member.id.clone();
                if let Some(group) = self.model.groups.get_mut(GROUP) {
                    group.remove(&id);
                }
            }
            _ => {}
        }
    }

    fn close_member(&mut self, index: usize) {
        let now = self.now;
        let member = &mut self.members[index];
        member.close(now);
        member.is_touched = true;
        if self.planted.closes_silently() {
            member.life = Life::Closed;
            self.schedule(now + Duration::from_secs(1), Happening::IsClosed(index));
        }
    }

    fn produce(&mut self, partition: i32, offsets: u64, holes: u64) {
        let Some(place) = self.place(partition) else {
            return;
        };
        let Some(found) = self.model.topics.partition_mut(place) else {
            return;
        };
        let (base, leader, epoch) = (found.log.end_offset(), found.leader, found.leader_epoch);
        let mut random = Random::of(self.script.seed, 1 + base.unsigned_abs() * 2);
        let last = i32::try_from(offsets).unwrap_or(1) - 1;
        let mut builder = RecordBatchBuilder::new(Compression::None);
        for delta in 0..=last {
            if delta > 0 && random.percent(holes) {
                self.holes.insert((place, base + i64::from(delta)));
            } else {
                let pushed = builder.push_at(delta, 0, None, Some(b"value"), []);
                debug_assert!(pushed.is_ok());
            }
        }
        let Ok(records) = builder.last_offset_delta(last).build(0) else {
            return;
        };
        self.tally.records += offsets;
        if holes > 0 {
            // No producer can send it: it is what compaction leaves.
            if let Ok(batch) = RecordBatch::read(records) {
                found.log.append(&batch, epoch, None);
            }
            return;
        }
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 1_000,
            topic_data: vec![TopicProduceData {
                name: TOPIC.to_owned(),
                topic_id: place.0,
                partition_data: vec![PartitionProduceData {
                    index: partition,
                    records: Some(records),
                }],
            }],
            ..ProduceRequest::default()
        };
        let version = ProduceRequest::VERSION_MAX;
        let frame = encode_request(&request, version, CorrelationId(0), None).slice(4..);
        let producer = self.model.connect(leader, "/10.0.1.1");
        self.model.handle_request(self.now, producer, frame);
        self.model.disconnect(self.now, producer);
        let appended = self.model.topics.partition(place);
        if appended.is_none_or(|partition| partition.log.end_offset() == base) {
            let what = "a batch was refused".to_owned();
            self.judge.object("broker", what);
        }
    }

    fn place(&self, partition: i32) -> Option<Place> {
        self.places.get(usize::try_from(partition).ok()?).copied()
    }

    fn reloaded(&mut self, place: Place) {
        for offset in self.judge.open(place) {
            self.judge.end(place, offset, End::Reloaded);
        }
    }

    fn move_leader(&mut self, partition: i32, broker: BrokerId) {
        if let Some(place) = self.place(partition) {
            self.model.move_leader(place, broker);
            self.take_outputs();
            self.reloaded(place);
        }
    }

    fn restart(&mut self, broker: BrokerId, time: Duration) {
        let led = self.places.iter().filter(|place| {
            let partition = self.model.topics.partition(**place);
            partition.is_some_and(|partition| partition.leader == broker)
        });
        let led: Vec<Place> = led.copied().collect();
        self.model.restart(broker);
        self.model.set_up(broker, false);
        self.schedule(self.now + time, Happening::BrokerUp(broker));
        self.take_outputs();
        for place in led {
            self.reloaded(place);
        }
    }

    fn take_locks(&mut self, partition: i32, each: i64) {
        let Some(place) = self.place(partition) else {
            return;
        };
        let limits = self.model.configs.group(GROUP).limits;
        let group = self.model.groups.get_mut(GROUP);
        let Some(loaded) = group.and_then(|group| group.loaded.get_mut(&place)) else {
            return;
        };
        for offset in self.judge.open(place) {
            if offset % each == 0 {
                loaded.partition.expire_offset(offset, &limits);
                self.judge.end(place, offset, End::Taken);
            }
        }
    }

    // ---- the end

    /// After a close the broker holds nothing for the member, but on connections that went silent (S7),
    /// and what it refused to take back.
    fn check_closed(&mut self, index: usize) {
        let Some(group) = self.model.groups.get(GROUP) else {
            return;
        };
        let id = &self.members[index].id;
        let isolated = self.network.isolated.iter();
        let mut isolated = isolated.filter(|((member, _), _)| *member == index);
        if isolated.any(|(_, until)| *until + Duration::from_secs(1) > self.now) {
            return;
        }
        let mut left = Vec::new();
        for (place, loaded) in &group.loaded {
            for (offset, record) in loaded.partition.records() {
                if !record.state.is_held_by(id) {
                    continue;
                }
                let delivery = self.judge.current.get(&(*place, offset));
                let delivery = delivery.map(|id| &self.judge.deliveries[*id]);
                let connection = delivery.and_then(|delivery| delivery.connection);
                let is_silent =
                    connection.is_none_or(|number| self.network.connections[number].is_silent);
                // What the broker refused to take back, of a partition that left the session, stays
                // with it until the lock ends.
                let holding = delivery.and_then(|delivery| delivery.holding);
                let told = holding.and_then(|holding| {
                    let holdings = &self.members[index].holdings;
                    holdings[holding].told.get(&offset)
                });
                let is_excused = is_silent || matches!(told, Some(Err(_)));
                if !is_excused {
                    left.push((place.1, offset));
                }
            }
        }
        if !left.is_empty() {
            let what = format!("member {index} has closed and the broker holds {left:?} for it");
            self.judge.object("S7", what);
        }
    }

    fn is_drained(&self) -> bool {
        let group = self.model.groups.get(GROUP);
        self.places.iter().all(|place| {
            let end = self.model.topics.partition(*place);
            let end = end.map_or(0, |partition| partition.log.end_offset());
            let loaded = group.and_then(|group| group.loaded.get(place));
            let start = loaded.map_or(0, |loaded| loaded.partition.start_offset());
            start == end
        })
    }

    /// All is well again: everything must be done in the end.
    fn drain(&mut self) {
        self.is_calm = true;
        self.model.faults.clear();
        for broker in 1..=BROKERS {
            self.model.set_up(BrokerId(broker), true);
        }
        self.network.isolated.clear();
        self.set("share.renew.acknowledge.enable", "true".to_owned());
        self.add_member();
        for member in &mut self.members {
            member.hangs_until = self.now;
            member.core.resume();
            member.is_touched = true;
        }
        let until = self.now + DRAIN_MAX;
        while !self.is_drained() && self.judge.violations.is_empty() {
            if self.now >= until {
                let what = "records are left, and nobody takes them".to_owned();
                return self.judge.object("S2", what);
            }
            self.run_until(self.now + Duration::from_secs(1));
        }
    }

    fn close_all(&mut self) {
        for index in 0..self.members.len() {
            if self.members[index].life == Life::Running {
                self.close_member(index);
            }
        }
        let until = self.now + CLOSE_MAX;
        while self.members.iter().any(Member::is_live) && self.judge.violations.is_empty() {
            if self.now >= until {
                let what = "a member does not end its close".to_owned();
                return self.judge.object("S7", what);
            }
            self.run_until(self.now + Duration::from_secs(1));
        }
        self.run_until(self.now + Duration::from_secs(2));
    }

    /// Every record is settled, or used up and its last delivery was told of.
    fn check_settled(&mut self) {
        let limit = self.script.setup.delivery_count_limit;
        for place in self.places.clone() {
            let end = self.model.topics.partition(place);
            let end = end.map_or(0, |partition| partition.log.end_offset());
            for offset in 0..end {
                let id = self.judge.current.get(&(place, offset)).copied();
                let last = id.map(|id| &self.judge.deliveries[id]);
                let is_settled = match last.and_then(|last| last.end) {
                    Some(end) if end.is_for_good() => true,
                    None | Some(End::Reloaded) => false,
                    Some(_) => last.is_some_and(|last| last.count >= limit),
                };
                if !is_settled {
                    let what = format!(
                        "offset {offset} of partition {} vanished: {last:?}",
                        place.1
                    );
                    self.judge.object("S2", what);
                }
            }
        }
    }

    pub(super) fn run(mut self) -> Outcome {
        let script_end = self.start + self.script.setup.length;
        self.run_until(script_end);
        if self.judge.violations.is_empty() {
            self.drain();
        }
        if self.judge.violations.is_empty() {
            self.close_all();
        }
        if self.judge.violations.is_empty() {
            self.check_settled();
            for (index, member) in self.members.iter().enumerate() {
                if member.life == Life::Closed {
                    for holding in &member.holdings {
                        self.judge.told(index, holding);
                    }
                }
            }
        }
        self.tally.deliveries = self.judge.deliveries.len() as u64;
        Outcome {
            virtual_time: self.now - self.start,
            violations: self.judge.violations,
            tally: self.tally,
        }
    }
}

fn number_of(member_id: &str) -> Option<usize> {
    member_id.strip_prefix("member-")?.parse().ok()
}
