//! ShareFetch (78): acknowledges what came before, then hands out records, now or when there are
//! some.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use sharegroup_wire::message::share_acknowledge::ShareAcknowledgeRequest;
use sharegroup_wire::message::share_fetch::{
    ACQUIRE_BATCH_OPTIMIZED, ACQUIRE_RECORD_LIMIT, ShareFetchRequest, ShareFetchResponse,
};
use sharegroup_wire::{ErrorCode, SessionEpoch};

use super::{Reply, Serve, Touches};
use crate::model::share_partition::{AcquireMode, AcquireTerms, Settlement};
use crate::model::share_session::{Admission, SessionKey};
use crate::model::topics::Place;
use crate::model::{AckResult, Call, Model, Parked, ShareFetchWait, Wait, lock_ms};

impl Serve for ShareFetchRequest {
    const VERSIONS: RangeInclusive<i16> = 1..=2;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<ShareFetchResponse> {
        let key = match check(&self) {
            Ok(key) => key,
            Err(error) => return Reply::Now(self.refuse(call, error)),
        };
        let wait = Duration::from_millis(u64::try_from(self.max_wait_ms).unwrap_or(0));
        match model.admit(call, &key, self.share_session_epoch) {
            Ok(admission) => fetch(model, call, &self, &key, admission, wait),
            // A client that would try again at once waits here.
            Err(error @ ErrorCode::ShareSessionLimitReached) if !wait.is_zero() => {
                model.park(Parked {
                    call: call.clone(),
                    deadline: call.now + wait,
                    wait: Wait::Time(self.refuse(call, error)),
                });
                Reply::Parked
            }
            Err(error) => Reply::Now(self.refuse(call, error)),
        }
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> ShareFetchResponse {
        ShareFetchResponse {
            error_code: error,
            error_message: Some(error.name().to_owned()),
            ..Default::default()
        }
    }

    /// Those of its session, and those of its acknowledgements.
    fn touches(&self, model: &Model, call: &Call) -> Touches {
        const KEYS: [i16; 2] = [ShareFetchRequest::API_KEY, ShareAcknowledgeRequest::API_KEY];
        let mut touches = Vec::new();
        for topic in &self.topics {
            for partition in &topic.partitions {
                let place = (topic.topic_id, partition.partition_index);
                let acknowledges = !partition.acknowledgement_batches.is_empty();
                let keys = &KEYS[..1 + usize::from(acknowledges)];
                touches.extend(keys.iter().map(|key| (*key, place)));
            }
        }
        let key = self.group_id.clone().zip(self.member_id.clone());
        let node = model.nodes.get(&call.broker);
        let session = key
            .zip(node)
            .and_then(|(key, node)| node.sessions.get(&key));
        let places = session.map(|session| session.partitions.iter().copied());
        touches.extend(places.into_iter().flatten().map(|place| (KEYS[0], place)));
        touches
    }
}

/// What is wrong with a request before its session is looked at; it uses up no epoch.
fn check(request: &ShareFetchRequest) -> Result<SessionKey, ErrorCode> {
    let (Some(group_id), Some(member_id)) = (&request.group_id, &request.member_id) else {
        return Err(ErrorCode::InvalidRequest);
    };
    if member_id.is_empty() || member_id.chars().count() > 36 {
        return Err(ErrorCode::InvalidRequest);
    }
    let fetches = [
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.max_records,
    ]
    .iter()
    .any(|limit| *limit != 0);
    if request.is_renew_ack && fetches {
        return Err(ErrorCode::InvalidRequest);
    }
    let mut partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
    let acknowledges = partitions.any(|partition| !partition.acknowledgement_batches.is_empty());
    if acknowledges && request.share_session_epoch == SessionEpoch::OPEN {
        return Err(ErrorCode::InvalidRequest);
    }
    Ok((group_id.clone(), member_id.clone()))
}

fn fetch(
    model: &mut Model,
    call: &Call,
    request: &ShareFetchRequest,
    key: &SessionKey,
    admission: Admission,
    max_wait: Duration,
) -> Reply<ShareFetchResponse> {
    let mut wait = waits_for(request, key);
    wait.bytes_max = wait.bytes_max.min(model.fetch_bytes_max());
    let settlements = look_at_acknowledgements(model, call, request, key, &mut wait.results);
    if admission == Admission::Closing {
        settle(model, call, key, settlements);
        model.close_session(call, key);
        return Reply::Now(model.share_fetch_answer(&wait, Vec::new()));
    }
    wait.is_opening = admission == Admission::Opened;
    wait.places = change_session(model, call, request, key, wait.is_opening);
    // What is settled doesn't count yet for this fetch, unless it has to wait.
    let fetched = model.try_share_fetch(call.now, call.broker, &wait, false);
    settle(model, call, key, settlements);
    let fetched =
        fetched.or_else(|| model.try_share_fetch(call.now, call.broker, &wait, max_wait.is_zero()));
    if let Some(fetched) = fetched {
        return Reply::Now(model.share_fetch_answer(&wait, fetched));
    }
    model.park(Parked {
        call: call.clone(),
        deadline: call.now + max_wait,
        wait: Wait::ShareFetch(wait),
    });
    Reply::Parked
}

/// What is allowed of the acknowledgements; notes the result of each partition.
fn look_at_acknowledgements(
    model: &mut Model,
    call: &Call,
    request: &ShareFetchRequest,
    key: &SessionKey,
    results: &mut Vec<AckResult>,
) -> Vec<(Place, Settlement)> {
    let mut settlements = Vec::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            let batches = &partition.acknowledgement_batches;
            if batches.is_empty() {
                continue;
            }
            let place = (topic.topic_id, partition.partition_index);
            let asked = (&batches[..], call.version, request.is_renew_ack);
            let fault = model
                .faults
                .partition(ShareAcknowledgeRequest::API_KEY, place);
            let looked = match fault {
                Some(error) => Err(error),
                None => model.look_at_acknowledgements(call.now, call.broker, key, place, asked),
            };
            let error = looked.as_ref().err().copied().unwrap_or(ErrorCode::None);
            results.push(AckResult { place, error });
            settlements.extend(looked.ok().map(|settlement| (place, settlement)));
        }
    }
    settlements
}

fn settle(model: &mut Model, call: &Call, key: &SessionKey, settlements: Vec<(Place, Settlement)>) {
    for (place, settlement) in settlements {
        model.settle(call.now, key, place, settlement);
    }
}

fn waits_for(request: &ShareFetchRequest, key: &SessionKey) -> ShareFetchWait {
    let mode = if request.share_acquire_mode == ACQUIRE_RECORD_LIMIT {
        AcquireMode::RecordLimit
    } else {
        debug_assert!(request.share_acquire_mode == ACQUIRE_BATCH_OPTIMIZED);
        AcquireMode::BatchOptimized
    };
    ShareFetchWait {
        group_id: key.0.clone(),
        terms: AcquireTerms {
            member_id: Arc::from(key.1.as_str()),
            mode,
            records_max: i64::from(request.max_records),
            batch_size: i64::from(request.batch_size),
        },
        bytes_max: usize::try_from(request.max_bytes).unwrap_or(0),
        bytes_min: usize::try_from(request.min_bytes).unwrap_or(0),
        places: Vec::new(),
        results: Vec::new(),
        is_opening: false,
    }
}

/// Adds and forgets partitions; returns the session's in the order in which they are served now.
fn change_session(
    model: &mut Model,
    call: &Call,
    request: &ShareFetchRequest,
    key: &SessionKey,
    is_opening: bool,
) -> Vec<Place> {
    let added = request.topics.iter().flat_map(|topic| {
        let partitions = topic.partitions.iter();
        partitions.map(|partition| (topic.topic_id, partition.partition_index))
    });
    let forgotten = request.forgotten_topics_data.iter().flat_map(|topic| {
        topic
            .partitions
            .iter()
            .map(|partition| (topic.topic_id, *partition))
    });
    let forgotten: Vec<Place> = forgotten.collect();
    let session = model
        .nodes
        .get_mut(&call.broker)
        .and_then(|node| node.sessions.get_mut(key));
    let Some(session) = session else {
        return Vec::new();
    };
    // A new session forgets nothing.
    session.change(added, if is_opening { &[] } else { &forgotten });
    session.rotated(request.share_session_epoch)
}

impl Model {
    /// Checks a share request's session and moves its epoch on.
    pub(super) fn admit(
        &mut self,
        call: &Call,
        key: &SessionKey,
        epoch: SessionEpoch,
    ) -> Result<Admission, ErrorCode> {
        let sessions_max = self.configs.broker_number("group.share.max.share.sessions");
        let node = self
            .nodes
            .get_mut(&call.broker)
            .ok_or(ErrorCode::UnknownServerError)?;
        let sessions_max = usize::try_from(sessions_max).unwrap_or(usize::MAX);
        node.sessions.admit(key, call.link, epoch, sessions_max)
    }

    /// Ends a session and frees what its member held in it.
    pub(super) fn close_session(&mut self, call: &Call, key: &SessionKey) {
        let node = self.nodes.get_mut(&call.broker);
        if let Some(session) = node.and_then(|node| node.sessions.remove(key)) {
            self.release_session(call.now, call.broker, key, &session);
        }
    }

    /// The lock duration of a group, as answers tell it.
    pub(super) fn lock_ms(&self, group_id: &str) -> i32 {
        lock_ms(&self.configs.group(group_id))
    }
}
