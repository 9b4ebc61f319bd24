//! For the tests of sharegroup: a model of a cluster with one share group.
//!
//! [`model`] is sans-io: requests and time go in, answers come out. It shares nothing with the client
//! but the messages, so that both can't make the same mistake without a test on a real broker seeing
//! it. With the feature `net` it is served on in-memory connections to the real driver.
//!
//! For the tests of sinks: the suite that every sink has to pass, `sink_suite`, with the feature of that name.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

#[cfg(feature = "http-server")]
pub mod http_server;
#[cfg(feature = "net")]
pub mod memory;
pub mod model;
#[cfg(all(feature = "postgres-server", unix))]
pub mod postgres;
pub mod random;
#[cfg(feature = "simulation")]
pub mod simulation;
#[cfg(feature = "sink-suite")]
pub mod sink_suite;
