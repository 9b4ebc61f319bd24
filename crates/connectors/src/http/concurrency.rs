//! How many requests are on their way at the same time.
//!
//! The number follows what answers say, window by window; a window is as many answers as the number was when it began.
//!
//! - An eighth of a window or more says that the target has too much to do (429, 503 and the like, no answer, no
//!   connection): the number falls by a quarter.
//! - Answers take more than twice as long on average as they did in the best window: as many requests wait as are
//!   worked on, and more of them would only wait. The number falls by an eighth, but not below where it began: few requests
//!   are slow for other reasons, and fewer would not be faster.
//! - They take more than one and a half times as long: it stays.
//! - Otherwise, if all places were taken, it grows: it doubles until it first falls, and grows by an eighth from
//!   then on.
//!
//! What counts as the best window is found anew from time to time, with a quarter of the requests for a while: a
//! target may have become slower for good, and its queue must not be taken for that.

use std::time::Duration;

/// The number, and what it rests on.
#[derive(Clone, Debug)]
pub(super) struct Concurrency {
    max: f64,
    /// Where it began; it falls lower for what the target says alone.
    start: f64,
    limit: f64,
    /// Whether it has never fallen.
    doubles: bool,
    window: Window,
    /// Mean time of an answer in the best window.
    best: Option<Duration>,
    /// Time of an answer lately; a long one counts at once, and is forgotten by and by.
    recent: Duration,
    windows: u32,
    /// Windows with fewer requests that are still to come.
    measuring: u32,
}

#[derive(Clone, Debug, Default)]
struct Window {
    answers_max: u32,
    answers: u32,
    pressed: u32,
    time: Duration,
    was_full: bool,
}

impl Concurrency {
    pub(super) fn new(start: u32, max: u32) -> Self {
        let start = f64::from(start.clamp(1, max.max(1)));
        let mut this = Self {
            max: f64::from(max.max(1)),
            start,
            limit: start,
            doubles: true,
            window: Window::default(),
            best: None,
            recent: Duration::ZERO,
            windows: 0,
            measuring: 0,
        };
        this.begin();
        this
    }

    /// How many requests may be on their way; at least 1.
    pub(super) fn limit(&self) -> usize {
        let limit = match self.measuring {
            0 => self.limit,
            _ => self.limit / 4.0,
        };
        // From 1 to `max`, which was an u32.
        limit.max(1.0) as usize
    }

    /// How long a request may take, by what they took lately.
    pub(super) fn takes(&self) -> Duration {
        self.recent * 2
    }

    /// A request has ended after this time. `pressed`: the target has too much to do. `was_full`: all places were
    /// taken.
    pub(super) fn ended(&mut self, time: Duration, pressed: bool, was_full: bool) {
        self.recent = self.recent.mul_f64(0.9).max(time);
        let window = &mut self.window;
        window.answers += 1;
        window.was_full |= was_full;
        if pressed {
            window.pressed += 1;
        } else {
            window.time += time;
        }
        if window.answers >= window.answers_max {
            self.window_ended();
        }
    }

    fn window_ended(&mut self) {
        let window = std::mem::take(&mut self.window);
        let good = window.answers - window.pressed;
        let mean = (good > 0).then(|| window.time / good);
        if self.measuring > 0 {
            self.measuring -= 1;
            if self.measuring == 0 {
                self.best = mean.or(self.best);
            }
            return self.begin();
        }
        let is_pressed = window.pressed * 8 >= window.answers;
        let takes = |times: f64| match (mean, self.best) {
            (Some(mean), Some(best)) => mean > best.mul_f64(times),
            _ => false,
        };
        let (is_slow, is_slower) = (takes(SLOW), takes(SLOWER));
        self.best = match (mean, self.best) {
            (Some(mean), Some(best)) => Some(best.min(mean)),
            (mean, best) => mean.or(best),
        };
        if is_pressed {
            self.limit = (self.limit * 0.75).max(1.0);
            self.doubles = false;
        } else if is_slow {
            // Lower than where it began is what the target has asked for.
            self.limit = (self.limit * 0.875).max(self.limit.min(self.start));
            self.doubles = false;
        } else if window.was_full && !is_slower {
            let more = if self.doubles {
                self.limit
            } else {
                (self.limit / 8.0).max(1.0)
            };
            self.limit = (self.limit + more).min(self.max);
        }
        self.windows += 1;
        if self.windows >= MEASURE_EVERY {
            self.windows = 0;
            self.measuring = 2;
        }
        self.begin();
    }

    fn begin(&mut self) {
        // The first window of a measurement has the answers to what was sent before.
        let answers = match self.measuring {
            2 => self.limit as u32,
            _ => u32::try_from(self.limit()).unwrap_or(u32::MAX),
        };
        self.window.answers_max = answers.max(WINDOW_MIN);
    }
}

/// Times as long as in the best window: the number falls.
const SLOW: f64 = 2.0;
/// Times as long: it doesn't grow.
const SLOWER: f64 = 1.5;
/// Windows after which the best one is found anew.
const MEASURE_EVERY: u32 = 200;
/// Answers of a window at least.
const WINDOW_MIN: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// A target with so many places, or any number, that answers each request after `service`; what finds no place
    /// waits.
    struct Target {
        places: Option<usize>,
        service: Duration,
        /// Of every hundred requests, so many are answered with 503.
        failing: u64,
    }

    /// Sends so many requests one after the other as the number allows, in virtual time. The answer: how long
    /// that took.
    fn run(target: &Target, concurrency: &mut Concurrency, requests: u64) -> Duration {
        let mut places = vec![Duration::ZERO; target.places.unwrap_or_default()];
        let mut on_their_way: Vec<(Duration, Duration, bool)> = Vec::new();
        let (mut now, mut sent) = (Duration::ZERO, 0);
        loop {
            while sent < requests && on_their_way.len() < concurrency.limit() {
                let mut at = now + target.service;
                if let Some(place) = places.iter_mut().min() {
                    *place = (*place).max(now) + target.service;
                    at = *place;
                }
                // Spread without chance.
                let fails = sent.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & 0xff_ffff;
                let fails = fails % 100 < target.failing;
                on_their_way.push((at, now, fails));
                sent += 1;
            }
            let was_full = on_their_way.len() >= concurrency.limit();
            let next = (0..on_their_way.len()).min_by_key(|at| on_their_way[*at].0);
            let Some(next) = next else { return now };
            let (at, from, fails) = on_their_way.swap_remove(next);
            now = at;
            concurrency.ended(at - from, fails, was_full);
        }
    }

    fn target(places: Option<usize>) -> Target {
        Target {
            places,
            service: Duration::from_millis(50),
            failing: 0,
        }
    }

    #[test]
    fn a_target_with_room_is_given_all_that_is_allowed() {
        let mut concurrency = Concurrency::new(16, 256);
        run(&target(None), &mut concurrency, 2_000);
        assert_eq!(concurrency.limit(), 256);
    }

    #[test]
    fn sixty_four_at_a_time_are_fifty_times_as_fast_as_one_after_the_other() {
        let one = run(&target(None), &mut Concurrency::new(1, 1), 2_000);
        let many = run(&target(None), &mut Concurrency::new(16, 64), 2_000);
        let times = one.as_secs_f64() / many.as_secs_f64();
        assert!(times > 50.0, "{times}");
    }

    /// A machine that is busy with something else.
    #[test]
    fn answers_that_are_slow_for_other_reasons_do_not_take_it_below_where_it_began() {
        let mut concurrency = Concurrency::new(16, 256);
        for answer in 0..4_000 {
            let millis = if answer < 100 { 1 } else { 2 + answer % 7 };
            concurrency.ended(Duration::from_millis(millis), false, true);
            assert!(concurrency.limit >= 16.0, "{answer}: {concurrency:?}");
        }
    }

    #[test]
    fn a_target_with_32_places_is_not_given_a_long_queue_and_is_kept_busy() {
        let mut concurrency = Concurrency::new(16, 256);
        for round in 0..20 {
            let requests = 2_000;
            let took = run(&target(Some(32)), &mut concurrency, requests);
            let limit = concurrency.limit.round();
            assert!((20.0..=100.0).contains(&limit), "{round}: {limit}");
            let least = target(Some(32)).service.as_secs_f64() * requests as f64 / 32.0;
            assert!(
                took.as_secs_f64() < 1.15 * least,
                "{round}: {took:?}, {least}"
            );
        }
    }

    #[test]
    fn how_long_a_request_may_take_follows_the_longest_of_late() {
        let mut concurrency = Concurrency::new(16, 16);
        for millis in [10, 100, 10] {
            concurrency.ended(Duration::from_millis(millis), false, false);
        }
        assert_eq!(concurrency.takes(), Duration::from_millis(180));
    }

    #[test]
    fn a_few_failures_among_many_do_not_slow_it_down() {
        let mut concurrency = Concurrency::new(64, 64);
        let target = Target {
            failing: 5,
            ..target(None)
        };
        let took = run(&target, &mut concurrency, 20_000);
        let least = 0.05 * 20_000.0 / 64.0;
        assert!(took.as_secs_f64() < 1.2 * least, "{took:?}, {least}");
    }

    #[test]
    fn a_target_that_refuses_everything_is_asked_once_at_a_time_in_the_end_and_fully_again_once_it_is_well()
     {
        let mut concurrency = Concurrency::new(16, 64);
        let failing = Target {
            failing: 100,
            ..target(None)
        };
        run(&failing, &mut concurrency, 500);
        assert_eq!(concurrency.limit(), 1);
        run(&target(None), &mut concurrency, 20_000);
        assert_eq!(concurrency.limit.round(), 64.0);
    }

    #[test]
    fn a_target_that_gets_slower_for_good_is_given_as_much_as_before() {
        let mut concurrency = Concurrency::new(16, 64);
        run(&target(None), &mut concurrency, 2_000);
        let slower = Target {
            service: Duration::from_millis(200),
            ..target(None)
        };
        run(&slower, &mut concurrency, 20_000);
        assert_eq!(concurrency.limit.round(), 64.0);
    }
}
