//! How long a statement may take: as configured, and never as long as Kafka's locks of the records that it writes.
//!
//! A statement that outlasts those locks may be carried out while another member of the group writes the same records. The
//! runtime renews locks, but one that is renewed late, or by a worker that has lost its cluster, may have little
//! more than half of its time left.

use std::time::Duration;

use tokio::time::Instant;

/// `connect.timeout.ms`, `statement.timeout.ms` and `lock.timeout.ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timeouts {
    pub(super) connect: Duration,
    pub(super) statement: Duration,
    pub(super) lock: Duration,
}

/// What a connection's statements are limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) statement: Duration,
    /// Wait for a lock of the database.
    pub(super) lock: Duration,
}

/// How long Kafka locks the records of a put.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    /// Before a renewal.
    pub(super) duration: Option<Duration>,
    /// When a put is cut off, since its locks can't be renewed.
    pub(super) cut_off_at: Option<Instant>,
}

impl Timeouts {
    /// What a statement is limited to that writes records that are held so.
    pub(super) fn limits(self, held: Held) -> Limits {
        let of_lock = held.duration.map(|lock| lock * 2 / 3);
        let left = held.cut_off_at;
        let left = left.map(|at| at.saturating_duration_since(Instant::now()));
        let least = [of_lock, left].into_iter().flatten().min();
        let statement = least.map_or(self.statement, |least| least.min(self.statement));
        // 0 is no limit to PostgreSQL.
        let statement = statement.max(LEAST);
        Limits {
            statement,
            lock: self.lock.min(statement / 2).max(LEAST),
        }
    }
}

impl Limits {
    /// When a statement that has no answer yet is given up: the server itself should have broken it off before.
    pub(super) fn deadline(self) -> Duration {
        self.statement + GRACE_MAX.min(self.statement / 4)
    }

    /// Whether statements that should have these limits may have those that are set: shorter ones, but not by much.
    /// What is left of a lock changes with every put, and setting a limit costs a round trip.
    pub(super) fn are_met_by(self, set: Self) -> bool {
        set.lock <= self.lock
            && set.statement <= self.statement
            && set.statement >= self.statement / 4 * 3
    }

    /// The statements that set them.
    pub(super) fn setting(self) -> String {
        format!(
            "SET statement_timeout = {}; SET lock_timeout = {}",
            self.statement.as_millis(),
            self.lock.as_millis()
        )
    }
}

const LEAST: Duration = Duration::from_millis(1);
const GRACE_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const CONFIGURED: Timeouts = Timeouts {
        connect: S,
        statement: Duration::from_secs(20),
        lock: Duration::from_secs(10),
    };

    fn limits(lock: Option<Duration>, left: Option<Duration>) -> (Duration, Duration) {
        let held = Held {
            duration: lock,
            cut_off_at: left.map(|left| Instant::now() + left),
        };
        let limits = CONFIGURED.limits(held);
        (limits.statement, limits.lock)
    }

    #[tokio::test(start_paused = true)]
    async fn a_statement_has_less_time_than_the_lock_of_its_records() {
        assert_eq!(limits(None, None), (20 * S, 10 * S));
        assert_eq!(limits(Some(30 * S), None), (20 * S, 10 * S));
        assert_eq!(limits(Some(300 * S), None), (20 * S, 10 * S));
        assert_eq!(limits(Some(15 * S), None), (10 * S, 5 * S));
        assert_eq!(limits(Some(15 * S), Some(4 * S)), (4 * S, 2 * S));
        assert_eq!(limits(Some(15 * S), Some(12 * S)), (10 * S, 5 * S));
        let least = limits(Some(15 * S), Some(Duration::ZERO));
        assert_eq!(least, (LEAST, LEAST));
    }

    #[tokio::test(start_paused = true)]
    async fn even_an_answer_that_never_comes_is_given_up_before_the_lock_ends() {
        for seconds in [1, 15, 30, 3600] {
            let held = Held {
                duration: Some(seconds * S),
                cut_off_at: None,
            };
            assert!(CONFIGURED.limits(held).deadline() < seconds * S);
        }
    }

    #[test]
    fn limits_are_set_again_only_where_they_differ_by_much() {
        let of = |seconds| Limits {
            statement: seconds * S,
            lock: S,
        };
        assert!(of(10).are_met_by(of(10)));
        assert!(of(10).are_met_by(of(8)));
        assert!(!of(10).are_met_by(of(11)));
        assert!(!of(10).are_met_by(of(7)));
    }
}
