//! The conformance suite of sinks: given a way to start a target, to break it and to read back what arrived, it
//! proves that a sink keeps what the runtime relies on.

mod target;

pub use self::target::{
    Arrived, Delivery, Promises, Recipe, Refusals, SLOW, Target, TargetError, Trouble,
};
