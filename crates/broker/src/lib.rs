//! A small Kafka broker with share groups (KIP-932), for development and for tests.
//!
//! It does with share groups what Apache Kafka 4.4 does, quirks included, keeps everything in memory or
//! in a folder ([`BrokerBuilder::dir`]), and starts in milliseconds. Kafka's own Java clients and tools
//! are its users from the first day (`tests/java_tools.rs`). It is no broker for data that matters:
//! there is no replication.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use sharegroup_broker::Broker;
//!
//! let broker = Broker::builder()
//!     .topic("orders", 4)
//!     .group("workers", "share.auto.offset.reset", "earliest")
//!     .start()
//!     .await?;
//! let servers = broker.bootstrap_servers(); // for any client
//! # assert!(servers.starts_with("127.0.0.1:"));
//! # Ok::<(), sharegroup_broker::StartError>(())
//! # }).unwrap();
//! ```
//!
//! # Layers
//!
//! ```text
//! socket ── server ── api (one file per key) ── model ── share_partition
//! ```
//!
//! - [`model`] is sans-io: frames and `now` go in, frames come out, [`Model::poll_timeout`](model::Model::poll_timeout)
//!   says when to call again. No clock, no threads, no randomness but a seed: hours of a cluster can
//!   be simulated in a second.
//! - `api` turns each request into questions to the model, in one file per API key.
//! - `server` (feature `server`, on by default) puts it on tokio's sockets, any number of brokers over
//!   one model, or on connections in memory ([`Broker::connector`]) for tests under paused time. With a
//!   folder it writes the model's [journal](model::journal) before any answer goes out.
//!
//! Start reading with [`model::share_partition`]. What is missing, and why: `skipped.md`.
//!
//! # When something is to go wrong
//!
//! [`Broker::faults`] scripts the next requests of an API: errors, delays, cut connections, answers
//! that are withheld or doubled. [`Broker::script`] and [`BrokerBuilder::faults`] take rules by API,
//! partition, count, chance and time, which also move leaders and coordinators, crash brokers and
//! change configurations; as a text, they are described at [`model::fault_script`]:
//!
//! ```
//! use sharegroup_broker::model::fault_script::FaultScript;
//!
//! let script = FaultScript::parse("ShareAcknowledge orders-0 first 3: cut after\nevery 10s: crash 1")?;
//! let broker = sharegroup_broker::Broker::builder().topic("orders", 4).faults(script);
//! # Ok::<(), Vec<sharegroup_broker::model::fault_script::ScriptError>>(())
//! ```
//!
//! [`Broker::model`] gives the model itself.

mod api;
pub mod model;
#[cfg(feature = "server")]
mod server;

#[cfg(feature = "server")]
pub use server::{Broker, BrokerBuilder, FolderError, ServerLimits, StartError};
