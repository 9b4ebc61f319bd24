//! Starts real Apache Kafka brokers from Maven jars, for quickstarts, tests and benches.
//!
//! No distribution archive and no container: Java 17 or newer and Maven are enough. The jars of a version are fetched
//! once into [`cache_dir`]; a start takes about four seconds after that. Everything here blocks the calling thread.
//!
//! ```no_run
//! use sharegroup_launcher::Kafka;
//!
//! # fn main() -> Result<(), sharegroup_launcher::LaunchError> {
//! let kafka = Kafka::builder().brokers(3).set("num.partitions", "4").start()?;
//! println!("{}", kafka.bootstrap_servers());
//! kafka.broker(2).kill()?;
//! kafka.broker(2).start()?; // the same data, the same port
//! # Ok(())
//! # }
//! ```
//!
//! Brokers listen on 127.0.0.1 only. They end with their [`Kafka`]: when it is dropped, and also when the process that
//! owns it is killed; [`Kafka::detach`] lets them live on.

mod archive;
mod broker;
mod builder;
mod cache;
mod cluster;
mod detached;
mod error;
mod jars;
mod java;
mod ports;
mod probe;
mod process;
mod properties;

pub use broker::Broker;
pub use builder::KafkaBuilder;
pub use cache::cache_dir;
pub use cluster::Kafka;
pub use detached::{Detached, DetachedBroker};
pub use error::LaunchError;
pub use java::Tools;

/// The Kafka version that is started when none is named.
pub const DEFAULT_VERSION: &str = "4.4.0";
