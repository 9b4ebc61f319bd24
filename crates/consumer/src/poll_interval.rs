//! `max.poll.interval.ms`: whether the application still polls.

use std::time::Duration;

use tokio::time::Instant;

/// Whoever waits in a poll is asked for a sign of life so long before the limit, at most: its task needs a
/// turn of its runtime to give it.
const ASKED_BEFORE_MAX: Duration = Duration::from_secs(1);

/// What is to be done about an application's polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Polls {
    /// It polls.
    InTime,
    /// It may wait in a poll: wake it.
    Ask,
    /// It doesn't poll.
    Overdue,
}

/// Watches the time between polls.
#[derive(Debug)]
pub(crate) struct PollInterval {
    limit: Duration,
    /// Polls are due since then: time before doesn't count.
    since: Instant,
    in_group: bool,
    /// It left the group for want of polls, and has not joined again.
    is_overdue: bool,
    handlers_run: bool,
    /// The last poll when the application was asked.
    asked_after: Option<Instant>,
}

impl PollInterval {
    /// Watches once the group is joined.
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            since: Instant::now(),
            in_group: false,
            is_overdue: false,
            handlers_run: false,
            asked_after: None,
        }
    }

    pub(crate) const fn limit(&self) -> Duration {
        self.limit
    }

    /// The member is in the group, for the first time or again.
    pub(crate) const fn joined(&mut self, now: Instant) {
        if !self.in_group {
            self.since = now;
        }
        self.in_group = true;
        self.is_overdue = false;
    }

    /// The member is not, or not for long.
    pub(crate) const fn left(&mut self) {
        self.in_group = false;
        self.is_overdue = true;
    }

    /// Whether the member left for want of polls, and has not joined again.
    pub(crate) const fn is_overdue(&self) -> bool {
        self.is_overdue
    }

    /// While handlers run, nobody has to poll.
    pub(crate) const fn handlers_run(&mut self, now: Instant, they_do: bool) {
        self.handlers_run = they_do;
        self.since = now;
    }

    /// What to do now, where the last poll was at `polled_at`.
    pub(crate) fn check(&mut self, now: Instant, polled_at: Instant) -> Polls {
        let last = polled_at.max(self.since);
        match self.next_at(polled_at) {
            Some(at) if at <= now && self.asked_after == Some(last) => Polls::Overdue,
            Some(at) if at <= now => {
                self.asked_after = Some(last);
                Polls::Ask
            }
            _ => Polls::InTime,
        }
    }

    /// When to check next.
    pub(crate) fn next_at(&self, polled_at: Instant) -> Option<Instant> {
        let last = polled_at.max(self.since);
        let asked_before = (self.limit / 4).min(ASKED_BEFORE_MAX);
        let after = if self.asked_after == Some(last) {
            self.limit
        } else {
            self.limit - asked_before
        };
        (self.in_group && !self.handlers_run).then(|| last + after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn who_waits_in_a_poll_is_asked_before_its_time_is_over() {
        let start = Instant::now();
        let mut interval = PollInterval::new(10 * SECOND);
        assert_eq!(interval.next_at(start), None);
        interval.joined(start);
        assert_eq!(interval.check(start + 8 * SECOND, start), Polls::InTime);
        assert_eq!(interval.check(start + 9 * SECOND, start), Polls::Ask);
        assert_eq!(interval.next_at(start), Some(start + 10 * SECOND));
        let answered = start + 9 * SECOND;
        assert_eq!(interval.check(start + 10 * SECOND, answered), Polls::InTime);
        assert_eq!(interval.check(start + 18 * SECOND, answered), Polls::Ask);
        assert_eq!(
            interval.check(start + 19 * SECOND, answered),
            Polls::Overdue
        );
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_handlers_run_does_not_count() {
        let start = Instant::now();
        let mut interval = PollInterval::new(10 * SECOND);
        interval.joined(start);
        interval.handlers_run(start, true);
        interval.joined(start + 30 * SECOND);
        assert_eq!(interval.check(start + 60 * SECOND, start), Polls::InTime);
        interval.handlers_run(start + 60 * SECOND, false);
        assert_eq!(interval.check(start + 68 * SECOND, start), Polls::InTime);
    }
}
