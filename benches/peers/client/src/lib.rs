//! What the Rust clients of the benches have in common: command line, checksum, what is said to the harness.
//!
//! Every client, in whatever language, takes the same arguments and writes three lines on its standard output:
//! `ready` once its consumers are built, `first` when it has the first record (in the latency mode: when the
//! measuring begins), `done {json}` when the answer to the last acknowledgement is in. The harness reads the
//! process's CPU time and peak memory as it sees the lines. After `done` a client waits for the end of its
//! standard input, so that it can be looked at.

mod args;
mod checksum;
mod progress;
mod samples;
mod window;

pub use args::{Args, Mode};
pub use checksum::{Tracker, hash_bytes, hash_record};
pub use progress::{Progress, wait_for_end};
pub use samples::Samples;
pub use window::Window;

/// How a record of the mixed scenario is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// 90 of 100, and what was released before.
    Accept,
    /// 8 of 100, at their first delivery.
    Release,
    /// 2 of 100.
    Reject,
}

/// What becomes of a record, by its offset; accepted unless the run is a mixed one.
#[must_use]
pub const fn decide(mixed: bool, offset: i64, delivery_count: i16) -> Decision {
    match offset % 100 {
        0..8 if mixed && delivery_count <= 1 => Decision::Release,
        98.. if mixed => Decision::Reject,
        _ => Decision::Accept,
    }
}
