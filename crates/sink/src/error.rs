//! What can go wrong, one type per boundary.

use std::error::Error;
use std::time::Duration;

type Cause = Box<dyn Error + Send + Sync>;

/// Why a task's `put` or `flush` did not write everything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// The target can't take the records now. The records without an outcome are retried in place,
    /// under a lock that is renewed, until they are written or the task stops.
    #[error("{source}")]
    Retriable {
        /// What happened.
        source: Cause,
        /// Shortest wait before the next try, as the target asked for it.
        after: Option<Duration>,
    },
    /// The target will never take a record of them. A put of many is repeated in ever smaller parts until
    /// that record stands alone: under `errors.tolerance=all` it goes to the dead-letter topic, under
    /// `none` the task fails naming it. The others are written.
    #[error("{source}")]
    Fatal {
        /// What happened.
        source: Cause,
    },
    /// The task can't go on, whatever the records (its target is gone for good, its state is unsure): it
    /// fails at once, whatever `errors.tolerance` is, and the records without an outcome are released.
    #[error("{source}")]
    Broken {
        /// What happened.
        source: Cause,
    },
}

impl PutError {
    /// A failure that another try may overcome.
    pub fn retriable(source: impl Into<Cause>) -> Self {
        Self::Retriable {
            source: source.into(),
            after: None,
        }
    }

    /// A failure that another try can't overcome.
    pub fn fatal(source: impl Into<Cause>) -> Self {
        Self::Fatal {
            source: source.into(),
        }
    }

    /// A failure after which the task can't go on.
    pub fn broken(source: impl Into<Cause>) -> Self {
        Self::Broken {
            source: source.into(),
        }
    }

    /// Whether another try may succeed.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        matches!(self, Self::Retriable { .. })
    }
}

/// An I/O error is retriable unless the task says otherwise.
impl From<std::io::Error> for PutError {
    fn from(error: std::io::Error) -> Self {
        Self::retriable(error)
    }
}

/// Why a task could not start, open its topics, tick or stop. The task fails with this message.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct TaskError {
    message: String,
    #[source]
    source: Option<Cause>,
}

impl TaskError {
    /// An error with a message for the person who configured the connector: what is wrong, where,
    /// and what to do.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            source: None,
        }
    }

    /// The same with its cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Cause>) -> Self {
        self.source = Some(source.into());
        self
    }
}

/// The text of an error and its causes, in one line; a cause whose text is already there is left
/// out.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_names_each_cause_once() {
        let io = std::io::Error::other("disk gone");
        let error = TaskError::new("can't write /tmp/x").caused_by(io);
        assert_eq!(chain(&error), "can't write /tmp/x: disk gone");
        let put = PutError::from(std::io::Error::other("disk gone"));
        assert_eq!(chain(&put), "disk gone");
        assert!(put.is_retriable());
        assert!(!PutError::fatal("no").is_retriable());
    }
}
