//! What a consumer and its driver share.
//!
//! Both directions are queues behind a mutex that is held for a few instructions only. They are
//! bounded by what is held: an acquisition occupies credit until it is settled, and a settle command
//! settles at least one held offset.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use sharegroup_session::{
    AckFailure, Acknowledgement, Acquired, AcquisitionId, FatalError, LockLoss, ReleaseReason,
};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

use crate::cluster::LogRead;
use crate::error::{ClientError, PollError};
use crate::hand_out::Pace;
use crate::lock::LockState;
use crate::metrics::{Counters, add};
use crate::report::{CommitReport, Reporter, offsets};
use crate::status::ShareStatus;

/// How records of an acquisition are settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settling {
    pub(crate) id: AcquisitionId,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) how: Acknowledgement,
}

/// Whoever wants to know what becomes of the first record.
pub(crate) type Reply = Option<oneshot::Sender<Result<(), AckFailure>>>;

/// A wish of the application.
#[derive(Debug)]
pub(crate) enum Command {
    Settle(Settling, Reply),
    /// Released after a delay.
    Drop {
        id: AcquisitionId,
        first: i64,
        last: i64,
        /// Records whose owner did not say so.
        forgotten: u64,
    },
    /// No application sees these: released at once.
    GiveBack {
        id: AcquisitionId,
        first: i64,
        last: i64,
        why: ReleaseReason,
    },
    Renew {
        id: AcquisitionId,
    },
    /// Reads held offsets again from the leader's log; tries until then.
    ReadAgain {
        id: ReadId,
        read: LogRead,
        until: Instant,
    },
    Commit {
        reply: oneshot::Sender<CommitReport>,
    },
    Close {
        within: Duration,
        reply: oneshot::Sender<CommitReport>,
    },
    /// It polls: it isn't stuck.
    Alive,
    /// It waits for records, and has all that are held.
    WantsMore,
    /// So many records are in work at a time; 0 = as many as it will.
    WorkOn(u32),
    /// The application takes up to so many records at once.
    Take(u32),
    Pause,
    Resume,
    /// One record more than is held.
    AcquireOne,
    /// Lets all locks run out, and acquires nothing new.
    StopRenewals,
    Subscribe(Vec<String>),
}

impl Command {
    /// The driver has ended and won't obey. Who waits for a commit or a confirmation learns it from the
    /// dropped reply.
    pub(crate) fn end(self, report: impl FnOnce() -> CommitReport) {
        if let Self::Close { reply, .. } = self {
            // The caller may have stopped waiting.
            drop(reply.send(report()));
        }
    }
}

/// Names a second read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReadId(pub(crate) u64);

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
    /// What was read again. Bounded by the reader.
    pub(crate) reads: VecDeque<(ReadId, Result<Bytes, ClientError>)>,
    /// The member can't go on: not yet told.
    pub(crate) failed: Option<PollError>,
    /// Why the member can't go on.
    pub(crate) fatal: Option<FatalError>,
    pub(crate) joined: bool,
    pub(crate) closed: bool,
    /// The application, where it waits.
    waiting: Option<Waker>,
}

/// Wishes on their way to the driver.
#[derive(Debug, Default)]
struct Inbox {
    commands: Vec<Command>,
    /// The driver has ended and takes no more.
    closed: bool,
}

#[derive(Debug)]
pub(crate) struct Shared {
    inbox: Mutex<Inbox>,
    pub(crate) commanded: Notify,
    outbox: Mutex<Outbox>,
    pub(crate) status: watch::Sender<ShareStatus>,
    pub(crate) counters: Counters,
    reporter: Mutex<Reporter>,
    /// The group allows renewals, as far as is known.
    pub(crate) renewable: AtomicBool,
    /// Nothing is acquired until the application shows life.
    stalled: AtomicBool,
    pub(crate) pace: Pace,
    /// So many records are held that nothing is fetched.
    out_of_credit: AtomicBool,
    /// The name that a broker gave this client (KIP-714).
    #[cfg(feature = "telemetry")]
    pub(crate) client_instance_id: std::sync::OnceLock<sharegroup_wire::TopicId>,
    started: Instant,
    /// When the application polled last, in microseconds since the start.
    polled_at: AtomicU64,
}

impl Shared {
    pub(crate) fn new(status: ShareStatus) -> Arc<Self> {
        Arc::new(Self {
            inbox: Mutex::default(),
            commanded: Notify::new(),
            outbox: Mutex::default(),
            status: watch::Sender::new(status),
            counters: Counters::default(),
            reporter: Mutex::default(),
            renewable: AtomicBool::new(true),
            stalled: AtomicBool::new(false),
            pace: Pace::default(),
            out_of_credit: AtomicBool::new(false),
            #[cfg(feature = "telemetry")]
            client_instance_id: std::sync::OnceLock::new(),
            started: Instant::now(),
            polled_at: AtomicU64::new(0),
        })
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the driver. When it has ended there is nothing left to close, and nobody to commit.
    pub(crate) fn command(&self, command: Command) {
        if let Err(unheard) = self.try_command(command) {
            unheard.end(|| self.reporter().take());
        }
    }

    fn try_command(&self, command: Command) -> Result<(), Command> {
        let mut inbox = self.inbox();
        if inbox.closed {
            return Err(command);
        }
        inbox.commands.push(command);
        drop(inbox);
        self.commanded.notify_one();
        Ok(())
    }

    /// Tells the driver how records are settled, which all lie in one acquisition. When it has ended their
    /// lock is lost, and the next report says so.
    pub(crate) fn settle(
        &self,
        topic: &Arc<str>,
        lock: &LockState,
        settling: Settling,
        reply: Reply,
    ) {
        let Settling {
            first, last, how, ..
        } = settling;
        if self.try_command(Command::Settle(settling, reply)).is_err() {
            for loss in lock.settle_lost(first, last) {
                self.settled_late(topic, &loss, how);
            }
        }
    }

    /// Records were settled after they had been lost.
    pub(crate) fn settled_late(&self, topic: &Arc<str>, loss: &LockLoss, how: Acknowledgement) {
        if how == Acknowledgement::Accept {
            let count = offsets(loss.first_offset, loss.last_offset);
            add(&self.counters.accepts_unconfirmed, count);
        }
        self.reporter().enter_late(topic, loss, how);
    }

    /// What became of acknowledgements since the last report.
    pub(crate) fn reporter(&self) -> MutexGuard<'_, Reporter> {
        self.reporter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lock ran out unsettled, or the application didn't poll. Whoever waits in a poll is alive, and says so.
    pub(crate) fn stall(&self) {
        self.stalled.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Whether the application waits for more than is held. Each side looks for the other: it says so itself
    /// where it finds the credit used up when it begins to wait.
    pub(crate) fn wants_more(&self, out_of_credit: bool) -> bool {
        self.out_of_credit.store(out_of_credit, Ordering::Relaxed);
        out_of_credit && {
            let outbox = self.outbox();
            outbox.waiting.is_some() && outbox.arrivals.is_empty()
        }
    }

    /// The application begins to wait.
    pub(crate) fn waits(&self) {
        if self.out_of_credit.load(Ordering::Relaxed) {
            self.command(Command::WantsMore);
        }
    }

    /// When the application polled last.
    pub(crate) fn polled_at(&self) -> Instant {
        self.started + Duration::from_micros(self.polled_at.load(Ordering::Relaxed))
    }

    /// The application polls.
    pub(crate) fn polled(&self) {
        let after = self.started.elapsed().as_micros();
        let after = u64::try_from(after).unwrap_or(u64::MAX);
        self.polled_at.store(after, Ordering::Relaxed);
        if self.stalled.swap(false, Ordering::Relaxed) {
            self.command(Command::Alive);
        }
    }

    pub(crate) fn take_commands(&self, into: &mut Vec<Command>) {
        into.append(&mut self.inbox().commands);
    }

    /// No command is taken any more; what was left unheard is returned.
    pub(crate) fn close_commands(&self) -> Vec<Command> {
        let mut inbox = self.inbox();
        inbox.closed = true;
        std::mem::take(&mut inbox.commands)
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the member can't go on.
    pub(crate) fn fatal(&self) -> Option<FatalError> {
        self.outbox().fatal.clone()
    }

    /// What arrived and was not polled.
    pub(crate) fn take_arrivals(&self) -> VecDeque<Arrival> {
        std::mem::take(&mut self.outbox().arrivals)
    }

    /// Has whoever waits in a poll look again.
    pub(crate) fn wake(&self) {
        self.tell(|_| ());
    }

    /// Puts something into the outbox and wakes the application, if it waits.
    pub(crate) fn tell(&self, put: impl FnOnce(&mut Outbox)) {
        let mut outbox = self.outbox();
        put(&mut outbox);
        let waiting = outbox.waiting.take();
        drop(outbox);
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }

    /// Takes something out of the outbox; where there is nothing, whatever comes next wakes the caller.
    pub(crate) fn poll_outbox<T>(
        &self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut Outbox) -> Option<T>,
    ) -> Poll<T> {
        let mut outbox = self.outbox();
        match take(&mut outbox) {
            Some(taken) => Poll::Ready(taken),
            None => {
                match &mut outbox.waiting {
                    Some(waiting) => waiting.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}
