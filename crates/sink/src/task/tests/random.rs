//! Sinks and stages before them that fail in every way, locks that end, pauses and stops, at random: whatever
//! happens, nothing is accepted that was not made durable or dropped by a transformation, and nothing
//! disappears.

use std::collections::BTreeSet;

use tokio::time::timeout;

use super::stages::{Does, Picky};
use super::*;
use crate::policy::{SetAside, StageRetries, Tolerance};
use crate::record::OwnedRecord;
use crate::task::LetterError;
use crate::testing::Lock;

const SEEDS: u64 = 400;
const LIMIT: i16 = 5;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn ms(&mut self, end: u64) -> Duration {
        Duration::from_millis(self.below(end))
    }

    fn outcomes(&mut self) -> Vec<(i64, Outcome)> {
        let count = self.below(12);
        let outcome = |random: &mut Self| {
            let reason = "so it is".to_owned();
            match random.below(8) {
                0 => Outcome::Refused { reason },
                1 => Outcome::Unknown { reason },
                2 | 3 => Outcome::Later {
                    reason,
                    after: random.one_in(3).then(|| random.ms(9000)),
                },
                _ => Outcome::Written,
            }
        };
        let offset = |random: &mut Self| i64::try_from(random.below(100)).unwrap();
        (0..count).map(|_| (offset(self), outcome(self))).collect()
    }

    fn step(&mut self) -> Step {
        match self.below(60) {
            0..8 => Step::Fails,
            8..11 => Step::Fatal,
            11..13 => Step::FailsFor(self.ms(7000)),
            13..20 => Step::Reports(self.outcomes(), self.one_in(2)),
            20..24 => Step::Slow(self.ms(20_000)),
            24 if self.one_in(3) => Step::Broken,
            25 if self.one_in(3) => Step::BreaksAfter(self.outcomes()),
            26 if self.one_in(3) => Step::Hangs,
            _ => Step::Fine,
        }
    }

    /// What a transformation does to some of the records.
    fn picky(&mut self) -> Picky {
        let picky = Picky::default();
        for offset in 0..100 {
            let does: &[Does] = match self.below(100) {
                0..3 => &[Does::Drops],
                3..6 => &[Does::Fails],
                6..9 => &[Does::FailsNow, Does::FailsNow, Does::FailsNow],
                9..11 => &[Does::FailsNow, Does::Drops],
                11..13 => &[Does::FailsNowForEver],
                _ => continue,
            };
            picky.tell(&offset.to_string(), does);
        }
        picky
    }

    fn stage_retries(&mut self) -> StageRetries {
        StageRetries {
            timeout: match self.below(3) {
                0 => Some(Duration::ZERO),
                1 => Some(self.ms(20_000)),
                _ => None,
            },
            delay_max: self.ms(10_000),
        }
    }

    fn steps(&mut self) -> Vec<Step> {
        (0..self.below(60)).map(|_| self.step()).collect()
    }
}

/// What was handed out.
struct Delivered {
    offsets: std::ops::Range<i64>,
    delivery_count: i16,
    lock: Lock,
    /// Whether the lock was touched.
    may_be_lost: bool,
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_nothing_is_accepted_too_early_and_nothing_disappears() {
    for seed in 0..SEEDS {
        println!("seed {seed}");
        run(&mut Random(seed)).await;
    }
}

async fn run(random: &mut Random) {
    let broker = Broker::default();
    let letters = LetterBox::beside(&broker);
    let poison: Vec<i64> = (0..100).filter(|_| random.one_in(30)).collect();
    let kind = if random.one_in(2) {
        Step::Fails
    } else {
        Step::Fatal
    };
    let flushes = random.steps().into_iter().map(|step| match step {
        Step::Reports(..) | Step::BreaksAfter(_) => Step::Fine,
        step => step,
    });
    let sink = SinkScript::puts(random.steps())
        .flushes(flushes)
        .poisoned(poison, kind);
    let tolerance = if random.one_in(3) {
        Tolerance::None
    } else {
        Tolerance::All
    };
    let set_aside = match random.below(3) {
        0 => SetAside::Nowhere,
        1 => SetAside::DeadLetter,
        _ => SetAside::DeadLetterAccepted,
    };
    let picky = random.picky();
    let stage_retries = random.stage_retries();
    let running = Running::start_beside(&broker, sink, Some(&letters), |settings| {
        settings.chain = picky.chain();
        settings.failures.stage_retries = stage_retries;
        settings.failures.tolerance = tolerance;
        settings.failures.set_aside = set_aside;
        settings.failures.hold_max = 30 * S;
        settings.failures.put_stall = 60 * S;
        settings.delivery_count_limit = LIMIT;
    });
    let delivered = disturb(random, &running, &letters).await;
    running.tell_to_stop();
    let Running {
        broker,
        sink,
        shared,
        handle,
        ..
    } = running;
    // A put that stalled is left alone until its lock ends.
    timeout(120 * S, handle).await.unwrap().unwrap();
    let kept = Kept {
        durable: sink.durable(),
        letters: letters.offsets().into_iter().collect(),
        dropped: picky.dropped(),
    };
    judge(&broker, &kept, &delivered, &shared);
}

/// What may be accepted.
struct Kept {
    durable: BTreeSet<i64>,
    letters: BTreeSet<i64>,
    dropped: BTreeSet<i64>,
}

/// Delivers records; meanwhile locks end, and the task is paused and resumed.
async fn disturb(random: &mut Random, running: &Running, letters: &LetterBox) -> Vec<Delivered> {
    let mut delivered: Vec<Delivered> = Vec::new();
    let mut end = 0;
    for _ in 0..random.below(12) {
        let count = i64::try_from(1 + random.below(12)).unwrap();
        let delivery_count = i16::try_from(1 + random.below(5)).unwrap();
        let record = |offset: i64| OwnedRecord {
            offset,
            value: Some(offset.to_string().into()),
            delivery_count,
            ..OwnedRecord::default()
        };
        let records = (end..end + count).map(record).collect();
        let lock = running.broker.deliver_records(records);
        delivered.push(Delivered {
            offsets: end..end + count,
            delivery_count,
            lock,
            may_be_lost: false,
        });
        end += count;
        sleep(random.ms(4000)).await;
        if random.one_in(6) {
            let chosen = usize::try_from(random.below(delivered.len() as u64)).unwrap();
            let chosen = &mut delivered[chosen];
            chosen.may_be_lost = true;
            match random.below(2) {
                0 => chosen.lock.lose(),
                _ => chosen.lock.end_after(random.ms(30_000)),
            }
        }
        let control = match random.below(8) {
            0 => Control::Pause,
            _ => Control::Run,
        };
        running.control.send_replace(control);
        let trouble = LetterError {
            text: "no leader".to_owned(),
            is_retriable: true,
        };
        letters.fail(random.one_in(4).then_some(trouble));
    }
    sleep(random.ms(90_000)).await;
    delivered
}

fn judge(broker: &Broker, kept: &Kept, delivered: &[Delivered], shared: &TaskShared) {
    let set = |offsets: Vec<i64>| -> BTreeSet<i64> { offsets.into_iter().collect() };
    let (accepted, released) = (set(broker.accepted()), set(broker.released()));
    let rejected = set(broker.rejected());
    let keeps = [&kept.durable, &kept.letters, &kept.dropped];
    let early = accepted.iter();
    let early: Vec<_> = early
        .filter(|offset| !keeps.iter().any(|keep| keep.contains(offset)))
        .collect();
    assert!(early.is_empty(), "accepted too early: {early:?}");
    let stopped = shared.status();
    let named = usize::try_from(stopped.counters.named_as_lost).unwrap();
    let unkept = rejected.difference(&kept.letters).count();
    let is_last = |offset: &&i64| {
        let mut last = delivered
            .iter()
            .filter(|batch| batch.delivery_count >= LIMIT);
        last.any(|batch| batch.offsets.contains(offset))
    };
    assert_eq!(named, unkept + released.iter().filter(is_last).count());
    let unpolled = broker.unpolled();
    for batch in delivered {
        for offset in batch
            .offsets
            .clone()
            .filter(|offset| !unpolled.contains(offset))
        {
            let times = [&accepted, &released, &rejected]
                .into_iter()
                .filter(|settled| settled.contains(&offset))
                .count();
            // Locks that stalled puts let run out end as well.
            let stalled = stopped
                .trace
                .as_ref()
                .is_some_and(|trace| trace.contains("gave no outcome"));
            let least = usize::from(!batch.may_be_lost && !stalled);
            assert!(
                (least..=1).contains(&times),
                "offset {offset}: {times} times"
            );
        }
    }
}
