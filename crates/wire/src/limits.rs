//! Every limit of this crate in one place.
//!
//! Beyond a limit there is a typed error that names it, and nothing is allocated beyond it. "Set by"
//! is what a caller changes it with: an option of this crate, and behind it the key of Kafka's
//! clients, where there is one. The others are fixed.
//!
//! | limit | value | set by |
//! | --- | --- | --- |
//! | **Frames and messages** | | |
//! | [`FRAME_BYTES_MAX`] | 100 MiB | `ConnectionOptions::frame_bytes_max`; answers to fetches follow `fetch.max.bytes` |
//! | [`FRAME_BYTES_TRUSTED`] | 1 MiB | – |
//! | items of an array, bytes of a text | the bytes left, by the smallest item | – |
//! | [`TAGGED_FIELDS_MAX`] | 1024 | – |
//! | nesting | what the schema of a message has; nothing recurses on a peer's word | – |
//! | **Record batches** | | |
//! | records of a batch | its offsets, and its bytes by 7 | – |
//! | headers of a record | the record's bytes | – |
//! | [`DECOMPRESSED_BYTES_MAX`] | 128 MiB | [`DecompressLimits::decompressed_bytes_max`] |
//! | decompressed ÷ compressed | no limit | [`DecompressLimits::ratio_max`] |
//! | [`ZSTD_WINDOW_BYTES_MAX`] | 128 MiB | – |
//! | [`BATCH_BUILT_BYTES_MAX`] | 1 GiB | – |
//! | **Connections** | | |
//! | [`IN_FLIGHT_REQUESTS_MAX`] | 16 | `ConnectionOptions::in_flight_max` |
//! | [`REQUEST_TIMEOUT`] | 30 s | `ConnectionOptions::request_timeout`, `request.timeout.ms` |
//! | [`SETUP_TIMEOUT`] | 10 s | `ConnectionOptions::setup_timeout`, `socket.connection.setup.timeout.ms` |
//! | [`PORT_QUESTION_TIMEOUT`] | 2 s | – |
//! | [`PORT_ANSWER_BYTES_MAX`] | 64 KiB | – |
//! | time without a request | no limit | `ConnectionOptions::idle_max`, `connections.max.idle.ms` |
//! | [`DNS_ANSWERS_MAX`] | 64 | – |
//! | [`CONNECT_HEAD_START`] | 250 ms | `TcpConnector::head_start` |
//! | [`PEER_TEXT_CHARACTERS_MAX`] | 500 | – |
//! | **TLS** | | |
//! | [`STORE_FILE_BYTES_MAX`] | 16 MiB | – |
//! | [`KEY_DERIVATION_ITERATIONS_MAX`] | 5,000,000 | – |
//! | **SASL** | | |
//! | [`SCRAM_ITERATIONS_MIN`] | 4096 | – |
//! | [`SCRAM_ITERATIONS_MAX`] | 131,072 | – |
//! | [`SASL_MECHANISMS_SHOWN_MAX`] | 16 | – |
//! | [`TOKEN_FILE_BYTES_MAX`] | 64 KiB | – |
//! | [`TOKEN_WAIT_MAX`] | 30 s | – |
//! | [`TOKEN_ANSWER_BYTES_MAX`] | 256 KiB | – |
//! | [`TOKEN_ANSWER_HEAD_BYTES_MAX`] | 16 KiB | – |
//! | [`TOKEN_ENDPOINT_TIMEOUT`] | 10 s | `sasl.login.connect.timeout.ms`, `sasl.login.read.timeout.ms` |
//! | tries for a token | 10 s | `sasl.login.retry.backoff.max.ms` |
//!
//! [`DecompressLimits::decompressed_bytes_max`]: crate::compress::DecompressLimits::decompressed_bytes_max
//! [`DecompressLimits::ratio_max`]: crate::compress::DecompressLimits::ratio_max

use std::time::Duration;

/// Largest response frame that is read, in bytes: 100 MiB, the broker's own
/// `socket.request.max.bytes` default. A share fetch stays below `fetch.max.bytes` plus one batch.
pub const FRAME_BYTES_MAX: usize = 100 * 1024 * 1024;

/// A frame of up to this size, or of that of a whole frame which the peer has sent before, is
/// allocated at once; a larger one grows with what has arrived, so that a peer's word alone never
/// costs more than this many bytes.
pub const FRAME_BYTES_TRUSTED: usize = 1024 * 1024;

/// Most tagged fields in one tagged section. Kafka's schemas define at most a handful.
pub const TAGGED_FIELDS_MAX: u32 = 1024;

/// Largest decompressed size of one batch, in bytes: 128 MiB, more than the 100 MiB that a broker
/// takes in a request (`socket.request.max.bytes`).
pub const DECOMPRESSED_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Largest window that a zstd frame may declare, in bytes: what zstd itself accepts when streaming.
/// A small frame may declare a large window, so this is not tied to the cap on the output.
pub const ZSTD_WINDOW_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// Largest batch that is built, in bytes before compression: 1 GiB, far above any broker's
/// `message.max.bytes`, so that no size in a batch overflows.
pub const BATCH_BUILT_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Requests that may wait for an answer on one connection. Kafka's own clients use 5 for produce
/// and 100 for admin work; share sessions use 1.
pub const IN_FLIGHT_REQUESTS_MAX: usize = 16;

/// Time for one request and its answer.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Time to open a stream, to secure it, to negotiate versions and to authenticate.
pub const SETUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Time to ask a peer whether its port wants TLS or SASL, after a connection that ended as if it did.
pub const PORT_QUESTION_TIMEOUT: Duration = Duration::from_secs(2);

/// Largest answer to that, in bytes: 64 KiB. A broker's list of APIs takes 1 KiB.
pub const PORT_ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Most addresses of one host name that are tried.
pub const DNS_ANSWERS_MAX: usize = 64;

/// How long an address of a host name is tried before the next one is tried beside it (RFC 8305).
pub const CONNECT_HEAD_START: Duration = Duration::from_millis(250);

/// Most characters of a peer's text in an error ([`text::visible`](crate::text::visible)).
pub const PEER_TEXT_CHARACTERS_MAX: usize = 500;

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

/// Most of a broker's SASL mechanisms that an error names.
pub const SASL_MECHANISMS_SHOWN_MAX: usize = 16;

/// Largest token file that is read, in bytes: 64 KiB.
pub const TOKEN_FILE_BYTES_MAX: u64 = 64 * 1024;

/// Longest wait for a token before a connection is opened: 30 s. A token that comes later is kept
/// for the next connection.
pub const TOKEN_WAIT_MAX: Duration = Duration::from_secs(30);

/// Largest body of a token endpoint's answer, in bytes: 256 KiB.
pub const TOKEN_ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Largest head of a token endpoint's answer, in bytes: 16 KiB.
pub const TOKEN_ANSWER_HEAD_BYTES_MAX: usize = 16 * 1024;

/// Time to connect to a token endpoint, and time for its answer.
pub const TOKEN_ENDPOINT_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    /// Names that start a line of this file with `prefix`.
    fn names(prefix: &str, end: char) -> Vec<&'static str> {
        include_str!("limits.rs")
            .lines()
            .filter_map(|line| line.strip_prefix(prefix)?.split(end).next())
            .collect()
    }

    #[test]
    fn every_limit_stands_in_the_table_in_the_order_of_the_file() {
        let limits = names("pub const ", ':');
        let mut rows = names("//! | [`", '`');
        rows.retain(|row| !row.contains("::"));
        assert_eq!(rows, limits);
        assert!(limits.len() > 20);
    }

    #[test]
    fn there_is_no_limit_outside_of_the_table() {
        for (file, text) in [
            ("compress/zstd.rs", include_str!("compress/zstd.rs")),
            ("compress/limits.rs", include_str!("compress/limits.rs")),
            ("record/builder.rs", include_str!("record/builder.rs")),
            ("net/connection.rs", include_str!("net/connection.rs")),
            ("net/connector.rs", include_str!("net/connector.rs")),
            ("net/http.rs", include_str!("net/http.rs")),
            ("net/probe.rs", include_str!("net/probe.rs")),
            ("net/task.rs", include_str!("net/task.rs")),
            ("net/sasl/exchange.rs", include_str!("net/sasl/exchange.rs")),
            ("net/sasl/mod.rs", include_str!("net/sasl/mod.rs")),
            ("net/sasl/oidc.rs", include_str!("net/sasl/oidc.rs")),
            ("net/tls/store.rs", include_str!("net/tls/store.rs")),
        ] {
            let own = text.lines().map(str::trim_start).find(|line| {
                let is_limit = line.contains("_MAX: ") && !line.contains("= crate::limits::");
                line.contains("const ") && is_limit
            });
            assert_eq!(own, None, "{file}");
        }
    }
}
