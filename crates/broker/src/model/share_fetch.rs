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
use super::history::Event;
use super::log::StoredBatch;
use super::share_partition::{
    AckError, AcquireTerms, Acquired, Settlement, SharePartition, check_batches,
};
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
    /// Whole batches: all, or as many as can be handed out.
    batches: Vec<StoredBatch>,
    /// The beginning of the next batch, as far as the bytes reach.
    cut: Bytes,
}

const KEY: i16 = ShareFetchRequest::API_KEY;

impl Model {
    /// What a share fetch gets, if there is something, or if its time `is_over`.
    pub(crate) fn try_share_fetch(
        &mut self,
        now: Instant,
        broker: BrokerId,
        wait: &ShareFetchWait,
        is_over: bool,
    ) -> Option<Vec<(Place, FetchedPartition)>> {
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
        let has_enough =
            !open.is_empty() && self.available_bytes(wait, &open, &rules) >= wait.bytes_min;
        if !(is_over || all_failed || wants_nothing || has_enough) {
            self.remember_reads(&wait.group_id, &open);
            return None;
        }
        for (place, error) in &mut failed {
            // A scripted error counts only when it is told.
            *error = self.faults.partition(KEY, *place).unwrap_or(*error);
        }
        let read = self.read_in_turn(wait, &open, &rules, is_over);
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
        self.move_back(broker, wait, &answer);
        Some(answer)
    }

    /// *Quirk*: the partitions of a session that got records come last from then on, in the order in
    /// which a hash table holds them. The first answer of a session changes nothing.
    fn move_back(
        &mut self,
        broker: BrokerId,
        wait: &ShareFetchWait,
        answer: &[(Place, FetchedPartition)],
    ) {
        let served = answer.iter().filter(|(_, got)| !got.records.is_empty());
        let mut served: Vec<Place> = served.map(|(place, _)| *place).collect();
        served.sort_by_key(|place| self.topics.hash_order(*place));
        if !wait.is_opening
            && let Some(session) = self.session_of(broker, wait)
        {
            session.move_back(&served);
        }
    }

    fn session_of(&mut self, broker: BrokerId, wait: &ShareFetchWait) -> Option<&mut ShareSession> {
        let key = (wait.group_id.clone(), wait.terms.member_id.to_string());
        self.nodes.get_mut(&broker)?.sessions.get_mut(&key)
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
            Loaded::new(SharePartition::new(start))
        });
        if let Some(partition) = topics.partition(place) {
            loaded.partition.cut_front(partition.log.start_offset());
        }
        &mut loaded.partition
    }

    /// Bytes that could be read, up to each partition's share, counted until they are enough.
    fn available_bytes(
        &mut self,
        wait: &ShareFetchWait,
        places: &[Place],
        rules: &GroupRules,
    ) -> usize {
        let enough = wait.bytes_min;
        // Where there are fewer bytes than partitions, a real broker gives one to some, by chance.
        let share = (wait.bytes_max / places.len().max(1)).max(1);
        let mut bytes = 0;
        for place in places {
            let Some(partition) = self.topics.partition(*place) else {
                continue;
            };
            let end = readable_end(partition, rules.read_committed);
            let Some(from) = next_fetch_offset(&mut self.groups, &wait.group_id, *place) else {
                continue;
            };
            if from < end && bytes == 0 && enough == 0 {
                return 1;
            }
            let mut own = 0;
            for batch in partition.log.read(from, end, usize::MAX, true) {
                own += batch.bytes.len();
                if own >= share || bytes + own >= enough {
                    break;
                }
            }
            bytes += own.min(share);
            if bytes >= enough {
                return bytes;
            }
        }
        bytes
    }

    /// Notes where share partitions stand that were looked at for nothing.
    fn remember_reads(&mut self, group_id: &str, places: &[Place]) {
        for place in places {
            let group = self.groups.get_mut(group_id);
            if let Some(loaded) = group.and_then(|group| group.loaded.get_mut(place)) {
                loaded.read_at = Some(loaded.partition.next_fetch_offset());
            }
        }
    }

    /// Reads all partitions before anything is acquired.
    ///
    /// *Quirk*: a real broker remembers where it read a share partition last. One that stands
    /// elsewhere now is read first, to see whether there is enough; then the others are, in a read of
    /// their own, and come before it. Only a fetch whose time `is_over` reads all in one go.
    fn read_in_turn(
        &mut self,
        wait: &ShareFetchWait,
        places: &[Place],
        rules: &GroupRules,
        is_over: bool,
    ) -> Vec<Read> {
        let share = wait.bytes_max / places.len().max(1);
        if is_over {
            return self.read_all(wait, places, rules, share);
        }
        let mut moved = Vec::new();
        let mut same = Vec::new();
        for place in places {
            let group = self.groups.get_mut(&wait.group_id);
            let Some(loaded) = group.and_then(|group| group.loaded.get_mut(place)) else {
                continue;
            };
            let next = loaded.partition.next_fetch_offset();
            let has_moved = loaded.read_at.replace(next) != Some(next);
            if has_moved { &mut moved } else { &mut same }.push(*place);
        }
        let mut read = self.read_all(wait, &same, rules, share);
        read.extend(self.read_all(wait, &moved, rules, share));
        read
    }

    /// One read of several partitions: each gets its `share` of the bytes, and only the first batch of
    /// all may exceed it.
    fn read_all(
        &mut self,
        wait: &ShareFetchWait,
        places: &[Place],
        rules: &GroupRules,
        share: usize,
    ) -> Vec<Read> {
        let mut total = wait.bytes_max;
        let mut is_first = true;
        let mut all = Vec::new();
        for place in places {
            let Some(partition) = self.topics.partition(*place) else {
                continue;
            };
            let end = readable_end(partition, rules.read_committed);
            let group = self.groups.get_mut(&wait.group_id);
            let Some(loaded) = group.and_then(|group| group.loaded.get_mut(place)) else {
                continue;
            };
            let fetch_offset = loaded.partition.next_fetch_offset();
            let reach = loaded
                .partition
                .reach(&wait.terms, &rules.limits, fetch_offset);
            let bytes_max = share.min(total);
            let (mut batches, mut size, mut behind) = (Vec::new(), 0, i64::MAX);
            for batch in partition.log.read(fetch_offset, end, bytes_max, is_first) {
                size += batch.bytes.len();
                behind = batch.last_offset + 1;
                // Of what lies further behind nothing can be handed out, however many batches there are.
                if batches.len() < 2 || batch.base_offset <= reach {
                    batches.push(batch.clone());
                }
            }
            total = total.saturating_sub(size);
            is_first &= batches.is_empty();
            let next = partition.log.read(behind, end, usize::MAX, true).next();
            let left = bytes_max.saturating_sub(size);
            let cut = next.map(|next| next.bytes.slice(..left.min(next.bytes.len())));
            all.push(Read {
                place: *place,
                fetch_offset,
                batches,
                cut: cut.unwrap_or_default(),
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
            self.note_share_state(&wait.group_id, read.place);
        }
        self.watch_locks(&wait.group_id, read.place);
        if acquired.count > 0 {
            self.history.note(now, || Event::Acquired {
                group_id: wait.group_id.clone(),
                member_id: wait.terms.member_id.to_string(),
                place: read.place,
                ranges: acquired.ranges.clone(),
            });
        }
        answer.records = self.damaged(KEY, read.place, slice(read, &acquired));
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
            error_message: text_of(error),
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

    /// The answer to a share fetch with what it got and the results of its acknowledgements.
    pub(crate) fn share_fetch_answer(
        &mut self,
        broker: BrokerId,
        wait: &ShareFetchWait,
        mut fetched: Vec<(Place, FetchedPartition)>,
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
            let has_failed = !partition.error_code.is_none();
            let session = self.session_of(broker, wait).filter(|_| found.is_some());
            let is_owed = session.is_some_and(|session| {
                let is_owed = session.owed.remove(&place);
                if has_failed {
                    session.owed.insert(place);
                }
                is_owed
            });
            let says_something =
                result.is_some() || has_failed || is_owed || !partition.acquired_records.is_empty();
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
            acquisition_lock_timeout_ms: lock_ms(&self.configs.group(&wait.group_id)),
            responses,
            node_endpoints: self.endpoints(leaders),
            ..Default::default()
        }
    }

    /// Looks at a member's acknowledgements of one partition at this broker: what they settle counts
    /// with [`settle`](Self::settle) only, as a real broker writes it first.
    ///
    /// # Errors
    /// The partition's error.
    pub(crate) fn look_at_acknowledgements(
        &mut self,
        now: Instant,
        broker: BrokerId,
        key: &SessionKey,
        place: Place,
        request: (&[AcknowledgementBatch], i16, bool),
    ) -> Result<Settlement, ErrorCode> {
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
        let rules = self.configs.group(&key.0);
        let group = self.groups.get_mut(&key.0).filter(|_| is_led);
        let loaded = group.and_then(|group| group.loaded.get_mut(&place));
        let partition = &mut loaded.ok_or(ErrorCode::UnknownTopicOrPartition)?.partition;
        let settlement = partition.look_at(now, &key.1, batches, &rules.limits);
        self.watch_locks(&key.0, place);
        settlement.map_err(AckError::code)
    }

    /// Settles what was looked at; returns whether the start offset has moved.
    ///
    /// *Quirk*: only then a real broker looks whether somebody waits. What is released alone is found
    /// by the next fetch, or when one that waits has waited long enough.
    pub(crate) fn settle(
        &mut self,
        now: Instant,
        key: &SessionKey,
        place: Place,
        settlement: Settlement,
    ) -> bool {
        let (group_id, member_id) = key;
        let rules = self.configs.group(group_id);
        let group = self.groups.get_mut(group_id);
        let Some(loaded) = group.and_then(|group| group.loaded.get_mut(&place)) else {
            return false;
        };
        let is_written = !settlement.is_empty();
        let start = loaded.partition.start_offset();
        let outcome = loaded.partition.settle(settlement, &rules.limits);
        let has_moved = loaded.partition.start_offset() > start;
        if is_written {
            self.note_share_state(group_id, place);
        }
        self.history.note(now, || Event::Acknowledged {
            group_id: group_id.clone(),
            member_id: member_id.clone(),
            place,
            applied: outcome.applied.clone(),
        });
        self.bury(now, group_id, place, &outcome.lost, &rules);
        if has_moved {
            self.touched.insert(place);
        }
        has_moved
    }

    /// Frees what a member held in a session that ended. A partition that the session has forgotten
    /// keeps its locks.
    ///
    /// *Quirks*: as with [`settle`](Self::settle), who waits isn't told of what is released. With the last
    /// session of a group a broker forgets the group's share partitions: they are loaded anew, as after
    /// a restart.
    pub(crate) fn release_session(
        &mut self,
        now: Instant,
        broker: BrokerId,
        key: &SessionKey,
        session: &ShareSession,
    ) {
        let rules = self.configs.group(&key.0);
        for place in &session.partitions {
            let is_led = self.is_led_by(*place, broker);
            let group = self.groups.get_mut(&key.0).filter(|_| is_led);
            let Some(loaded) = group.and_then(|group| group.loaded.get_mut(place)) else {
                continue;
            };
            let start = loaded.partition.start_offset();
            let released = loaded.partition.release_member(&key.1, &rules.limits);
            if loaded.partition.start_offset() > start {
                self.touched.insert(*place);
            }
            if !released.ranges.is_empty() {
                self.note_share_state(&key.0, *place);
                self.bury(now, &key.0, *place, &released.lost, &rules);
                self.history.note(now, || Event::Released {
                    group_id: key.0.clone(),
                    member_id: key.1.clone(),
                    place: *place,
                    ranges: released.ranges,
                });
            }
        }
        let node = self.nodes.get(&broker);
        if node.is_none_or(|node| !node.sessions.has_members(&key.0)) {
            self.unload(broker, &key.0);
        }
    }

    fn unload(&mut self, broker: BrokerId, group_id: &str) {
        let group = self.groups.get(group_id);
        let places = group.map(|group| group.loaded.keys().copied().collect::<Vec<Place>>());
        for place in places.unwrap_or_default() {
            if self.is_led_by(place, broker)
                && let Some(group) = self.groups.get_mut(group_id)
            {
                group.reload(place);
            }
        }
    }

    fn is_led_by(&self, place: Place, broker: BrokerId) -> bool {
        let partition = self.topics.partition(place);
        partition.is_some_and(|partition| partition.leader == broker)
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
            self.note_share_state(group_id, place);
            self.touched.insert(place);
            self.bury(now, group_id, place, &released.lost, &rules);
            self.history.note(now, || Event::Expired {
                group_id: group_id.to_owned(),
                place,
                ranges: released.ranges,
            });
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

/// The text that goes with an error, null without one: Kafka's words where its clients pass them on.
pub(crate) fn text_of(error: ErrorCode) -> Option<String> {
    let text = match error {
        ErrorCode::None => return None,
        ErrorCode::UnknownTopicOrPartition => "This server does not host this topic-partition.",
        ErrorCode::NonEmptyGroup => "The group is not empty.",
        error => error.name(),
    };
    Some(text.to_owned())
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
///
/// *Quirk*: where only one whole batch was read, what follows it comes along, cut off.
fn slice(read: &Read, acquired: &Acquired) -> Bytes {
    let (Some(first), Some(last)) = (acquired.ranges.first(), acquired.ranges.last()) else {
        return Bytes::new();
    };
    let wanted = |batch: &&StoredBatch| {
        batch.last_offset >= first.first_offset && batch.base_offset <= last.last_offset
    };
    let mut wanted = read.batches.iter().filter(wanted);
    let (one, two) = (wanted.next(), wanted.next());
    match (one, two) {
        (None, _) => Bytes::new(),
        (Some(only), None) if read.batches.len() > 1 || read.cut.is_empty() => only.bytes.clone(),
        (Some(only), None) => [&only.bytes[..], &read.cut[..]].concat().into(),
        (Some(one), Some(two)) => {
            let mut bytes = BytesMut::from(&one.bytes[..]);
            bytes.extend_from_slice(&two.bytes);
            wanted.for_each(|batch| bytes.extend_from_slice(&batch.bytes));
            bytes.freeze()
        }
    }
}
