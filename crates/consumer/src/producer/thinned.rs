//! What would be said over and over, said once in a while.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use sharegroup_session::limits::WARNING_INTERVAL;
use tokio::time::Instant;

use crate::error::ClientError;

/// Says each cause at most once a minute, and counts what it keeps back.
#[derive(Debug, Default)]
pub(super) struct Thinned(BTreeMap<String, Said>);

#[derive(Debug)]
struct Said {
    at: Instant,
    kept_back: u64,
}

impl Thinned {
    /// How much to say now, with what was kept back before; `None` = it is kept back.
    pub(super) fn enter(&mut self, now: Instant, cause: String, count: u64) -> Option<u64> {
        match self.0.entry(cause) {
            Entry::Vacant(entry) => {
                entry.insert(Said {
                    at: now,
                    kept_back: 0,
                });
                Some(count)
            }
            Entry::Occupied(entry) => {
                let said = entry.into_mut();
                said.kept_back += count;
                if now < said.at + WARNING_INTERVAL {
                    return None;
                }
                said.at = now;
                Some(std::mem::take(&mut said.kept_back))
            }
        }
    }

    /// How much was kept back of each cause for as long as it may be.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(String, u64)> {
        let mut due = Vec::new();
        self.0.retain(|cause, said| {
            if now < said.at + WARNING_INTERVAL {
                return true;
            }
            let count = std::mem::take(&mut said.kept_back);
            said.at = now;
            if count > 0 {
                due.push((cause.clone(), count));
            }
            count > 0
        });
        due
    }

    /// All that is kept back.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (String, u64)> {
        let said = std::mem::take(&mut self.0).into_iter();
        said.map(|(cause, said)| (cause, said.kept_back))
            .filter(|(_, count)| *count > 0)
    }

    /// When something that is kept back is due.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let kept_back = self.0.values().filter(|said| said.kept_back > 0);
        kept_back.map(|said| said.at + WARNING_INTERVAL).min()
    }
}

/// What a failure is about, without the times that differ from one to the next.
pub(super) fn cause(error: &ClientError) -> String {
    match error {
        ClientError::Deadline {
            last: Some(last), ..
        } => cause(last),
        ClientError::NoAnswer { address, .. } => format!("{address} gave no answer"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cause_is_said_once_a_minute_and_nothing_is_left_out_of_the_counts() {
        const SECOND: Duration = Duration::from_secs(1);
        let mut thinned = Thinned::default();
        let start = Instant::now();
        let said = (0..150_u32).filter_map(|second| {
            let count = thinned.enter(start + second * SECOND, "full".into(), 10);
            count.map(|count| (second, count))
        });
        assert_eq!(said.collect::<Vec<_>>(), [(0, 10), (60, 600), (120, 600)]);
        assert_eq!(thinned.next_at(), Some(start + 180 * SECOND));
        assert_eq!(thinned.take_due(start + 179 * SECOND), []);
        assert_eq!(
            thinned.take_due(start + 180 * SECOND),
            [("full".to_owned(), 290)]
        );
        assert_eq!(thinned.enter(start + 181 * SECOND, "full".into(), 7), None);
        assert_eq!(
            thinned.enter(start + 181 * SECOND, "gone".into(), 1),
            Some(1)
        );
        let rest: Vec<_> = thinned.take_all().collect();
        assert_eq!(rest, [("full".to_owned(), 7)]);
    }
}
