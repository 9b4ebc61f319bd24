//! What happened in a cluster, for checks.

use std::time::Instant;

use sharegroup_wire::message::share_acknowledge::ShareAcknowledgeRequest;
use sharegroup_wire::message::share_fetch::ShareFetchRequest;
use sharegroup_wire::message::share_group_heartbeat::ShareGroupHeartbeatRequest;

use super::{Delivery, LinkId, Place};

/// An acknowledgement that changed an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// When.
    pub at: Instant,
    /// The partition.
    pub place: Place,
    /// The offset.
    pub offset: i64,
    /// The delivery that it ended, or renewed.
    pub delivery: Delivery,
    /// The wire's type, 0–4.
    pub acknowledge_type: i8,
}

/// A request that a broker got.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// ShareGroupHeartbeat.
    Heartbeat(ShareGroupHeartbeatRequest),
    /// ShareFetch.
    Fetch(ShareFetchRequest),
    /// ShareAcknowledge.
    Acknowledge(ShareAcknowledgeRequest),
    /// Metadata; the number of topics asked for, `None` = all of the cluster.
    Metadata(Option<usize>),
    /// FindCoordinator.
    FindCoordinator,
}

/// When and where a request was asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Logged {
    /// When.
    pub at: Instant,
    /// On which connection, for share requests.
    pub link: Option<LinkId>,
    /// What.
    pub asked: Asked,
}

/// What happened.
#[derive(Debug, Default)]
pub struct History {
    /// Requests in their order.
    pub requests: Vec<Logged>,
    /// Acknowledgements that were applied, in their order.
    pub applied: Vec<Applied>,
    /// Deliveries whose lock ended by time.
    pub expired: Vec<(Place, i64, Delivery)>,
    /// Acknowledged offsets that were settled before: a broker accepts them without a word.
    pub ignored: Vec<(Place, i64)>,
    /// Requests that no client may send.
    pub illegal: Vec<String>,
}

impl History {
    /// The fetches.
    pub fn fetches(&self) -> impl Iterator<Item = (&Logged, &ShareFetchRequest)> {
        self.requests
            .iter()
            .filter_map(|logged| match &logged.asked {
                Asked::Fetch(request) => Some((logged, request)),
                _ => None,
            })
    }

    /// The acknowledgements sent alone.
    pub fn acknowledges(&self) -> impl Iterator<Item = (&Logged, &ShareAcknowledgeRequest)> {
        self.requests
            .iter()
            .filter_map(|logged| match &logged.asked {
                Asked::Acknowledge(request) => Some((logged, request)),
                _ => None,
            })
    }

    /// The heartbeats.
    pub fn heartbeats(&self) -> impl Iterator<Item = &ShareGroupHeartbeatRequest> {
        self.requests
            .iter()
            .filter_map(|logged| match &logged.asked {
                Asked::Heartbeat(request) => Some(request),
                _ => None,
            })
    }
}
