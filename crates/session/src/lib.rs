//! The brain of a Kafka share consumer (KIP-932), sans-io: no sockets, no runtime, no clock, no
//! randomness. Whoever drives it passes time in and carries requests out.
//!
//! [`SessionCore`] is one member of one share group. Its methods come in four kinds:
//!
//! * `handle_*` take what happened: answers, lost connections, the passing of time;
//! * mutators ([`SessionCore::acknowledge`], [`SessionCore::commit`], [`SessionCore::close`], …)
//!   take what the application wants;
//! * `poll_*` give out what to do: [`SessionCore::poll_request`] until `None`, then
//!   [`SessionCore::poll_event`] until `None`, then [`SessionCore::poll_timeout`];
//! * the rest are getters.
//!
//! `now` must be monotonic. Every request that was polled must be answered by exactly one call of
//! its `handle_*` method, unless its connection was dropped in between.
//!
//! The member:
//!
//! ```text
//! Joining ──join answered──► Stable ──close──► Leaving ──answer, or given up──► Left
//!    ▲                         │
//!    └─ fenced, unknown, group ┘
//!       gone, polled again
//! ```
//!
//! A share session, one per leader and connection:
//!
//! ```text
//! Down ─► Connecting ─► Up, epoch 0 ─first answer─► Up, epoch 1, 2, … i32::MAX, 1, … ─epoch −1─► closed
//!  ▲                        │                         │
//!  └──── lost, refused, or unanswered for the request timeout: what is held is lost, what was
//!        settled is told as not sent or unknown
//! ```
//!
//! An acquired offset; each ends with exactly one [`Event::Acknowledged`] or [`Event::LockLost`]:
//!
//! ```text
//! Held ──settled──► Pending ──sent──► Sent ──answered──► told
//!  │ ▲                 ▲ ▲              │
//!  │ └─ renewed        │ └─ one of its partition was stale, or the broker asks to try again
//!  └─dropped─► Delayed ┘ released
//! Held, Delayed, Pending ──lock ends, session ends, acquired again──► told as lost, never sent
//! ```
//!
//! What it keeps true (`ARCHITECTURE.md`, "Invariants"): no acknowledgement is sent after its lock's
//! deadline, for a dead share session, or for an acquisition that a newer one replaced.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod ack_book;
mod acquired;
mod coordinator;
mod core;
mod credit;
mod event;
mod fetch_plan;
mod group;
pub mod limits;
mod member;
mod share_session;
mod topology;
mod trouble;

pub use acquired::{Acknowledgement, AcquisitionId, TopicPartition};
pub use core::{SessionConfig, SessionCore};
pub use event::{
    AckFailure, AckOutcome, AcquireMode, Acquired, AcquiredRange, BrokerVersions, CommitId,
    ConnectionId, Event, Failure, FatalError, LockLoss, MemberState, PartitionView, Release,
    ReleaseReason, Request, Warning,
};
pub use topology::MetadataTopics;
