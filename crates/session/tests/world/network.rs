//! What lies between cores and the model: latency, loss, cuts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use sharegroup_session::{BrokerVersions, ConnectionId, Failure, MetadataTopics, Request};
use sharegroup_testkit::model::{Answer, Delivery, Fetched, LinkId, Place, Slot};
use sharegroup_wire::BrokerId;
use sharegroup_wire::message::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use sharegroup_wire::message::share_acknowledge::{
    ShareAcknowledgeRequest, ShareAcknowledgeResponse,
};
use sharegroup_wire::message::share_fetch::{ShareFetchRequest, ShareFetchResponse};
use sharegroup_wire::message::share_group_heartbeat::{
    ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse,
};

use super::{Act, MS, Random, World};

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Api {
    Connect,
    Heartbeat,
    Fetch,
    Acknowledge,
}

/// What the network does with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Carries both ways.
    Carry,
    /// The answer takes so much longer.
    Delay(Duration),
    /// The request never arrives; nobody is told.
    LoseRequest,
    /// It arrives, the answer doesn't; nobody is told.
    LoseAnswer,
    /// The connection ends before the request arrives.
    CutBefore,
    /// The connection ends after the broker has answered, before the answer arrives.
    CutAfter,
}

pub struct Network {
    pub latency: (Duration, Duration),
    pub random: Random,
    /// What becomes of the next requests of a kind; first in, first out.
    pub fates: BTreeMap<Api, VecDeque<Fate>>,
    /// Of a hundred requests, how many meet a random fate.
    pub chaos_percent: u64,
    /// Brokers that refuse connections.
    pub down: BTreeSet<BrokerId>,
    /// Waits at a broker for its answer: who asked.
    parked: BTreeMap<LinkId, Asker>,
    /// Connections that ended before their client closed its session.
    pub cut: BTreeSet<LinkId>,
    /// Deliveries whose lock a test took away.
    pub forced: BTreeSet<Delivery>,
    /// Changes the next answers to fetches on their way.
    pub tamper: Option<fn(&mut ShareFetchResponse)>,
    /// Share requests sent, by kind.
    pub sent: BTreeMap<Api, usize>,
}

impl Network {
    pub fn new() -> Self {
        Self {
            latency: (MS / 2, MS / 2),
            random: Random::new(1),
            fates: BTreeMap::new(),
            chaos_percent: 0,
            down: BTreeSet::new(),
            parked: BTreeMap::new(),
            cut: BTreeSet::new(),
            forced: BTreeSet::new(),
            tamper: None,
            sent: BTreeMap::new(),
        }
    }

    pub fn next_fates(&mut self, api: Api, fates: impl IntoIterator<Item = Fate>) {
        self.fates.entry(api).or_default().extend(fates);
    }

    fn latency(&mut self) -> Duration {
        let (least, most) = self.latency;
        self.random.duration(least, most)
    }

    fn fate(&mut self, api: Api) -> Fate {
        *self.sent.entry(api).or_default() += 1;
        if let Some(fate) = self.fates.get_mut(&api).and_then(VecDeque::pop_front) {
            return fate;
        }
        if !self.random.percent(self.chaos_percent) {
            return Fate::Carry;
        }
        match self.random.below(6) {
            0 | 1 => Fate::Delay(self.random.duration(Duration::ZERO, 900 * MS)),
            2 => Fate::LoseRequest,
            3 => Fate::LoseAnswer,
            4 => Fate::CutBefore,
            _ => Fate::CutAfter,
        }
    }
}

/// One client's connections for share sessions.
#[derive(Default)]
pub struct Wires {
    wires: BTreeMap<ConnectionId, Wire>,
    /// The last delivery of each offset that reached this client, and its connection.
    latest: BTreeMap<(Place, i64), (Delivery, LinkId)>,
}

impl Wires {
    /// Connections that are open.
    pub fn len(&self) -> usize {
        self.wires.len()
    }
}

struct Wire {
    broker: BrokerId,
    link: LinkId,
    /// The request that waits for its answer.
    in_flight: Option<u64>,
}

/// Who waits for an answer.
#[derive(Debug, Clone, Copy)]
pub struct Asker {
    client: usize,
    connection: ConnectionId,
    number: u64,
    fate: Fate,
}

pub enum ShareRequest {
    Fetch(ShareFetchRequest),
    Acknowledge(ShareAcknowledgeRequest),
}

pub enum ShareAnswer {
    Fetch(Box<Fetched>),
    Acknowledge(ShareAcknowledgeResponse),
}

/// Something that happens at a time.
pub enum Happening {
    Connected {
        client: usize,
        connection: ConnectionId,
        broker: BrokerId,
        is_refused: bool,
    },
    Arrived {
        asker: Asker,
        version: i16,
        request: ShareRequest,
    },
    Answered {
        asker: Asker,
        answer: ShareAnswer,
    },
    TimedOut {
        asker: Asker,
        is_fetch: bool,
    },
    ClientSeesEnd {
        client: usize,
        connection: ConnectionId,
    },
    BrokerSeesEnd(LinkId),
    HeartbeatArrived {
        client: usize,
        broker: BrokerId,
        request: ShareGroupHeartbeatRequest,
        fate: Fate,
    },
    HeartbeatAnswered {
        client: usize,
        result: Result<ShareGroupHeartbeatResponse, Failure>,
    },
    MetadataAnswered {
        client: usize,
        response: MetadataResponse,
    },
    CoordinatorAnswered {
        client: usize,
        broker: BrokerId,
    },
    Act {
        client: usize,
        holding: usize,
        range: (i64, i64),
        act: Act,
    },
    Do(Box<dyn FnOnce(&mut World)>),
}

fn failure(detail: &str) -> Failure {
    Failure {
        detail: detail.to_owned(),
        unsupported: false,
    }
}

impl World {
    pub(super) fn send(&mut self, client: usize, request: Request) {
        match request {
            Request::Metadata(topics) => self.send_metadata(client, topics),
            Request::FindCoordinator => {
                let broker = self.cluster.coordinator();
                self.schedule(MS, Happening::CoordinatorAnswered { client, broker });
            }
            Request::Heartbeat {
                coordinator,
                request,
            } => self.send_heartbeat(client, coordinator, request),
            Request::Connect { broker, connection } => {
                let fate = self.network.fate(Api::Connect);
                let is_refused = self.network.down.contains(&broker) || fate == Fate::CutBefore;
                let after = self.network.latency() * 2;
                self.schedule(
                    after,
                    Happening::Connected {
                        client,
                        connection,
                        broker,
                        is_refused,
                    },
                );
            }
            Request::Disconnect { connection, .. } => {
                if let Some(wire) = self.clients[client].wires.wires.remove(&connection) {
                    let after = self.network.latency();
                    self.schedule(after, Happening::BrokerSeesEnd(wire.link));
                }
            }
            Request::ShareFetch {
                connection,
                request,
                version,
                timeout,
            } => {
                self.send_share(
                    client,
                    connection,
                    version,
                    timeout,
                    ShareRequest::Fetch(request),
                );
            }
            Request::ShareAcknowledge {
                connection,
                request,
                version,
                timeout,
            } => {
                self.send_share(
                    client,
                    connection,
                    version,
                    timeout,
                    ShareRequest::Acknowledge(request),
                );
            }
        }
    }

    fn send_heartbeat(
        &mut self,
        client: usize,
        broker: BrokerId,
        request: ShareGroupHeartbeatRequest,
    ) {
        let (fate, after) = (self.network.fate(Api::Heartbeat), self.network.latency());
        let arrived = Happening::HeartbeatArrived {
            client,
            broker,
            request,
            fate,
        };
        self.schedule(after, arrived);
    }

    fn send_metadata(&mut self, client: usize, topics: MetadataTopics) {
        let topics = match topics {
            MetadataTopics::Names(names) => names
                .into_iter()
                .map(|name| MetadataRequestTopic {
                    name: Some(name),
                    ..Default::default()
                })
                .collect(),
            MetadataTopics::Ids(ids) => ids
                .into_iter()
                .map(|topic_id| MetadataRequestTopic {
                    topic_id,
                    name: None,
                })
                .collect(),
        };
        let request = MetadataRequest {
            topics: Some(topics),
            ..Default::default()
        };
        let response = self.cluster.metadata(self.now, &request);
        self.schedule(MS, Happening::MetadataAnswered { client, response });
    }

    fn send_share(
        &mut self,
        client: usize,
        connection: ConnectionId,
        version: i16,
        timeout: Duration,
        request: ShareRequest,
    ) {
        self.cluster.pass_time(self.now);
        let number = self.sequence;
        let wire = self.clients[client]
            .wires
            .wires
            .get_mut(&connection)
            .expect("request on a live connection");
        assert_eq!(
            wire.in_flight, None,
            "two requests of one session at a time"
        );
        wire.in_flight = Some(number);
        let link = wire.link;
        self.check_sent(client, link, &request);
        let is_fetch = matches!(request, ShareRequest::Fetch(_));
        let fate = self.network.fate(if is_fetch {
            Api::Fetch
        } else {
            Api::Acknowledge
        });
        let asker = Asker {
            client,
            connection,
            number,
            fate,
        };
        self.schedule(timeout, Happening::TimedOut { asker, is_fetch });
        match fate {
            Fate::LoseRequest => {}
            Fate::CutBefore => self.cut_wire(client, connection),
            _ => {
                let after = self.network.latency();
                self.schedule(
                    after,
                    Happening::Arrived {
                        asker,
                        version,
                        request,
                    },
                );
            }
        }
    }

    /// Nothing may be sent that can only be refused, or hit another delivery (invariant S4).
    fn check_sent(&self, client: usize, link: LinkId, request: &ShareRequest) {
        for (place, offset) in acknowledged(request) {
            let latest = self.clients[client].wires.latest.get(&(place, offset));
            let (delivery, granted_on) = latest.expect("acknowledged an offset that it never got");
            assert_eq!(
                *granted_on, link,
                "acknowledgement of offset {offset} on another session than its own"
            );
            let expired = self
                .cluster
                .history()
                .expired
                .contains(&(place, offset, *delivery));
            let forced = self.network.forced.contains(delivery);
            assert!(
                !expired || forced,
                "acknowledgement of offset {offset} sent after its lock ended"
            );
        }
    }

    /// The connection ends; both sides notice after a while.
    fn cut_wire(&mut self, client: usize, connection: ConnectionId) {
        let Some(wire) = self.clients[client].wires.wires.get(&connection) else {
            return;
        };
        let link = wire.link;
        self.network.cut.insert(link);
        let (client_after, broker_after) = (self.network.latency(), self.network.latency());
        self.schedule(
            client_after,
            Happening::ClientSeesEnd { client, connection },
        );
        self.schedule(broker_after, Happening::BrokerSeesEnd(link));
    }

    /// Cuts a client's connection to a broker, if there is one.
    pub fn cut(&mut self, client: usize, broker: BrokerId) {
        let wires = self.clients[client].wires.wires.iter();
        let of_broker = wires
            .filter(|(_, wire)| wire.broker == broker)
            .map(|(connection, _)| *connection);
        for connection in of_broker.collect::<Vec<_>>() {
            self.cut_wire(client, connection);
        }
    }

    /// Stops and starts a broker.
    pub fn restart(&mut self, broker: BrokerId) {
        let links = self.cluster.restart(broker);
        self.network.parked.retain(|link, _| !links.contains(link));
        self.network.cut.extend(&links);
        for client in 0..self.clients.len() {
            let wires = self.clients[client].wires.wires.iter();
            let ended = wires
                .filter(|(_, wire)| links.contains(&wire.link))
                .map(|(connection, _)| *connection);
            for connection in ended.collect::<Vec<_>>() {
                let after = self.network.latency();
                self.schedule(after, Happening::ClientSeesEnd { client, connection });
            }
        }
    }

    /// Takes an offset's lock away at the broker without a word to the client.
    pub fn steal(&mut self, place: Place, offset: i64) {
        if let Slot::Acquired { delivery, .. } = self.cluster.slot(place, offset) {
            self.network.forced.insert(delivery);
        }
        self.cluster.expire_lock(place, offset);
    }

    pub(super) fn answer_parked(&mut self, link: LinkId, fetched: Fetched) {
        if let Some(asker) = self.network.parked.remove(&link) {
            self.answer(asker, ShareAnswer::Fetch(Box::new(fetched)));
        }
    }

    fn answer(&mut self, asker: Asker, answer: ShareAnswer) {
        let mut after = self.network.latency();
        match asker.fate {
            Fate::LoseAnswer => return,
            Fate::CutAfter => return self.cut_wire(asker.client, asker.connection),
            Fate::Delay(delay) => after += delay,
            _ => {}
        }
        self.schedule(after, Happening::Answered { asker, answer });
    }

    pub(super) fn happen(&mut self, happening: Happening) {
        let now = self.now;
        match happening {
            Happening::Connected {
                client,
                connection,
                broker,
                is_refused,
            } => {
                self.connected(client, connection, broker, is_refused);
            }
            Happening::Arrived {
                asker,
                version,
                request,
            } => self.arrived(asker, version, &request),
            Happening::Answered { asker, answer } => self.answered(asker, answer),
            Happening::TimedOut { asker, is_fetch } => self.timed_out(asker, is_fetch),
            Happening::ClientSeesEnd { client, connection } => {
                if self.clients[client]
                    .wires
                    .wires
                    .remove(&connection)
                    .is_some()
                {
                    self.clients[client].core.handle_disconnected(
                        now,
                        connection,
                        "connection reset",
                    );
                }
            }
            Happening::BrokerSeesEnd(link) => self.cluster.disconnect(now, link),
            Happening::HeartbeatArrived {
                client,
                broker,
                request,
                fate,
            } => {
                self.heartbeat_arrived(client, broker, &request, fate);
            }
            Happening::HeartbeatAnswered { client, result } => {
                let core = &mut self.clients[client].core;
                core.handle_heartbeat(now, result.as_ref().map_err(Clone::clone));
            }
            Happening::MetadataAnswered { client, response } => {
                self.clients[client]
                    .core
                    .handle_metadata(now, Ok(&response));
            }
            Happening::CoordinatorAnswered { client, broker } => {
                self.clients[client]
                    .core
                    .handle_coordinator(now, Ok(broker));
            }
            Happening::Act {
                client,
                holding,
                range,
                act,
            } => match act {
                _ if self.clients[client].closing => {}
                Act::Settle(how) => self.clients[client].settle(now, holding, range, how),
                Act::Drop => self.clients[client].drop_held(now, holding, range),
            },
            Happening::Do(what) => what(self),
        }
    }

    fn connected(
        &mut self,
        client: usize,
        connection: ConnectionId,
        broker: BrokerId,
        is_refused: bool,
    ) {
        let version = self.cluster.share_version(broker);
        let result = if is_refused {
            Err(failure("connection refused"))
        } else {
            let link = self.cluster.connect(broker);
            let wire = Wire {
                broker,
                link,
                in_flight: None,
            };
            self.clients[client].wires.wires.insert(connection, wire);
            Ok(BrokerVersions {
                share_fetch: version,
                share_acknowledge: version,
            })
        };
        self.clients[client]
            .core
            .handle_connected(self.now, connection, result);
    }

    fn arrived(&mut self, asker: Asker, version: i16, request: &ShareRequest) {
        // Behind a cut nothing arrives.
        let Some(link) = self
            .link_of(asker)
            .filter(|link| !self.network.cut.contains(link))
        else {
            return;
        };
        match request {
            ShareRequest::Fetch(request) => match self
                .cluster
                .share_fetch(self.now, link, version, request)
            {
                Answer::Now(fetched) => self.answer(asker, ShareAnswer::Fetch(Box::new(fetched))),
                Answer::Parked => {
                    self.network.parked.insert(link, asker);
                }
            },
            ShareRequest::Acknowledge(request) => {
                let response = self
                    .cluster
                    .share_acknowledge(self.now, link, version, request);
                self.answer(asker, ShareAnswer::Acknowledge(response));
            }
        }
    }

    fn link_of(&self, asker: Asker) -> Option<LinkId> {
        self.clients[asker.client]
            .wires
            .wires
            .get(&asker.connection)
            .map(|wire| wire.link)
    }

    /// Takes the request off its connection; `None` when nobody waits for its answer any more.
    fn take_in_flight(&mut self, asker: Asker) -> Option<LinkId> {
        let wire = self.clients[asker.client]
            .wires
            .wires
            .get_mut(&asker.connection)?;
        (wire.in_flight == Some(asker.number)).then(|| {
            wire.in_flight = None;
            wire.link
        })
    }

    fn answered(&mut self, asker: Asker, answer: ShareAnswer) {
        let Some(link) = self
            .take_in_flight(asker)
            .filter(|link| !self.network.cut.contains(link))
        else {
            return;
        };
        let (now, client) = (self.now, &mut self.clients[asker.client]);
        match answer {
            ShareAnswer::Fetch(fetched) => {
                let Fetched {
                    mut response,
                    deliveries,
                } = *fetched;
                if let Some(tamper) = self.network.tamper {
                    tamper(&mut response);
                }
                for (place, offset, delivery) in &deliveries {
                    client
                        .wires
                        .latest
                        .insert((*place, *offset), (*delivery, link));
                }
                client
                    .core
                    .handle_share_fetch(now, asker.connection, Ok(response));
                client.take_events(now, &deliveries);
            }
            ShareAnswer::Acknowledge(response) => {
                client
                    .core
                    .handle_share_acknowledge(now, asker.connection, Ok(response));
            }
        }
    }

    fn timed_out(&mut self, asker: Asker, is_fetch: bool) {
        let Some(link) = self.take_in_flight(asker) else {
            return;
        };
        self.network.cut.insert(link);
        let (now, core) = (self.now, &mut self.clients[asker.client].core);
        if is_fetch {
            core.handle_share_fetch(now, asker.connection, Err(failure("no answer")));
        } else {
            core.handle_share_acknowledge(now, asker.connection, Err(failure("no answer")));
        }
    }

    fn heartbeat_arrived(
        &mut self,
        client: usize,
        broker: BrokerId,
        request: &ShareGroupHeartbeatRequest,
        fate: Fate,
    ) {
        let mut after = self.network.latency();
        let lost = Err(failure("no answer to the heartbeat"));
        let result = match fate {
            Fate::LoseRequest | Fate::CutBefore => lost,
            Fate::LoseAnswer | Fate::CutAfter => {
                self.cluster.heartbeat(self.now, broker, request);
                lost
            }
            Fate::Delay(delay) => {
                after += delay;
                Ok(self.cluster.heartbeat(self.now, broker, request))
            }
            Fate::Carry => Ok(self.cluster.heartbeat(self.now, broker, request)),
        };
        self.schedule(after, Happening::HeartbeatAnswered { client, result });
    }
}

/// Every offset that a request acknowledges or renews.
fn acknowledged(request: &ShareRequest) -> Vec<(Place, i64)> {
    let mut offsets = Vec::new();
    let mut enter = |place: Place, first: i64, last: i64| {
        offsets.extend((first..=last).map(|offset| (place, offset)))
    };
    match request {
        ShareRequest::Fetch(request) => {
            for topic in &request.topics {
                for partition in &topic.partitions {
                    for batch in &partition.acknowledgement_batches {
                        enter(
                            (topic.topic_id, partition.partition_index),
                            batch.first_offset,
                            batch.last_offset,
                        );
                    }
                }
            }
        }
        ShareRequest::Acknowledge(request) => {
            for topic in &request.topics {
                for partition in &topic.partitions {
                    for batch in &partition.acknowledgement_batches {
                        enter(
                            (topic.topic_id, partition.partition_index),
                            batch.first_offset,
                            batch.last_offset,
                        );
                    }
                }
            }
        }
    }
    offsets
}
