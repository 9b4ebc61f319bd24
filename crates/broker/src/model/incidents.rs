//! Scripted faults at work: rules meet requests and the time, and things happen to the cluster.

use std::time::{Duration, Instant};

use sharegroup_wire::BrokerId;

use super::Model;
use super::config::{Change, keys};
use super::faults::{Fault, Incident, Owner, Rule, RuleId, Target, Touch, When};
use super::links::Call;
use super::timers::Timer;
use crate::api::Incoming;

impl Model {
    /// Adds rules; their times count from `now`. [`Faults::clear`](super::faults::Faults::clear) ends
    /// them.
    pub fn script(&mut self, now: Instant, rules: impl IntoIterator<Item = Rule>) {
        for rule in rules {
            let first = match rule.when {
                When::At(time) | When::Every(time) => Some(time),
                When::Request { .. } => None,
            };
            let id = self.faults.add_rule(rule);
            if let Some(first) = first {
                self.timers.set(now + first, Timer::Rule(id));
            }
        }
    }

    /// Lets something happen.
    pub fn happen(&mut self, now: Instant, incident: Incident) {
        match incident {
            Incident::LeaderMove {
                topic,
                partition,
                to,
            } => {
                let place = self.topics.named(&topic).map(|topic| (topic.id, partition));
                let found =
                    place.and_then(|place| Some((place, self.topics.partition(place)?.leader)));
                if let Some((place, leader)) = found {
                    self.move_leader(place, self.resolve(to, leader));
                }
            }
            Incident::CoordinatorMove { key, to } => {
                let coordinator = self.resolve(to, self.coordinator(&key));
                self.move_coordinator(&key, coordinator);
            }
            Incident::Crash { broker, down } => {
                self.restart(broker);
                if !down.is_zero() {
                    self.set_up(broker, false);
                    self.timers.set(now + down, Timer::Up(broker));
                }
            }
            Incident::Change { owner, key, value } => self.change_config(owner, &key, &value),
        }
    }

    /// What becomes of a request; what rules let happen before has happened.
    pub(super) fn strike(&mut self, request: &Incoming, call: &Call) -> Fault {
        let mut touches = Vec::new();
        if self.faults.watch_partitions() {
            for (api_key, place) in request.touches(self, call) {
                touches.extend(self.topics.get(place.0).map(|topic| Touch {
                    api_key,
                    topic: topic.name.clone(),
                    place,
                }));
            }
        }
        let (fault, incidents) = self.faults.strike(request.header.api_key, &touches);
        for incident in incidents {
            self.happen(call.now, incident);
        }
        fault
    }

    /// A rule's time has come.
    pub(super) fn strike_at(&mut self, now: Instant, id: RuleId) {
        let (incident, again) = self.faults.strike_at(id);
        if let Some(interval) = again {
            // Never at once: that would not end.
            let interval = interval.max(Duration::from_millis(1));
            self.timers.set(now + interval, Timer::Rule(id));
        }
        if let Some(incident) = incident {
            self.happen(now, incident);
        }
    }

    fn resolve(&self, to: Target, present: BrokerId) -> BrokerId {
        let next = || self.brokers().find(|id| id.0 > present.0);
        match to {
            Target::Broker(broker) => broker,
            Target::Next => next().or_else(|| self.brokers().next()).unwrap_or(present),
        }
    }

    fn change_config(&mut self, owner: Owner, key: &str, value: &str) {
        let change = [(key, Change::Set(value))];
        let configs = &self.configs;
        match owner {
            Owner::Broker => {
                if let Ok(values) = configs.changed(keys::BROKER, &configs.broker, &change) {
                    self.set_broker_values(values);
                }
            }
            Owner::Group(group_id) => {
                let values = configs.groups.get(&group_id).cloned().unwrap_or_default();
                if let Ok(values) = configs.changed(keys::GROUP, &values, &change) {
                    self.set_group_values(&group_id, values);
                }
            }
        }
    }
}
