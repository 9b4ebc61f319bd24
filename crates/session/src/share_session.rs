//! One share session: our state with one leader (KIP-932 "Share sessions").
//!
//! A session lives on one connection, takes one request at a time and counts its requests: epoch 0
//! opens it and carries no acknowledgements, n continues it, −1 closes it. After any top-level error
//! or lost answer the session counts as ended and its connection is dropped, so that the broker frees
//! what we held at once instead of when the locks run out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sharegroup_wire::acknowledgement::{AcknowledgedRun, acknowledgement_batches};
use sharegroup_wire::message::share_acknowledge::{
    AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest,
};
use sharegroup_wire::message::share_fetch::{
    AcknowledgementBatch, FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest,
};
use sharegroup_wire::{SessionEpoch, TopicId};

use crate::ack_book::SentByPartition;
use crate::acquired::{AcquisitionId, TopicPartition};
use crate::event::{BrokerVersions, ConnectionId};

/// The wire's type of a renewal (KIP-1222).
const RENEW: i8 = 4;

/// First wait before a connection is tried again.
const RECONNECT_BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Longest wait before a connection is tried again.
const RECONNECT_BACKOFF_MAX: Duration = Duration::from_secs(1);

/// The connection of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Down { retry_at: Instant },
    Connecting(ConnectionId),
    Up(ConnectionId, BrokerVersions),
}

/// A renewed range on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RenewedRange {
    pub(crate) acquisition: AcquisitionId,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

pub(crate) type RenewedByPartition = BTreeMap<TopicPartition, Vec<RenewedRange>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    Fetch { records_max: u32 },
    Acknowledge,
    Close,
}

/// The request that is on its way.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) sending: Sending,
    pub(crate) sent_at: Instant,
    pub(crate) acknowledged: SentByPartition,
    pub(crate) renewed: RenewedByPartition,
    pub(crate) forgotten: Vec<TopicPartition>,
    pub(crate) added: Vec<TopicPartition>,
}

/// What is known of one partition since it joined the session.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FetchProgress {
    pub(crate) answered: bool,
    pub(crate) empty: bool,
}

#[derive(Debug)]
pub(crate) struct ShareSession {
    pub(crate) link: Link,
    /// Epoch of the next request; 0 = no session is open.
    pub(crate) epoch: SessionEpoch,
    /// Partitions that the broker's session contains.
    pub(crate) contains: BTreeSet<TopicPartition>,
    /// Partitions that it should contain.
    pub(crate) wanted: BTreeSet<TopicPartition>,
    pub(crate) progress: BTreeMap<TopicPartition, FetchProgress>,
    pub(crate) in_flight: Option<InFlight>,
    /// When pending acknowledgements are to be sent, fetch or not.
    pub(crate) pending_due: Option<Instant>,
    pub(crate) backoff_until: Instant,
    /// Nothing is sent before: the broker reads nothing from the connection (KIP-219).
    pub(crate) muted_until: Instant,
    pub(crate) pace_until: Instant,
    pub(crate) pace: Duration,
    /// When the last fetch was sent: who waits longest goes first.
    pub(crate) fetched_at: Instant,
    backoff: Duration,
    reconnect: Duration,
}

/// Who speaks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity<'a> {
    pub(crate) group_id: &'a str,
    pub(crate) member_id: &'a str,
}

/// What a fetch asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FetchTerms {
    pub(crate) wait: Duration,
    pub(crate) records_max: u32,
    pub(crate) batch_records: u32,
    pub(crate) bytes_min: i32,
    pub(crate) bytes_max: i32,
    pub(crate) record_limit: bool,
}

impl ShareSession {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            link: Link::Down { retry_at: now },
            epoch: SessionEpoch::OPEN,
            contains: BTreeSet::new(),
            wanted: BTreeSet::new(),
            progress: BTreeMap::new(),
            in_flight: None,
            pending_due: None,
            backoff_until: now,
            muted_until: now,
            pace_until: now,
            pace: Duration::ZERO,
            fetched_at: now,
            backoff: Duration::ZERO,
            reconnect: RECONNECT_BACKOFF_MIN,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.epoch != SessionEpoch::OPEN
    }

    pub(crate) fn connection(&self) -> Option<ConnectionId> {
        match self.link {
            Link::Down { .. } => None,
            Link::Connecting(connection) | Link::Up(connection, _) => Some(connection),
        }
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.contains != self.wanted
    }

    /// The session is gone. Returns the connection to drop.
    pub(crate) fn end(&mut self, now: Instant) -> Option<ConnectionId> {
        let connection = self.connection();
        self.link = Link::Down {
            retry_at: now + self.reconnect,
        };
        self.reconnect = (self.reconnect * 2).min(RECONNECT_BACKOFF_MAX);
        self.epoch = SessionEpoch::OPEN;
        self.contains.clear();
        self.progress.clear();
        self.in_flight = None;
        self.pending_due = None;
        // It was the connection that was muted.
        self.muted_until = now;
        connection
    }

    /// A request was answered without an error.
    pub(crate) fn succeeded(&mut self) {
        self.epoch = self.epoch.next();
        self.reconnect = RECONNECT_BACKOFF_MIN;
    }

    /// Waits before the next fetch, longer each time, at least `least`.
    pub(crate) fn back_off(&mut self, now: Instant, least: Duration, most: Duration) {
        self.backoff = (self.backoff * 2).clamp(Duration::from_millis(100), most);
        self.backoff_until = now + self.backoff.max(least);
    }

    pub(crate) fn end_backoff(&mut self) {
        self.backoff = Duration::ZERO;
    }

    pub(crate) fn build_fetch(
        &self,
        identity: Identity<'_>,
        terms: FetchTerms,
        acknowledged: &SentByPartition,
    ) -> (ShareFetchRequest, Vec<TopicPartition>, Vec<TopicPartition>) {
        let opening = !self.is_open();
        let added: Vec<_> = self
            .wanted
            .iter()
            .filter(|tp| opening || !self.contains.contains(*tp))
            .copied()
            .collect();
        let forgotten: Vec<_> = self
            .contains
            .iter()
            .filter(|tp| !self.wanted.contains(*tp))
            .copied()
            .collect();
        let mut partitions: BTreeMap<TopicPartition, Vec<AcknowledgementBatch>> =
            added.iter().map(|tp| (*tp, Vec::new())).collect();
        partitions.extend(acknowledgements(acknowledged));
        let request = ShareFetchRequest {
            group_id: Some(identity.group_id.to_owned()),
            member_id: Some(identity.member_id.to_owned()),
            share_session_epoch: self.epoch,
            max_wait_ms: i32::try_from(terms.wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: terms.bytes_min,
            max_bytes: terms.bytes_max,
            max_records: i32::try_from(terms.records_max).unwrap_or(i32::MAX),
            batch_size: i32::try_from(terms.batch_records).unwrap_or(i32::MAX),
            share_acquire_mode: i8::from(terms.record_limit),
            is_renew_ack: false,
            topics: by_topic(partitions, |topic_id, partitions| FetchTopic {
                topic_id,
                partitions: partitions
                    .into_iter()
                    .map(
                        |(partition_index, acknowledgement_batches)| FetchPartition {
                            partition_index,
                            acknowledgement_batches,
                        },
                    )
                    .collect(),
            }),
            forgotten_topics_data: by_topic(
                forgotten.iter().map(|tp| (*tp, ())),
                |topic_id, partitions| ForgottenTopic {
                    topic_id,
                    partitions: partitions.into_iter().map(|(index, ())| index).collect(),
                },
            ),
        };
        (request, added, forgotten)
    }

    pub(crate) fn build_acknowledge(
        identity: Identity<'_>,
        epoch: SessionEpoch,
        acknowledged: &SentByPartition,
        renewed: &RenewedByPartition,
    ) -> ShareAcknowledgeRequest {
        let renewals = renewed.iter().map(|(partition, ranges)| {
            let runs = ranges.iter().map(|range| AcknowledgedRun {
                first_offset: range.first,
                last_offset: range.last,
                acknowledge_type: RENEW,
            });
            (*partition, acknowledgement_batches(runs))
        });
        ShareAcknowledgeRequest {
            group_id: Some(identity.group_id.to_owned()),
            member_id: Some(identity.member_id.to_owned()),
            share_session_epoch: epoch,
            is_renew_ack: !renewed.is_empty(),
            topics: by_topic(
                acknowledgements(acknowledged).chain(renewals),
                |topic_id, partitions| AcknowledgeTopic {
                    topic_id,
                    partitions: partitions
                        .into_iter()
                        .map(
                            |(partition_index, acknowledgement_batches)| AcknowledgePartition {
                                partition_index,
                                acknowledgement_batches,
                            },
                        )
                        .collect(),
                },
            ),
        }
    }
}

fn acknowledgements(
    sent: &SentByPartition,
) -> impl Iterator<Item = (TopicPartition, Vec<AcknowledgementBatch>)> {
    sent.iter().map(|(partition, ranges)| {
        let runs = ranges.iter().map(|range| AcknowledgedRun {
            first_offset: range.first,
            last_offset: range.last,
            acknowledge_type: range.how.wire_type(),
        });
        (*partition, acknowledgement_batches(runs))
    })
}

/// Groups by topic: a topic, and a partition in it, may stand only once in a request.
fn by_topic<T, R>(
    items: impl IntoIterator<Item = (TopicPartition, T)>,
    mut topic: impl FnMut(TopicId, Vec<(i32, T)>) -> R,
) -> Vec<R> {
    let mut topics: BTreeMap<TopicId, Vec<(i32, T)>> = BTreeMap::new();
    for (partition, item) in items {
        topics
            .entry(partition.topic_id)
            .or_default()
            .push((partition.partition, item));
    }
    topics
        .into_iter()
        .map(|(topic_id, partitions)| topic(topic_id, partitions))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t26_epoch_1_follows_the_last_epoch_and_the_session_stays_open() {
        // The clock is only a label here.
        #[allow(clippy::disallowed_methods)]
        let mut session = ShareSession::new(Instant::now());
        session.epoch = SessionEpoch(i32::MAX);
        session.succeeded();
        assert_eq!(session.epoch, SessionEpoch(1));
        assert!(session.is_open());
    }
}
