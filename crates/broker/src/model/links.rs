//! Connections: one request at a time each, in their order.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use sharegroup_wire::{BrokerId, CorrelationId, DecodeError, ErrorCode};

use super::faults::Fault;
use super::history::Event;
use super::timers::Timer;
use super::{LinkId, Model, Output};
use crate::api::{self, Answer};

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) broker: BrokerId,
    /// The peer in Java's form: `/127.0.0.1`.
    pub(super) peer: String,
    /// Whether the peer is still there, as far as anybody looked.
    is_open: bool,
    /// A request is parked, or its answer held back.
    is_busy: bool,
    /// The latest request, while a journal is kept.
    pub(super) asked: Option<Bytes>,
    /// Frames that came meanwhile.
    waiting: VecDeque<Bytes>,
    /// What becomes of the parked request when it is answered.
    fault: Fault,
    /// Answers that faults hold back.
    held: VecDeque<(Instant, Bytes)>,
    /// How far SASL is.
    sasl: SaslState,
}

/// How far a connection's authentication is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SaslState {
    /// Not begun.
    Initial,
    /// The mechanism is agreed.
    Handshaken,
    /// Done, by this user.
    Authenticated(String),
}

/// What a handler knows of the request besides its body.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) now: Instant,
    pub(crate) link: LinkId,
    pub(crate) broker: BrokerId,
    pub(crate) version: i16,
    pub(crate) correlation_id: CorrelationId,
    pub(crate) client_id: String,
    pub(crate) peer: String,
}

impl Model {
    /// Opens a connection to a broker; `peer` is the client's address as `/1.2.3.4`.
    pub fn connect(&mut self, broker: BrokerId, peer: &str) -> LinkId {
        self.last_link += 1;
        let id = LinkId(self.last_link);
        let link = Link {
            broker,
            peer: peer.to_owned(),
            is_open: true,
            is_busy: false,
            asked: None,
            waiting: VecDeque::new(),
            fault: Fault::None,
            held: VecDeque::new(),
            sasl: SaslState::Initial,
        };
        self.links.insert(id, link);
        id
    }

    /// The peer is gone. The broker notices at once, unless a request is parked on the connection:
    /// then it reads nothing and notices when that ends.
    pub fn disconnect(&mut self, now: Instant, link: LinkId) {
        self.pass_time(now);
        let Some(gone) = self.links.get_mut(&link) else {
            return;
        };
        gone.is_open = false;
        gone.waiting.clear();
        if !self.parked.is_on(link) {
            self.end_link(now, link);
        }
        self.complete_parked(now);
    }

    /// A request frame, without its size. Its answer comes out of [`poll_output`](Self::poll_output),
    /// now or later.
    pub fn handle_request(&mut self, now: Instant, link: LinkId, frame: Bytes) {
        self.pass_time(now);
        match self.links.get_mut(&link) {
            Some(link) if link.is_busy => link.waiting.push_back(frame),
            Some(_) => self.work_on(now, link, &frame),
            None => {}
        }
        self.complete_parked(now);
    }

    /// Does what is due; see [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout(&mut self, now: Instant) {
        self.pass_time(now);
        self.complete_parked(now);
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Whether a connection waits for the answer to a request: nothing is read from it meanwhile.
    #[must_use]
    pub fn is_busy(&self, link: LinkId) -> bool {
        self.links.get(&link).is_some_and(|link| link.is_busy)
    }

    /// The open connections to a broker.
    #[must_use]
    pub fn links_of(&self, broker: BrokerId) -> Vec<LinkId> {
        let links = self.links.iter().filter(|(_, link)| link.broker == broker);
        links.map(|(id, _)| *id).collect()
    }

    /// Cuts a connection from the broker's side.
    pub fn cut(&mut self, now: Instant, link: LinkId) {
        self.close(now, link);
        self.complete_parked(now);
    }

    fn work_on(&mut self, now: Instant, id: LinkId, frame: &Bytes) {
        let Ok(request) = api::Incoming::read(frame) else {
            self.close(now, id);
            return;
        };
        let Some(call) = self.call(now, id, &request) else {
            return;
        };
        if self.journal.is_kept()
            && let Some(link) = self.links.get_mut(&id)
        {
            link.asked = Some(frame.clone());
        }
        self.history.note(now, || Event::Request {
            link: id,
            broker: call.broker,
            api_key: request.header.api_key,
            api_version: request.header.api_version,
            frame: frame.clone(),
        });
        if !self.may_ask(id, request.header.api_key) {
            self.close(now, id);
            return;
        }
        if self.needs_storage(request.header.api_key) {
            let answer = request.refuse(&call, ErrorCode::KafkaStorageError);
            self.answered(&call, answer, Fault::None);
            return;
        }
        let fault = self.strike(&request, &call);
        if !self.links.contains_key(&id) {
            // The broker has crashed.
            return;
        }
        if fault == Fault::CutBefore {
            self.close(now, id);
            return;
        }
        let answer = match fault {
            Fault::Error(error) => request.refuse(&call, error),
            _ => request.serve(self, &call),
        };
        self.answered(&call, answer, fault);
    }

    fn answered(&mut self, call: &Call, answer: Result<Answer, DecodeError>, fault: Fault) {
        let link = call.link;
        match answer {
            Err(_) | Ok(Answer::Close) => self.close(call.now, link),
            Ok(Answer::Nothing) if fault == Fault::CutAfter => self.close(call.now, link),
            Ok(Answer::Nothing) => self.forget_asked(link),
            Ok(Answer::Now(frame)) => self.send(call.now, link, frame, fault),
            Ok(Answer::Parked) => {
                if let Some(link) = self.links.get_mut(&link) {
                    link.is_busy = true;
                    link.fault = fault;
                }
            }
        }
    }

    /// Sends an answer, or does with it what the request's fault says.
    fn send(&mut self, now: Instant, link: LinkId, frame: Bytes, fault: Fault) {
        let Some(left) = self.answer_bytes_left.checked_sub(frame.len()) else {
            self.answer_bytes_left = 0;
            self.close(now, link);
            return;
        };
        self.answer_bytes_left = left;
        match fault {
            Fault::CutAfter => self.close(now, link),
            Fault::Withhold => self.set_busy(link),
            Fault::Delay(delay) => {
                self.set_busy(link);
                self.timers.set(now + delay, Timer::Answer(link));
                if let Some(link) = self.links.get_mut(&link) {
                    link.held.push_back((now + delay, frame));
                }
            }
            fault => {
                if fault == Fault::Duplicate {
                    self.outputs.push_back(Output::Send {
                        link,
                        frame: frame.clone(),
                    });
                }
                self.outputs.push_back(Output::Send { link, frame });
            }
        }
    }

    fn set_busy(&mut self, link: LinkId) {
        if let Some(link) = self.links.get_mut(&link) {
            link.is_busy = true;
        }
    }

    /// A parked request is answered: send it, then go on with what came meanwhile. To a peer that is
    /// gone the write fails, and the broker notices.
    pub(super) fn resume(&mut self, now: Instant, id: LinkId, frame: Bytes) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.is_busy = false;
        let fault = std::mem::take(&mut link.fault);
        if !link.is_open {
            self.end_link(now, id);
            return;
        }
        self.send(now, id, frame, fault);
        while let Some(link) = self.links.get_mut(&id)
            && !link.is_busy
            && let Some(frame) = link.waiting.pop_front()
        {
            self.work_on(now, id, &frame);
        }
    }

    /// Sends the answers of a connection whose delay is over.
    pub(super) fn send_held(&mut self, now: Instant, id: LinkId) {
        while let Some(link) = self.links.get_mut(&id)
            && let Some((at, _)) = link.held.front()
            && *at <= now
            && let Some((_, frame)) = link.held.pop_front()
        {
            self.resume(now, id, frame);
        }
    }

    pub(super) fn close(&mut self, now: Instant, link: LinkId) {
        self.outputs.push_back(Output::Close { link });
        self.end_link(now, link);
    }

    /// Forgets a connection without what its end does to share sessions.
    pub(super) fn drop_link(&mut self, link: LinkId) {
        self.parked.remove_on(link);
        if self.links.remove(&link).is_some() {
            self.outputs.push_back(Output::Close { link });
        }
    }

    /// The broker noticed that a connection is gone: the session that it carried goes with it.
    fn end_link(&mut self, now: Instant, link: LinkId) {
        self.parked.remove_on(link);
        let Some(ended) = self.links.remove(&link) else {
            return;
        };
        let node = self.nodes.get_mut(&ended.broker);
        if let Some((key, session)) = node.and_then(|node| node.sessions.end_link(link)) {
            self.release_session(now, ended.broker, &key, &session);
        }
    }

    /// Whether a connection may send this request yet.
    fn may_ask(&self, link: LinkId, api_key: i16) -> bool {
        const BEFORE_AUTHENTICATION: [i16; 3] = [17, 18, 36];
        self.users.is_empty()
            || BEFORE_AUTHENTICATION.contains(&api_key)
            || matches!(self.sasl(link), SaslState::Authenticated(_))
    }

    pub(crate) fn sasl(&self, link: LinkId) -> SaslState {
        let link = self.links.get(&link);
        link.map_or(SaslState::Initial, |link| link.sasl.clone())
    }

    pub(crate) fn set_sasl(&mut self, link: LinkId, state: SaslState) {
        if let Some(link) = self.links.get_mut(&link) {
            link.sasl = state;
        }
    }

    /// Does what the time has made due.
    pub(super) fn pass_time(&mut self, now: Instant) {
        while let Some(timer) = self.timers.due(now) {
            match timer {
                Timer::Lock(group, place) => self.expire_locks(now, &group, place),
                Timer::Member(group, member) => self.expire_member(now, &group, &member),
                Timer::Transaction(id) => self.expire_transaction(now, &id),
                Timer::Parked(id) => self.finish_parked(now, id),
                Timer::Answer(link) => self.send_held(now, link),
                Timer::Rule(id) => self.strike_at(now, id),
                Timer::Up(broker) => self.set_up(broker, true),
            }
        }
    }
}
