//! Reported troubles of other clients (`b_…`) and their traps (`t…`), each by its id: one body for a real Apache
//! Kafka and for the embedded broker, with whatever has to go wrong on the way between client and broker.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod ack;
mod answers;
#[path = "../both/mod.rs"]
mod both;
mod case;
#[path = "../group/mod.rs"]
mod group;
mod lock;
mod ops;
mod session;
mod tap;
#[path = "../transactions/mod.rs"]
mod transactions;
mod traps;
