//! Every limit and pace of the session core in one place.

use std::time::Duration;

/// Longest long poll of an idle member. Kafka's own client uses 500 ms, since an acknowledgement
/// can't overtake a fetch that waits (KIP-932: one request of a share session at a time).
pub const FETCH_WAIT_MAX: Duration = Duration::from_millis(500);

/// First wait after an empty fetch while records are held; doubles up to [`HOLDING_PACE_MAX`].
pub const HOLDING_PACE_MIN: Duration = Duration::from_millis(5);

/// Longest wait between two fetches while records are held.
pub const HOLDING_PACE_MAX: Duration = Duration::from_millis(200);

/// Wait before the next try of something that was refused for want of a right
/// (B-111: at most one try a second).
pub const UNAUTHORIZED_BACKOFF: Duration = Duration::from_secs(1);

/// The same warning is given once in this time.
pub const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Lock time assumed until a broker has named one: the default of
/// `group.share.record.lock.duration.ms`.
pub const LOCK_DEFAULT: Duration = Duration::from_secs(30);

/// Locked records of a partition until the group's own limit is known: the default of
/// `group.share.partition.max.record.locks`.
pub const RECORD_LOCKS_DEFAULT: u32 = 2000;

/// An acknowledgement is not sent in the last part of its lock: the broker would get it too late.
pub const LOCK_MARGIN: Duration = Duration::from_millis(20);

/// First wait before an acknowledgement that a broker could not store is sent again; doubles up to
/// [`ACKNOWLEDGE_BACKOFF_MAX`].
pub const ACKNOWLEDGE_BACKOFF_MIN: Duration = Duration::from_millis(100);

/// Longest such wait.
pub const ACKNOWLEDGE_BACKOFF_MAX: Duration = Duration::from_secs(1);

/// First delay of the release of a record that its owner dropped; doubles by delivery count.
pub const DROP_DELAY_MIN: Duration = Duration::from_secs(1);

/// Longest delay of such a release.
pub const DROP_DELAY_MAX: Duration = Duration::from_secs(60);

/// Metadata is asked for again after this time without a reason (`metadata.max.age.ms`).
pub const METADATA_AGE_MAX: Duration = Duration::from_secs(300);

/// Heartbeat interval until the coordinator has named one.
pub const HEARTBEAT_INTERVAL_DEFAULT: Duration = Duration::from_secs(5);

/// Shortest heartbeat interval that a coordinator may name; below the shortest that Kafka lets anybody set in earnest.
pub const HEARTBEAT_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Longest quota delay that is obeyed (KIP-219): longer ones are a broker's mistake, and locks end meanwhile.
pub const THROTTLE_MAX: Duration = Duration::from_secs(60);

/// Longest pause after which refused renewals are tried again (an operator may have turned them on
/// meanwhile): the first takes a quarter of a lock, each further one twice as long.
pub const RENEWAL_REFUSED_FOR: Duration = Duration::from_secs(60);

/// Pause between heartbeats of a member that has joined and has no partitions yet. Measured on
/// Kafka 4.4: the first assignment comes 0.2–3 s after the join, and an ordinary heartbeat 5 s.
pub const EARLY_HEARTBEAT_PAUSE: Duration = Duration::from_millis(300);

/// Such heartbeats in a row; then the coordinator's interval holds again.
pub const EARLY_HEARTBEATS_MAX: u32 = 30;
