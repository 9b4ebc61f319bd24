//! What the script does to a run.

use std::time::Duration;

use sharegroup_broker::model::topics::Place;
use sharegroup_wire::compress::Compression;
use sharegroup_wire::frame::encode_request;
use sharegroup_wire::message::Request;
use sharegroup_wire::message::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use sharegroup_wire::message::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use sharegroup_wire::message::share_acknowledge::ShareAcknowledgeRequest;
use sharegroup_wire::message::share_fetch::ShareFetchRequest;
use sharegroup_wire::record::{RecordBatch, RecordBatchBuilder};
use sharegroup_wire::{BrokerId, CorrelationId, ErrorCode};

use super::judge::End;
use super::member::Life;
use super::network::Number;
use super::run::{GROUP, Happening, World};
use super::script::{Step, TOPICS};
use crate::random::Random;

/// Most share sessions of a broker, and most members of a group.
const SESSIONS_MAX: &str = "group.share.max.share.sessions";
const SIZE_MAX: &str = "group.share.max.size";

impl World {
    pub(super) fn take_step(&mut self, step: Step) {
        let now = self.now;
        self.tally.step(&step);
        if self.is_traced && !matches!(step, Step::Produce { .. }) {
            let at = (now - self.start).as_secs_f64();
            println!("{at:>9.4} s  {step:?}");
        }
        if let Some(time) = step.hinders() {
            // A withheld answer is missed after at most 10 s, and a lock after one more.
            let until = now + time + Duration::from_secs(20) + self.script.setup.lock;
            self.trouble_until = self.trouble_until.max(until);
        }
        if !step.lasts().is_zero() {
            self.schedule(now + step.lasts(), Happening::Over(step));
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
            Step::Restart(broker, _) => self.restart(BrokerId(broker)),
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
            Step::SwitchRenewals(_) => self.allow_renewals(!self.script.setup.renewals),
            Step::TakeLocks(partition, each) => self.take_locks(partition, each),
            Step::RecreateTopic(topic, _) => self.delete_topic(topic),
            Step::AddPartitions(topic, count) => self.add_partitions(topic, count),
            Step::SessionLimit(most, _) => self.set_of_brokers(SESSIONS_MAX, most.to_string()),
            Step::GroupFull(_) => {
                self.set_of_brokers(SIZE_MAX, "1".to_owned());
                self.add_member();
            }
            Step::Deny(topic, _) => self.deny(topic, true),
            Step::Close(_)
            | Step::Kill(_)
            | Step::PowerOff(_)
            | Step::Hang(..)
            | Step::Pause(..)
            | Step::Commit(_)
            | Step::Cut(..)
            | Step::HalfOpen(..)
            | Step::Isolate(..)
            | Step::Expel(_)
            | Step::Subscribe(..)
            | Step::Throttle(..)
            | Step::DropDeliveries(..) => self.step_of_member(step),
        }
    }

    /// What a step did for a while ends.
    pub(super) fn step_is_over(&mut self, step: Step) {
        match step {
            Step::Pause(index, _) => {
                if let Some(member) = self.members.get_mut(index) {
                    member.core.resume();
                    member.is_touched = true;
                }
            }
            Step::Restart(broker, _) => self.model.set_up(BrokerId(broker), true),
            Step::SwitchRenewals(_) => self.allow_renewals(self.script.setup.renewals),
            Step::RecreateTopic(topic, _) => self.create_topic(topic),
            Step::SessionLimit(..) => self.unset_of_brokers(SESSIONS_MAX),
            Step::GroupFull(_) => self.unset_of_brokers(SIZE_MAX),
            Step::Deny(topic, _) => self.deny(topic, false),
            _ => {}
        }
    }

    /// Nothing that the script did goes on.
    pub(super) fn end_steps(&mut self) {
        self.model.faults.clear();
        for broker in self.model.brokers().collect::<Vec<_>>() {
            self.model.set_up(broker, true);
        }
        self.network.isolated.clear();
        self.network.throttled.clear();
        self.allow_renewals(true);
        self.unset_of_brokers(SESSIONS_MAX);
        self.unset_of_brokers(SIZE_MAX);
        for topic in 0..TOPICS.len() {
            self.deny(topic, false);
            self.create_topic(topic);
        }
        for member in &mut self.members {
            (member.hangs_until, member.drops_until) = (self.now, self.now);
            member.core.resume();
            member.is_touched = true;
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
        | Step::Expel(index)
        | Step::Subscribe(index, _)
        | Step::Throttle(index, ..)
        | Step::DropDeliveries(index, _)) = step
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
            Step::Pause(..) => member.core.pause(),
            Step::DropDeliveries(_, time) => member.drops_until = now + time,
            Step::Subscribe(_, to) if self.script.setup.partitions_of_second > 0 => {
                member.core.subscribe(now, to.names());
                member.subscribed = to.names();
            }
            Step::Throttle(_, broker, time) => {
                let key = (index, BrokerId(broker));
                self.network.throttled.insert(key, now + time);
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

    pub(super) fn close_member(&mut self, index: usize) {
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
        let Some(topic) = self.topic_of(partition) else {
            return;
        };
        let Some(place) = self.place(partition) else {
            let step = Step::Produce {
                partition,
                offsets,
                holes,
            };
            return self.unproduced.push(step);
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
                name: TOPICS[topic].to_owned(),
                topic_id: place.0,
                partition_data: vec![PartitionProduceData {
                    index: place.1,
                    records: Some(records),
                }],
            }],
            ..ProduceRequest::default()
        };
        self.ask_as_admin(leader, &request);
        let appended = self.model.topics.partition(place);
        if appended.is_none_or(|partition| partition.log.end_offset() == base) {
            let what = "a batch was refused".to_owned();
            self.judge.object("broker", what);
        }
    }

    // ---- topics

    fn topic_of(&self, partition: i32) -> Option<usize> {
        let partition = self.partitions.get(usize::try_from(partition).ok()?)?;
        Some(partition.0)
    }

    /// A partition by its number.
    fn place(&self, partition: i32) -> Option<Place> {
        let (topic, index) = *self.partitions.get(usize::try_from(partition).ok()?)?;
        let id = self.model.topics.named(TOPICS[topic])?.id;
        Some((id, index))
    }

    fn places_of(&self, topic: usize) -> Vec<Place> {
        let places = self.model.topics.named(TOPICS[topic]).into_iter();
        let places = places.flat_map(|topic| {
            let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
            (0..count).map(|index| (topic.id, index))
        });
        places.collect()
    }

    /// Its records are gone, and with them whatever members hold of them.
    fn delete_topic(&mut self, topic: usize) {
        let gone = self.places_of(topic);
        let Some((id, _)) = gone.first().copied() else {
            return;
        };
        self.take_history();
        self.model.delete_topic(id);
        for place in gone {
            for offset in self.judge.open(place) {
                self.judge.end(place, offset, End::TopicGone);
            }
            self.judge.gone.insert(place);
        }
        self.take_outputs();
    }

    pub(super) fn create_topic(&mut self, topic: usize) {
        let partitions = self.partitions.iter().filter(|(of, _)| *of == topic);
        let count = i32::try_from(partitions.count()).unwrap_or(0);
        if count > 0 && self.model.topics.named(TOPICS[topic]).is_none() {
            let id = self.model.create_topic(TOPICS[topic], count, 3);
            self.topic_names.insert(id, TOPICS[topic]);
            for step in std::mem::take(&mut self.unproduced) {
                self.take_step(step);
            }
        }
    }

    fn add_partitions(&mut self, topic: usize, count: i32) {
        let before = self
            .partitions
            .iter()
            .filter(|(of, _)| *of == topic)
            .count();
        let before = i32::try_from(before).unwrap_or(i32::MAX);
        if before == 0 {
            return;
        }
        self.partitions
            .extend((0..count).map(|more| (topic, before + more)));
        if self.model.topics.named(TOPICS[topic]).is_some() {
            let request = CreatePartitionsRequest {
                topics: vec![CreatePartitionsTopic {
                    name: TOPICS[topic].to_owned(),
                    count: before + count,
                    assignments: None,
                }],
                timeout_ms: 1_000,
                validate_only: false,
            };
            self.ask_as_admin(BrokerId(1), &request);
        }
    }

    /// Nobody may read a topic, or all may again: neither its records nor its metadata.
    fn deny(&mut self, topic: usize, is_denied: bool) {
        self.network.denied[topic] = is_denied;
        for place in self.places_of(topic) {
            for api in [ShareFetchRequest::API_KEY, ShareAcknowledgeRequest::API_KEY] {
                if is_denied {
                    let error = ErrorCode::TopicAuthorizationFailed;
                    self.model.faults.fail(api, place, error, u32::MAX);
                } else {
                    self.model.faults.mend(api, place);
                }
            }
        }
    }

    fn ask_as_admin<R: Request>(&mut self, broker: BrokerId, request: &R) {
        let frame = encode_request(request, R::VERSION_MAX, CorrelationId(0), None).slice(4..);
        let link = self.model.connect(broker, "/10.0.1.1");
        self.model.handle_request(self.now, link, frame);
        self.model.disconnect(self.now, link);
    }

    fn set_of_brokers(&mut self, key: &str, value: String) {
        self.model.configs.broker.insert(key.to_owned(), value);
    }

    fn unset_of_brokers(&mut self, key: &str) {
        self.model.configs.broker.remove(key);
    }

    fn allow_renewals(&mut self, are_allowed: bool) {
        self.set("share.renew.acknowledge.enable", are_allowed.to_string());
    }

    // ---- leaders

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

    fn restart(&mut self, broker: BrokerId) {
        let places = self.places();
        let led = places.iter().filter(|place| {
            let partition = self.model.topics.partition(**place);
            partition.is_some_and(|partition| partition.leader == broker)
        });
        let led: Vec<Place> = led.copied().collect();
        self.model.restart(broker);
        self.model.set_up(broker, false);
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
}
