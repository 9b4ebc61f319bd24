//! The end of a run: all is well again, everything is taken, everybody leaves; and what must be true then.

use std::collections::BTreeSet;
use std::time::Duration;

use sharegroup_broker::model::topics::Place;
use sharegroup_session::MemberState;

use super::Outcome;
use super::judge::End;
use super::member::{Life, Member};
use super::run::{GROUP, World};

/// A run in which nothing more is settled for so long will never be done.
const STANDSTILL_MAX: Duration = Duration::from_secs(600);

/// Longest close of a member to which nothing bad happens.
const CLOSE_MAX: Duration = Duration::from_secs(60);

impl World {
    /// After a close the broker holds nothing for the member, but on connections that went silent (S7),
    /// and what it refused to take back.
    pub(super) fn check_closed(&mut self, index: usize) {
        let Some(group) = self.model.groups.get(GROUP) else {
            return;
        };
        let id = &self.members[index].id;
        let isolated = self.network.isolated.iter();
        let mut isolated = isolated.filter(|((member, _), _)| *member == index);
        if isolated.any(|(_, until)| *until + Duration::from_secs(1) > self.now) {
            return;
        }
        let mut left = Vec::new();
        for (place, loaded) in &group.loaded {
            for (offset, record) in loaded.partition.records() {
                if !record.state.is_held_by(id) {
                    continue;
                }
                let delivery = self.judge.current.get(&(*place, offset));
                let delivery = delivery.map(|id| &self.judge.deliveries[*id]);
                let connection = delivery.and_then(|delivery| delivery.connection);
                let is_silent =
                    connection.is_none_or(|number| self.network.connections[number].is_silent);
                // What the broker refused to take back, of a partition that left the session, stays
                // with it until the lock ends.
                let holding = delivery.and_then(|delivery| delivery.holding);
                let told = holding.and_then(|holding| {
                    let holdings = &self.members[index].holdings;
                    holdings[holding].told.get(&offset)
                });
                let is_excused = is_silent || matches!(told, Some(Err(_)));
                if !is_excused {
                    left.push((place.1, offset));
                }
            }
        }
        if !left.is_empty() {
            let what = format!("member {index} has closed and the broker holds {left:?} for it");
            self.judge.object("S7", what);
        }
    }

    /// Offsets that are not settled yet.
    fn unsettled(&self) -> i64 {
        let group = self.model.groups.get(GROUP);
        let places = self.places().into_iter();
        let unsettled = places.map(|place| {
            let end = self.model.topics.partition(place);
            let end = end.map_or(0, |partition| partition.log.end_offset());
            let loaded = group.and_then(|group| group.loaded.get(&place));
            end - loaded.map_or(0, |loaded| loaded.partition.start_offset())
        });
        unsettled.sum()
    }

    /// All is well again: everything must be done in the end.
    fn drain(&mut self) {
        self.is_calm = true;
        self.end_steps();
        self.add_member();
        let (mut least, mut until) = (i64::MAX, self.now);
        while self.judge.violations.is_empty() {
            let unsettled = self.unsettled();
            if unsettled < least {
                (least, until) = (unsettled, self.now + STANDSTILL_MAX);
            }
            let undone = if unsettled > 0 {
                let what = "records are left, and nobody takes them".to_owned();
                Some(("S2", what))
            } else {
                self.idle_member().map(|what| ("work", what))
            };
            match undone {
                None => return,
                Some((promise, what)) if self.now >= until => {
                    return self.judge.object(promise, what);
                }
                Some(_) => self.run_until(self.now + Duration::from_secs(1)),
            }
        }
    }

    /// A running member that isn't in the group with its subscription, or doesn't fetch what it is assigned.
    fn idle_member(&self) -> Option<String> {
        let group = self.model.groups.get(GROUP);
        let running = self.members.iter();
        let mut running = running.filter(|member| member.life == Life::Running);
        running.find_map(|member| {
            let Some(known) = group.and_then(|group| group.members.get(&member.id)) else {
                return Some(format!("{} is not in the group", member.id));
            };
            let assignment = member.core.assignment();
            let places = assignment.iter().map(|view| {
                let place = view.partition;
                (place.topic_id, place.partition)
            });
            let places: BTreeSet<Place> = places.collect();
            let works = member.core.member_state() == MemberState::Stable
                && known.topics == member.subscribed
                && known.assigned == places
                && assignment.iter().all(|view| view.fetch_answered);
            (!works).then(|| {
                let state = member.core.member_state();
                format!(
                    "{} is {state:?} with {assignment:?}; the group: {known:?}",
                    member.id
                )
            })
        })
    }

    fn close_all(&mut self) {
        for index in 0..self.members.len() {
            if self.members[index].life == Life::Running {
                self.close_member(index);
            }
        }
        let until = self.now + CLOSE_MAX;
        while self.members.iter().any(Member::is_live) && self.judge.violations.is_empty() {
            if self.now >= until {
                let what = "a member does not end its close".to_owned();
                return self.judge.object("S7", what);
            }
            self.run_until(self.now + Duration::from_secs(1));
        }
        self.run_until(self.now + Duration::from_secs(2));
    }

    /// Every record is settled, or used up and its last delivery was told of.
    fn check_settled(&mut self) {
        let limit = self.script.setup.delivery_count_limit;
        for place in self.places() {
            let end = self.model.topics.partition(place);
            let end = end.map_or(0, |partition| partition.log.end_offset());
            for offset in 0..end {
                let id = self.judge.current.get(&(place, offset)).copied();
                let last = id.map(|id| &self.judge.deliveries[id]);
                let is_settled = match last.and_then(|last| last.end) {
                    Some(end) if end.is_for_good() => true,
                    None | Some(End::Reloaded) => false,
                    Some(_) => last.is_some_and(|last| last.count >= limit),
                };
                if !is_settled {
                    let what = format!(
                        "offset {offset} of partition {} vanished: {last:?}",
                        place.1
                    );
                    self.judge.object("S2", what);
                }
            }
        }
    }

    pub(super) fn run(mut self) -> Outcome {
        let script_end = self.start + self.script.setup.length;
        self.run_until(script_end);
        if self.judge.violations.is_empty() {
            self.drain();
        }
        if self.judge.violations.is_empty() {
            self.close_all();
        }
        if self.judge.violations.is_empty() {
            self.check_settled();
            for (index, member) in self.members.iter().enumerate() {
                if member.life == Life::Closed {
                    for holding in &member.holdings {
                        self.judge.told(index, holding);
                    }
                }
            }
        }
        self.tally.deliveries = self.judge.deliveries.len() as u64;
        Outcome {
            virtual_time: self.now - self.start,
            violations: self.judge.violations,
            tally: self.tally,
        }
    }
}
