//! What goes wrong at the moment, and what was warned of lately.

use std::collections::BTreeMap;
use std::time::Instant;

use sharegroup_wire::BrokerId;

use crate::acquired::TopicPartition;
use crate::event::Warning;
use crate::limits::WARNING_INTERVAL;

/// What a trouble is about: it is over when the same thing goes well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Metadata,
    Coordinator,
    Membership,
    /// A leader's connection and share session.
    Leader(BrokerId),
    Quota(BrokerId),
    /// Fetching from a partition.
    Fetch(TopicPartition),
    Acknowledgements(TopicPartition),
    /// Nothing that is tried again.
    Notice,
}

#[derive(Debug, Default)]
pub(crate) struct Troubles {
    /// The latest of each subject, the latest of all last.
    current: Vec<(Subject, Warning)>,
    warned: BTreeMap<String, Instant>,
}

impl Troubles {
    /// Enters a trouble. Returns whether it is to be told: the same thing at most once a minute.
    pub(crate) fn enter(&mut self, now: Instant, subject: Subject, warning: &Warning) -> bool {
        if subject != Subject::Notice {
            self.over(|other| *other == subject);
            self.current.push((subject, warning.clone()));
        }
        let key = match warning {
            Warning::Retrying { what, .. } => (*what).to_owned(),
            other => other.to_string(),
        };
        let is_due = |at: &Instant| *at + WARNING_INTERVAL <= now;
        if self.warned.get(&key).is_some_and(|at| !is_due(at)) {
            return false;
        }
        self.warned.retain(|_, at| !is_due(at));
        self.warned.insert(key, now);
        true
    }

    /// These go well again, or are nobody's business any more.
    pub(crate) fn over(&mut self, is_over: impl Fn(&Subject) -> bool) {
        self.current.retain(|(subject, _)| !is_over(subject));
    }

    /// The latest that isn't over and passes `concerns`.
    pub(crate) fn latest(&self, concerns: impl Fn(&Subject) -> bool) -> Option<&Warning> {
        let mut latest = self.current.iter().rev();
        let found = latest.find(|(subject, _)| concerns(subject));
        found.map(|(_, warning)| warning)
    }
}
