//! What a client says to the harness.

use std::io::{self, Read as _, Write as _};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::Tracker;

/// How far all consumers of the process are.
#[derive(Debug)]
pub struct Progress {
    wanted: u64,
    members: usize,
    ready: AtomicUsize,
    first: OnceLock<Instant>,
    settled: AtomicU64,
    sums: Mutex<Sums>,
}

/// What came together at the end.
#[derive(Debug, Default)]
struct Sums {
    settled: u64,
    again: u64,
    checksum: u64,
}

impl Progress {
    /// Of so many consumers that settle so many records together.
    #[must_use]
    pub fn new(members: usize, wanted: u64) -> Self {
        Self {
            wanted,
            members,
            ready: AtomicUsize::new(0),
            first: OnceLock::new(),
            settled: AtomicU64::new(0),
            sums: Mutex::default(),
        }
    }

    /// One more consumer is built.
    pub fn ready(&self) {
        if self.ready.fetch_add(1, Ordering::Relaxed) + 1 == self.members {
            say("ready");
        }
    }

    /// A consumer has records.
    pub fn has_records(&self) {
        self.first.get_or_init(|| {
            say("first");
            Instant::now()
        });
    }

    /// So many more distinct records are settled; `true` = that is all.
    pub fn settled(&self, records: u64) -> bool {
        self.settled.fetch_add(records, Ordering::AcqRel) + records >= self.wanted
    }

    /// A consumer has ended.
    pub fn ended(&self, tracker: &Tracker) {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.settled += tracker.settled;
        sums.again += tracker.again;
        sums.checksum = sums.checksum.wrapping_add(tracker.checksum);
    }

    /// All consumers have ended, every answer is in.
    pub fn done(&self) {
        let seconds = self
            .first
            .get()
            .map_or(0.0, |at| at.elapsed().as_secs_f64());
        let sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        say(&format!(
            r#"done {{"records":{},"again":{},"checksum":"{:016x}","seconds":{seconds:.6}}}"#,
            sums.settled, sums.again, sums.checksum
        ));
    }
}

/// Waits for the end of the standard input.
pub fn wait_for_end() {
    // Whatever ends it is an end.
    drop(io::stdin().read_to_end(&mut Vec::new()));
}

pub(crate) fn say(line: &str) {
    let mut out = io::stdout().lock();
    // Without a reader the client is killed soon.
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}
