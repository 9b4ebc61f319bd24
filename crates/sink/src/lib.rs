//! The sink runtime: moves records from Kafka share groups into targets, with Kafka Connect's
//! configuration keys, task states and life cycle (KIP-1302's share sink, in Rust).
//!
//! ```text
//! poll -> convert -> (transform) -> put -> flush -> acknowledge -> commit
//! ```
//!
//! A record is accepted only after the sink has written and flushed it. A `put` that fails is
//! retried in place while the record's lock is renewed; a record is never released in order to be
//! retried, since each release burns one of its few deliveries.

pub mod built_in;
mod check;
pub mod config;
pub mod connector;
pub mod convert;
pub mod data;
mod dead_letter;
pub mod error;
pub mod listener;
mod loss;
mod metrics;
pub mod outcome;
mod policy;
mod prepare;
pub mod record;
mod share;
#[cfg(test)]
mod simulation;
mod source;
mod status;
mod subscription;
mod task;
#[cfg(test)]
mod testing;
pub mod worker;

pub use check::Checked;
pub use config::{ConfigProblem, ConnectorConfig, WorkerConfig};
pub use connector::{CheckFuture, Connector, DynSinkTask, Registry, SinkTask, TaskContext};
pub use error::{PutError, TaskError};
pub use metrics::{HistogramSnapshot, TaskMetricsSnapshot};
pub use outcome::{Outcome, OutcomeSender, Outcomes};
pub use record::{OwnedRecord, SinkBatch, SinkHeaders, SinkRecord};
pub use worker::{StopReport, TaskState, Worker, WorkerError, WorkerOptions, WorkerStatus};
