//! Share consumer, producer and admin client for Apache Kafka in pure Rust.
//!
//! ```no_run
//! use std::pin::pin;
//! use std::time::Duration;
//! use sharegroup_consumer::ShareConsumer;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let mut consumer = ShareConsumer::builder("localhost:9092")
//!     .group_id("orders")
//!     .topics(["orders"])
//!     .build()
//!     .await?;
//! let mut ctrl_c = pin!(tokio::signal::ctrl_c());
//! while let Some(batch) = tokio::select! {
//!     polled = consumer.poll() => polled?,
//!     _ = &mut ctrl_c => None,
//! } {
//!     for record in batch.records() {
//!         println!("{:?}", record.value);
//!     }
//!     batch.accept();
//! }
//! let report = consumer.close(Duration::from_secs(5)).await?;
//! assert!(report.is_ok());
//! # Ok(())
//! # }
//! ```

mod acknowledge;
pub mod admin;
mod backoff;
mod batch;
pub mod client;
mod cluster;
mod concurrent;
mod consumer;
mod decode;
mod delivery;
mod driver;
pub mod error;
mod group_watch;
mod hand_out;
mod lock;
mod metrics;
mod observer;
mod place;
mod poll_interval;
pub mod producer;
mod reader;
mod report;
mod shared;
mod status;
#[cfg(feature = "telemetry")]
mod telemetry;
mod thread;
mod topic_partition;

pub use acknowledge::Acknowledge;
pub use batch::{BatchData, CorruptBatch, Record, ShareBatch};
pub use client::ClientConfig;
pub use concurrent::{Concurrent, Outcome};
pub use consumer::{ShareConsumer, ShareConsumerBuilder};
pub use delivery::{Confirmation, Deliveries, Delivery};
pub use error::{ConfigError, OpenError, PollError, SettleError};
pub use lock::LockView;
pub use metrics::ShareMetrics;
pub use observer::{LastDelivery, ShareEvent, ShareObserver};
pub use report::{CommitReport, FailedRange, PartitionReport};
pub use sharegroup_session::{
    AckFailure, AckOutcome, Acknowledgement, AcquireMode, AcquiredRange, FatalError, LockLoss,
    MemberState, PartitionView, Release, ReleaseReason, Warning,
};
pub use sharegroup_wire::record::{Header, Headers, TimestampType};
pub use sharegroup_wire::{BrokerId, ErrorCode, TopicId};
pub use status::ShareStatus;
pub use topic_partition::{TopicPartition, is_topic_name};
