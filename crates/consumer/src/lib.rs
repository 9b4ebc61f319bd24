//! Share consumer, producer and admin client for Apache Kafka in pure Rust.

pub mod admin;
mod backoff;
pub mod client;
mod cluster;
pub mod error;
mod topic_partition;

pub use topic_partition::TopicPartition;
