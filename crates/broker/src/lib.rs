//! A small Kafka broker with share groups.

pub mod model;
