//! Why records were not written, and what is known of the tries before.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::letters::LetterError;
use crate::convert::StageError;
use crate::policy::{LetterState, Tried};

/// A try that failed, and those before it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    /// Records of the same piece are put together.
    pub(super) piece: u32,
    /// Whether the try was cut off.
    pub(super) cut_off: bool,
    /// Whether the try was of this record alone, or the sink spoke of it by itself.
    pub(super) alone: bool,
    pub(super) tried: Tried,
    /// Turns in a row in which it failed, and the last of them.
    pub(super) attempts: u32,
    pub(super) turn: u64,
    /// When the first of them failed; outages, and times in which nothing else was written, don't count.
    pub(super) first_at: Instant,
    /// Records that the task had written by then.
    pub(super) written_before: u64,
    /// When the last of them failed.
    pub(super) last_at: Instant,
    /// Records that the task had written by then.
    pub(super) written: u64,
    /// When to try again.
    pub(super) retry_at: Instant,
    /// Shortest wait that the target asked for.
    pub(super) after: Option<Duration>,
    /// Why, with the records it was said of.
    pub(super) why: Arc<str>,
    /// The stage before the put that failed, where it was one.
    pub(super) stage: Option<StageFailure>,
    pub(super) letter: LetterState,
    /// When the letter could not be written for the first time.
    pub(super) letter_failed_at: Option<Instant>,
}

/// A stage before the put that a record failed in.
#[derive(Clone, Debug)]
pub(super) struct StageFailure {
    pub(super) error: Arc<StageError>,
    /// When it failed there for the first time, and how often since.
    pub(super) first_at: Instant,
    pub(super) failures: u32,
    /// Wait before the next try; `None` = there is none.
    pub(super) wait: Option<Duration>,
}

/// Each is of one record and one try.
impl PartialEq for StageFailure {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.error, &other.error)
    }
}

/// Why records were not written.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) tried: Tried,
    pub(super) why: Arc<str>,
    pub(super) after: Option<Duration>,
    pub(super) kind: TroubleKind,
}

/// What a trouble means for the call that it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TroubleKind {
    /// The sink gave an answer.
    Answer,
    /// Time was up.
    CutOff,
    /// The sink can't go on.
    Broken,
}

/// When a try failed, and how much the task had written by then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) at: Instant,
    pub(super) written: u64,
    pub(super) turn: u64,
}

impl Trouble {
    pub(super) fn cut_off(what: &str) -> Self {
        Self {
            tried: Tried::Unknown,
            why: format!("{what} did not end in the time it had").into(),
            after: None,
            kind: TroubleKind::CutOff,
        }
    }

    pub(super) fn panicked(why: &str) -> Self {
        Self {
            tried: Tried::Unknown,
            why: why.into(),
            after: None,
            kind: TroubleKind::Broken,
        }
    }
}

impl Failure {
    /// One more failure.
    pub(super) fn after(before: Option<Self>, trouble: &Trouble, piece: u32, now: Now) -> Self {
        let (attempts, first_at, written_before) = match before {
            None => (1, now.at, now.written),
            Some(before) => {
                let again = u32::from(before.turn != now.turn || before.attempts == 0);
                let attempts = before.attempts.saturating_add(again);
                // While nothing else is written, nothing says that these records are to blame.
                let first_at = if before.written_before == now.written {
                    now.at
                } else {
                    before.first_at
                };
                (attempts, first_at, before.written_before)
            }
        };
        Self {
            piece,
            cut_off: trouble.kind == TroubleKind::CutOff,
            alone: piece == TOGETHER,
            tried: trouble.tried,
            attempts,
            turn: now.turn,
            first_at,
            written_before,
            last_at: now.at,
            written: now.written,
            retry_at: now.at,
            after: trouble.after,
            why: Arc::clone(&trouble.why),
            stage: None,
            letter: LetterState::Unwritten,
            letter_failed_at: None,
        }
    }

    /// A try that a stage before the put failed: another one follows where the stage has a wait for it.
    pub(super) fn of_stage(
        before: Option<Self>,
        place: &str,
        stage: StageFailure,
        now: Now,
    ) -> Self {
        let trouble = Trouble {
            tried: match stage.wait {
                Some(_) => Tried::Later,
                None => Tried::Refused,
            },
            why: format!("{place}: {}", stage.error).into(),
            after: None,
            kind: TroubleKind::Answer,
        };
        Self {
            stage: Some(stage),
            ..Self::after(before, &trouble, TOGETHER, now)
        }
    }

    /// The wait before the stage that failed is tried again.
    pub(super) fn stage_wait(&self) -> Option<Duration> {
        let stage = self.stage.as_ref().filter(|_| self.tried == Tried::Later);
        stage.and_then(|stage| stage.wait)
    }

    pub(super) fn needs_letter(&self) -> bool {
        self.tried == Tried::Refused && self.letter == LetterState::Unwritten
    }

    /// A first failure of what will never be written.
    pub(super) fn refused(why: &str, now: Now) -> Self {
        let trouble = Trouble {
            tried: Tried::Refused,
            why: why.into(),
            after: None,
            kind: TroubleKind::Answer,
        };
        Self::after(None, &trouble, TOGETHER, now)
    }

    /// The target was down for so long: that is not held against the records.
    pub(super) fn begin_anew(&mut self, outage: Duration) {
        if self.tried != Tried::Refused {
            let now = Instant::now();
            self.attempts = 0;
            self.first_at = (self.first_at + outage).min(now);
            self.retry_at = now;
        }
    }

    /// Sets the next try. Where there is one already, the earlier counts.
    pub(super) fn wait(&mut self, delay: Duration) {
        self.retry_at = if self.retry_at == self.last_at {
            self.last_at + delay
        } else {
            self.retry_at.min(Instant::now() + delay)
        };
    }

    /// Notes what became of its letter.
    pub(super) fn note_letter(&mut self, answer: Result<(), LetterError>, now: Instant) {
        self.letter = match answer {
            Ok(()) => LetterState::Confirmed,
            Err(error) => {
                let first = self.letter_failed_at.is_none();
                self.attempts = if first {
                    1
                } else {
                    self.attempts.saturating_add(1)
                };
                self.letter_failed_at.get_or_insert(now);
                (self.last_at, self.retry_at) = (now, now);
                self.why = format!("{}; its dead letter: {}", self.why, error.text).into();
                if error.is_retriable {
                    LetterState::Failed
                } else {
                    LetterState::Impossible
                }
            }
        };
    }
}

/// The piece of records whose sink speaks of them one by one.
pub(super) const TOGETHER: u32 = 0;
