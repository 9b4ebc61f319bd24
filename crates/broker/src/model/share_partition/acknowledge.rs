//! Settling records: a partition's acknowledgements of one request stand or fall together.

use std::time::Instant;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::share_fetch::AcknowledgementBatch;

use super::in_flight::{InFlight, InFlightBatch, RecordState, Tracking};
use super::{Limits, Lost, LostCause, SharePartition};

/// The wire's acknowledge types (KIP-932, KIP-1222).
pub(crate) mod ack_type {
    pub(crate) const GAP: i8 = 0;
    pub(crate) const ACCEPT: i8 = 1;
    pub(crate) const RELEASE: i8 = 2;
    pub(crate) const REJECT: i8 = 3;
    pub(crate) const RENEW: i8 = 4;
}

use ack_type::{ACCEPT, GAP, REJECT, RELEASE, RENEW};

/// Why a partition's acknowledgements were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckError {
    /// Offsets before anything in flight.
    NotFound,
    /// The first offset lies behind what was handed out.
    FirstPastEnd,
    /// The last offset lies behind what was handed out.
    LastPastEnd,
    /// A range isn't acquired as a whole.
    BatchNotAcquired,
    /// An offset isn't acquired.
    OffsetNotAcquired,
    /// Another member holds it.
    NotOwner,
    /// The same request has settled it already.
    InTransition,
    /// The group has renewals turned off.
    RenewDisabled,
    /// The range reaches over the start, and nothing is in flight. *Quirk*: a real broker stumbles
    /// over that, and the whole request fails.
    NothingInFlight,
}

impl AckError {
    /// The code that the client gets.
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::FirstPastEnd | Self::LastPastEnd => ErrorCode::InvalidRequest,
            Self::NothingInFlight => ErrorCode::UnknownServerError,
            _ => ErrorCode::InvalidRecordState,
        }
    }
}

/// What acknowledgements changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AckOutcome {
    /// Ranges that changed with the wire's type, in the order of the request.
    pub applied: Vec<(i64, i64, i8)>,
    /// Records that are lost by them.
    pub lost: Vec<Lost>,
    /// Whether something became available.
    pub released: bool,
}

/// Acknowledgements that are allowed and not applied yet.
#[derive(Debug, Default)]
#[must_use = "nothing is settled without `SharePartition::settle`"]
pub struct Settlement {
    changes: Vec<Change>,
    renewed: AckOutcome,
}

impl Settlement {
    /// Whether it settles nothing: at most, locks were renewed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// A change that waits until the whole request has been looked at.
#[derive(Debug)]
struct Change {
    batch: i64,
    first: i64,
    last: i64,
    kind: i8,
}

/// Whether a partition's batches are legal in themselves: ascending, and with types that the version
/// has. A border that repeats passes here and fails later, as at the real broker.
///
/// # Errors
/// INVALID_REQUEST.
pub fn check_batches(
    batches: &[AcknowledgementBatch],
    version: i16,
    is_renew: bool,
) -> Result<(), ErrorCode> {
    let type_max = if version >= 2 { RENEW } else { REJECT };
    let mut previous = -1;
    for batch in batches {
        let offsets = batch.last_offset.checked_sub(batch.first_offset);
        let offsets = offsets.filter(|count| *count >= 0 && batch.first_offset >= previous);
        let types = batch.acknowledge_types.len();
        let offsets = offsets.and_then(|count| usize::try_from(count).ok());
        let is_legal = offsets
            .is_some_and(|count| types == 1 || Some(types) == count.checked_add(1))
            && batch
                .acknowledge_types
                .iter()
                .all(|kind| (GAP..=type_max).contains(kind) && (*kind != RENEW || is_renew));
        if !is_legal {
            return Err(ErrorCode::InvalidRequest);
        }
        previous = batch.last_offset;
    }
    Ok(())
}

impl SharePartition {
    /// Applies a member's acknowledgements, all or none: [`look_at`](Self::look_at) and
    /// [`settle`](Self::settle).
    ///
    /// # Errors
    /// As [`look_at`](Self::look_at).
    pub fn acknowledge(
        &mut self,
        now: Instant,
        member_id: &str,
        batches: &[AcknowledgementBatch],
        limits: &Limits,
    ) -> Result<AckOutcome, AckError> {
        let settlement = self.look_at(now, member_id, batches, limits)?;
        Ok(self.settle(settlement, limits))
    }

    /// Checks a member's acknowledgements and renews what they renew. What they settle stays
    /// acquired until [`settle`](Self::settle): a real broker writes it to the share coordinator
    /// meanwhile, and a fetch that carries acknowledgements doesn't see yet what they free.
    ///
    /// Offsets below the start are accepted without a word: nobody can tell a late acknowledgement
    /// from a repeated one there. *Quirk*: renewals that come before an offset at fault stay.
    ///
    /// # Errors
    /// [`AckError`] of the first offset at fault; nothing but renewals has changed.
    pub fn look_at(
        &mut self,
        now: Instant,
        member_id: &str,
        batches: &[AcknowledgementBatch],
        limits: &Limits,
    ) -> Result<Settlement, AckError> {
        let mut pass = Pass {
            now,
            member_id,
            limits,
            start_offset: self.start_offset,
            changes: Vec::new(),
            outcome: AckOutcome::default(),
        };
        for request in batches {
            if request.last_offset < self.start_offset {
                continue;
            }
            for first in self.batches_of(request)? {
                let Some(batch) = self.in_flight.get_mut(&first) else {
                    continue;
                };
                let renewed = pass.outcome.applied.len();
                let looked = pass.look_at(first, batch, request);
                if pass.outcome.applied.len() > renewed {
                    self.watch_lock(now + limits.lock, first);
                }
                looked?;
            }
        }
        Ok(Settlement {
            changes: pass.changes,
            renewed: pass.outcome,
        })
    }

    /// Applies what [`look_at`](Self::look_at) has allowed.
    pub fn settle(&mut self, settlement: Settlement, limits: &Limits) -> AckOutcome {
        let Settlement {
            changes,
            renewed: mut outcome,
        } = settlement;
        for change in &changes {
            self.apply(change, limits, &mut outcome);
        }
        if !changes.is_empty() {
            self.store();
            self.advance();
        }
        outcome
    }

    /// First offsets of the batches in flight that an acknowledgement touches.
    fn batches_of(&self, batch: &AcknowledgementBatch) -> Result<Vec<i64>, AckError> {
        let floor = |offset| self.in_flight.range(..=offset).next_back();
        let straddles =
            batch.first_offset < self.start_offset && batch.last_offset >= self.start_offset;
        let from = floor(batch.first_offset).or_else(|| {
            if straddles {
                floor(self.start_offset)
            } else {
                None
            }
        });
        let missing = if straddles {
            AckError::NothingInFlight
        } else {
            AckError::NotFound
        };
        let (from, _) = from.ok_or(missing)?;
        let touched = || self.in_flight.range(*from..=batch.last_offset);
        let (_, last) = touched().next_back().ok_or(AckError::NotFound)?;
        if last.last_offset < batch.first_offset {
            return Err(AckError::FirstPastEnd);
        }
        if last.last_offset < batch.last_offset {
            return Err(AckError::LastPastEnd);
        }
        Ok(touched().map(|(first, _)| *first).collect())
    }

    fn apply(&mut self, change: &Change, limits: &Limits, outcome: &mut AckOutcome) {
        let Some(batch) = self.in_flight.get_mut(&change.batch) else {
            return;
        };
        outcome
            .applied
            .push((change.first, change.last, change.kind));
        for (first, last, record) in runs_between(batch, change) {
            match change.kind {
                ACCEPT => record.state = RecordState::Acknowledged,
                RELEASE => {
                    if let Some(lost) = give_back(record, first, last, limits) {
                        outcome.lost.push(lost);
                    } else {
                        outcome.released = true;
                        self.look_back = true;
                    }
                }
                kind => {
                    record.state = RecordState::Archived;
                    if kind == REJECT {
                        outcome.lost.push(Lost {
                            first_offset: first,
                            last_offset: last,
                            delivery_count: record.delivery_count,
                            cause: LostCause::Rejected,
                        });
                    }
                }
            }
        }
    }
}

/// One request on its way through the batches in flight: renewals happen at once, every other change
/// is noted.
struct Pass<'a> {
    now: Instant,
    member_id: &'a str,
    limits: &'a Limits,
    start_offset: i64,
    changes: Vec<Change>,
    outcome: AckOutcome,
}

impl Pass<'_> {
    fn look_at(
        &mut self,
        first: i64,
        batch: &mut InFlightBatch,
        request: &AcknowledgementBatch,
    ) -> Result<(), AckError> {
        if batch.last_offset < self.start_offset {
            return Ok(());
        }
        let last = batch.last_offset;
        if let Tracking::Whole(record) = &mut batch.tracking {
            check_owner(record, self.member_id, AckError::BatchNotAcquired)?;
            if self.is_in_transition(first.max(request.first_offset)) {
                return Err(AckError::InTransition);
            }
            let is_whole = request.first_offset <= first && last <= request.last_offset;
            if is_whole && first >= self.start_offset && request.acknowledge_types.len() == 1 {
                return self.settle(record, first, (first, last), type_of(request, first));
            }
        }
        for (offset, record) in (first..).zip(batch.track_each(first)) {
            if offset < request.first_offset.max(self.start_offset) {
                continue;
            }
            if offset > request.last_offset {
                break;
            }
            check_owner(record, self.member_id, AckError::OffsetNotAcquired)?;
            if self.is_in_transition(offset) {
                return Err(AckError::InTransition);
            }
            self.settle(record, first, (offset, offset), type_of(request, offset))?;
        }
        Ok(())
    }

    /// Whether this request has settled an offset already: only the last one can come again.
    fn is_in_transition(&self, offset: i64) -> bool {
        let last = self.changes.last();
        last.is_some_and(|last| (last.first..=last.last).contains(&offset))
    }

    fn settle(
        &mut self,
        record: &mut InFlight,
        batch: i64,
        (first, last): (i64, i64),
        kind: i8,
    ) -> Result<(), AckError> {
        if kind == RENEW {
            renew(record, self.now, self.limits)?;
            self.outcome.applied.push((first, last, RENEW));
            return Ok(());
        }
        match self.changes.last_mut() {
            Some(change)
                if change.batch == batch && change.kind == kind && change.last + 1 == first =>
            {
                change.last = last;
            }
            _ => self.changes.push(Change {
                batch,
                first,
                last,
                kind,
            }),
        }
        Ok(())
    }
}

/// The states that a change covers: all of a whole batch, or its offsets.
fn runs_between<'a>(
    batch: &'a mut InFlightBatch,
    change: &Change,
) -> impl Iterator<Item = (i64, i64, &'a mut InFlight)> {
    let (first, last) = (change.first, change.last);
    let runs = batch.runs_mut(change.batch);
    runs.skip_while(move |(run, ..)| *run < first)
        .take_while(move |(run, ..)| *run <= last)
}

/// Makes a record available, unless it is out of deliveries.
pub(super) fn give_back(
    record: &mut InFlight,
    first_offset: i64,
    last_offset: i64,
    limits: &Limits,
) -> Option<Lost> {
    if record.delivery_count < limits.delivery_count_max {
        record.state = RecordState::Available;
        return None;
    }
    record.state = RecordState::Archived;
    Some(Lost {
        first_offset,
        last_offset,
        delivery_count: record.delivery_count,
        cause: LostCause::DeliveryCountExceeded,
    })
}

fn check_owner(record: &InFlight, member_id: &str, not_acquired: AckError) -> Result<(), AckError> {
    match &record.state {
        RecordState::Acquired { .. } if record.state.is_held_by(member_id) => Ok(()),
        RecordState::Acquired { .. } => Err(AckError::NotOwner),
        _ => Err(not_acquired),
    }
}

/// Starts a lock anew (KIP-1222); the deliveries stay as they are and nothing is stored.
fn renew(record: &mut InFlight, now: Instant, limits: &Limits) -> Result<(), AckError> {
    if !limits.renew_enabled {
        return Err(AckError::RenewDisabled);
    }
    if let RecordState::Acquired { lock_end, .. } = &mut record.state {
        *lock_end = now + limits.lock;
    }
    Ok(())
}

fn type_of(request: &AcknowledgementBatch, offset: i64) -> i8 {
    let types = &request.acknowledge_types;
    let index = usize::try_from(offset - request.first_offset).unwrap_or(0);
    let index = if types.len() > 1 { index } else { 0 };
    types.get(index).copied().unwrap_or(GAP)
}
