//! How many records may be held: acquisition credit.
//!
//! Records that are held and not worked on only age, and starve the group's other members. So credit
//! starts small and follows what is settled: about as much as one second of it, within bounds, and never more
//! than was settled so far. What is held unseen when a consumer ends has used up a delivery for nothing; so a
//! record is unseen once or twice however often consumers come and go. Credit grows by doubling, so that a fast
//! handler has what it needs after a few fetches. Who works on many records at a time gets as many, however long each takes. Where locks can't be renewed, no more is held
//! than can be settled in half of a lock; where one ran out all the same, the start was too much: then
//! credit begins anew at one record.

use std::time::{Duration, Instant};

/// Credit before anything was settled, and the least later unless a lock ran out, in records, where the application
/// takes them one by one. Few: a consumer that ends before it has seen them used up a delivery of each
/// (KIP-932: the fifth is the last).
const START: u32 = 4;

/// Most of these where it takes many at once, and so has seen them all.
const START_MAX: u32 = 100;

/// Time over which settling is measured.
const WINDOW: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Credit {
    /// Follows what is settled; else always the bound.
    adapts: bool,
    records: u32,
    /// What the application works on at a time, and what it takes at once; 0 = not known.
    at_a_time: u32,
    at_once: u32,
    /// Where it begins: [`START`], or what follows from these.
    start: u32,
    /// Never fewer: else a handler of many records at a time could not show what it can do.
    least: u32,
    settled: u64,
    settled_ever: u64,
    /// Idle time is taken out by moving it on.
    window_start: Option<Instant>,
    settled_at: Option<Instant>,
    /// Time in which one record is settled: a slower one counts at once, a faster one by and by.
    each: Option<Duration>,
}

impl Credit {
    pub(crate) const fn new(adapts: bool) -> Self {
        Self {
            adapts,
            records: START,
            at_a_time: 0,
            at_once: 0,
            start: START,
            least: START,
            settled: 0,
            settled_ever: 0,
            window_start: None,
            settled_at: None,
            each: None,
        }
    }

    /// Records arrive where none was held: the time since the last one was settled was no work.
    pub(crate) fn work_begins(&mut self, now: Instant) {
        let idle = self.settled_at.map(|at| now.saturating_duration_since(at));
        self.window_start = self
            .window_start
            .zip(idle)
            .map(|(start, idle)| start + idle);
        self.window_start.get_or_insert(now);
    }

    /// The application works on so many records at a time; 0 = it doesn't say.
    pub(crate) fn work_on(&mut self, at_a_time: u32) {
        self.at_a_time = at_a_time;
        self.begin();
    }

    /// The application takes up to so many records at once.
    pub(crate) fn take(&mut self, at_once: u32) {
        self.at_once = at_once;
        self.begin();
    }

    fn begin(&mut self) {
        // What a lock that ran out took away comes back by itself.
        let was_full = self.least == self.start;
        let at_once = self.at_once.min(START_MAX);
        self.start = START.max(self.at_a_time).max(at_once);
        if was_full {
            self.least = self.start;
            self.records = self.records.max(self.start);
        }
    }

    /// Records were settled by the application.
    pub(crate) fn settled(&mut self, now: Instant, records: u64) {
        let start = *self.window_start.get_or_insert(now);
        self.settled = self.settled.saturating_add(records);
        self.settled_ever = self.settled_ever.saturating_add(records);
        self.settled_at = Some(now);
        let elapsed = now.saturating_duration_since(start);
        if elapsed < WINDOW {
            return;
        }
        let each = elapsed / u32::try_from(self.settled.max(1)).unwrap_or(u32::MAX);
        self.each = Some(self.each.map_or(each, |before| each.max(before / 8 * 7)));
        let per_second = u128::from(self.settled) * 1_000_000 / elapsed.as_micros().max(1);
        let wanted = per_second.min(u128::from(self.settled_ever));
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).max(self.least);
        // Doubled at most, halved at most: one odd window moves it little.
        self.records = wanted
            .clamp(self.records / 2, self.records.saturating_mul(2))
            .max(self.least);
        self.least = self.least.saturating_mul(2).min(self.start);
        self.settled = 0;
        self.window_start = Some(now);
    }

    /// So many records don't age: the application has them all, and waits for more.
    pub(crate) fn wants_more(&mut self, held: u64) {
        let wanted = u32::try_from(held.saturating_mul(2)).unwrap_or(u32::MAX);
        self.records = self.records.max(wanted);
    }

    /// A lock that can't be renewed ran out: more was held than could be worked off in its time.
    pub(crate) const fn expired(&mut self) {
        self.least = 1;
        self.records = 1;
        self.settled = 0;
        self.window_start = None;
    }

    /// Most records that are settled within this time, as far as is known: at least one, or what the
    /// application works on at a time.
    pub(crate) fn settled_within(&self, time: Duration) -> u32 {
        let known = self.each.filter(|each| self.adapts && !each.is_zero());
        let Some(each) = known else {
            return u32::MAX;
        };
        let fit = u32::try_from(time.as_nanos() / each.as_nanos()).unwrap_or(u32::MAX);
        fit.max(self.at_a_time).max(1)
    }

    /// Most records to hold now: at least one of each leader, so that none waits for the others, unless a lock ran
    /// out. `ours` is our part of what the brokers lock at a time.
    pub(crate) fn records(&self, bound: u32, ours: u32, leaders: u32) -> u32 {
        if !self.adapts {
            return bound;
        }
        let least = if self.least == self.start { leaders } else { 1 };
        self.records.max(least).min(ours).min(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle_for(
        credit: &mut Credit,
        mut now: Instant,
        records: u64,
        every: Duration,
        times: u32,
    ) -> Instant {
        for _ in 0..times {
            now += every;
            credit.settled(now, records);
        }
        now
    }

    #[test]
    fn credit_grows_to_a_second_of_work_and_shrinks_with_it() {
        #[allow(clippy::disallowed_methods)]
        let now = Instant::now();
        let mut credit = Credit::new(true);
        assert_eq!(credit.records(u32::MAX, 4000, 1), START);
        let now = settle_for(&mut credit, now, 30, Duration::from_millis(10), 200);
        assert!(
            (2900..=3100).contains(&credit.records(u32::MAX, 4000, 1)),
            "{credit:?}"
        );
        assert_eq!(credit.records(u32::MAX, 1000, 1), 1000);
        assert_eq!(credit.records(500, 4000, 1), 500);
        settle_for(&mut credit, now, 1, Duration::from_secs(1), 20);
        assert_eq!(credit.records(u32::MAX, 4000, 1), START);
    }

    #[test]
    fn after_a_lock_ran_out_credit_begins_anew_at_one_record() {
        #[allow(clippy::disallowed_methods)]
        let now = Instant::now();
        let mut credit = Credit::new(true);
        credit.expired();
        assert_eq!(credit.records(u32::MAX, 1000, 1), 1);
        let now = settle_for(&mut credit, now, 1, Duration::from_secs(10), 3);
        assert!(credit.records(u32::MAX, 1000, 1) <= 4, "{credit:?}");
        settle_for(&mut credit, now, 1, Duration::from_secs(10), 7);
        assert_eq!(credit.records(u32::MAX, 1000, 1), START);
    }

    #[test]
    fn credit_covers_what_is_worked_on_at_a_time_however_long_it_takes() {
        #[allow(clippy::disallowed_methods)]
        let now = Instant::now();
        let mut credit = Credit::new(true);
        credit.work_on(700);
        assert_eq!(credit.records(u32::MAX, 1000, 1), 700);
        let now = settle_for(&mut credit, now, 1, Duration::from_secs(60), 5);
        assert_eq!(credit.records(u32::MAX, 1000, 1), 700);
        credit.work_on(0);
        settle_for(&mut credit, now, 1, Duration::from_secs(60), 10);
        assert_eq!(credit.records(u32::MAX, 1000, 1), START);
        credit.expired();
        credit.work_on(700);
        assert_eq!(credit.records(u32::MAX, 1000, 1), 1);
    }

    #[test]
    fn what_is_settled_in_a_time_is_known_after_the_first_record_and_idle_time_counts_for_nothing()
    {
        #[allow(clippy::disallowed_methods)]
        let now = Instant::now();
        let half_a_lock = Duration::from_secs(15);
        let mut credit = Credit::new(true);
        assert_eq!(credit.settled_within(half_a_lock), u32::MAX);
        credit.work_begins(now);
        let now = settle_for(&mut credit, now, 1, Duration::from_secs(3), 1);
        assert_eq!(credit.settled_within(half_a_lock), 5);
        let now = now + Duration::from_secs(3600);
        credit.work_begins(now);
        settle_for(&mut credit, now, 1, Duration::from_secs(1), 100);
        assert_eq!(credit.settled_within(half_a_lock), 15);
        let hour = Duration::from_secs(3600);
        settle_for(&mut credit, now, 1, hour, 1);
        assert_eq!(credit.settled_within(half_a_lock), 1);
        credit.work_on(700);
        assert_eq!(credit.settled_within(half_a_lock), 700);
    }

    #[test]
    fn credit_of_one_record_grows_again_though_nothing_is_held_in_between() {
        #[allow(clippy::disallowed_methods)]
        let mut now = Instant::now();
        let mut credit = Credit::new(true);
        credit.expired();
        for _ in 0..100 {
            credit.work_begins(now);
            now = settle_for(&mut credit, now, 1, Duration::from_millis(10), 1);
            now += Duration::from_millis(500);
        }
        assert!(
            (80..=120).contains(&credit.records(u32::MAX, 1000, 1)),
            "{credit:?}"
        );
        assert!(credit.settled_within(Duration::from_secs(1)) >= 80);
    }

    /// Ten records in a life of a few milliseconds are no reason to hold a thousand.
    #[test]
    fn no_more_is_held_than_was_settled_so_far() {
        #[allow(clippy::disallowed_methods)]
        let now = Instant::now();
        let mut credit = Credit::new(true);
        let now = settle_for(&mut credit, now, 1, Duration::from_millis(6), 10);
        assert!(credit.records(u32::MAX, 2000, 1) <= 10, "{credit:?}");
        settle_for(&mut credit, now, 1, Duration::from_millis(6), 500);
        assert!(credit.records(u32::MAX, 2000, 1) >= 150, "{credit:?}");
    }

    #[test]
    fn who_takes_many_at_once_gets_them_and_who_takes_one_few() {
        let mut credit = Credit::new(true);
        credit.take(500);
        assert_eq!(credit.records(u32::MAX, 2000, 1), 100);
        let mut credit = Credit::new(true);
        credit.take(1);
        assert_eq!(credit.records(u32::MAX, 2000, 1), START);
        credit.work_on(20);
        assert_eq!(credit.records(u32::MAX, 2000, 1), 20);
    }

    #[test]
    fn each_leader_has_its_record() {
        let mut credit = Credit::new(true);
        assert_eq!(credit.records(u32::MAX, 2000, 9), 9);
        assert_eq!(credit.records(5, 2000, 9), 5);
        credit.expired();
        assert_eq!(credit.records(u32::MAX, 2000, 9), 1);
    }

    #[test]
    fn credit_that_does_not_adapt_is_the_bound() {
        assert_eq!(Credit::new(false).records(7, 1000, 1), 7);
    }
}
