//! One core with its application: what it holds, what it said, what it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use sharegroup_session::{
    AckFailure, AckOutcome, Acknowledgement, AcquisitionId, CommitId, Event, LockLoss, Release,
    SessionCore, Warning,
};
use sharegroup_testkit::model::{Delivery, Place};

use super::network::Wires;

/// What an application said about an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Settled(Acknowledgement),
    /// Dropped, or held at the close: released by the core itself.
    LeftToCore,
}

/// One acquisition as its owner sees it.
#[derive(Debug)]
pub struct Holding {
    pub id: AcquisitionId,
    pub place: Place,
    /// Each offset and the delivery that the broker calls it.
    pub deliveries: BTreeMap<i64, Delivery>,
    pub delivery_counts: BTreeMap<i64, i16>,
    pub deadline: Instant,
    /// Offsets that are ours to settle.
    pub held: BTreeSet<i64>,
    pub said: BTreeMap<i64, Said>,
    /// Offsets whose fate was told, and what it was.
    pub told: BTreeMap<i64, Result<Acknowledgement, AckFailure>>,
}

pub struct Client {
    pub core: SessionCore,
    pub member_id: String,
    pub wires: Wires,
    pub holdings: Vec<Holding>,
    pub outcomes: Vec<AckOutcome>,
    pub losses: Vec<LockLoss>,
    pub releases: Vec<Release>,
    pub committed: Vec<CommitId>,
    pub warnings: Vec<(Instant, Warning)>,
    pub events: Vec<Event>,
    pub joined: usize,
    pub fatal: Option<String>,
    pub closing: bool,
    pub closed: bool,
    /// Holdings that no application has looked at yet.
    pub fresh: Vec<usize>,
    /// The application waits for records whenever it does nothing else.
    pub polls: bool,
}

impl Client {
    pub fn new(core: SessionCore, member_id: String) -> Self {
        Self {
            core,
            member_id,
            wires: Wires::default(),
            holdings: Vec::new(),
            outcomes: Vec::new(),
            losses: Vec::new(),
            releases: Vec::new(),
            committed: Vec::new(),
            warnings: Vec::new(),
            events: Vec::new(),
            joined: 0,
            fatal: None,
            closing: false,
            closed: false,
            fresh: Vec::new(),
            polls: true,
        }
    }

    /// Settles what is held of a range. What the core counts must be what its events left us.
    pub fn settle(
        &mut self,
        now: Instant,
        holding: usize,
        range: (i64, i64),
        how: Acknowledgement,
    ) {
        let holding = &mut self.holdings[holding];
        for (first, last) in runs(holding.held.range(range.0..=range.1)) {
            let settled = self.core.acknowledge(now, holding.id, first, last, how);
            assert_eq!(
                settled,
                (last - first + 1) as u64,
                "core settled other offsets than it said are ours"
            );
            for offset in first..=last {
                holding.held.remove(&offset);
                holding.said.insert(offset, Said::Settled(how));
            }
        }
    }

    /// Drops what is held of a range without settling it.
    pub fn drop_held(&mut self, now: Instant, holding: usize, range: (i64, i64)) {
        let holding = &mut self.holdings[holding];
        for (first, last) in runs(holding.held.range(range.0..=range.1)) {
            self.core.drop_held(now, holding.id, first, last);
            for offset in first..=last {
                holding.held.remove(&offset);
                holding.said.insert(offset, Said::LeftToCore);
            }
        }
    }

    pub fn close(&mut self, now: Instant) {
        self.closing = true;
        for holding in &mut self.holdings {
            let held = std::mem::take(&mut holding.held);
            holding
                .said
                .extend(held.into_iter().map(|offset| (offset, Said::LeftToCore)));
        }
        self.core.close(now);
    }

    /// Takes the core's events; `deliveries` names what a fetch has just granted.
    pub fn take_events(&mut self, now: Instant, deliveries: &[(Place, i64, Delivery)]) -> bool {
        let mut any = false;
        while let Some(event) = self.core.poll_event() {
            any = true;
            self.take_event(now, &event, deliveries);
            self.events.push(event);
        }
        any
    }

    fn take_event(&mut self, now: Instant, event: &Event, deliveries: &[(Place, i64, Delivery)]) {
        assert!(!self.closed, "event after the end: {event:?}");
        match event {
            Event::Joined { .. } => self.joined += 1,
            Event::Acquired(acquired) => {
                let place = (acquired.partition.topic_id, acquired.partition.partition);
                let mut holding = Holding {
                    id: acquired.id,
                    place,
                    deliveries: BTreeMap::new(),
                    delivery_counts: BTreeMap::new(),
                    deadline: acquired.deadline,
                    held: BTreeSet::new(),
                    said: BTreeMap::new(),
                    told: BTreeMap::new(),
                };
                for (_, offset, delivery) in deliveries.iter().filter(|(other, ..)| *other == place)
                {
                    let range = acquired
                        .ranges
                        .iter()
                        .find(|r| r.first_offset <= *offset && *offset <= r.last_offset);
                    let Some(range) = range else { continue };
                    holding.deliveries.insert(*offset, *delivery);
                    holding
                        .delivery_counts
                        .insert(*offset, range.delivery_count);
                    if self.closing {
                        holding.said.insert(*offset, Said::LeftToCore);
                    } else {
                        holding.held.insert(*offset);
                    }
                }
                assert!(
                    !holding.deliveries.is_empty(),
                    "acquired what nobody granted: {acquired:?}"
                );
                self.holdings.push(holding);
                self.fresh.push(self.holdings.len() - 1);
            }
            Event::Acknowledged(outcome) => self.take_outcome(outcome),
            Event::LockLost(loss) => self.take_loss(loss),
            Event::Released(release) => self.releases.push(release.clone()),
            Event::Committed(commit) => self.committed.push(*commit),
            Event::Warning(warning) => self.warnings.push((now, warning.clone())),
            Event::Fatal(error) => self.fatal = Some(error.to_string()),
            Event::Closed => self.closed = true,
            _ => {}
        }
    }

    fn holding_mut(&mut self, id: AcquisitionId) -> &mut Holding {
        self.holdings
            .iter_mut()
            .find(|holding| holding.id == id)
            .expect("event of an unknown acquisition")
    }

    fn take_outcome(&mut self, outcome: &AckOutcome) {
        let holding = self.holding_mut(outcome.acquisition);
        for offset in outcome.first_offset..=outcome.last_offset {
            let expected = match holding.said.get(&offset) {
                Some(Said::Settled(how)) => *how,
                Some(Said::LeftToCore) => Acknowledgement::Release,
                None => panic!("outcome of offset {offset} that nobody settled: {outcome:?}"),
            };
            assert_eq!(
                outcome.how, expected,
                "outcome of another acknowledgement: {outcome:?}"
            );
            let before = holding
                .told
                .insert(offset, outcome.result.map(|()| outcome.how));
            assert_eq!(before, None, "two outcomes of offset {offset}: {outcome:?}");
        }
        self.outcomes.push(outcome.clone());
    }

    fn take_loss(&mut self, loss: &LockLoss) {
        let holding = self.holding_mut(loss.acquisition);
        for offset in loss.first_offset..=loss.last_offset {
            let ours = holding.held.remove(&offset)
                || holding.said.get(&offset) == Some(&Said::LeftToCore);
            assert!(ours, "lost offset {offset} that was not held: {loss:?}");
            let before = holding.told.insert(offset, Err(loss.why));
            assert_eq!(
                before, None,
                "offset {offset} lost after its outcome: {loss:?}"
            );
        }
        self.losses.push(loss.clone());
    }

    /// Offsets with a given outcome, ascending.
    pub fn told(&self, place: Place, wanted: Result<Acknowledgement, AckFailure>) -> Vec<i64> {
        let holdings = self
            .holdings
            .iter()
            .filter(|holding| holding.place == place);
        let told = holdings.flat_map(|holding| holding.told.iter());
        let mut offsets: Vec<i64> = told
            .filter(|(_, told)| **told == wanted)
            .map(|(offset, _)| *offset)
            .collect();
        offsets.sort_unstable();
        offsets
    }

    /// Offsets that failed, whatever the reason.
    pub fn failed(&self) -> usize {
        self.outcomes
            .iter()
            .filter(|outcome| outcome.result.is_err())
            .map(|outcome| (outcome.last_offset - outcome.first_offset + 1) as usize)
            .sum()
    }
}

/// Ascending offsets as ranges.
fn runs<'a>(offsets: impl Iterator<Item = &'a i64>) -> Vec<(i64, i64)> {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for offset in offsets {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *offset => *last = *offset,
            _ => runs.push((*offset, *offset)),
        }
    }
    runs
}
