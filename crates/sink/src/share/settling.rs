//! How long acknowledgements take.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sharegroup_wire::TopicId;
use tokio::time::Instant;

/// When records were settled whose acknowledgement has no outcome yet.
#[derive(Debug, Default)]
pub(super) struct Settling(Mutex<BTreeMap<Place, Instant>>);

/// The first record of a range that was settled at once.
type Place = (TopicId, i32, i64);

impl Settling {
    pub(super) fn began(&self, topic: TopicId, partition: i32, first_offset: i64) {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if since.len() < PLACES_MAX {
            since.insert((topic, partition, first_offset), Instant::now());
        }
    }

    /// Records have an outcome: how long each range of them took that was settled at once.
    pub(super) fn ended(
        &self,
        (topic, partition): (TopicId, i32),
        first_offset: i64,
        last_offset: i64,
    ) -> Vec<Duration> {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A range of a broker's word.
        if first_offset > last_offset {
            return Vec::new();
        }
        let places = (topic, partition, first_offset)..=(topic, partition, last_offset);
        let ended = since.extract_if(places, |_, _| true);
        ended.map(|(_, since)| since.elapsed()).collect()
    }
}

/// Beyond these no time is taken.
const PLACES_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_range_ends_with_the_outcome_of_its_first_record() {
        let settling = Settling::default();
        let second = Duration::from_secs(1);
        settling.began(TopicId::ZERO, 0, 5);
        tokio::time::advance(second).await;
        settling.began(TopicId::ZERO, 0, 9);
        settling.began(TopicId::ZERO, 1, 6);
        tokio::time::advance(second).await;
        let ended = |first, last| settling.ended((TopicId::ZERO, 0), first, last);
        assert_eq!(ended(5, 8), [2 * second]);
        assert_eq!(ended(5, 9), [second]);
        assert!(ended(9, 5).is_empty());
        assert!(ended(0, i64::MAX).is_empty());
    }
}
