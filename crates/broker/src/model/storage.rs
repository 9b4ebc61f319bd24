//! What the model does while its journal can't be written: nothing that a restart would undo is told
//! to anybody.

use std::time::Instant;

use sharegroup_wire::ErrorCode;

use super::links::Call;
use super::{LinkId, Model, Output};
use crate::api::{Answer, Incoming};

/// APIs that are answered all the same: how clients find brokers and log in.
const WITHOUT_STORAGE: [i16; 6] = [METADATA, 10, 17, 18, 36, 60];
/// The only one of them that changes what is stored: it makes topics.
const METADATA: i16 = 3;

impl Model {
    /// The entries that were taken last could not be written: each answer that waits to be polled
    /// becomes KAFKA_STORAGE_ERROR, and so does every request that comes until
    /// [`storage_is_back`](Self::storage_is_back). The changes stay in the model: their entries
    /// have to be written before any later ones. How clients find brokers and log in is answered as
    /// ever; `has_noted` = the last step has changed what is stored, perhaps by making a topic that
    /// Metadata was asked for.
    pub fn refuse_outputs(&mut self, now: Instant, has_noted: bool) {
        self.is_storage_down = true;
        for output in std::mem::take(&mut self.outputs) {
            match output {
                Output::Send { link, .. } if !self.may_be_told(link, has_noted) => {
                    self.refuse_asked(now, link);
                }
                _ => self.outputs.push_back(output),
            }
        }
    }

    /// Whether the answer to a connection's latest request doesn't depend on what could not be written.
    fn may_be_told(&self, link: LinkId, has_noted: bool) -> bool {
        let asked = self.links.get(&link).and_then(|link| link.asked.as_ref());
        let request = asked.and_then(|frame| Incoming::read(frame).ok());
        request.is_some_and(|request| match request.header.api_key {
            METADATA => !has_noted,
            api_key => WITHOUT_STORAGE.contains(&api_key),
        })
    }

    /// All entries are written.
    pub const fn storage_is_back(&mut self) {
        self.is_storage_down = false;
    }

    /// Whether a request is to be refused before it is looked at.
    pub(super) fn needs_storage(&self, api_key: i16) -> bool {
        self.is_storage_down && !WITHOUT_STORAGE.contains(&api_key)
    }

    /// A request needs no other answer any more.
    pub(super) fn forget_asked(&mut self, link: LinkId) {
        if self.journal.is_kept()
            && let Some(link) = self.links.get_mut(&link)
        {
            link.asked = None;
        }
    }

    /// Answers a connection's latest request with an error. Where it had a second answer coming, or
    /// none of its own, the connection is closed.
    fn refuse_asked(&mut self, now: Instant, id: LinkId) {
        let frame = self.links.get_mut(&id).and_then(|link| link.asked.take());
        let request = frame.and_then(|frame| Incoming::read(&frame).ok());
        let refused = request.and_then(|request| {
            let call = self.call(now, id, &request)?;
            request.refuse(&call, ErrorCode::KafkaStorageError).ok()
        });
        match refused {
            Some(Answer::Now(frame)) => self.outputs.push_back(Output::Send { link: id, frame }),
            _ => self.close(now, id),
        }
    }

    /// What a handler knows of a request besides its body.
    pub(super) fn call(&self, now: Instant, id: LinkId, request: &Incoming) -> Option<Call> {
        let link = self.links.get(&id)?;
        Some(Call {
            now,
            link: id,
            broker: link.broker,
            version: request.header.api_version,
            correlation_id: request.header.correlation_id,
            client_id: request.header.client_id.clone().unwrap_or_default(),
            peer: link.peer.clone(),
        })
    }
}
