//! Topics and settings of `broker`, as they are written on the command line.

use std::borrow::Cow;
use std::collections::BTreeSet;

use sharegroup_broker::model::config::find;
use sharegroup_broker::model::config::keys::{self, broker_default};
use sharegroup_broker::model::topics::check_name;
use sharegroup_sink::config::nearest;

/// A topic to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TopicSpec {
    pub(super) name: String,
    pub(super) partitions: i32,
}

const PARTITIONS_MAX: i32 = 10_000;

/// Reads `NAME` or `NAME:PARTITIONS`.
pub(super) fn topic(text: &str) -> Result<TopicSpec, String> {
    let (name, partitions) = match text.split_once(':') {
        None => (text, 1),
        Some((name, count)) => {
            let count = count.parse().ok();
            let count = count.filter(|count| (1..=PARTITIONS_MAX).contains(count));
            (
                name,
                count.ok_or_else(|| {
                    format!("is not written NAME:PARTITIONS, such as orders:4, with 1 to {PARTITIONS_MAX} partitions")
                })?,
            )
        }
    };
    check_name(name)?;
    Ok(TopicSpec {
        name: name.to_owned(),
        partitions,
    })
}

/// Topics that are given twice.
pub(super) fn check_topics(topics: &[TopicSpec]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let twice = topics.iter().filter(|topic| !seen.insert(&topic.name));
    twice
        .map(|topic| format!("--topic {}: is given twice", topic.name))
        .collect()
}

/// Settings that are none of a broker's.
pub(super) fn check_keys(settings: &[(String, String)]) -> Vec<String> {
    let unknown = settings
        .iter()
        .filter(|(key, _)| find(keys::BROKER, key).is_none());
    unknown
        .map(|(key, _)| format!("--set {key}: {}", advice(key)))
        .collect()
}

fn advice(key: &str) -> String {
    if let Some(default) = broker_default(key) {
        return format!(
            "is a group's key; its default for all groups is {}",
            default.name
        );
    }
    if find(keys::GROUP, key).is_some() {
        return "is a group's key; set it on the group, with kafka-configs.sh --entity-type groups \
                or a line in a --fault file: at 0s: set group GROUP KEY=VALUE"
            .to_owned();
    }
    let known = keys::BROKER.iter().map(|key| Cow::Borrowed(key.name));
    if let Some(right) = nearest(key, known) {
        return format!("is not a broker's key; did you mean {right}?");
    }
    if find(keys::TOPIC, key).is_some() {
        return "is a topic's key; give it to sharegroup topics create --config KEY=VALUE"
            .to_owned();
    }
    let names: Vec<&str> = keys::BROKER.iter().map(|key| key.name).collect();
    format!("is not a key of this broker; it has {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_read_with_their_partitions() {
        let spec = |name: &str, partitions| {
            Ok(TopicSpec {
                name: name.to_owned(),
                partitions,
            })
        };
        assert_eq!(topic("orders"), spec("orders", 1));
        assert_eq!(topic("orders:4"), spec("orders", 4));
        for (wrong, says) in [
            ("orders:", "such as orders:4"),
            ("orders:0", "such as orders:4"),
            ("orders:10001", "1 to 10000"),
            ("orders:4:5", "such as orders:4"),
            ("", "empty string"),
            (":4", "empty string"),
            ("a b:4", "contains one or more characters"),
        ] {
            let error = topic(wrong).unwrap_err();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_key_that_is_none_says_where_it_belongs_or_what_it_should_be() {
        for (key, says) in [
            ("num.partitons", "did you mean num.partitions?"),
            (
                "share.record.lock.duration.ms",
                "is group.share.record.lock.duration.ms",
            ),
            ("share.auto.offset.reset", "--entity-type groups"),
            ("retention.bytes", "topics create --config"),
            ("log.dirs", "it has auto.create.topics.enable"),
        ] {
            let errors = check_keys(&[(key.to_owned(), "1".to_owned())]);
            assert!(errors[0].contains(says), "{errors:?}");
        }
        let known = ("num.partitions".to_owned(), "4".to_owned());
        assert_eq!(check_keys(&[known]), [""; 0]);
    }
}
