//! Preparing a group of a cluster that isn't there.

use std::sync::Mutex;

use sharegroup_consumer::admin::Resource;
use sharegroup_wire::ErrorCode;

use super::*;
use crate::testing;

/// A cluster with one group, that refuses what it is told to.
#[derive(Default)]
pub(super) struct Fake {
    pub(super) share_version: Option<i16>,
    group: Option<(GroupType, String)>,
    pub(super) settings: Vec<(&'static str, &'static str, bool)>,
    pub(super) unreadable: bool,
    unwritable: bool,
    limit_max: i16,
    limits_of_brokers: Option<Vec<&'static str>>,
    /// The brokers' prefix of dead-letter topics; `None` = nobody may see it.
    pub(super) prefix: Option<&'static str>,
    /// A topic, and whether it takes dead letters of groups.
    pub(super) topic: Option<(&'static str, &'static str)>,
    written: Mutex<Vec<String>>,
    begun: Mutex<Vec<LogPosition>>,
    /// A consumer group: its type, its state, what it has committed.
    pub(super) old: Option<(GroupType, &'static str, Vec<LogOffset>)>,
    /// Where the share group stands.
    pub(super) stands: Mutex<BTreeMap<TopicPartition, i64>>,
    /// Another worker joins before this one has begun the group.
    pub(super) is_joined: bool,
}

impl Fake {
    pub(super) fn new() -> Self {
        Self {
            share_version: Some(1),
            settings: vec![(START, "latest", false), (LIMIT, "5", false)],
            limit_max: 10,
            ..Self::default()
        }
    }

    pub(super) fn written(&self) -> Vec<String> {
        self.written.lock().unwrap().clone()
    }
}

pub(super) fn refused(code: ErrorCode) -> AdminError {
    let resource = Resource::Group("g".to_owned());
    AdminError::Broker {
        operation: "DescribeConfigs",
        resource,
        code,
        message: None,
    }
}

impl GroupAdmin for Fake {
    async fn share_version(&self) -> Result<Option<i16>, AdminError> {
        Ok(self.share_version)
    }

    async fn knows_share_groups(&self) -> Result<bool, AdminError> {
        Ok(true)
    }

    async fn find_group(&self, group_id: &str) -> Result<Option<(GroupType, String)>, AdminError> {
        if group_id == OLD {
            let old = self.old.as_ref();
            return Ok(old.map(|(kind, state, _)| (kind.clone(), (*state).to_owned())));
        }
        Ok(self.group.clone())
    }

    async fn group_configs(&self, _: &str) -> Result<Settings, AdminError> {
        if self.unreadable {
            return Err(refused(ErrorCode::GroupAuthorizationFailed));
        }
        let setting = |(key, value, is_set): &(&str, &str, bool)| {
            (
                (*key).to_owned(),
                Setting {
                    value: Some((*value).to_owned()),
                    is_set: *is_set,
                },
            )
        };
        Ok(self.settings.iter().map(setting).collect())
    }

    async fn set_group_config(&self, _: &str, key: &str, value: &str) -> Result<(), AdminError> {
        if self.unwritable {
            return Err(refused(ErrorCode::GroupAuthorizationFailed));
        }
        if key == LIMIT && value.parse::<i16>().unwrap() > self.limit_max {
            return Err(refused(ErrorCode::InvalidConfig));
        }
        self.written.lock().unwrap().push(format!("{key}={value}"));
        Ok(())
    }

    async fn topic_configs(&self, topic: &str) -> Result<Option<Settings>, AdminError> {
        self.topic_configs_of(topic)
    }

    async fn broker_values(&self, key: &str) -> Result<Vec<String>, AdminError> {
        if key == net::PREFIX {
            let prefix = self.prefix.map(str::to_owned);
            return Ok(vec![
                prefix.ok_or_else(|| refused(ErrorCode::ClusterAuthorizationFailed))?,
            ]);
        }
        if key == LOCKS_OF_BROKER {
            return Ok(vec!["700".to_owned(), "600".to_owned()]);
        }
        assert_eq!(key, LIMIT_OF_BROKER);
        let limits = self.limits_of_brokers.iter().flatten();
        match self.limits_of_brokers {
            Some(_) => Ok(limits.map(|limit| (*limit).to_owned()).collect()),
            None => Err(refused(ErrorCode::ClusterAuthorizationFailed)),
        }
    }

    async fn begin(
        &self,
        _: &str,
        topics: &[String],
        position: LogPosition,
    ) -> Result<(), AdminError> {
        assert_eq!(topics, self::topics());
        self.begun.lock().unwrap().push(position);
        Ok(())
    }

    async fn begun(&self, _: &str) -> Result<BTreeMap<TopicPartition, i64>, AdminError> {
        Ok(self.stands.lock().unwrap().clone())
    }

    async fn committed(&self, group_id: &str) -> Result<Vec<LogOffset>, AdminError> {
        assert_eq!(group_id, OLD);
        Ok(self.old.as_ref().map_or_else(Vec::new, |old| old.2.clone()))
    }

    async fn partitions(&self, topics: &[String]) -> Result<Vec<TopicPartition>, AdminError> {
        let numbered = topics
            .iter()
            .flat_map(|topic| (0..3).map(move |number| (topic, number)));
        let partitions =
            numbered.map(|(topic, number)| TopicPartition::new(topic.as_str(), number));
        Ok(partitions.collect())
    }

    async fn begin_at(&self, _: &str, offsets: &[LogOffset]) -> Result<(), AdminError> {
        let mut stands = self.stands.lock().unwrap();
        stands.extend(
            offsets
                .iter()
                .map(|begun| (begun.partition.clone(), begun.offset)),
        );
        if self.is_joined {
            return Err(refused(ErrorCode::NonEmptyGroup));
        }
        Ok(())
    }
}

/// The consumer group.
pub(super) const OLD: &str = "connect-old";

pub(super) fn topics() -> Vec<String> {
    vec!["orders".to_owned()]
}

pub(super) fn settings(lines: &str) -> ConnectorConfig {
    testing::connector(lines)
}

#[tokio::test]
async fn what_nobody_has_set_is_set() {
    let fake = Fake::new();
    let prepared = prepare(&fake, &settings(""), &topics()).await.unwrap();
    assert_eq!(
        fake.written(),
        [
            "share.auto.offset.reset=earliest",
            "share.delivery.count.limit=10"
        ]
    );
    assert_eq!(prepared.delivery_count_limit, 10);
    let fake = Fake::new();
    let wanted = settings("share.auto.offset.reset=by_duration:PT1H\n");
    prepare(&fake, &wanted, &topics()).await.unwrap();
    assert_eq!(
        fake.written()[0],
        "share.auto.offset.reset=by_duration:PT1H"
    );
}

#[tokio::test]
async fn the_limit_of_locked_records_is_the_groups_own_or_the_lowest_of_the_brokers() {
    let mut fake = Fake::new();
    let prepared = prepare(&fake, &settings(""), &topics()).await.unwrap();
    assert_eq!(prepared.record_locks_max, 600);
    fake.settings.push((LOCKS, "300", false));
    let prepared = prepare(&fake, &settings(""), &topics()).await.unwrap();
    assert_eq!(prepared.record_locks_max, 300);
}

#[tokio::test]
async fn what_somebody_has_set_stays() {
    let mut fake = Fake::new();
    fake.settings = vec![(START, "latest", true), (LIMIT, "3", true)];
    let prepared = prepare(&fake, &settings(""), &topics()).await.unwrap();
    assert!(fake.written().is_empty());
    assert_eq!(prepared.delivery_count_limit, 3);
}

#[tokio::test]
async fn dead_letters_of_the_group_are_known_and_never_read_by_it() {
    let mut fake = Fake::new();
    let prepared = prepare(&fake, &settings(""), &topics()).await.unwrap();
    assert!(!prepared.has_dead_letters);
    fake.settings.push((LETTERS, "letters", true));
    let prepared = prepare(&fake, &settings(""), &topics()).await.unwrap();
    assert!(prepared.has_dead_letters);
    fake.settings.pop();
    fake.settings.push((LETTERS, "orders", true));
    let error = prepare(&fake, &settings(""), &topics()).await.unwrap_err();
    assert!(
        error.to_string().contains("dead-letter topic orders"),
        "{error}"
    );
}

#[tokio::test]
async fn what_is_there_is_begun_where_the_group_says_or_we_do() {
    let earliest = [LogPosition::Earliest];
    for (set, lines, begun) in [
        (None, "", &earliest[..]),
        (None, "share.auto.offset.reset=latest\n", &[]),
        (None, "share.auto.offset.reset=broker\n", &[]),
        (None, "share.group.prepare=false\n", &[]),
        (Some("latest"), "", &[]),
        (
            Some("earliest"),
            "share.auto.offset.reset=latest\n",
            &earliest,
        ),
    ] {
        let mut fake = Fake::new();
        if let Some(value) = set {
            fake.settings = vec![(START, value, true)];
        }
        prepare(&fake, &settings(lines), &topics()).await.unwrap();
        assert_eq!(*fake.begun.lock().unwrap(), begun, "{set:?} {lines}");
    }
    let fake = Fake::new();
    let hour = settings("share.auto.offset.reset=by_duration:PT1H\n");
    prepare(&fake, &hour, &topics()).await.unwrap();
    let begun = fake.begun.lock().unwrap();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis();
    let ago = |since: i64| (now as i64 - since) / 1000;
    assert!(matches!(begun[..], [LogPosition::Since(since)] if (3599..3660).contains(&ago(since))));
}

#[tokio::test]
async fn nothing_is_set_where_that_is_not_wanted() {
    let fake = Fake::new();
    let prepared = prepare(&fake, &settings("share.group.prepare=false\n"), &topics())
        .await
        .unwrap();
    assert!(fake.written().is_empty());
    assert_eq!(prepared.delivery_count_limit, 5);
    let fake = Fake::new();
    prepare(
        &fake,
        &settings("share.auto.offset.reset=broker\n"),
        &topics(),
    )
    .await
    .unwrap();
    assert_eq!(fake.written(), ["share.delivery.count.limit=10"]);
}

#[tokio::test]
async fn the_delivery_limit_is_clamped_to_what_the_broker_allows() {
    let mut fake = Fake::new();
    fake.limit_max = 7;
    let prepared = prepare(&fake, &settings(""), &topics()).await.unwrap();
    assert_eq!(prepared.delivery_count_limit, 7);
}

#[tokio::test]
async fn before_kafka_4_3_the_lowest_limit_of_a_broker_applies() {
    for (of_brokers, limit) in [
        (Some(vec!["5", "2", "10"]), 2),
        (Some(vec![]), 5),
        (None, 5),
    ] {
        let mut fake = Fake::new();
        fake.settings.pop();
        fake.limits_of_brokers = of_brokers;
        let prepared = prepare(&fake, &settings(""), &topics()).await.unwrap();
        assert_eq!(fake.written(), ["share.auto.offset.reset=earliest"]);
        assert_eq!(prepared.delivery_count_limit, limit);
    }
}

#[tokio::test]
async fn without_the_right_to_set_the_start_the_task_fails_with_advice() {
    for unreadable in [true, false] {
        let mut fake = Fake::new();
        fake.unwritable = true;
        fake.unreadable = unreadable;
        let error = prepare(&fake, &settings(""), &topics())
            .await
            .unwrap_err()
            .to_string();
        for part in [
            "connect-out",
            "ALTER_CONFIGS",
            "share.auto.offset.reset=broker",
            "GROUP_AUTHORIZATION_FAILED",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let broker = settings("share.auto.offset.reset=broker\n");
        assert_eq!(
            prepare(&fake, &broker, &topics())
                .await
                .unwrap()
                .delivery_count_limit,
            5
        );
    }
}

#[test]
fn b_101_locks_that_can_not_be_renewed_are_told_with_their_length() {
    let lock = |settings: &[(&str, &str)]| {
        let setting = |(key, value): &(&str, &str)| {
            let value = Some((*value).to_owned());
            (
                (*key).to_owned(),
                Setting {
                    value,
                    is_set: true,
                },
            )
        };
        lock_without_renewal(&settings.iter().map(setting).collect())
    };
    let off = ("share.renew.acknowledge.enable", "false");
    let lock_ms = ("share.record.lock.duration.ms", "15000");
    assert_eq!(lock(&[off, lock_ms]).as_deref(), Some(", after 15s"));
    assert_eq!(lock(&[off]).as_deref(), Some(""));
    assert_eq!(lock(&[(off.0, "true"), lock_ms]), None);
    assert_eq!(lock(&[lock_ms]), None);
}

#[tokio::test]
async fn a_group_id_of_another_type_is_refused_with_the_way_out() {
    let mut fake = Fake::new();
    fake.group = Some((GroupType::Consumer, "Empty".to_owned()));
    let error = prepare(&fake, &settings(""), &topics())
        .await
        .unwrap_err()
        .to_string();
    for part in [
        "connect-out",
        "consumer",
        "Empty",
        "share.group.id",
        "--delete --group connect-out",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(fake.written().is_empty());
    fake.group = Some((GroupType::Share, "Stable".to_owned()));
    prepare(&fake, &settings(""), &topics()).await.unwrap();
}

#[tokio::test]
async fn share_groups_that_are_off_are_named_with_the_command() {
    let mut fake = Fake::new();
    fake.share_version = Some(0);
    let error = prepare(&fake, &settings(""), &topics())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("share.version is 0") && error.contains("upgrade --feature share.version=1"),
        "{error}"
    );
    assert!(error.contains("localhost:9092"), "{error}");
}
