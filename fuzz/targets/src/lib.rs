//! What the fuzz targets run: plain functions of bytes, so that stable Rust replays the corpora with
//! the code that found them.
//!
//! A target panics when a promise is broken. What it holds in memory is bounded by the promise of
//! the function under test, exactly: a counting allocator tells.
//!
//! To add a target: a function here with its line in [`TARGETS`], a program of three lines in
//! `fuzz_targets`, and seeds in [`seeds`].

mod acknowledgements;
mod allocation;
mod client_config;
mod decompress;
mod differential;
mod frame;
mod message;
mod record;
mod sasl;
pub mod seeds;
mod sink_config;
mod stores;

pub use acknowledgements::acknowledgements;
pub use client_config::client_config;
pub use decompress::{decompress, forgive_ruzstd};
pub use differential::differential;
pub use frame::frame;
pub use message::{messages, share_acknowledge, share_fetch, share_group, share_offsets};
pub use record::{record_batches, record_inside, record_writer};
pub use sasl::sasl;
pub use sink_config::sink_config;
pub use stores::stores;

/// A target and its name.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// That of its function and of its folder in the corpus.
    pub name: &'static str,
    /// Panics when a promise is broken.
    pub run: fn(&[u8]),
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        &[$(Target { name: stringify!($name), run: $name }),*]
    };
}

/// All targets.
pub const TARGETS: &[Target] = targets![
    frame,
    share_group,
    share_fetch,
    share_acknowledge,
    share_offsets,
    messages,
    record_batches,
    record_inside,
    record_writer,
    decompress,
    acknowledgements,
    sasl,
    stores,
    client_config,
    sink_config,
    differential,
];
