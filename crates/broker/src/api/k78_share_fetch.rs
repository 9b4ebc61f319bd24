//! ShareFetch (78): acknowledges what came before, then hands out records, now or when there are
//! some.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use sharegroup_wire::message::share_acknowledge::ShareAcknowledgeRequest;
use sharegroup_wire::message::share_fetch::{
    ACQUIRE_BATCH_OPTIMIZED, ACQUIRE_RECORD_LIMIT, AcknowledgementBatch, ShareFetchRequest,
    ShareFetchResponse,
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
    let mut wait = waits_for(model, request, key);
    wait.is_opening = admission == Admission::Opened;
    if admission != Admission::Closing {
        wait.places = change_session(model, call, request, key, wait.is_opening);
    }
    let looked = look_at_acknowledgements(model, call, request, key, &mut wait.results);
    let settlements = match looked {
        Ok(settlements) => settlements,
        Err(error) => return Reply::Now(request.refuse(call, error)),
    };
    if admission == Admission::Closing {
        settle(model, call, key, settlements);
        model.close_session(call, key);
        return Reply::Now(model.share_fetch_answer(call.broker, &wait, Vec::new()));
    }
    if ![ACQUIRE_BATCH_OPTIMIZED, ACQUIRE_RECORD_LIMIT].contains(&request.share_acquire_mode) {
        settle(model, call, key, settlements);
        return Reply::Now(request.refuse(call, ErrorCode::UnknownServerError));
    }
    // What is settled doesn't count yet for this fetch, unless it has to wait; then it is looked at
    // with each partition whose start moves.
    let mut fetched = model.try_share_fetch(call.now, call.broker, &wait, false);
    for (place, settlement) in settlements {
        let has_moved = model.settle(call.now, key, place, settlement);
        if fetched.is_none() && has_moved {
            fetched = model.try_share_fetch(call.now, call.broker, &wait, false);
        }
    }
    if max_wait.is_zero() {
        fetched = fetched.or_else(|| model.try_share_fetch(call.now, call.broker, &wait, true));
    }
    if let Some(fetched) = fetched {
        return Reply::Now(model.share_fetch_answer(call.broker, &wait, fetched));
    }
    model.park(Parked {
        call: call.clone(),
        deadline: call.now + max_wait,
        wait: Wait::ShareFetch(wait),
    });
    Reply::Parked
}

/// What is allowed of the acknowledgements, in the order in which it is settled; notes the result of
/// each partition.
///
/// # Errors
/// *Quirk*: UNKNOWN_SERVER_ERROR of a partition fails the whole request; what came before it is settled.
fn look_at_acknowledgements(
    model: &mut Model,
    call: &Call,
    request: &ShareFetchRequest,
    key: &SessionKey,
    results: &mut Vec<AckResult>,
) -> Result<Vec<(Place, Settlement)>, ErrorCode> {
    let mut asked: Vec<(Place, &[AcknowledgementBatch])> = Vec::new();
    for topic in &request.topics {
        let partitions = topic.partitions.iter();
        let given = partitions.filter(|partition| !partition.acknowledgement_batches.is_empty());
        asked.extend(given.map(|partition| {
            let place = (topic.topic_id, partition.partition_index);
            (place, &partition.acknowledgement_batches[..])
        }));
    }
    asked.sort_by_key(|(place, _)| model.topics.hash_order(*place));
    let mut settlements = Vec::new();
    for (place, batches) in asked {
        let asked = (batches, call.version, request.is_renew_ack);
        let fault = model
            .faults
            .partition(ShareAcknowledgeRequest::API_KEY, place);
        let looked = match fault {
            Some(error) => Err(error),
            None => model.look_at_acknowledgements(call.now, call.broker, key, place, asked),
        };
        let error = looked.as_ref().err().copied().unwrap_or(ErrorCode::None);
        if error == ErrorCode::UnknownServerError && fault.is_none() {
            settle(model, call, key, settlements);
            return Err(error);
        }
        results.push(AckResult { place, error });
        settlements.extend(looked.ok().map(|settlement| (place, settlement)));
    }
    Ok(settlements)
}

fn settle(model: &mut Model, call: &Call, key: &SessionKey, settlements: Vec<(Place, Settlement)>) {
    for (place, settlement) in settlements {
        model.settle(call.now, key, place, settlement);
    }
}

fn waits_for(model: &Model, request: &ShareFetchRequest, key: &SessionKey) -> ShareFetchWait {
    let bytes = |number| usize::try_from(number).unwrap_or(0);
    let bytes_max = bytes(request.max_bytes).min(model.fetch_bytes_max());
    let mode = if request.share_acquire_mode == ACQUIRE_RECORD_LIMIT {
        AcquireMode::RecordLimit
    } else {
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
        bytes_max,
        bytes_min: bytes(request.min_bytes).min(bytes_max),
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
    // A new session forgets nothing, and owes nothing: its first answer has all partitions.
    session.change(added, if is_opening { &[] } else { &forgotten });
    if is_opening {
        session.owed.clear();
    }
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
