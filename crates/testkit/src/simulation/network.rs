//! What lies between members and brokers: connections that keep the order of what they carry, and
//! take their time, end, stand still or go silent.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sharegroup_broker::model::LinkId;
use sharegroup_session::ConnectionId;
use sharegroup_wire::frame::{decode_response, encode_request, response_correlation_id};
use sharegroup_wire::message::Request;
use sharegroup_wire::message::find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse};
use sharegroup_wire::message::metadata::{MetadataRequest, MetadataResponse};
use sharegroup_wire::message::share_acknowledge::{
    ShareAcknowledgeRequest, ShareAcknowledgeResponse,
};
use sharegroup_wire::message::share_fetch::{ShareFetchRequest, ShareFetchResponse};
use sharegroup_wire::message::share_group_heartbeat::{
    ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse,
};
use sharegroup_wire::{BrokerId, CorrelationId, DecodeError, ErrorCode, TopicId};

use super::judge::Grant;
use super::run::{Happening, World};
use super::script::TOPICS;
use crate::random::Random;

/// A connection's place in [`Network::connections`].
pub(super) type Number = usize;

/// A connection without an answer to its opening for so long has failed.
const SETUP_TIMEOUT: Duration = Duration::from_secs(5);

/// A broker closes what says nothing for so long (`connections.max.idle.ms`).
const IDLE: Duration = Duration::from_secs(600);

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A share session.
    Session(ConnectionId),
    /// Everything else.
    Cold,
}

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Metadata,
    Coordinator,
    Heartbeat,
    Fetch,
    Acknowledge,
}

/// An answer, decoded where the broker sends it.
#[derive(Debug)]
pub(super) enum Answer {
    Metadata(MetadataResponse),
    Coordinator(FindCoordinatorResponse),
    Heartbeat(ShareGroupHeartbeatResponse),
    Fetch(ShareFetchResponse, Vec<Grant>),
    Acknowledge(ShareAcknowledgeResponse),
}

/// A request that has no answer yet.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) correlation: i32,
    pub(super) asked: Asked,
    version: i16,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) member: usize,
    pub(super) broker: BrokerId,
    pub(super) purpose: Purpose,
    /// The broker's end.
    pub(super) link: Option<LinkId>,
    /// The member's end.
    pub(super) is_open: bool,
    /// The member knows that it is open.
    pub(super) is_connected: bool,
    /// It carries nothing any more, and nobody is told.
    pub(super) is_silent: bool,
    /// Requests that wait for it to be connected.
    pub(super) waiting: Vec<Bytes>,
    pub(super) open: VecDeque<Open>,
    /// The broker reads nothing from it until then.
    muted_until: Instant,
    /// The member was told so.
    pub(super) throttled_until: Instant,
    /// When what was sent last arrives, up and down: nothing overtakes it.
    arrival: (Instant, Instant),
}

#[derive(Debug)]
pub(super) struct Network {
    pub(super) connections: Vec<Connection>,
    pub(super) by_link: BTreeMap<LinkId, Number>,
    /// What a member and a broker send each other arrives later than this.
    pub(super) isolated: BTreeMap<(usize, BrokerId), Instant>,
    /// A broker mutes a member's connections until then.
    pub(super) throttled: BTreeMap<(usize, BrokerId), Instant>,
    /// Topics, by their number, whose metadata nobody may have.
    pub(super) denied: [bool; TOPICS.len()],
    latency_max: Duration,
    random: Random,
}

impl Network {
    pub(super) fn new(seed: u64, latency_max: Duration) -> Self {
        Self {
            connections: Vec::new(),
            by_link: BTreeMap::new(),
            isolated: BTreeMap::new(),
            throttled: BTreeMap::new(),
            denied: [false; TOPICS.len()],
            latency_max,
            random: Random::of(seed, 2),
        }
    }

    pub(super) fn latency(&mut self) -> Duration {
        let least = Duration::from_micros(100);
        self.random.duration(least, self.latency_max.max(least))
    }

    /// A broker to ask.
    pub(super) fn any(&mut self, brokers: &[BrokerId]) -> Option<BrokerId> {
        let index = self.random.below(brokers.len() as u64);
        brokers.get(usize::try_from(index).ok()?).copied()
    }

    /// When something sent now between the two arrives, if it does.
    fn arrival(&mut self, now: Instant, member: usize, broker: BrokerId) -> Instant {
        let held_up = self.isolated.get(&(member, broker)).copied();
        held_up.unwrap_or(now).max(now) + self.latency()
    }

    fn next_up(&mut self, now: Instant, number: Number) -> Instant {
        let (member, broker) = self.ends(number);
        let at = self.arrival(now, member, broker);
        let connection = &mut self.connections[number];
        connection.arrival.0 = connection.arrival.0.max(at);
        connection.arrival.0
    }

    fn next_down(&mut self, now: Instant, number: Number) -> Instant {
        let (member, broker) = self.ends(number);
        let at = self.arrival(now, member, broker);
        let connection = &mut self.connections[number];
        connection.arrival.1 = connection.arrival.1.max(at);
        connection.arrival.1
    }

    /// Of a topic that is denied a broker tells its name only.
    fn hide(&self, response: &mut MetadataResponse) {
        for topic in &mut response.topics {
            let number = TOPICS
                .iter()
                .position(|name| topic.name.as_deref() == Some(name));
            if number.is_some_and(|number| self.denied[number]) {
                topic.error_code = ErrorCode::TopicAuthorizationFailed;
                topic.topic_id = TopicId::ZERO;
                topic.partitions.clear();
            }
        }
    }

    fn ends(&self, number: Number) -> (usize, BrokerId) {
        let connection = &self.connections[number];
        (connection.member, connection.broker)
    }

    /// The open connections between a member and a broker.
    pub(super) fn between(&self, member: usize, broker: BrokerId) -> Vec<Number> {
        let all = self.connections.iter().enumerate();
        let between = all.filter(|(_, connection)| {
            connection.member == member && connection.broker == broker && connection.is_open
        });
        between.map(|(number, _)| number).collect()
    }
}

impl World {
    /// A member opens a connection.
    pub(super) fn connect(&mut self, member: usize, broker: BrokerId, purpose: Purpose) -> Number {
        let number = self.network.connections.len();
        self.network.connections.push(Connection {
            member,
            broker,
            purpose,
            link: None,
            is_open: true,
            is_connected: false,
            is_silent: false,
            waiting: Vec::new(),
            open: VecDeque::new(),
            muted_until: self.now,
            throttled_until: self.now,
            arrival: (self.now, self.now),
        });
        let at = self.network.next_up(self.now, number);
        self.schedule(at, Happening::Knocks(number));
        self.schedule(self.now + SETUP_TIMEOUT, Happening::SetupOver(number));
        number
    }

    /// An opening reaches the broker.
    pub(super) fn knocks(&mut self, number: Number) {
        let connection = &self.network.connections[number];
        if connection.is_silent || !connection.is_open {
            return;
        }
        if self.model.is_up(connection.broker) {
            let peer = format!("/10.0.0.{}", connection.member);
            let link = self.model.connect(connection.broker, &peer);
            self.network.connections[number].link = Some(link);
            self.network.by_link.insert(link, number);
            let at = self.network.next_down(self.now, number);
            self.schedule(at, Happening::Connected(number));
        } else {
            let at = self.network.next_down(self.now, number);
            self.schedule(at, Happening::MemberSeesEnd(number));
        }
    }

    /// The member sends a request; it waits for the connection if need be.
    pub(super) fn ask<R: Request>(
        &mut self,
        number: Number,
        asked: Asked,
        (request, version): (&R, i16),
        timeout: Duration,
    ) {
        self.correlation += 1;
        let correlation = self.correlation;
        let frame = encode_request(request, version, CorrelationId(correlation), Some("member"));
        let frame = frame.slice(4..);
        let connection = &mut self.network.connections[number];
        connection.open.push_back(Open {
            correlation,
            asked,
            version,
        });
        if connection.is_connected {
            self.send_up(number, frame);
        } else {
            connection.waiting.push(frame);
        }
        let deadline = Happening::TimedOut(number, correlation);
        self.schedule(self.now + timeout, deadline);
    }

    pub(super) fn send_up(&mut self, number: Number, frame: Bytes) {
        if !self.network.connections[number].is_silent {
            let at = self.network.next_up(self.now, number);
            self.schedule(at, Happening::ToBroker(number, frame));
        }
    }

    /// The broker sends a frame: it is decoded here, so that what it grants is named by what the
    /// broker knows now.
    pub(super) fn send_down(&mut self, link: LinkId, frame: &Bytes) {
        let Some(number) = self.network.by_link.get(&link).copied() else {
            return;
        };
        let connection = &self.network.connections[number];
        let Ok(CorrelationId(correlation)) = response_correlation_id(frame) else {
            self.judge
                .object("wire", "a frame without a correlation id".to_owned());
            return;
        };
        let mut open = connection.open.iter();
        let asked = open.find(|open| open.correlation == correlation);
        let answer = match asked.map(|open| decode(open, frame)) {
            Some(Ok(answer)) => Some(self.dress(number, answer)),
            Some(Err(error)) => {
                self.judge
                    .object("wire", format!("an answer that can't be read: {error}"));
                return;
            }
            // Given up by the member, or a second answer.
            None => None,
        };
        if !self.network.connections[number].is_silent {
            let at = self.network.next_down(self.now, number);
            let happening = Happening::ToMember(number, correlation, answer);
            self.schedule(at, happening);
        }
    }

    /// Adds to the model's answer what it knows nothing of: names of what was granted, quotas, rights.
    fn dress(&mut self, number: Number, mut answer: Answer) -> Answer {
        answer.each_error(|error| self.tally.met(error));
        match &mut answer {
            Answer::Fetch(response, grants) => {
                let member = self.network.connections[number].member;
                *grants = self.judge.take_grants(member, response);
                response.throttle_time_ms = self.throttle(number);
            }
            Answer::Acknowledge(response) => response.throttle_time_ms = self.throttle(number),
            Answer::Metadata(response) => self.network.hide(response),
            Answer::Coordinator(_) | Answer::Heartbeat(_) => {}
        }
        answer
    }

    /// A request reaches the broker, which doesn't look at it while it throttles its sender (KIP-219).
    pub(super) fn reaches_broker(&mut self, number: Number, frame: Bytes) {
        let connection = &self.network.connections[number];
        if connection.muted_until > self.now {
            let later = Happening::ToBroker(number, frame);
            return self.schedule(connection.muted_until, later);
        }
        self.judge.is_left_behind = !connection.is_open;
        if let Some(link) = connection.link.filter(|_| !connection.is_silent) {
            self.model.handle_request(self.now, link, frame);
            self.take_history();
        }
        self.judge.is_left_behind = false;
    }

    /// The throttle time of an answer; the broker reads nothing more from its connection until it is over.
    fn throttle(&mut self, number: Number) -> i32 {
        let (member, broker) = self.network.ends(number);
        let until = self.network.throttled.get(&(member, broker)).copied();
        let Some(until) = until.filter(|until| *until > self.now) else {
            return 0;
        };
        self.tally.throttled += 1;
        self.network.connections[number].muted_until = until;
        i32::try_from((until - self.now).as_millis()).unwrap_or(i32::MAX)
    }

    /// The broker has closed its end.
    pub(super) fn broker_closed(&mut self, link: LinkId) {
        let Some(number) = self.network.by_link.remove(&link) else {
            return;
        };
        self.network.connections[number].link = None;
        if !self.network.connections[number].is_silent {
            let at = self.network.next_down(self.now, number);
            self.schedule(at, Happening::MemberSeesEnd(number));
        }
    }

    /// The member closes its end, or its machine does it.
    pub(super) fn hang_up(&mut self, number: Number) {
        let connection = &mut self.network.connections[number];
        connection.is_open = false;
        connection.open.clear();
        let at = if connection.is_silent {
            self.now + IDLE
        } else {
            self.network.next_up(self.now, number)
        };
        self.schedule(at, Happening::BrokerSeesEnd(number));
    }

    /// Something between the two ends a connection; what is on its way is lost.
    pub(super) fn cut(&mut self, number: Number) {
        let connection = &mut self.network.connections[number];
        connection.is_silent = true;
        let (up, down) = (self.network.latency(), self.network.latency());
        self.schedule(self.now + up, Happening::BrokerSeesEnd(number));
        self.schedule(self.now + down, Happening::MemberSeesEnd(number));
    }

    /// It carries nothing from now on; the broker gives it up when it was idle for long enough.
    pub(super) fn silence(&mut self, number: Number) {
        self.network.connections[number].is_silent = true;
        self.schedule(self.now + IDLE, Happening::BrokerSeesEnd(number));
    }

    pub(super) fn broker_sees_end(&mut self, number: Number) {
        if let Some(link) = self.network.connections[number].link.take() {
            self.network.by_link.remove(&link);
            self.model.disconnect(self.now, link);
        }
    }
}

impl Answer {
    /// In short, without records.
    pub(super) fn brief(&self) -> String {
        match self {
            Self::Fetch(response, _) => {
                let mut response = response.clone();
                let topics = response.responses.iter_mut();
                for partition in topics.flat_map(|topic| &mut topic.partitions) {
                    partition.records.clear();
                }
                format!("{response:?}")
            }
            Self::Metadata(_) => "Metadata".to_owned(),
            answer => format!("{answer:?}"),
        }
    }

    /// Every error code in it, also those that are none.
    fn each_error(&self, mut met: impl FnMut(ErrorCode)) {
        match self {
            Self::Metadata(response) => met(response.error_code),
            Self::Coordinator(response) => {
                let first = response.coordinators.first();
                met(first.map_or(response.error_code, |coordinator| coordinator.error_code));
            }
            Self::Heartbeat(response) => met(response.error_code),
            Self::Fetch(response, _) => {
                met(response.error_code);
                for partition in response
                    .responses
                    .iter()
                    .flat_map(|topic| &topic.partitions)
                {
                    met(partition.error_code);
                    met(partition.acknowledge_error_code);
                }
            }
            Self::Acknowledge(response) => {
                met(response.error_code);
                for partition in response
                    .responses
                    .iter()
                    .flat_map(|topic| &topic.partitions)
                {
                    met(partition.error_code);
                }
            }
        }
    }
}

fn decode(open: &Open, frame: &Bytes) -> Result<Answer, DecodeError> {
    let version = open.version;
    Ok(match open.asked {
        Asked::Metadata => Answer::Metadata(decode_response::<MetadataRequest>(frame, version)?),
        Asked::Coordinator => {
            Answer::Coordinator(decode_response::<FindCoordinatorRequest>(frame, version)?)
        }
        Asked::Heartbeat => Answer::Heartbeat(decode_response::<ShareGroupHeartbeatRequest>(
            frame, version,
        )?),
        Asked::Fetch => Answer::Fetch(
            decode_response::<ShareFetchRequest>(frame, version)?,
            Vec::new(),
        ),
        Asked::Acknowledge => {
            Answer::Acknowledge(decode_response::<ShareAcknowledgeRequest>(frame, version)?)
        }
    })
}
