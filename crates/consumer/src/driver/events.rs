//! What the core tells, passed on to whom it concerns.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sharegroup_session::{
    AckFailure, AckOutcome, Acknowledgement, Acquired, AcquisitionId, Event, FatalError, LockLoss,
    Release, ReleaseReason, TopicPartition, Warning,
};
use tokio::time::Instant;

use super::Driver;
use super::losses::Loss;
use crate::error::PollError;
use crate::lock::LockState;
use crate::metrics::add;
use crate::observer::{LastDelivery, ShareEvent, ShareObserver};
use crate::report::offsets;
use crate::shared::{Arrival, Settling};

impl Driver {
    pub(super) fn enter_events(&mut self, now: Instant) {
        while let Some(event) = self.core.poll_event() {
            self.enter(now, event);
        }
    }

    fn enter(&mut self, now: Instant, event: Event) {
        match event {
            Event::Joined { member_epoch } => {
                if let Some(interval) = &mut self.poll_interval {
                    interval.joined(now);
                }
                self.shared.tell(|outbox| outbox.joined = true);
                self.watch_group(now);
                self.observe(&ShareEvent::Joined {
                    member_epoch: member_epoch.0,
                });
            }
            Event::AssignmentChanged => {
                if let Some(group) = &self.group {
                    group.assignment_changed();
                }
                self.observe(&ShareEvent::AssignmentChanged);
            }
            Event::Acquired(acquired) => self.enter_acquired(now, acquired),
            Event::Acknowledged(outcome) => self.enter_outcome(now, outcome),
            Event::Released(release) => {
                let topic = self.topic(release.partition);
                let range = (release.first_offset, release.last_offset);
                let (partition, count) = (release.partition.partition, release.delivery_count);
                self.name_last_delivery(now, (&topic, partition), range, count, &release.why);
                self.lose_in_hand(&release);
                self.observe(&ShareEvent::Released { topic, release });
            }
            Event::LastDeliveryDropped(release) => self.settle_last_delivery(now, release),
            Event::LockLost(loss) => {
                add(
                    &self.shared.counters.locks_lost,
                    offsets(loss.first_offset, loss.last_offset),
                );
                if let Some(lock) = self.locks.get(&loss.acquisition) {
                    lock.lost(&loss);
                }
                self.shared.wake();
                let topic = self.topic(loss.partition);
                let range = (loss.first_offset, loss.last_offset);
                let (partition, count) = (loss.partition.partition, loss.delivery_count);
                self.name_last_delivery(now, (&topic, partition), range, count, &loss.why);
                self.observe(&ShareEvent::LockLost { topic, loss });
            }
            Event::Stalled => {
                self.shared.stall();
                self.observe(&ShareEvent::Stalled);
            }
            Event::LockRenewed {
                acquisition,
                deadline,
                offsets,
            } => {
                add(&self.shared.counters.records_renewed, offsets);
                if let Some(lock) = self.locks.get(&acquisition) {
                    lock.renewed(Instant::from_std(deadline), self.core.lock_duration());
                }
                self.shared.wake();
            }
            Event::LockNotRenewed { acquisition } => {
                if let Some(lock) = self.locks.get(&acquisition) {
                    lock.not_renewed();
                }
                self.shared.wake();
            }
            Event::RenewableChanged { renewable } => {
                self.shared.renewable.store(renewable, Ordering::Relaxed);
                self.locks
                    .values()
                    .for_each(|lock| lock.renewability_changed());
                self.shared.wake();
            }
            Event::Committed(commit) => {
                let report = self.shared.reporter().take();
                for reply in self.commits.remove(&commit).unwrap_or_default() {
                    // The caller may have stopped waiting.
                    drop(reply.send(report.clone()));
                }
            }
            Event::Warning(warning) => self.enter_warning(warning),
            Event::Fatal(error) => self.fail(error),
            Event::Closed => self.closed = true,
            _ => {}
        }
    }

    fn enter_acquired(&mut self, now: Instant, acquired: Acquired) {
        let counters = &self.shared.counters;
        for range in &acquired.ranges {
            let count = offsets(range.first_offset, range.last_offset);
            add(&counters.records_acquired, count);
            if range.delivery_count > 1 {
                add(&counters.records_redelivered, count);
            }
        }
        add(&counters.bytes_fetched, acquired.records.len() as u64);
        self.last_record_at = Some(now);
        if self.observer.is_some() {
            self.observe(&ShareEvent::Acquired {
                topic: Arc::clone(&acquired.topic),
                partition: acquired.partition.partition,
                ranges: acquired.ranges.clone(),
            });
        }
        self.topics
            .entry(acquired.partition)
            .or_insert_with(|| Arc::clone(&acquired.topic));
        let lock = Arc::new(LockState::new(
            Instant::from_std(acquired.deadline),
            self.core.lock_duration(),
            acquired.renewable,
        ));
        self.locks.insert(acquired.id, Arc::clone(&lock));
        self.locks_grew = true;
        self.shared
            .tell(|outbox| outbox.arrivals.push_back(Arrival { acquired, lock }));
    }

    /// Records that are no longer ours had no delivery left: the broker archives them. Who watches tells
    /// it in its own words.
    fn name_last_delivery(
        &mut self,
        now: Instant,
        (topic, partition): (&Arc<str>, i32),
        range: (i64, i64),
        delivery_count: i16,
        why: &dyn Display,
    ) {
        let limit = self.core.delivery_count_limit();
        if self.observer.is_none() && limit.is_some_and(|limit| delivery_count >= limit) {
            let loss = Loss {
                topic: Arc::clone(topic),
                partition,
                delivery_count,
                why: Some(why.to_string()),
            };
            self.losses.lost(now, loss, range);
        }
    }

    /// Records have no delivery left, and their owner has dropped them.
    fn settle_last_delivery(&mut self, now: Instant, release: Release) {
        let topic = self.topic(release.partition);
        let ask = |observer: &Arc<dyn ShareObserver>| observer.last_delivery(&topic, &release);
        let settled = match &self.observer {
            Some(observer) => catch_unwind(AssertUnwindSafe(|| ask(observer))).unwrap_or_default(),
            None => {
                let loss = Loss {
                    topic: Arc::clone(&topic),
                    partition: release.partition.partition,
                    delivery_count: release.delivery_count,
                    why: None,
                };
                let range = (release.first_offset, release.last_offset);
                self.losses.lost(now, loss, range);
                LastDelivery::Reject
            }
        };
        let how = match settled {
            LastDelivery::Reject => Acknowledgement::Reject,
            LastDelivery::Accept => Acknowledgement::Accept,
            LastDelivery::Release => Acknowledgement::Release,
        };
        let (first, last) = (release.first_offset, release.last_offset);
        self.core
            .acknowledge(now.into_std(), release.acquisition, first, last, how);
        self.observe(&ShareEvent::LastDeliveryDropped {
            topic,
            release,
            settled,
        });
    }

    /// Settles offsets of an acquisition; returns how many of them were held. The acknowledgement of what was
    /// lost before is never sent, which is reported: its loss was told.
    pub(super) fn settle(&mut self, now: Instant, settling: Settling) -> u64 {
        let Settling {
            id,
            first,
            last,
            how,
        } = settling;
        let settled = self.core.acknowledge(now.into_std(), id, first, last, how);
        // A loss may be known to the core alone.
        self.enter_events(now);
        self.settle_lost(&settling);
        settled
    }

    /// Reports what was lost before it was settled.
    pub(super) fn settle_lost(&self, settling: &Settling) {
        let lock = self.locks.get(&settling.id);
        let lost = lock.map(|lock| lock.settle_lost(settling.first, settling.last));
        for loss in lost.into_iter().flatten() {
            let topic = self.topic(loss.partition);
            self.shared.settled_late(&topic, &loss, settling.how);
        }
    }

    /// What a close releases although the application has it in hand is no longer ours when it is settled.
    fn lose_in_hand(&self, release: &Release) {
        if release.why != ReleaseReason::Closing {
            return;
        }
        if let Some(lock) = self.locks.get(&release.acquisition) {
            lock.lost(&LockLoss {
                acquisition: release.acquisition,
                partition: release.partition,
                first_offset: release.first_offset,
                last_offset: release.last_offset,
                delivery_count: release.delivery_count,
                why: AckFailure::SessionEnded,
            });
        }
    }

    /// Locks that nobody has a handle of any more; looked for where some were added.
    pub(super) fn unused_locks(&mut self) -> Vec<AcquisitionId> {
        if !std::mem::take(&mut self.locks_grew) {
            return Vec::new();
        }
        let unused = |(id, lock): (&AcquisitionId, &Arc<LockState>)| {
            (Arc::strong_count(lock) == 1).then_some(*id)
        };
        self.locks.iter().filter_map(unused).collect()
    }

    fn enter_outcome(&mut self, now: Instant, outcome: AckOutcome) {
        let counters = &self.shared.counters;
        let count = offsets(outcome.first_offset, outcome.last_offset);
        let counter = match (outcome.result, outcome.how) {
            (Ok(()), Acknowledgement::Accept) => &counters.accepted,
            (Ok(()), Acknowledgement::Release) => &counters.released,
            (Ok(()), Acknowledgement::Reject) => &counters.rejected,
            (Ok(()), Acknowledgement::Gap) => &counters.gaps,
            (Err(AckFailure::Broker(_)), _) => &counters.acknowledge_errors,
            (Err(_), _) => &counters.acknowledgements_lost,
        };
        add(counter, count);
        if outcome.result.is_err() && outcome.how == Acknowledgement::Accept {
            add(&counters.accepts_unconfirmed, count);
        }
        self.last_settled_at = Some(now);
        self.confirm(&outcome);
        let topic = self.topic(outcome.partition);
        self.shared.reporter().enter(&topic, &outcome);
        self.observe(&ShareEvent::Acknowledged { topic, outcome });
    }

    /// Tells those who wait for one of these records.
    fn confirm(&mut self, outcome: &AckOutcome) {
        let id = outcome.acquisition;
        let records = (id, outcome.first_offset)..=(id, outcome.last_offset);
        for (_, reply) in self.confirmations.extract_if(records, |_, _| true) {
            // The caller may have stopped waiting.
            let _stopped = reply.send(outcome.result);
        }
    }

    pub(super) fn topic(&self, partition: TopicPartition) -> Arc<str> {
        self.topics
            .get(&partition)
            .cloned()
            .unwrap_or_else(|| partition.topic_id.to_string().into())
    }

    fn enter_warning(&mut self, warning: Warning) {
        // Who watches tells it in its own words.
        if self.observer.is_none() {
            let config = self.core.config();
            let (group_id, member_id) = (&config.group_id, &config.member_id);
            let advice = advice(&warning);
            tracing::warn!(%group_id, %member_id, "{warning}.{advice}");
        }
        self.observe(&ShareEvent::Warning(warning));
    }

    fn fail(&mut self, error: FatalError) {
        // Before the first join the builder returns it; later it may be long until somebody polls.
        if self.group.is_some() {
            tracing::error!(group_id = %self.core.config().group_id, "{error}.");
        }
        self.shared.tell(|outbox| {
            outbox.fatal = Some(error.clone());
            outbox.failed = Some(PollError::Fatal(error));
        });
        self.core.abort();
    }

    pub(super) fn observe(&self, event: &ShareEvent) {
        if let Some(observer) = &self.observer
            && catch_unwind(AssertUnwindSafe(|| observer.event(event))).is_err()
        {
            tracing::error!("An observer panicked; the consumer goes on.");
        }
    }
}

/// What to do about a warning, where nothing else helps.
fn advice(warning: &Warning) -> &'static str {
    match warning {
        Warning::TopicMissing { .. } => {
            " Create it, or check its name and the right to DESCRIBE it; it is looked for again and again."
        }
        _ => "",
    }
}
