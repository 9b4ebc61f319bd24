//! One share partition at its leader: the log, the state of each offset, the locks.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use sharegroup_wire::message::share_fetch::{AcknowledgementBatch, AcquiredRecords};
use sharegroup_wire::{BrokerId, ErrorCode};

use super::{LinkId, Settings};

/// Names one delivery of one offset: no two acquisitions share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Delivery(pub u64);

/// Where an offset stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slot {
    /// May be acquired.
    Available,
    /// Locked to a member.
    Acquired {
        /// The member.
        member_id: String,
        /// The connection it was granted on.
        link: LinkId,
        /// When the lock ends.
        deadline: Instant,
        /// Which delivery this is.
        delivery: Delivery,
    },
    /// Accepted.
    Accepted,
    /// Rejected, a gap, or out of deliveries.
    Archived {
        /// Whether the broker archived it since its deliveries were used up.
        exhausted: bool,
    },
}

#[derive(Debug, Clone)]
struct Entry {
    slot: Slot,
    delivery_count: i16,
}

/// A stretch of the log. Offsets between two batches (compacted away) belong to the later one.
#[derive(Debug, Clone)]
struct Stored {
    covers_from: i64,
    last_offset: i64,
    bytes: Bytes,
}

/// Offsets granted with one fetch.
#[derive(Debug, Clone, Default)]
pub(super) struct Grant {
    pub(super) records: Bytes,
    pub(super) ranges: Vec<AcquiredRecords>,
    pub(super) deliveries: Vec<(i64, Delivery)>,
}

/// What a fetch asks of one partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms<'a> {
    pub(super) member_id: &'a str,
    pub(super) link: LinkId,
    pub(super) records_max: u64,
    pub(super) bytes_max: usize,
    pub(super) record_limit: bool,
}

/// An acknowledgement that changed an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) offset: i64,
    pub(super) delivery: Delivery,
    pub(super) acknowledge_type: i8,
}

#[derive(Debug)]
pub(super) struct SharePartition {
    pub(super) leader: BrokerId,
    pub(super) leader_epoch: i32,
    log: Vec<Stored>,
    log_end: i64,
    /// First offset that isn't settled (SPSO).
    start_offset: i64,
    /// From the start offset to the last offset that was ever acquired.
    entries: BTreeMap<i64, Entry>,
    /// What became of offsets below the start offset.
    settled: BTreeMap<i64, Slot>,
}

impl SharePartition {
    pub(super) fn new(leader: BrokerId) -> Self {
        Self {
            leader,
            leader_epoch: 0,
            log: Vec::new(),
            log_end: 0,
            start_offset: 0,
            entries: BTreeMap::new(),
            settled: BTreeMap::new(),
        }
    }

    /// Appends bytes that stand for the offsets up to `last_offset`.
    pub(super) fn append(&mut self, last_offset: i64, bytes: Bytes) {
        self.log.push(Stored {
            covers_from: self.log_end,
            last_offset,
            bytes,
        });
        self.log_end = last_offset + 1;
    }

    pub(super) const fn log_end(&self) -> i64 {
        self.log_end
    }

    pub(super) const fn start_offset(&self) -> i64 {
        self.start_offset
    }

    fn acquired_end(&self) -> i64 {
        self.entries
            .last_key_value()
            .map_or(self.start_offset, |(last, _)| last + 1)
    }

    /// Where an offset stands.
    pub(super) fn slot(&self, offset: i64) -> Slot {
        if let Some(slot) = self.settled.get(&offset) {
            return slot.clone();
        }
        self.entries
            .get(&offset)
            .map_or(Slot::Available, |entry| entry.slot.clone())
    }

    pub(super) fn delivery_count(&self, offset: i64) -> i16 {
        self.entries
            .get(&offset)
            .map_or(0, |entry| entry.delivery_count)
    }

    /// When the next lock ends.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let locks = self.entries.values().filter_map(|entry| match entry.slot {
            Slot::Acquired { deadline, .. } => Some(deadline),
            _ => None,
        });
        locks.min()
    }

    /// Frees what lost its lock. Returns the deliveries that ended so.
    pub(super) fn expire(&mut self, now: Instant, settings: &Settings) -> Vec<(i64, Delivery)> {
        self.free(
            settings,
            |slot| matches!(slot, Slot::Acquired { deadline, .. } if *deadline <= now),
        )
    }

    /// Frees what passes `filter`; returns what was freed.
    pub(super) fn free(
        &mut self,
        settings: &Settings,
        filter: impl Fn(&Slot) -> bool,
    ) -> Vec<(i64, Delivery)> {
        let mut freed = Vec::new();
        for (offset, entry) in &mut self.entries {
            if let Slot::Acquired { delivery, .. } = entry.slot
                && filter(&entry.slot)
            {
                freed.push((*offset, delivery));
                entry.slot = after_delivery(entry.delivery_count, settings);
            }
        }
        self.advance();
        freed
    }

    /// A new leader loads the partition: what was acquired is available again and those attempts
    /// are forgotten, since acquisitions aren't persisted.
    pub(super) fn reload(&mut self) {
        for entry in self.entries.values_mut() {
            if matches!(entry.slot, Slot::Acquired { .. }) {
                entry.slot = Slot::Available;
                entry.delivery_count -= 1;
            }
        }
        // What was acquired only was written nowhere.
        let is_written = |entry: &Entry| entry.slot != Slot::Available || entry.delivery_count > 0;
        self.entries.retain(|_, entry| is_written(entry));
    }

    fn advance(&mut self) {
        while let Some(first) = self.entries.first_entry() {
            if *first.key() != self.start_offset
                || matches!(first.get().slot, Slot::Available | Slot::Acquired { .. })
            {
                break;
            }
            let (offset, entry) = first.remove_entry();
            self.settled.insert(offset, entry.slot);
            self.start_offset = offset + 1;
        }
    }

    fn may_be_acquired(&self, offset: i64, settings: &Settings) -> bool {
        match self.entries.get(&offset) {
            Some(entry) => entry.slot == Slot::Available,
            None => {
                offset >= self.start_offset
                    && offset - self.start_offset < settings.record_locks_max
            }
        }
    }

    /// Whether a fetch would get anything.
    pub(super) fn has_available(&self, settings: &Settings) -> bool {
        let fresh = self.acquired_end();
        (fresh < self.log_end && self.may_be_acquired(fresh, settings))
            || self
                .entries
                .values()
                .any(|entry| entry.slot == Slot::Available)
    }

    /// Acquires what the terms allow.
    pub(super) fn acquire(
        &mut self,
        now: Instant,
        terms: Terms<'_>,
        settings: &Settings,
        last_delivery: &mut u64,
    ) -> Grant {
        let mut grant = Grant::default();
        let mut bytes = BytesMut::new();
        let mut gap = BytesMut::new();
        let log: Vec<_> = self
            .log
            .iter()
            .filter(|stored| stored.last_offset >= self.start_offset)
            .cloned()
            .collect();
        for stored in log {
            let count = grant.deliveries.len() as u64;
            let full =
                count >= terms.records_max || (!bytes.is_empty() && bytes.len() >= terms.bytes_max);
            if full {
                break;
            }
            let left = if terms.record_limit {
                terms.records_max - count
            } else {
                u64::MAX
            };
            let offsets = self.available_in(&stored, settings, left);
            if offsets.is_empty() {
                gap.extend_from_slice(&stored.bytes);
                continue;
            }
            if !bytes.is_empty() {
                bytes.extend_from_slice(&gap);
            }
            gap.clear();
            bytes.extend_from_slice(&stored.bytes);
            for offset in offsets {
                *last_delivery += 1;
                let delivery = Delivery(*last_delivery);
                self.lock(offset, delivery, now, terms, settings);
                grant.deliveries.push((offset, delivery));
                push_range(&mut grant.ranges, offset, self.delivery_count(offset));
            }
        }
        grant.records = bytes.freeze();
        grant
    }

    fn available_in(&self, stored: &Stored, settings: &Settings, most: u64) -> Vec<i64> {
        let first = stored.covers_from.max(self.start_offset);
        let mut offsets = Vec::new();
        for offset in first..=stored.last_offset {
            if offsets.len() as u64 >= most {
                break;
            }
            if self.may_be_acquired(offset, settings) {
                offsets.push(offset);
            }
        }
        offsets
    }

    fn lock(
        &mut self,
        offset: i64,
        delivery: Delivery,
        now: Instant,
        terms: Terms<'_>,
        settings: &Settings,
    ) {
        let entry = self.entries.entry(offset).or_insert(Entry {
            slot: Slot::Available,
            delivery_count: 0,
        });
        entry.delivery_count += 1;
        entry.slot = Slot::Acquired {
            member_id: terms.member_id.to_owned(),
            link: terms.link,
            deadline: now + settings.lock,
            delivery,
        };
    }

    /// Applies a partition's acknowledgements, all or nothing; renewals before a bad offset stay.
    pub(super) fn acknowledge(
        &mut self,
        now: Instant,
        member_id: &str,
        batches: &[AcknowledgementBatch],
        settings: &Settings,
    ) -> Result<Vec<Change>, ErrorCode> {
        let mut changes = Vec::new();
        let mut failure = None;
        for (offset, acknowledge_type) in batches.iter().flat_map(by_offset) {
            if offset < self.start_offset {
                continue;
            }
            if offset >= self.acquired_end() {
                failure = failure.or(Some(ErrorCode::InvalidRequest));
                break;
            }
            let held = match self.entries.get_mut(&offset).map(|entry| &mut entry.slot) {
                Some(Slot::Acquired {
                    member_id: owner,
                    deadline,
                    delivery,
                    ..
                }) if owner == member_id => Some((deadline, *delivery)),
                _ => None,
            };
            let refused = acknowledge_type == RENEW && !settings.renew_enabled;
            let repeated = changes
                .last()
                .is_some_and(|last: &Change| last.offset == offset);
            match held {
                Some((deadline, delivery)) if !refused && !repeated => {
                    if acknowledge_type == RENEW {
                        *deadline = now + settings.lock;
                    }
                    changes.push(Change {
                        offset,
                        delivery,
                        acknowledge_type,
                    });
                }
                _ => failure = failure.or(Some(ErrorCode::InvalidRecordState)),
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        for change in &changes {
            self.apply(*change, settings);
        }
        self.advance();
        Ok(changes)
    }

    fn apply(&mut self, change: Change, settings: &Settings) {
        let Some(entry) = self.entries.get_mut(&change.offset) else {
            return;
        };
        match change.acknowledge_type {
            ACCEPT => entry.slot = Slot::Accepted,
            RELEASE => entry.slot = after_delivery(entry.delivery_count, settings),
            RENEW => {}
            _ => entry.slot = Slot::Archived { exhausted: false },
        }
    }

    /// Every offset that a member holds, with the connection it was granted on.
    pub(super) fn held(&self, member_id: &str) -> impl Iterator<Item = (i64, LinkId)> {
        self.entries
            .iter()
            .filter_map(move |(offset, entry)| match &entry.slot {
                Slot::Acquired {
                    member_id: owner,
                    link,
                    ..
                } if owner == member_id => Some((*offset, *link)),
                _ => None,
            })
    }
}

/// The wire's acknowledge types.
pub(super) const ACCEPT: i8 = 1;
pub(super) const RELEASE: i8 = 2;
pub(super) const RENEW: i8 = 4;

fn after_delivery(delivery_count: i16, settings: &Settings) -> Slot {
    if delivery_count >= settings.delivery_count_limit {
        Slot::Archived { exhausted: true }
    } else {
        Slot::Available
    }
}

fn push_range(ranges: &mut Vec<AcquiredRecords>, offset: i64, delivery_count: i16) {
    match ranges.last_mut() {
        Some(last) if last.last_offset + 1 == offset && last.delivery_count == delivery_count => {
            last.last_offset = offset;
        }
        _ => ranges.push(AcquiredRecords {
            first_offset: offset,
            last_offset: offset,
            delivery_count,
        }),
    }
}

/// The offsets of a batch with their types; the batch was checked before.
fn by_offset(batch: &AcknowledgementBatch) -> impl Iterator<Item = (i64, i8)> {
    (batch.first_offset..=batch.last_offset)
        .enumerate()
        .map(|(index, offset)| {
            let types = &batch.acknowledge_types;
            (
                offset,
                types
                    .get(index)
                    .or_else(|| types.first())
                    .copied()
                    .unwrap_or(0),
            )
        })
}

/// Whether a partition's batches are legal (protocol: "AcknowledgementBatches rules").
pub(super) fn check_batches(
    batches: &[AcknowledgementBatch],
    version: i16,
    is_renew: bool,
) -> Result<(), String> {
    let mut previous = i64::MIN;
    for batch in batches {
        let AcknowledgementBatch {
            first_offset,
            last_offset,
            acknowledge_types,
        } = batch;
        if first_offset > last_offset || *first_offset <= previous {
            return Err(format!(
                "batch {first_offset}-{last_offset} is inverted or not above {previous}"
            ));
        }
        previous = *last_offset;
        let offsets = last_offset.abs_diff(*first_offset) + 1;
        if acknowledge_types.len() != 1 && acknowledge_types.len() as u64 != offsets {
            return Err(format!(
                "{} types for {offsets} offsets",
                acknowledge_types.len()
            ));
        }
        for kind in acknowledge_types {
            if !(0..=RENEW).contains(kind) || (*kind == RENEW && (version < 2 || !is_renew)) {
                return Err(format!(
                    "type {kind} in version {version}, renewal {is_renew}"
                ));
            }
        }
    }
    Ok(())
}
