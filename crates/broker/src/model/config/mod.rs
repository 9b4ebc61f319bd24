//! Configurations of the brokers, of topics and of groups: set at any time, in force at once.

pub mod keys;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use sharegroup_wire::TopicId;
use sharegroup_wire::duration::from_iso;
use sharegroup_wire::record::TimestampType;

use self::keys::{Allowed, Key, ValueType, broker_default, topic_default};
use super::Model;
use super::journal::{Entry, value_list};
use super::log::LogRules;
use super::share_partition::Limits;

/// Values that somebody has set, by key.
pub type Values = BTreeMap<String, String>;

/// What one change does to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// Sets it.
    Set(&'a str),
    /// Takes it back to its default.
    Delete,
    /// Adds to a list.
    Append(&'a str),
    /// Takes from a list.
    Subtract(&'a str),
}

/// Where a share group starts on a partition that it never read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetReset {
    /// Behind what is there.
    Latest,
    /// At the start of the log.
    Earliest,
    /// At what is younger than this.
    ByDuration(Duration),
}

/// A group's settings in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRules {
    /// What its share partitions need.
    pub limits: Limits,
    /// `share.auto.offset.reset`.
    pub offset_reset: OffsetReset,
    /// `share.isolation.level`.
    pub read_committed: bool,
    /// `share.heartbeat.interval.ms`.
    pub heartbeat_interval: Duration,
    /// `share.session.timeout.ms`.
    pub session_timeout: Duration,
    /// `share.assignment.interval.ms`.
    pub assignment_interval: Duration,
    /// `errors.deadletterqueue.topic.name`; empty = off.
    pub dead_letter_topic: String,
    /// `errors.deadletterqueue.copy.record.enable`.
    pub dead_letter_copies: bool,
}

/// All configurations of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Configs {
    /// Of every broker.
    pub broker: Values,
    /// Of groups, whether they exist or not.
    pub groups: BTreeMap<String, Values>,
    /// What groups were set to when [`Configs::hold`] was called.
    held: Option<BTreeMap<String, Values>>,
    /// Groups' settings in force, with what they were made of: each fetch asks for them.
    rules: RefCell<BTreeMap<String, KnownRules>>,
}

/// Settings that were in force.
#[derive(Debug, Clone)]
struct KnownRules {
    broker: Values,
    own: Values,
    rules: GroupRules,
}

/// Most groups whose settings are remembered.
const KNOWN_RULES_MAX: usize = 1_000;

impl Configs {
    /// A broker key's number in force.
    #[must_use]
    pub fn broker_number(&self, name: &str) -> i64 {
        self.broker_text(name).parse().unwrap_or(0)
    }

    /// Whether a broker key is `true`.
    #[must_use]
    pub fn broker_flag(&self, name: &str) -> bool {
        self.broker_text(name) == "true"
    }

    /// A broker key's value in force.
    #[must_use]
    pub fn broker_text(&self, name: &str) -> &str {
        let default = || find(keys::BROKER, name).map_or("", |key| key.default);
        self.broker.get(name).map_or_else(default, String::as_str)
    }

    /// A topic key's value in force: of the values that were set on the topic, else the brokers', else its default.
    #[must_use]
    pub fn topic_text<'a>(&'a self, values: &'a Values, name: &str) -> &'a str {
        let of_brokers = || match topic_default(name) {
            Some(key) => self.broker_text(key.name),
            None => find(keys::TOPIC, name).map_or("", |key| key.default),
        };
        values.get(name).map_or_else(of_brokers, String::as_str)
    }

    /// The rules for the logs of a topic with these values.
    #[must_use]
    pub fn log_rules(&self, values: &Values) -> LogRules {
        let text = |name| self.topic_text(values, name);
        let number = |name| text(name).parse::<i64>().unwrap_or(0);
        LogRules {
            message_bytes_max: usize::try_from(number("max.message.bytes")).unwrap_or(0),
            timestamp_type: match text("message.timestamp.type") {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            timestamp_after_max_ms: number("message.timestamp.after.max.ms"),
            retention_bytes: number("retention.bytes"),
        }
    }

    /// From now on changes of groups are shown, but not acted upon: as on a real broker while it publishes new
    /// metadata, which it shows at first and acts upon at last (`BrokerMetadataPublisher`).
    pub fn hold(&mut self) {
        self.held = Some(self.groups.clone());
    }

    /// What was changed since [`Configs::hold`] counts.
    pub fn release(&mut self) {
        self.held = None;
    }

    /// A group key's value: its own within the brokers' bounds, else the brokers' default.
    #[must_use]
    pub fn group_text(&self, group_id: &str, name: &str) -> String {
        self.text_of(self.groups.get(group_id), name)
    }

    fn text_of(&self, own: Option<&Values>, name: &str) -> String {
        let own = own.and_then(|values| values.get(name));
        let Some(key) = find(keys::GROUP, name) else {
            return String::new();
        };
        let Some(own) = own else {
            return broker_default(name)
                .map_or(key.default, |key| self.broker_text(key.name))
                .to_owned();
        };
        if let (Allowed::Between(_, min, max), Ok(number)) = (key.allowed, own.parse::<i64>()) {
            let (min, max) = (self.broker_number(min), self.broker_number(max));
            return number.max(min).min(max.max(min)).to_string();
        }
        own.clone()
    }

    /// A group's settings in force.
    #[must_use]
    pub fn group(&self, group_id: &str) -> GroupRules {
        let none = Values::new();
        let groups = self.held.as_ref().unwrap_or(&self.groups);
        let own = groups.get(group_id).unwrap_or(&none);
        let mut known_rules = self.rules.borrow_mut();
        let known = known_rules.get(group_id);
        if let Some(known) = known.filter(|known| known.own == *own && known.broker == self.broker)
        {
            return known.rules.clone();
        }
        if known_rules.len() >= KNOWN_RULES_MAX {
            known_rules.clear();
        }
        let known = KnownRules {
            broker: self.broker.clone(),
            own: own.clone(),
            rules: self.read_group(own),
        };
        let rules = known.rules.clone();
        known_rules.insert(group_id.to_owned(), known);
        rules
    }

    fn read_group(&self, own: &Values) -> GroupRules {
        let text = |name| self.text_of(Some(own), name);
        let number = |name| text(name).parse::<i64>().unwrap_or(0);
        let millis = |name| Duration::from_millis(u64::try_from(number(name)).unwrap_or(0));
        let flag = |name| text(name) == "true";
        let reset = text("share.auto.offset.reset");
        GroupRules {
            limits: Limits {
                lock: millis("share.record.lock.duration.ms"),
                delivery_count_max: i16::try_from(number("share.delivery.count.limit"))
                    .unwrap_or(5),
                record_locks_max: number("share.partition.max.record.locks"),
                renew_enabled: flag("share.renew.acknowledge.enable"),
            },
            offset_reset: offset_reset(&reset).unwrap_or(OffsetReset::Latest),
            read_committed: text("share.isolation.level") == "read_committed",
            heartbeat_interval: millis("share.heartbeat.interval.ms"),
            session_timeout: millis("share.session.timeout.ms"),
            assignment_interval: millis("share.assignment.interval.ms"),
            dead_letter_topic: text("errors.deadletterqueue.topic.name"),
            dead_letter_copies: flag("errors.deadletterqueue.copy.record.enable"),
        }
    }

    /// Changes values of one table: all of them or, on the first illegal one, none.
    ///
    /// # Errors
    /// The text for the client, with INVALID_CONFIG.
    pub fn changed(
        &self,
        table: &[Key],
        values: &Values,
        changes: &[(&str, Change<'_>)],
    ) -> Result<Values, String> {
        let mut values = values.clone();
        for (name, change) in changes {
            let key = find(table, name).ok_or_else(|| unknown(table, name))?;
            let current = values.get(*name).map_or(key.default, String::as_str);
            let next = match change {
                Change::Delete => None,
                Change::Set(value) => Some((*value).to_owned()),
                Change::Append(_) | Change::Subtract(_) if key.value_type != ValueType::List => {
                    return Err(format!(
                        "Config value append is not allowed for config key: {name}"
                    ));
                }
                Change::Append(added) => {
                    let items = items(current).chain(
                        items(added).filter(|item| items(current).all(|known| known != *item)),
                    );
                    Some(items.collect::<Vec<_>>().join(","))
                }
                Change::Subtract(taken) => {
                    let left = items(current).filter(|item| items(taken).all(|gone| gone != *item));
                    Some(left.collect::<Vec<_>>().join(","))
                }
            };
            match next {
                Some(value) => {
                    self.check(key, &value)?;
                    values.insert((*name).to_owned(), value);
                }
                None => {
                    values.remove(*name);
                }
            }
        }
        Ok(values)
    }

    /// Whether a group's values go together.
    ///
    /// # Errors
    /// The text for the client.
    pub fn check_group(&self, values: &Values) -> Result<(), String> {
        let mut tried = self.clone();
        tried.groups.insert(String::new(), values.clone());
        let rules = tried.group("");
        if rules.session_timeout <= rules.heartbeat_interval {
            return Err(
                "share.session.timeout.ms must be greater than share.heartbeat.interval.ms"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn check(&self, key: &Key, value: &str) -> Result<(), String> {
        let name = key.name;
        let invalid = |why: String| {
            Err(format!(
                "Invalid value {value} for configuration {name}: {why}"
            ))
        };
        let number = value.parse::<i64>();
        let is_number = matches!(key.value_type, ValueType::Int | ValueType::Long);
        let is_well_typed = match key.value_type {
            ValueType::Boolean => matches!(value, "true" | "false"),
            ValueType::Int => value.parse::<i32>().is_ok(),
            ValueType::Long => number.is_ok(),
            ValueType::Double => value.parse::<f64>().is_ok(),
            ValueType::String | ValueType::List => true,
        };
        if !is_well_typed {
            return invalid(match key.value_type {
                ValueType::Boolean => "Expected value to be either true or false".to_owned(),
                other => format!(
                    "Not a number of type {}",
                    format!("{other:?}").to_uppercase()
                ),
            });
        }
        let number = number.unwrap_or(0);
        match key.allowed {
            Allowed::Range(min, _) | Allowed::Between(min, ..) if is_number && number < min => {
                invalid(format!("Value must be at least {min}"))
            }
            Allowed::Range(_, max) if is_number && number > max => {
                invalid(format!("Value must be no more than {max}"))
            }
            Allowed::Between(_, min, max) => {
                let (min, max) = (self.broker_number(min), self.broker_number(max));
                if (min..=max).contains(&number) {
                    return Ok(());
                }
                Err(format!(
                    "{name} must be in the range {min} to {max} inclusive."
                ))
            }
            Allowed::OneOf(words) if !words.contains(&value) => {
                invalid(format!("String must be one of: {}", words.join(", ")))
            }
            Allowed::OffsetReset if offset_reset(value).is_none() => invalid(format!(
                "Invalid value `{value}` for configuration {name}. The value must be either 'earliest', \
                 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
            )),
            Allowed::DeadLetterTopic if value.starts_with("__") => {
                Err(format!("{name}: DLQ topic name must not start with '__'"))
            }
            _ => Ok(()),
        }
    }
}

impl Model {
    /// Gives the brokers another configuration; nothing is checked.
    pub fn set_broker_values(&mut self, values: Values) {
        self.journal.note(|| Entry::BrokerConfig {
            values: value_list(&values),
        });
        self.configs.broker = values;
    }

    /// Gives a group another configuration; nothing is checked.
    pub fn set_group_values(&mut self, group_id: &str, values: Values) {
        self.journal.note(|| Entry::GroupConfig {
            group_id: group_id.to_owned(),
            values: value_list(&values),
        });
        if values.is_empty() {
            self.configs.groups.remove(group_id);
        } else {
            self.configs.groups.insert(group_id.to_owned(), values);
        }
    }

    /// Gives a topic another configuration; nothing is checked.
    pub fn set_topic_values(&mut self, id: TopicId, values: Values) {
        if let Some(topic) = self.topics.get_mut(id) {
            topic.values = values;
            self.note_topic(id);
        }
    }
}

/// Kafka's words for a key that a table doesn't have.
fn unknown(table: &[Key], name: &str) -> String {
    let kinds = [(keys::TOPIC, "topic "), (keys::GROUP, "group ")];
    let kind = kinds.iter().find(|(known, _)| std::ptr::eq(*known, table));
    format!(
        "Unknown {}config name: {name}",
        kind.map_or("", |(_, kind)| kind)
    )
}

/// A key of a table.
#[must_use]
pub fn find<'a>(table: &'a [Key], name: &str) -> Option<&'a Key> {
    table.iter().find(|key| key.name == name)
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

fn offset_reset(text: &str) -> Option<OffsetReset> {
    match text {
        "latest" => Some(OffsetReset::Latest),
        "earliest" => Some(OffsetReset::Earliest),
        _ => from_iso(text.strip_prefix("by_duration:")?).map(OffsetReset::ByDuration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_against_the_brokers_bounds_and_clamped_when_these_move() {
        let mut configs = Configs::default();
        let set = |configs: &Configs, name, value| {
            configs.changed(keys::GROUP, &Values::new(), &[(name, Change::Set(value))])
        };
        assert!(set(&configs, "share.record.lock.duration.ms", "1000").is_err());
        configs.broker.insert(
            "group.share.min.record.lock.duration.ms".into(),
            "1000".into(),
        );
        let values = set(&configs, "share.record.lock.duration.ms", "1000").unwrap();
        configs.groups.insert("g".into(), values);
        assert_eq!(configs.group("g").limits.lock, Duration::from_secs(1));
        configs.broker.clear();
        assert_eq!(configs.group("g").limits.lock, Duration::from_secs(15));
        assert!(set(&configs, "no.such.key", "1").is_err());
        assert!(set(&configs, "share.auto.offset.reset", "sometime").is_err());
        assert!(set(&configs, "errors.deadletterqueue.topic.name", "__x").is_err());
    }

    #[test]
    fn the_largest_message_is_the_topics_own_or_the_brokers() {
        let mut configs = Configs::default();
        let values = |key: &str, value: &str| Values::from([(key.to_owned(), value.to_owned())]);
        let max = |configs: &Configs, values| configs.log_rules(&values).message_bytes_max;
        assert_eq!(max(&configs, Values::new()), 1_048_588);
        configs.broker = values("message.max.bytes", "100");
        assert_eq!(max(&configs, Values::new()), 100);
        assert_eq!(max(&configs, values("max.message.bytes", "200")), 200);
    }

    #[test]
    fn lists_grow_and_shrink() {
        let configs = Configs::default();
        let change = |values: &Values, change| {
            configs
                .changed(keys::TOPIC, values, &[("cleanup.policy", change)])
                .unwrap()
        };
        let both = change(&Values::new(), Change::Append("compact"));
        assert_eq!(
            configs.topic_text(&both, "cleanup.policy"),
            "delete,compact"
        );
        let one = change(&both, Change::Subtract("delete"));
        assert_eq!(configs.topic_text(&one, "cleanup.policy"), "compact");
        assert_eq!(change(&one, Change::Delete), Values::new());
    }
}
