//! Every limit of this crate in one place.
//!
//! A limit that is exceeded gives a typed error naming it; nothing is allocated beyond it.

use std::time::Duration;

/// Largest response frame that is read, in bytes: 100 MiB, the broker's own
/// `socket.request.max.bytes` default. A share fetch stays below `fetch.max.bytes` plus one batch.
pub const FRAME_BYTES_MAX: usize = 100 * 1024 * 1024;

/// A frame of up to this size is allocated at once; a larger one grows with what has arrived, so
/// that a peer's word alone never costs more than this many bytes.
pub const FRAME_BYTES_TRUSTED: usize = 1024 * 1024;

/// Most tagged fields in one tagged section. Kafka's schemas define at most a handful.
pub const TAGGED_FIELDS_MAX: u32 = 1024;

/// Requests that may wait for an answer on one connection. Kafka's own clients use 5 for produce
/// and 100 for admin work; share sessions use 1.
pub const IN_FLIGHT_REQUESTS_MAX: usize = 16;

/// Largest truststore or keystore file that is read, in bytes: 16 MiB. The CAs of a system take
/// about 200 KiB.
pub const STORE_FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Most iterations of a password's key derivation in a keystore; Java and OpenSSL write 2048 to
/// 10,000. This many take about 3 s.
pub const KEY_DERIVATION_ITERATIONS_MAX: u32 = 5_000_000;

/// Fewest iterations that a SCRAM server may ask for: RFC 7677 and Kafka's own clients.
pub const SCRAM_ITERATIONS_MIN: u32 = 4096;

/// Most iterations that a SCRAM server may ask for. Kafka's brokers allow at most 16,384; this many
/// take about 0.1 s.
pub const SCRAM_ITERATIONS_MAX: u32 = 131_072;

/// Largest token file that is read, in bytes: 64 KiB.
pub const TOKEN_FILE_BYTES_MAX: u64 = 64 * 1024;

/// Most addresses of one host name that are tried.
pub const DNS_ANSWERS_MAX: usize = 64;

/// Largest answer of a token endpoint, in bytes: 256 KiB.
pub const TOKEN_ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Longest wait for a token before a connection is opened: 30 s. A token that comes later is kept
/// for the next connection.
pub const TOKEN_WAIT_MAX: Duration = Duration::from_secs(30);
