//! What must be true of every run (the table of promises in [`super`]).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Instant;

use sharegroup_broker::model::history::Event;
use sharegroup_broker::model::topics::Place as Partition;
use sharegroup_wire::TopicId;
use sharegroup_wire::message::share_fetch::AcquiredRecords;

use super::script::Script;
use super::target::{Place, Planted, Seen, Target};

const GAP: i8 = 0;
const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;
const REJECT: i8 = 3;

/// What came of runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Verdict {
    pub(super) violations: Vec<String>,
    pub(super) tally: Tally,
}

/// What runs met.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    calm: u64,
    records: u64,
    writes: u64,
    letters: u64,
    released: u64,
    expired: u64,
    failed_tasks: u64,
    killed: u64,
    puts: u64,
    failed_puts: u64,
    puts_while_down: u64,
    hung: u64,
    never_returned: u64,
    panicked: u64,
    refused: u64,
    /// Records given up on their last delivery.
    named: u64,
}

impl Verdict {
    pub(super) fn broken(what: String) -> Self {
        Self {
            violations: vec![what],
            tally: Tally::default(),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.violations.extend(other.violations);
        let (sum, more) = (&mut self.tally, other.tally);
        for (sum, more) in sum.numbers().into_iter().zip(more.values()) {
            *sum += more;
        }
    }
}

impl Tally {
    fn numbers(&mut self) -> [&mut u64; 16] {
        [
            &mut self.calm,
            &mut self.records,
            &mut self.writes,
            &mut self.letters,
            &mut self.released,
            &mut self.expired,
            &mut self.failed_tasks,
            &mut self.killed,
            &mut self.puts,
            &mut self.failed_puts,
            &mut self.puts_while_down,
            &mut self.hung,
            &mut self.never_returned,
            &mut self.panicked,
            &mut self.refused,
            &mut self.named,
        ]
    }

    fn values(mut self) -> [u64; 16] {
        self.numbers().map(|number| *number)
    }

    /// Runs that meet no trouble prove nothing.
    pub(super) fn assert_met(self) {
        // That happens once in thousands of runs.
        let common = Self { named: 1, ..self };
        assert!(
            !common.values().contains(&0),
            "something never happened: {self:?}"
        );
    }
}

/// The delivery of a record that counts.
#[derive(Debug, Clone)]
struct Delivery {
    at: Instant,
    count: i16,
    member_id: Rc<str>,
}

/// How the last delivery of a record ended without a word of what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GivenUp {
    /// Its member released it.
    Released,
    /// Its member lost its lock or its session.
    Lost,
    /// Nobody could know: its member was killed, or the answer that had it never left the broker.
    Unseen,
}

/// Looks at a run while it goes on.
pub(super) struct Judge {
    is_calm: bool,
    tolerates: bool,
    credit: u64,
    /// What of more than that may be held: where records aren't acquired one by one, each leader may give a
    /// whole batch more.
    slack: u64,
    is_hard: bool,
    planted: Option<Planted>,
    target: Target,
    topic: TopicId,
    deliveries: BTreeMap<Place, Delivery>,
    /// How each record was settled for good, and when.
    settled: BTreeMap<Place, (i8, Instant)>,
    /// What was released, or lost its lock, on its last delivery.
    given_up: BTreeMap<Place, GivenUp>,
    /// Members of workers that were killed.
    killed: BTreeSet<String>,
    /// Whether a task that failed has said of such records.
    failed_of_given_up: bool,
    verdict: Verdict,
}

impl Judge {
    pub(super) fn new(script: &Script, target: Target, topic: TopicId) -> Self {
        Self {
            is_calm: script.calm,
            tolerates: script.tolerates,
            credit: script.credit.into(),
            slack: 0,
            is_hard: script.by_record,
            planted: script.planted,
            target,
            topic,
            deliveries: BTreeMap::new(),
            settled: BTreeMap::new(),
            given_up: BTreeMap::new(),
            killed: BTreeSet::new(),
            failed_of_given_up: false,
            verdict: Verdict::default(),
        }
    }

    fn broken(&mut self, what: String) {
        // One mistake breaks many promises.
        if self.verdict.violations.len() < 5 {
            self.verdict.violations.push(what);
        }
    }

    pub(super) fn events(&mut self, events: Vec<(Instant, Event)>) {
        for (at, event) in events {
            match event {
                Event::Acquired {
                    place,
                    ranges,
                    member_id,
                    ..
                } if place.0 == self.topic => {
                    self.acquired(at, place, &ranges, &member_id);
                }
                Event::Acknowledged { place, applied, .. } if place.0 == self.topic => {
                    self.acknowledged(at, place, &applied);
                }
                Event::Expired { place, ranges, .. } if place.0 == self.topic => {
                    self.expired(at, place, &ranges);
                }
                Event::Released { place, ranges, .. } if place.0 == self.topic => {
                    self.came_back(at, place, &ranges);
                }
                _ => {}
            }
        }
    }

    fn acquired(
        &mut self,
        at: Instant,
        place: Partition,
        ranges: &[AcquiredRecords],
        member_id: &str,
    ) {
        let sizes = ranges
            .iter()
            .map(|r| r.first_offset.abs_diff(r.last_offset) + 1);
        self.slack = self.slack.max(BROKERS * sizes.sum::<u64>());
        let member_id: Rc<str> = member_id.into();
        for range in ranges {
            for offset in range.first_offset..=range.last_offset {
                let delivery = Delivery {
                    at,
                    count: range.delivery_count,
                    member_id: Rc::clone(&member_id),
                };
                self.deliveries.insert((place.1, offset), delivery);
            }
        }
    }

    fn acknowledged(&mut self, at: Instant, place: Partition, applied: &[(i64, i64, i8)]) {
        for (first, last, how) in applied {
            for offset in *first..=*last {
                let record = (place.1, offset);
                match *how {
                    RELEASE => self.released(record),
                    GAP => self.broken(format!("S2: {record:?} was acknowledged as a gap")),
                    ACCEPT | REJECT => {
                        self.settled.insert(record, (*how, at));
                    }
                    _ => {}
                }
            }
        }
    }

    fn released(&mut self, record: Place) {
        self.verdict.tally.released += 1;
        let count = self
            .deliveries
            .get(&record)
            .map_or(0, |delivery| delivery.count);
        if count >= LIMIT {
            self.given_up.insert(record, GivenUp::Released);
        }
    }

    fn expired(&mut self, at: Instant, place: Partition, ranges: &[(i64, i64, i16)]) {
        self.verdict.tally.expired += 1;
        if self.is_calm {
            self.broken(format!("S8: locks ran out: {}: {ranges:?}", place.1));
        }
        self.came_back(at, place, ranges);
    }

    fn came_back(&mut self, at: Instant, place: Partition, ranges: &[(i64, i64, i16)]) {
        for (first, last, count) in ranges {
            if *count >= LIMIT {
                for offset in *first..=*last {
                    let record = (place.1, offset);
                    let how = match self.deliveries.get(&record) {
                        Some(delivery) if self.reached_nobody(delivery, at) => GivenUp::Unseen,
                        _ => GivenUp::Lost,
                    };
                    self.given_up.entry(record).or_insert(how);
                }
            }
        }
    }

    fn reached_nobody(&self, delivery: &Delivery, ended_at: Instant) -> bool {
        delivery.at == ended_at || self.killed.contains(&*delivery.member_id)
    }

    pub(super) fn held(&mut self, records: u64) {
        let most = self.credit + if self.is_hard { 0 } else { self.slack };
        if records > most {
            self.broken(format!("S5: {records} records held of {most}"));
        }
    }

    pub(super) fn task_failed(&mut self, trace: Option<&str>) {
        self.verdict.tally.failed_tasks += 1;
        if self.is_calm {
            self.broken(format!("work: a task failed: {trace:?}"));
        }
        if trace.is_none_or(str::is_empty) {
            self.broken("work: a task failed without a word".to_owned());
        }
    }

    /// A task of a worker that has stopped had failed, and said this.
    pub(super) fn ended_failed(&mut self, trace: Option<&str>) {
        self.failed_of_given_up |=
            trace.is_some_and(|trace| trace.contains("last allowed delivery"));
    }

    /// So many records are held by a worker that stopped in time.
    pub(super) fn left_behind(&mut self, records: usize) {
        if records > 0 && self.is_calm {
            self.broken(format!("S7: {records} records left behind"));
        }
    }

    pub(super) fn killed(&mut self, member_ids: impl IntoIterator<Item = String>) {
        self.verdict.tally.killed += 1;
        self.killed.extend(member_ids);
    }

    pub(super) fn stuck(&mut self, what: String) {
        self.broken(format!("work: not settled in the end: {what}"));
    }

    /// Looks at the whole: the ends of the partitions, which record each dead letter is of, and which are
    /// named as lost.
    pub(super) fn end(
        mut self,
        produced: &BTreeMap<i32, i64>,
        letters: &[Place],
        named: &BTreeSet<Place>,
    ) -> Verdict {
        let mut writes: BTreeMap<Place, Vec<Instant>> = BTreeMap::new();
        for write in self.target.writes() {
            self.verdict.tally.writes += 1;
            writes
                .entry(write.place)
                .or_default()
                .push(write.at.into_std());
        }
        let kept = usize::from(self.planted == Some(Planted::KeepsNoLetter));
        let mut letters_of: BTreeMap<Place, u64> = BTreeMap::new();
        for letter in letters.iter().skip(kept) {
            self.verdict.tally.letters += 1;
            *letters_of.entry(*letter).or_default() += 1;
        }
        self.look_at_given_up(named, &writes, &letters_of);
        for (partition, end) in produced {
            for offset in 0..*end {
                let place = (*partition, offset);
                let written = writes.get(&place).map_or(&[][..], Vec::as_slice);
                self.record(place, written, letters_of.get(&place).copied().unwrap_or(0));
            }
        }
        self.count();
        self.verdict
    }

    /// A record that its worker loses or releases on its last delivery is written, or has a dead letter where
    /// those are kept, or is named by a task that failed.
    fn look_at_given_up(
        &mut self,
        named: &BTreeSet<Place>,
        writes: &BTreeMap<Place, Vec<Instant>>,
        letters: &BTreeMap<Place, u64>,
    ) {
        for (record, how) in self.given_up.clone() {
            let is_kept = writes.contains_key(&record) || letters.contains_key(&record);
            if how == GivenUp::Unseen || how == GivenUp::Lost && is_kept {
                continue;
            }
            if !named.contains(&record) {
                self.broken(format!(
                    "S2, S6: {record:?} was on its last delivery ({how:?}), and not named"
                ));
            } else if !self.failed_of_given_up && self.verdict.tally.killed == 0 {
                self.broken(format!(
                    "S2, S6: {record:?} was on its last delivery ({how:?}), and no task failed"
                ));
            } else if how == GivenUp::Released && self.tolerates && self.is_calm {
                // A cluster in trouble may take no letter in time.
                self.broken(format!(
                    "S2, S6: {record:?} was released on its last delivery, and has no letter"
                ));
            }
            self.verdict.tally.named += 1;
        }
    }

    fn record(&mut self, place: Place, written: &[Instant], letters: u64) {
        self.verdict.tally.records += 1;
        let is_poison = self.target.is_poison(place);
        match self.settled.get(&place).copied() {
            Some((ACCEPT, at)) => {
                let since = self.deliveries.get(&place).map(|delivery| delivery.at);
                let in_time = |write: &Instant| *write <= at && since.is_some_and(|s| *write >= s);
                if !written.iter().any(in_time) {
                    self.broken(format!(
                        "S1: {place:?} was accepted, and written {written:?}"
                    ));
                }
            }
            Some((REJECT, _)) if !self.tolerates || !is_poison && !self.was_last(place) => {
                self.broken(format!(
                    "S1: {place:?} was rejected, and is nothing to reject"
                ));
            }
            Some((REJECT, _)) if letters == 0 => {
                self.broken(format!("S2: {place:?} was rejected without a letter"));
            }
            Some(_) => {}
            None if self.given_up.contains_key(&place) => {}
            None => self.broken(format!("S2: {place:?} was never settled")),
        }
        let once = if is_poison { (0, 1) } else { (1, 0) };
        if self.is_calm && (written.len() as u64, letters) != once {
            let writes = written.len();
            self.broken(format!(
                "S3: {place:?} was written {writes} times, with {letters} letters"
            ));
        }
    }

    /// Whether the delivery that counts was the last allowed one.
    fn was_last(&self, place: Place) -> bool {
        let delivery = self.deliveries.get(&place);
        delivery.is_some_and(|delivery| delivery.count >= LIMIT)
    }

    fn count(&mut self) {
        let tally = &mut self.verdict.tally;
        tally.calm = self.is_calm.into();
        let seen: Seen = self.target.seen();
        tally.puts = seen.puts;
        tally.failed_puts = seen.failed;
        tally.puts_while_down = seen.down;
        tally.hung = seen.hung;
        tally.never_returned = seen.never_returned;
        tally.panicked = seen.panicked;
        tally.refused = seen.refused;
    }
}

/// Leaders of the partitions.
const BROKERS: u64 = 3;

/// Deliveries that a prepared group allows.
const LIMIT: i16 = 10;
