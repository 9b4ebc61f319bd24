//! Dead letters: records that can't be written, kept in a topic of their own with the reason.
//!
//! A letter is the record as it was read from Kafka (key, value, timestamp and headers byte for byte),
//! and behind its headers, if wanted, the context: where it came from, who gave it up, where and why.

mod letter;
mod of_task;
mod queue;

pub(crate) use of_task::LettersOfTask;
use queue::DeadLetterError;

#[cfg(test)]
mod tests;
