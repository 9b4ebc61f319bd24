//! Share consumer, producer and admin client for Apache Kafka in pure Rust.
//!
//! ```no_run
//! use std::pin::pin;
//! use std::time::Duration;
//! use sharegroup_consumer::{PollError, ShareConsumer};
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
//!
//! # Choose a loop
//!
//! | | records | for |
//! |---|---|---|
//! | [`poll`](ShareConsumer::poll) | a batch of one partition | work that is done in batches; the fastest |
//! | [`next`](ShareConsumer::next) | one, with its own acknowledgement | records handed to other tasks or threads |
//! | [`deliveries`](ShareConsumer::deliveries) | the same, as a `Stream` | the combinators of `futures-util` |
//! | [`for_each_concurrent`](ShareConsumer::for_each_concurrent), [`concurrent`](ShareConsumer::concurrent) | many at a time | calls to others, also in the order of keys |
//! | [`poll_implicit`](ShareConsumer::poll_implicit) | a batch, accepted by the next call | code that comes from Kafka's implicit mode |
//!
//! # Life of a consumer
//!
//! [`build`](ShareConsumerBuilder::build) joins the group. A poll waits for records; each is *settled* once:
//! accepted, rejected, or released. What is dropped unsettled comes again after a delay, with a warning.
//! [`commit`](ShareConsumer::commit) sends all acknowledgements and reports what became of them;
//! [`close`](ShareConsumer::close) does the same, releases the rest and leaves the group. **Close also after an
//! error**: a consumer that is dropped closes in the background, which a process that ends does not wait for.
//! Membership ([`MemberState`], in [`ShareStatus`]) goes from `Joining` to `Stable`, through `Leaving` to `Left`;
//! also to `Left` where the application doesn't poll in time
//! ([`not_polled`](ShareStatus::not_polled)), until it polls again.
//!
//! # Limits
//!
//! At most 10,000 records ([`records_held_max`](ShareConsumerBuilder::records_held_max)) and 32 MiB
//! ([`bytes_held_max`](ShareConsumerBuilder::bytes_held_max)) are held; 5 min may pass between two polls of a loop
//! of the application's own ([`max_poll_interval`](ShareConsumerBuilder::max_poll_interval)); locks of held
//! records are renewed for 1 h ([`hold_max`](ShareConsumerBuilder::hold_max)).
//!
//! # Threads and cancellation
//!
//! Heartbeats, renewals and acknowledgements of all consumers of a process run on one thread of the library's own, so that a
//! handler may block. Any tokio runtime polls. Every future may be dropped at any time without losing a record;
//! each one's documentation says what that means. Batches and deliveries are `Send` and may be settled on
//! any thread. [`Monitor`] shows status and metrics while a loop has the consumer.
//!
//! # More
//!
//! [Semantics](https://github.com/sharegroup/sharegroup/blob/main/docs/semantics.md): what is promised, when a record comes twice, what each crash leaves behind.
//! [Features](https://github.com/sharegroup/sharegroup/blob/main/docs/features.md): all that it does, beside Java's, each with its test.

mod acknowledge;
pub mod admin;
mod backoff;
mod batch;
mod builder;
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
mod monitor;
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
pub use builder::ShareConsumerBuilder;
pub use client::ClientConfig;
pub use concurrent::{Concurrent, Outcome};
pub use consumer::{RenewalStop, ShareConsumer, Subscriber};
pub use delivery::{Confirmation, Deliveries, Delivery};
pub use error::{ConfigError, OpenError, PollError, SettleError};
pub use lock::LockView;
pub use metrics::ShareMetrics;
pub use monitor::Monitor;
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
