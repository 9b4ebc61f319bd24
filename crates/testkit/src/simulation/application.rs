//! What a member's application does: it takes events, handles records and settles them.

use std::time::Duration;

use sharegroup_session::{Acknowledgement, Event};

use super::judge::Grant;
use super::member::{Act, Life};
use super::planted::Planted;
use super::run::{Happening, World};
use crate::random::Random;

/// So long after a member's end the broker must hold nothing for it.
const CLOSED_CHECK: Duration = Duration::from_secs(1);

/// Offsets that a handler settles together, at most.
const PIECE_MAX: u64 = 40;

impl World {
    /// Takes a core's events; `grants` is what the answer at hand granted.
    pub(super) fn take_events(&mut self, index: usize, grants: &[Grant]) -> bool {
        let mut any = false;
        while let Some(event) = self.members[index].core.poll_event() {
            any = true;
            if self.planted.swallows(&event) {
                continue;
            }
            self.trace(index, || match &event {
                Event::Acquired(acquired) => format!(
                    "acquired {:?} of partition {}: {:?}",
                    acquired.id, acquired.partition.partition, acquired.ranges
                ),
                event => format!("{event:?}"),
            });
            if self.members[index].life == Life::Closed {
                let what = format!("event after the end of member {index}: {event:?}");
                self.judge.object("S7", what);
            }
            let member = &mut self.members[index];
            let objection = match event {
                Event::Acquired(acquired) => match member.enter(&acquired, grants) {
                    Some(holding) => {
                        self.arrived(index, holding);
                        None
                    }
                    None => Some(format!(
                        "acquired what nobody granted: {:?}",
                        acquired.ranges
                    )),
                },
                Event::Acknowledged(mut outcome) => {
                    self.planted.spoil_outcome(&mut outcome);
                    if let Err(failure) = outcome.result {
                        self.tally.failed(failure);
                    }
                    member.take_outcome(&outcome)
                }
                Event::LockRenewed {
                    acquisition,
                    deadline,
                    ..
                } => {
                    member.renewed(acquisition, deadline);
                    None
                }
                Event::LockLost(loss) => {
                    self.tally.failed(loss.why);
                    member.take_loss(&loss)
                }
                Event::LastDeliveryDropped(dropped) => {
                    member.reject_last(self.now, &dropped);
                    None
                }
                Event::Stalled => {
                    member.is_stalled = member.hangs_until > self.now;
                    None
                }
                Event::Fatal(error) => Some(format!("member {index} gives up: {error}")),
                Event::Closed => {
                    member.life = Life::Closed;
                    self.schedule(self.now + CLOSED_CHECK, Happening::IsClosed(index));
                    None
                }
                _ => None,
            };
            if let Some(what) = objection {
                self.judge.object("told", what);
            }
        }
        any
    }

    /// Records arrived: handlers settle them in pieces, in any order, after a while.
    fn arrived(&mut self, index: usize, number: usize) {
        let holding = &self.members[index].holdings[number];
        let (Some((first, delivery)), Some((last, _))) = (
            holding.deliveries.first_key_value(),
            holding.deliveries.last_key_value(),
        ) else {
            return;
        };
        let mut random = Random::of(self.script.seed, 1_000 + *delivery as u64);
        for id in holding.deliveries.values() {
            self.judge.deliveries[*id].holding = Some(number);
        }
        let (mut next, last) = (*first, *last);
        let place = holding.place;
        while next <= last {
            let piece_end = last.min(next + i64::try_from(random.below(PIECE_MAX)).unwrap_or(0));
            let handling_max = if self.is_calm {
                Duration::from_millis(20)
            } else {
                self.script.setup.handling_max
            };
            let at = self.now + random.duration(Duration::ZERO, handling_max);
            let act = self.choose(&mut random);
            let mut handle = |range, at, act| {
                let happening = Happening::Handle {
                    member: index,
                    holding: number,
                    range,
                    act,
                };
                self.sequence += 1;
                self.queue.insert((at, self.sequence), happening);
            };
            // Offsets without a record are nobody's work, as in the consumer.
            let mut from = next;
            for hole in next..=piece_end {
                if self.holes.contains(&(place, hole)) {
                    if from < hole {
                        handle((from, hole - 1), at, act);
                    }
                    let gap = Act::Settle(Acknowledgement::Gap);
                    handle((hole, hole), self.now, gap);
                    from = hole + 1;
                }
            }
            if from <= piece_end {
                handle((from, piece_end), at, act);
            }
            next = piece_end + 1;
        }
    }

    fn choose(&self, random: &mut Random) -> Act {
        if self.is_calm {
            return Act::Settle(Acknowledgement::Accept);
        }
        let [release, reject, drop] = self.script.setup.unhappy_percent;
        match random.below(100) {
            number if number < release => Act::Settle(Acknowledgement::Release),
            number if number < release + reject => Act::Settle(Acknowledgement::Reject),
            number if number < release + reject + drop => Act::Drop,
            _ => Act::Settle(Acknowledgement::Accept),
        }
    }

    /// A handler is done.
    pub(super) fn handle(&mut self, index: usize, holding: usize, range: (i64, i64), act: Act) {
        let now = self.now;
        let member = &mut self.members[index];
        if member.life != Life::Running {
            return;
        }
        if member.hangs_until > now {
            let happening = Happening::Handle {
                member: index,
                holding,
                range,
                act,
            };
            let at = member.hangs_until;
            return self.schedule(at, happening);
        }
        member.is_touched = true;
        let is_gap = act == Act::Settle(Acknowledgement::Gap);
        let act = if member.drops_until > now && !is_gap {
            Act::Drop
        } else {
            act
        };
        let is_hasty = self.planted.is(Planted::ReleaseDroppedAtOnce);
        let (settled, ours) = member.act(now, holding, range, (act, is_hasty));
        if settled != ours {
            let what =
                format!("member {index} settled {settled} offsets of {range:?}, {ours} held");
            self.judge.object("S4", what);
        }
        self.take_events(index, &[]);
        self.spoil_stale(index, holding, range);
    }
}
