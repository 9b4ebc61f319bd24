//! The broker's brain.

pub mod share_partition;
