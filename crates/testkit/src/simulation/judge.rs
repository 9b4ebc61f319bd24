//! What must be true of every run (the table of promises in [`super`]), told from the broker's own history
//! and from what each application said and was told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use sharegroup_broker::model::topics::Place;
use sharegroup_session::AckFailure;
use sharegroup_wire::message::share_fetch::{AcquiredRecords, ShareFetchResponse};

use super::member::Holding;
use super::network::Number;

/// Names one delivery of one record, in the order in which the broker granted them.
pub(super) type DeliveryId = usize;

/// The wire's type of a renewal.
pub(super) const RENEW: i8 = 4;

/// Violations that are written down; one mistake breaks many promises.
const VIOLATIONS_MAX: usize = 10;

/// A promise that a run broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Virtual time since the start.
    pub at: Duration,
    /// S1 to S8, or what else.
    pub promise: &'static str,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at.as_secs_f64();
        write!(f, "{at:.3} s: {}: {}", self.promise, self.what)
    }
}

/// How a delivery ended at the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// An acknowledgement was applied.
    Applied(i8),
    /// An acknowledgement of an earlier delivery was applied, out of a connection that its member had given up.
    LeftBehind(i8),
    /// Its lock ran out.
    Expired,
    /// The script took its lock away.
    Taken,
    /// Its share session ended.
    SessionEnded,
    /// Its share partition was loaded anew.
    Reloaded,
    /// Its topic was deleted.
    TopicGone,
}

impl End {
    /// The record never comes again.
    pub(super) const fn is_for_good(self) -> bool {
        matches!(self, Self::Applied(0 | 1 | 3) | Self::LeftBehind(0 | 1 | 3))
    }
}

/// One delivery of one record.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) member: usize,
    pub(super) acquired_at: Instant,
    /// 1 = the record's first.
    pub(super) count: i16,
    pub(super) end: Option<End>,
    /// The connection that carried it.
    pub(super) connection: Option<Number>,
    /// The member's holding, once it arrived.
    pub(super) holding: Option<usize>,
}

/// What one fetch got of one partition.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) place: Place,
    ranges: Vec<AcquiredRecords>,
    pub(super) deliveries: Vec<(i64, DeliveryId)>,
}

#[derive(Debug)]
pub(super) struct Judge {
    start: Instant,
    pub(super) now: Instant,
    /// What happens now comes out of a connection that its member has given up.
    pub(super) is_left_behind: bool,
    pub(super) deliveries: Vec<Delivery>,
    /// The latest delivery of each record.
    pub(super) current: BTreeMap<(Place, i64), DeliveryId>,
    /// What was granted to a member and isn't in an answer yet.
    granted: BTreeMap<usize, Vec<Grant>>,
    /// Partitions of topics that were deleted.
    pub(super) gone: BTreeSet<Place>,
    /// Most offsets that one fetch got of one partition.
    pub(super) largest_grant: u64,
    pub(super) violations: Vec<Violation>,
}

impl Judge {
    pub(super) const fn new(start: Instant) -> Self {
        Self {
            start,
            now: start,
            is_left_behind: false,
            deliveries: Vec::new(),
            current: BTreeMap::new(),
            granted: BTreeMap::new(),
            gone: BTreeSet::new(),
            largest_grant: 0,
            violations: Vec::new(),
        }
    }

    pub(super) fn object(&mut self, promise: &'static str, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            let at = self.now - self.start;
            self.violations.push(Violation { at, promise, what });
        }
    }

    // ---- the broker's history

    pub(super) fn granted(&mut self, member: usize, place: Place, ranges: &[AcquiredRecords]) {
        if self.gone.contains(&place) {
            let what = format!("records of a deleted topic are granted: {place:?}");
            self.object("broker", what);
        }
        let mut deliveries = Vec::new();
        for range in ranges {
            for offset in range.first_offset..=range.last_offset {
                let id = self.deliveries.len();
                self.deliveries.push(Delivery {
                    member,
                    acquired_at: self.now,
                    count: range.delivery_count,
                    end: None,
                    connection: None,
                    holding: None,
                });
                deliveries.push((offset, id));
                let Some(before) = self.current.insert((place, offset), id) else {
                    continue;
                };
                match self.deliveries[before].end {
                    // With a group's last session a broker forgets the locks of forgotten partitions.
                    None => self.deliveries[before].end = Some(End::Reloaded),
                    Some(end) if end.is_for_good() => {
                        self.object("broker", format!("offset {offset} came back settled"));
                    }
                    Some(_) => {}
                }
            }
        }
        self.largest_grant = self.largest_grant.max(deliveries.len() as u64);
        self.granted.entry(member).or_default().push(Grant {
            place,
            ranges: ranges.to_vec(),
            deliveries,
        });
    }

    /// The grants that an answer carries.
    pub(super) fn take_grants(
        &mut self,
        member: usize,
        response: &ShareFetchResponse,
    ) -> Vec<Grant> {
        let granted = self.granted.entry(member).or_default();
        let mut taken = Vec::new();
        for topic in &response.responses {
            for partition in &topic.partitions {
                let place = (topic.topic_id, partition.partition_index);
                // The newest: one of the same look may be left of an answer that was never sent.
                let found = granted.iter().rposition(|grant| {
                    grant.place == place && grant.ranges == partition.acquired_records
                });
                taken.extend(found.map(|index| granted.remove(index)));
            }
        }
        taken
    }

    /// Offsets of a partition whose latest delivery is open.
    pub(super) fn open(&self, place: Place) -> Vec<i64> {
        let current = self.current.range((place, i64::MIN)..=(place, i64::MAX));
        let open = current.filter(|(_, id)| self.deliveries[**id].end.is_none());
        open.map(|((_, offset), _)| *offset).collect()
    }

    /// A delivery that is still open ends.
    pub(super) fn end(&mut self, place: Place, offset: i64, end: End) -> Option<DeliveryId> {
        let id = *self.current.get(&(place, offset))?;
        let delivery = &mut self.deliveries[id];
        if delivery.end.is_some() {
            return None;
        }
        delivery.end = Some(end);
        Some(id)
    }

    /// An acknowledgement was applied: it must be what its owner said of that very delivery (S1, S3).
    pub(super) fn applied(
        &mut self,
        (member, holdings): (usize, &[Holding]),
        (place, offset): (Place, i64),
        wire_type: i8,
    ) {
        let Some(id) = self.current.get(&(place, offset)).copied() else {
            return self.object(
                "S3",
                format!("offset {offset} is acknowledged and was never granted"),
            );
        };
        let delivery = &mut self.deliveries[id];
        if delivery.member != member {
            let owner = delivery.member;
            return self.object(
                "S3",
                format!("member {member} acknowledges offset {offset} of member {owner}"),
            );
        }
        if wire_type == RENEW {
            return;
        }
        if let Some(end) = delivery.end {
            return self.object(
                "S3",
                format!("offset {offset} is acknowledged after it ended: {end:?}"),
            );
        }
        delivery.end = Some(End::Applied(wire_type));
        let holding = delivery.holding.and_then(|holding| holdings.get(holding));
        let said = holding.and_then(|holding| holding.said.get(&offset));
        let expected = said.map(|said| said.wire_type());
        if expected == Some(wire_type) {
            return;
        }
        if self.was_said_before(holdings, (place, offset), wire_type) {
            self.deliveries[id].end = Some(End::LeftBehind(wire_type));
        } else {
            self.object(
                "S1",
                format!(
                    "offset {offset}: member {member} said {said:?}, type {wire_type} was sent"
                ),
            );
        }
    }

    /// Whether this is an acknowledgement of an earlier delivery, legal when it was sent, that comes out of a
    /// connection which its member has given up: the member's next session has reached the same epoch, and
    /// got the record again. No client can call it back, and what it says of the record was said.
    fn was_said_before(
        &self,
        holdings: &[Holding],
        (place, offset): (Place, i64),
        wire_type: i8,
    ) -> bool {
        let mut said = holdings
            .iter()
            .filter(|holding| holding.place == place)
            .filter_map(|holding| holding.said.get(&offset));
        self.is_left_behind && said.any(|said| said.wire_type() == wire_type)
    }

    // ---- what a member sends and was told

    /// Nothing may be sent that can only be refused, or hit another delivery (S4).
    pub(super) fn sent(
        &mut self,
        connection: Number,
        (place, offset): (Place, i64),
        latest: Option<DeliveryId>,
    ) {
        let Some(id) = latest else {
            return self.object(
                "S4",
                format!("acknowledgement of offset {offset}, which never arrived"),
            );
        };
        let delivery = &self.deliveries[id];
        let what = match delivery.end {
            _ if delivery.connection != Some(connection) => "in another session than its own",
            Some(End::Expired) => "after its lock ran out",
            Some(End::Applied(_)) => "a second time",
            _ => return,
        };
        let member = delivery.member;
        self.object(
            "S4",
            format!(
                "member {member} acknowledges offset {offset} of partition {} {what}",
                place.1
            ),
        );
    }

    /// Each offset was told exactly one fate, and what was told is true.
    pub(super) fn told(&mut self, member: usize, holding: &Holding) {
        for (offset, id) in &holding.deliveries {
            let end = self.deliveries[*id].end;
            let applied = matches!(end, Some(End::Applied(_)));
            let is_true = match holding.told.get(offset) {
                None => {
                    self.object(
                        "S2",
                        format!("member {member} was told nothing of offset {offset}: {end:?}"),
                    );
                    continue;
                }
                // Behind a leader that moved there and back, or a lock taken away unseen, another may
                // have settled it, and the broker says yes to what lies before its start offset.
                Some(Ok(_)) => {
                    applied || matches!(end, Some(End::Reloaded | End::Taken | End::LeftBehind(_)))
                }
                Some(Err(AckFailure::Unknown | AckFailure::AnsweredLate)) => true,
                Some(Err(_)) => !applied,
            };
            if !is_true {
                let told = holding.told.get(offset);
                self.object(
                    "S3",
                    format!("member {member} was told {told:?} of offset {offset}: {end:?}"),
                );
            }
        }
    }
}
