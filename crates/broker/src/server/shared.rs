//! The model behind its lock, and the roads from it to the connections.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use sharegroup_wire::BrokerId;
use tokio::sync::{Notify, Semaphore, mpsc};

use super::folder::Folder;
use super::limits::ServerLimits;
use crate::model::{LinkId, Model, Output};

/// What a connection's task is told.
#[derive(Debug)]
pub(super) enum Told {
    /// Send this.
    Send(Answer),
    /// Close.
    Close,
}

/// A frame that its client has not taken yet.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) frame: Bytes,
    /// Bytes of all of them.
    waiting: Arc<AtomicUsize>,
}

impl Answer {
    fn new(frame: Bytes, waiting: &Arc<AtomicUsize>) -> Self {
        waiting.fetch_add(frame.len(), Ordering::Relaxed);
        Self {
            frame,
            waiting: Arc::clone(waiting),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.frame.len(), Ordering::Relaxed);
    }
}

/// Answers that wait for one connection. One request at a time is worked on, and a fault may double
/// its answer.
const TOLD_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct State {
    pub(super) model: Model,
    /// Where the model's state is kept; nowhere, as a rule.
    folder: Option<Folder>,
    roads: BTreeMap<LinkId, mpsc::Sender<Told>>,
    /// When the timer's task will look.
    armed: Option<Instant>,
    /// The cluster has ended: nobody is told anything any more.
    is_over: bool,
}

/// What all tasks share.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Something is due earlier than the timer's task knows.
    pub(super) rearm: Notify,
    pub(super) limits: ServerLimits,
    /// Memory for large frames, in KiB.
    pub(super) memory: Arc<Semaphore>,
    /// Connections that may still be opened.
    pub(super) connections: Arc<Semaphore>,
    /// Bytes of answers that were not taken yet.
    waiting: Arc<AtomicUsize>,
}

/// The time, which a test may have paused.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl Shared {
    pub(super) fn new(model: Model, folder: Option<Folder>, limits: ServerLimits) -> Self {
        Self {
            state: Mutex::new(State {
                model,
                folder,
                roads: BTreeMap::new(),
                is_over: false,
                armed: None,
            }),
            rearm: Notify::new(),
            memory: Arc::new(Semaphore::new(limits.request_bytes_max.div_ceil(1024))),
            connections: Arc::new(Semaphore::new(limits.connections_max)),
            waiting: Arc::default(),
            limits,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the model and tells the connections what came of it.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Model, Instant) -> R) -> R {
        let mut state = self.state();
        let waiting = self.waiting.load(Ordering::Relaxed);
        state.model.answer_bytes_left = self.limits.answer_bytes_max.saturating_sub(waiting);
        let result = state.act(act);
        if state.model.answer_bytes_left == 0 {
            tracing::warn!(
                limit = self.limits.answer_bytes_max,
                waiting,
                "Clients don't take their answers; a connection is cut."
            );
        }
        state.deliver(&self.waiting);
        let next = state.model.poll_timeout();
        let is_earlier = next.is_some_and(|next| state.armed.is_none_or(|armed| next < armed));
        drop(state);
        if is_earlier {
            self.rearm.notify_one();
        }
        result
    }

    /// Opens a connection in the model.
    pub(super) fn open(&self, broker: BrokerId, peer: &str) -> (LinkId, mpsc::Receiver<Told>) {
        let (sender, receiver) = mpsc::channel(TOLD_MAX);
        let mut state = self.state();
        let link = state.model.connect(broker, peer);
        state.roads.insert(link, sender);
        (link, receiver)
    }

    /// Records that are in memory alone though they should be in a folder, as long as that can't be written.
    pub(super) fn unwritten_records(&self) -> Option<u64> {
        self.state().folder.as_ref()?.unwritten_records()
    }

    /// The cluster ends, though some tasks may be at work for a moment yet. Its folder is free.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_over = true;
        if let Some(folder) = state.folder.take() {
            folder.end();
        }
        state.roads.clear();
    }

    /// A connection's task ends.
    pub(super) fn end(&self, link: LinkId) {
        self.state().roads.remove(&link);
        self.with(|model, now| model.disconnect(now, link));
    }

    /// Does what is due; returns when something will be.
    pub(super) fn pass_time(&self) -> Option<Instant> {
        self.with(|model, now| model.handle_timeout(now));
        let mut state = self.state();
        state.armed = state.model.poll_timeout();
        state.armed
    }
}

impl State {
    /// What comes of it is written before anybody hears of it.
    fn act<R>(&mut self, act: impl FnOnce(&mut Model, Instant) -> R) -> R {
        let now = now();
        let Some(folder) = &mut self.folder else {
            return act(&mut self.model, now);
        };
        folder.retry(&mut self.model);
        let result = act(&mut self.model, now);
        folder.write(&mut self.model, now);
        result
    }

    fn deliver(&mut self, waiting: &Arc<AtomicUsize>) {
        if self.is_over {
            self.roads.clear();
        }
        while let Some(output) = self.model.poll_output() {
            let (link, told) = match output {
                Output::Send { link, frame } => (link, Told::Send(Answer::new(frame, waiting))),
                Output::Close { link } => (link, Told::Close),
            };
            // A task that has ended, or that is so far behind, needs nothing more.
            if let Some(road) = self.roads.get(&link)
                && road.try_send(told).is_err()
            {
                self.roads.remove(&link);
            }
        }
    }
}
