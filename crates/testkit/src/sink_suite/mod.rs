//! The conformance suite of sinks: given a way to start a target, to break it and to read back what arrived, it
//! proves that a sink keeps what the runtime relies on.

mod driven;
mod heard;
mod judge;
mod process;
mod report;
mod scene;
mod suite;
mod target;
mod task_checks;
mod worker_checks;

pub use self::process::{WorkerCommand, run_worker_process};
pub use self::report::{Broken, CheckReport, PromisesBroken, Report, Verdict};
pub use self::suite::SinkSuite;
pub use self::target::{
    Arrived, Delivery, Promises, Recipe, Refusals, SLOW, Target, TargetError, Trouble,
};
