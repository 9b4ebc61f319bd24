//! Every limit of the server in one place.
//!
//! Most memory, whatever clients do: `log_bytes_max` + `request_bytes_max` + `answer_bytes_max` +
//! `connections_max` × [`FRAME_BYTES_SMALL`], 1.5 GiB by default, and what
//! [`model::limits`](crate::model::limits) lets the model remember. `cargo xtask prove hostile` measures
//! it: 7 MiB at the start, 11 MiB with 1,000 idle connections, some 60 MiB more with 60 kB of a request on each.

use std::time::Duration;

/// A frame of up to this size, in bytes, is read without asking for memory; a connection that does
/// nothing holds no more.
pub(super) const FRAME_BYTES_SMALL: usize = 64 * 1024;

/// What clients can make the server use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Open connections; one more is closed at once. Default 1,100.
    pub connections_max: usize,
    /// Largest request frame in bytes, Kafka's `socket.request.max.bytes`; a larger one ends the
    /// connection. Default 100 MiB.
    pub frame_bytes_max: usize,
    /// Bytes of all large frames that are being read or worked on; further ones wait. At least
    /// `frame_bytes_max`. Default 128 MiB.
    pub request_bytes_max: usize,
    /// Bytes of all answers that their clients have not taken yet; a connection whose answer would
    /// exceed them is cut. Default 256 MiB.
    pub answer_bytes_max: usize,
    /// How long a frame may take to arrive from its first byte on, and an answer to be taken.
    /// Default 30 s.
    pub frame_time_max: Duration,
    /// How long a connection may be silent, Kafka's `connections.max.idle.ms`. Default 10 min.
    pub idle_time_max: Duration,
    /// Bytes of all logs; what would exceed them is refused with KAFKA_STORAGE_ERROR. Default 1 GiB.
    pub log_bytes_max: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections_max: 1_100,
            frame_bytes_max: 100 * 1024 * 1024,
            request_bytes_max: 128 * 1024 * 1024,
            answer_bytes_max: 256 * 1024 * 1024,
            frame_time_max: Duration::from_secs(30),
            idle_time_max: Duration::from_secs(600),
            log_bytes_max: 1024 * 1024 * 1024,
        }
    }
}
