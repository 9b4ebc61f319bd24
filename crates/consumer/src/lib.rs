//! Share consumer, producer and admin client for Apache Kafka in pure Rust.

mod backoff;
pub mod client;
mod cluster;
pub mod error;
