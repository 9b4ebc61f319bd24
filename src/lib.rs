//! Kafka share groups (KIP-932) for Rust, without librdkafka and without a JVM.
//!
//! * [`consumer`]: consume a topic as a queue: [`ShareConsumer`], the producer and the admin client.
//! * [`sink`]: move records to outside systems: tasks, workers, Kafka Connect's configuration.
//! * [`wire`]: the protocol alone: messages, record batches, connections.
//!
//! ```no_run
//! use std::pin::pin;
//! use std::time::Duration;
//! use sharegroup::{PollError, ShareConsumer};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let mut consumer = ShareConsumer::builder("localhost:9092")
//!     .group_id("orders")
//!     .topics(["orders"])
//!     .build()
//!     .await?;
//! let worked = work_off(&mut consumer).await;
//! // Also after an error: without it, what was accepted last may come again.
//! let report = consumer.close(Duration::from_secs(5)).await?;
//! if !report.is_ok() {
//!     eprintln!("not confirmed, will come again: {report:?}");
//! }
//! # worked.map_err(Into::into)
//! # }
//!
//! async fn work_off(consumer: &mut ShareConsumer) -> Result<(), PollError> {
//!     let mut ctrl_c = pin!(tokio::signal::ctrl_c());
//!     while let Some(batch) = tokio::select! {
//!         polled = consumer.poll() => polled?,
//!         _ = &mut ctrl_c => None,
//!     } {
//!         for record in batch.records() {
//!             println!("{}: {:?}", record.offset, record.value);
//!         }
//!         batch.accept(); // a batch that is dropped comes again
//!     }
//!     Ok(())
//! }
//! ```

pub use sharegroup_consumer as consumer;
pub use sharegroup_sink as sink;
pub use sharegroup_wire as wire;

pub use sharegroup_consumer::{
    AckFailure, Acknowledge, Acknowledgement, AcquireMode, ClientConfig, CommitReport, Concurrent,
    Confirmation, CorruptBatch, Deliveries, Delivery, FailedRange, FatalError, LastDelivery,
    LockView, MemberState, Monitor, OpenError, Outcome, PartitionReport, PollError, Record,
    SettleError, ShareBatch, ShareConsumer, ShareConsumerBuilder, ShareEvent, ShareMetrics,
    ShareObserver, ShareStatus, Warning,
};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
