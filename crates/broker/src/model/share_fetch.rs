//! What a leader does for share groups: loads share partitions, hands out records, settles them.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use sharegroup_wire::message::share_fetch::{
    AcknowledgementBatch, FetchedPartition, FetchedTopic, LeaderIdAndEpoch, NodeEndpoint,
    ShareFetchRequest, ShareFetchResponse,
};
use sharegroup_wire::{BrokerId, ErrorCode};

use super::Model;
use super::config::{GroupRules, OffsetReset};
use super::group::Loaded;
use super::log::StoredBatch;
use super::share_partition::{AcquireTerms, Acquired, SharePartition, check_batches};
use super::share_session::{SessionKey, ShareSession};
use super::timers::Timer;
use super::topics::{Partition, Place};

/// The result of one partition's acknowledgements.
#[derive(Debug, Clone)]
pub(crate) struct AckResult {
    pub(crate) place: Place,
    pub(crate) error: ErrorCode,
}

/// A share fetch that was admitted; it is answered at once or waits.
#[derive(Debug)]
pub(crate) struct ShareFetchWait {
    pub(crate) group_id: String,
    pub(crate) terms: AcquireTerms,
    pub(crate) bytes_max: usize,
    pub(crate) bytes_min: usize,
    /// In the order in which they are served.
    pub(crate) places: Vec<Place>,
    /// Results of the acknowledgements that came with it.
    pub(crate) results: Vec<AckResult>,
    /// Whether it opened the session: then every partition is in the answer.
    pub(crate) is_opening: bool,
}

/// What was read of one partition.
struct Read {
    place: Place,
    fetch_offset: i64,
    batches: Vec<StoredBatch>,
}

const KEY: i16 = ShareFetchRequest::API_KEY;

impl Model {
    /// Answers a share fetch if there is something to answer, or if its time `is_over`.
    pub(crate) fn try_share_fetch(
        &mut self,
        now: Instant,
        broker: BrokerId,
        wait: &ShareFetchWait,
        is_over: bool,
    ) -> Option<ShareFetchResponse> {
        let rules = self.configs.group(&wait.group_id);
        let mut failed: Vec<(Place, ErrorCode)> = Vec::new();
        let mut open: Vec<Place> = Vec::new();
        for place in &wait.places {
            match self.share_fetch_error(broker, &wait.group_id, *place) {
                Some(error) => failed.push((*place, error)),
                None => open.push(*place),
            }
        }
        let all_failed = open.is_empty() && !failed.is_empty();
        let wants_nothing = wait.terms.records_max <= 0 || wait.bytes_max == 0;
        if wants_nothing {
            open.clear();
        }
        let open: Vec<Place> = open
            .into_iter()
            .filter(|place| {
                self.load(now, wait, *place, &rules)
                    .can_acquire(&rules.limits)
            })
            .collect();
        let has_enough = !open.is_empty()
            && self.available_bytes(&wait.group_id, &open, &rules, wait.bytes_min)
                >= wait.bytes_min;
        if !(is_over || all_failed || wants_nothing || has_enough) {
            return None;
        }
        for (place, error) in &mut failed {
            // A scripted error counts only when it is told.
            *error = self.faults.partition(KEY, *place).unwrap_or(*error);
        }
        let read = self.read_for(wait, &open, &rules);
        let mut answer = Vec::new();
        let mut left = wait.terms.records_max;
        for read in read {
            let (partition, count) = self.acquire(now, wait, &read, left, &rules);
            left -= count;
            answer.push((read.place, partition));
        }
        if !is_over
            && !all_failed
            && !wants_nothing
            && answer
                .iter()
                .all(|(_, got)| got.acquired_records.is_empty())
        {
            return None;
        }
        for (place, error) in failed {
            answer.push((place, self.failed(place, error)));
        }
        Some(self.share_fetch_answer(wait, answer, &rules))
    }

    /// Why a partition can't be fetched at this broker by this group.
    fn share_fetch_error(
        &self,
        broker: BrokerId,
        group_id: &str,
        place: Place,
    ) -> Option<ErrorCode> {
        if self.faults.is_failing(KEY, place) {
            return Some(ErrorCode::UnknownServerError);
        }
        let Some(partition) = self.topics.partition(place) else {
            return Some(match self.topics.get(place.0) {
                Some(_) => ErrorCode::UnknownTopicOrPartition,
                None => ErrorCode::UnknownTopicId,
            });
        };
        if partition.leader != broker {
            return Some(ErrorCode::NotLeaderOrFollower);
        }
        let group = self.groups.get(group_id);
        if group.is_none_or(|group| !group.initialized.contains(&place)) {
            return Some(ErrorCode::UnknownServerError);
        }
        None
    }

    /// The share partition, loaded where it wasn't yet: from where the group's configuration says
    /// at this moment.
    fn load(
        &mut self,
        now: Instant,
        wait: &ShareFetchWait,
        place: Place,
        rules: &GroupRules,
    ) -> &mut SharePartition {
        let unix_ms = self.unix_ms(now);
        let topics = &self.topics;
        let group = self.groups.entry(wait.group_id.clone()).or_default();
        let loaded = group.loaded.entry(place).or_insert_with(|| {
            let start = topics.partition(place).map_or(0, |partition| {
                first_offset(partition, rules.offset_reset, unix_ms)
            });
            Loaded {
                partition: SharePartition::new(start),
                timer: None,
            }
        });
        if let Some(partition) = topics.partition(place) {
            loaded.partition.cut_front(partition.log.start_offset());
        }
        &mut loaded.partition
    }

    /// Bytes that could be read, counted until they are `enough`.
    fn available_bytes(
        &mut self,
        group_id: &str,
        places: &[Place],
        rules: &GroupRules,
        enough: usize,
    ) -> usize {
        let mut bytes = 0;
        for place in places {
            let Some(partition) = self.topics.partition(*place) else {
                continue;
            };
            let end = readable_end(partition, rules.read_committed);
            let Some(from) = next_fetch_offset(&mut self.groups, group_id, *place) else {
                continue;
            };
            if from < end && bytes == 0 && enough == 0 {
                return 1;
            }
            let batches = partition.log.read(from, end, usize::MAX, true);
            for batch in batches {
                bytes += batch.bytes.len();
                if bytes >= enough {
                    return bytes;
                }
            }
        }
        bytes
    }

    /// Reads all partitions before anything is acquired: the bytes are shared evenly, and only the
    /// first batch of all may exceed them.
    fn read_for(
        &mut self,
        wait: &ShareFetchWait,
        places: &[Place],
        rules: &GroupRules,
    ) -> Vec<Read> {
        let share = wait.bytes_max / places.len().max(1);
        let mut total = wait.bytes_max;
        let mut is_first = true;
        let mut all = Vec::new();
        for place in places {
            let Some(partition) = self.topics.partition(*place) else {
                continue;
            };
            let end = readable_end(partition, rules.read_committed);
            let Some(fetch_offset) = next_fetch_offset(&mut self.groups, &wait.group_id, *place)
            else {
                continue;
            };
            let batches = partition
                .log
                .read(fetch_offset, end, share.min(total), is_first);
            let batches: Vec<StoredBatch> = batches.cloned().collect();
            total = total.saturating_sub(batches.iter().map(|batch| batch.bytes.len()).sum());
            is_first &= batches.is_empty();
            all.push(Read {
                place: *place,
                fetch_offset,
                batches,
            });
        }
        all
    }

    /// Hands out of what was read; returns how many records.
    fn acquire(
        &mut self,
        now: Instant,
        wait: &ShareFetchWait,
        read: &Read,
        left: i64,
        rules: &GroupRules,
    ) -> (FetchedPartition, i64) {
        let mut answer = FetchedPartition {
            partition_index: read.place.1,
            ..Default::default()
        };
        let terms = AcquireTerms {
            records_max: left,
            member_id: Arc::clone(&wait.terms.member_id),
            ..wait.terms
        };
        let borders: Vec<(i64, i64)> = read
            .batches
            .iter()
            .map(|batch| (batch.base_offset, batch.last_offset))
            .collect();
        let aborted = self.aborted_of(read, rules);
        let group = self.groups.entry(wait.group_id.clone()).or_default();
        let Some(loaded) = group.loaded.get_mut(&read.place) else {
            return (answer, 0);
        };
        let mut acquired =
            loaded
                .partition
                .acquire(now, &terms, &rules.limits, read.fetch_offset, &borders);
        if !aborted.is_empty() {
            acquired.ranges = loaded.partition.archive_aborted(&acquired.ranges, &aborted);
        }
        self.watch_locks(&wait.group_id, read.place);
        answer.records = slice(&read.batches, &acquired);
        let count = acquired.count;
        answer.acquired_records = acquired.ranges;
        (answer, count)
    }

    fn aborted_of(&self, read: &Read, rules: &GroupRules) -> Vec<(i64, i64)> {
        let Some(partition) = self
            .topics
            .partition(read.place)
            .filter(|_| rules.read_committed)
        else {
            return Vec::new();
        };
        let aborted = read
            .batches
            .iter()
            .filter(|batch| partition.log.is_aborted(batch));
        aborted
            .map(|batch| (batch.base_offset, batch.last_offset))
            .collect()
    }

    fn failed(&self, place: Place, error: ErrorCode) -> FetchedPartition {
        FetchedPartition {
            partition_index: place.1,
            error_code: error,
            error_message: Some(error.name().to_owned()),
            current_leader: self.leader_hint(place, error),
            ..Default::default()
        }
    }

    /// The leader that an answer names, where its error asks for that.
    pub(crate) fn leader_hint(&self, place: Place, error: ErrorCode) -> LeaderIdAndEpoch {
        let partition = self.topics.partition(place);
        match (error, partition) {
            (ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch, Some(partition)) => {
                LeaderIdAndEpoch {
                    leader_id: partition.leader,
                    leader_epoch: partition.leader_epoch,
                }
            }
            _ => LeaderIdAndEpoch::default(),
        }
    }

    /// Where the leaders that an answer names listen.
    pub(crate) fn endpoints(
        &self,
        leaders: impl IntoIterator<Item = BrokerId>,
    ) -> Vec<NodeEndpoint> {
        let mut endpoints: Vec<NodeEndpoint> = Vec::new();
        for node_id in leaders {
            let is_known = endpoints.iter().any(|known| known.node_id == node_id);
            if let Some(node) = self.nodes.get(&node_id).filter(|_| !is_known) {
                endpoints.push(NodeEndpoint {
                    node_id,
                    host: node.host.clone(),
                    port: i32::from(node.port),
                    rack: None,
                });
            }
        }
        endpoints
    }

    fn share_fetch_answer(
        &self,
        wait: &ShareFetchWait,
        mut fetched: Vec<(Place, FetchedPartition)>,
        rules: &GroupRules,
    ) -> ShareFetchResponse {
        let mut responses: Vec<FetchedTopic> = Vec::new();
        let acknowledged = wait.results.iter().map(|result| result.place);
        let outside = acknowledged.filter(|place| !wait.places.contains(place));
        let mut leaders = Vec::new();
        for place in wait.places.iter().copied().chain(outside) {
            let found = fetched.iter().position(|(of, _)| *of == place);
            let mut partition = found.map_or_else(
                || FetchedPartition {
                    partition_index: place.1,
                    ..Default::default()
                },
                |index| fetched.swap_remove(index).1,
            );
            let result = wait.results.iter().find(|result| result.place == place);
            if let Some(result) = result {
                partition.acknowledge_error_code = result.error;
                partition.acknowledge_error_message = text_of(result.error);
            }
            let says_something = result.is_some()
                || !partition.error_code.is_none()
                || !partition.acquired_records.is_empty();
            if !says_something && !wait.is_opening {
                continue;
            }
            if matches!(
                partition.error_code,
                ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch
            ) {
                leaders.push(partition.current_leader.leader_id);
            }
            match responses.iter_mut().find(|topic| topic.topic_id == place.0) {
                Some(topic) => topic.partitions.push(partition),
                None => responses.push(FetchedTopic {
                    topic_id: place.0,
                    partitions: vec![partition],
                }),
            }
        }
        ShareFetchResponse {
            acquisition_lock_timeout_ms: lock_ms(rules),
            responses,
            node_endpoints: self.endpoints(leaders),
            ..Default::default()
        }
    }

    /// Applies a member's acknowledgements of one partition at this broker, all or none.
    ///
    /// # Errors
    /// The partition's error.
    pub(crate) fn acknowledge(
        &mut self,
        now: Instant,
        broker: BrokerId,
        key: &SessionKey,
        place: Place,
        request: (&[AcknowledgementBatch], i16, bool),
    ) -> Result<(), ErrorCode> {
        let (batches, version, is_renew) = request;
        let Some(partition) = self.topics.partition(place) else {
            return Err(match self.topics.get(place.0) {
                Some(_) => ErrorCode::UnknownTopicOrPartition,
                None => ErrorCode::UnknownTopicId,
            });
        };
        check_batches(batches, version, is_renew)?;
        // A leader that lost the partition has forgotten it: no hint, as if it never existed.
        let is_led = partition.leader == broker;
        let group = self.groups.get_mut(&key.0).filter(|_| is_led);
        let loaded = group.and_then(|group| group.loaded.get_mut(&place));
        let loaded = loaded.ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let rules = self.configs.group(&key.0);
        let outcome = loaded
            .partition
            .acknowledge(now, &key.1, batches, &rules.limits);
        let outcome = outcome.map_err(|error| error.code())?;
        self.bury(now, &key.0, place, &outcome.lost, &rules);
        self.touched.insert(place);
        self.watch_locks(&key.0, place);
        Ok(())
    }

    /// Frees what a member held in a session that ended. A partition that the session has forgotten
    /// keeps its locks.
    pub(crate) fn release_session(
        &mut self,
        broker: BrokerId,
        key: &SessionKey,
        session: &ShareSession,
    ) {
        let rules = self.configs.group(&key.0);
        for place in &session.partitions {
            let is_led = self
                .topics
                .partition(*place)
                .is_some_and(|partition| partition.leader == broker);
            let group = self.groups.get_mut(&key.0).filter(|_| is_led);
            let Some(loaded) = group.and_then(|group| group.loaded.get_mut(place)) else {
                continue;
            };
            let released = loaded.partition.release_member(&key.1, &rules.limits);
            if !released.ranges.is_empty() {
                self.touched.insert(*place);
                let now = self.start.0;
                self.bury(now, &key.0, *place, &released.lost, &rules);
            }
        }
    }

    /// Ends locks of a share partition whose time is over.
    pub(super) fn expire_locks(&mut self, now: Instant, group_id: &str, place: Place) {
        let rules = self.configs.group(group_id);
        let group = self.groups.get_mut(group_id);
        let Some(loaded) = group.and_then(|group| group.loaded.get_mut(&place)) else {
            return;
        };
        loaded.timer = None;
        let released = loaded.partition.expire(now, &rules.limits);
        if !released.ranges.is_empty() {
            self.touched.insert(place);
            self.bury(now, group_id, place, &released.lost, &rules);
        }
        self.watch_locks(group_id, place);
    }

    /// Sets a timer for the next lock that ends.
    fn watch_locks(&mut self, group_id: &str, place: Place) {
        let group = self.groups.get_mut(group_id);
        let Some(loaded) = group.and_then(|group| group.loaded.get_mut(&place)) else {
            return;
        };
        let Some(end) = loaded.partition.next_lock_end() else {
            return;
        };
        if loaded.timer.is_none_or(|at| end < at) {
            loaded.timer = Some(end);
            self.timers
                .set(end, Timer::Lock(group_id.to_owned(), place));
        }
    }
}

/// The text that goes with an error, null without one.
pub(crate) fn text_of(error: ErrorCode) -> Option<String> {
    (!error.is_none()).then(|| error.name().to_owned())
}

/// The group's lock duration as answers tell it.
pub(crate) fn lock_ms(rules: &GroupRules) -> i32 {
    i32::try_from(rules.limits.lock.as_millis()).unwrap_or(i32::MAX)
}

fn next_fetch_offset(
    groups: &mut std::collections::BTreeMap<String, super::group::Group>,
    group_id: &str,
    place: Place,
) -> Option<i64> {
    let loaded = groups.get_mut(group_id)?.loaded.get_mut(&place)?;
    Some(loaded.partition.next_fetch_offset())
}

/// Up to where records may be handed out.
fn readable_end(partition: &Partition, read_committed: bool) -> i64 {
    if read_committed {
        partition.log.last_stable_offset()
    } else {
        partition.log.end_offset()
    }
}

/// Where a group starts on a partition (KIP-932 `share.auto.offset.reset`).
fn first_offset(partition: &Partition, reset: OffsetReset, unix_ms: i64) -> i64 {
    match reset {
        OffsetReset::Earliest => partition.log.start_offset(),
        OffsetReset::Latest => partition.log.end_offset(),
        OffsetReset::ByDuration(duration) => {
            let age = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
            let found = partition.log.offset_for_time(unix_ms.saturating_sub(age));
            found.map_or(partition.log.end_offset(), |(offset, _)| offset)
        }
    }
}

/// The whole batches from the first acquired offset to the last.
fn slice(batches: &[StoredBatch], acquired: &Acquired) -> Bytes {
    let (Some(first), Some(last)) = (acquired.ranges.first(), acquired.ranges.last()) else {
        return Bytes::new();
    };
    let wanted = |batch: &&StoredBatch| {
        batch.last_offset >= first.first_offset && batch.base_offset <= last.last_offset
    };
    let mut wanted = batches.iter().filter(wanted);
    let (one, two) = (wanted.next(), wanted.next());
    match (one, two) {
        (None, _) => Bytes::new(),
        (Some(only), None) => only.bytes.clone(),
        (Some(one), Some(two)) => {
            let mut bytes = BytesMut::from(&one.bytes[..]);
            bytes.extend_from_slice(&two.bytes);
            wanted.for_each(|batch| bytes.extend_from_slice(&batch.bytes));
            bytes.freeze()
        }
    }
}
