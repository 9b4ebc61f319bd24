//! What a consumer and its driver share.
//!
//! Both directions are queues behind a mutex that is held for a few instructions only. They are
//! bounded by what is held: an acquisition occupies credit until it is settled, and a settle command
//! settles at least one held offset.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sharegroup_session::{Acknowledgement, Acquired, AcquisitionId};
use tokio::sync::{Notify, oneshot, watch};

use crate::error::PollError;
use crate::lock::LockState;
use crate::metrics::Counters;
use crate::report::CommitReport;
use crate::status::ShareStatus;

/// A wish of the application.
#[derive(Debug)]
pub(crate) enum Command {
    Settle {
        id: AcquisitionId,
        first: i64,
        last: i64,
        how: Acknowledgement,
    },
    /// Dropped by its owner: released after a delay.
    Drop {
        id: AcquisitionId,
        first: i64,
        last: i64,
    },
    Renew {
        id: AcquisitionId,
    },
    Commit {
        reply: oneshot::Sender<CommitReport>,
    },
    Close {
        within: Duration,
        reply: oneshot::Sender<CommitReport>,
    },
    Pause,
    Resume,
    Subscribe(Vec<String>),
}

/// Records on their way to the application.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) acquired: Acquired,
    pub(crate) lock: Arc<LockState>,
}

/// What the application finds when it polls.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) arrivals: VecDeque<Arrival>,
    /// The member can't go on.
    pub(crate) failed: Option<PollError>,
    pub(crate) joined: bool,
    pub(crate) closed: bool,
    /// The last trouble that was retried, for messages about waiting.
    pub(crate) last_problem: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    commands: Mutex<Vec<Command>>,
    pub(crate) commanded: Notify,
    outbox: Mutex<Outbox>,
    pub(crate) arrived: Notify,
    pub(crate) status: watch::Sender<ShareStatus>,
    pub(crate) counters: Counters,
    /// The group allows renewals, as far as is known.
    pub(crate) renewable: AtomicBool,
}

impl Shared {
    pub(crate) fn new(status: ShareStatus) -> Arc<Self> {
        Arc::new(Self {
            commands: Mutex::default(),
            commanded: Notify::new(),
            outbox: Mutex::default(),
            arrived: Notify::new(),
            status: watch::Sender::new(status),
            counters: Counters::default(),
            renewable: AtomicBool::new(true),
        })
    }

    pub(crate) fn command(&self, command: Command) {
        self.commands
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(command);
        self.commanded.notify_one();
    }

    pub(crate) fn take_commands(&self, into: &mut Vec<Command>) {
        into.append(&mut self.commands.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
