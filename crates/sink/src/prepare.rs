//! Prepares the share group before its first member joins.
//!
//! Broker defaults work against a sink: a new group starts at the end of its topics, so that what
//! is there already is skipped without a word, and it allows only five deliveries of a record. So
//! what nobody has set is set here, and said: `share.auto.offset.reset` (a must), and
//! `share.delivery.count.limit` (as far as the broker lets us). A value that somebody has set is
//! never overwritten. Where the group begins on what is there already is written as offsets, too: a
//! broker answers the change of a setting before it acts on it. Before that the group id is checked: an id that belongs to a consumer group
//! can't be joined.

mod check;
mod from_group;
mod net;

use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sharegroup_consumer::TopicPartition;
use sharegroup_consumer::admin::{
    Admin, AdminError, ConfigValue, GroupType, LogOffset, LogPosition,
};
use sharegroup_wire::duration::from_iso;

pub(crate) use self::check::check_kafka;
use self::from_group::{StartFromError, start_from_group};
use self::net::{NetError, check_net};
use crate::config::{ConnectorConfig, ConsumerSettings, StartPosition};

/// What the runtime has to know about its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    /// Deliveries of a record that the group allows.
    pub(crate) delivery_count_limit: i16,
    /// Records of a partition that the group locks at most (`share.partition.max.record.locks`).
    pub(crate) record_locks_max: u32,
    /// The group has a dead-letter topic of its own: the brokers write what is rejected to it (KIP-1191).
    pub(crate) has_dead_letters: bool,
}

/// Why a group can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    /// The cluster has share groups, but turned off.
    #[error(
        "share groups are off on this cluster (feature share.version is 0); turn them on with \
         kafka-features.sh --bootstrap-server {bootstrap_servers} upgrade --feature share.version=1"
    )]
    ShareGroupsOff { bootstrap_servers: String },
    /// The brokers are too old.
    #[error(
        "the brokers at {bootstrap_servers} know no share groups (KIP-932): they need Kafka 4.1 or later, with the feature share.version=1"
    )]
    NoShareGroups { bootstrap_servers: String },
    /// The id belongs to a group of another type.
    #[error(
        "group id {group_id} belongs to a {group_type} group (state {state}); set another share.group.id on the \
         connector, or delete the old group once it is empty and not needed any more: \
         kafka-consumer-groups.sh --bootstrap-server {bootstrap_servers} --delete --group {group_id}"
    )]
    GroupIdTaken {
        group_id: String,
        group_type: GroupType,
        state: String,
        bootstrap_servers: String,
    },
    /// The start position can't be read or written, so the backlog might be skipped.
    #[error(
        "share.auto.offset.reset of group {group_id} can't be {what}: {source}; allow DESCRIBE_CONFIGS and \
         ALTER_CONFIGS on the group, or set it once with kafka-configs.sh --bootstrap-server {bootstrap_servers} \
         --entity-type groups --entity-name {group_id} --alter --add-config share.auto.offset.reset={value} and set \
         share.auto.offset.reset=broker on the connector, which accepts the group's own setting"
    )]
    StartPosition {
        group_id: String,
        what: &'static str,
        value: String,
        bootstrap_servers: String,
        source: AdminError,
    },
    /// The group's own dead letters would come back to it, again and again.
    #[error(
        "group {group_id} has the dead-letter topic {topic} (errors.deadletterqueue.topic.name), which is among the topics of the connector; take it out of topics, or give the group another"
    )]
    ReadsDeadLetters { group_id: String, topic: String },
    /// It can't begin where a consumer group stands.
    #[error(transparent)]
    StartFrom(#[from] StartFromError),
    /// What it loses would not get into its dead-letter topic.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The cluster could not be asked.
    #[error(transparent)]
    Admin(#[from] AdminError),
}

/// A value of a group's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) value: Option<String>,
    /// Whether somebody has set it on the group itself.
    pub(crate) is_set: bool,
}

type Settings = BTreeMap<String, Setting>;

fn settings_of(configs: BTreeMap<String, ConfigValue>) -> Settings {
    let setting = |(key, config): (String, ConfigValue)| {
        let is_set = config.is_set();
        let value = config.value;
        (key, Setting { value, is_set })
    };
    configs.into_iter().map(setting).collect()
}

/// What is asked of the cluster; a seam for tests.
pub(crate) trait GroupAdmin: Sync {
    /// Level of the feature `share.version`.
    fn share_version(&self) -> impl Future<Output = Result<Option<i16>, AdminError>> + Send;
    /// Whether the brokers have the APIs of share groups.
    fn knows_share_groups(&self) -> impl Future<Output = Result<bool, AdminError>> + Send;
    /// Type and state of the group of this id, if there is one.
    fn find_group(
        &self,
        group_id: &str,
    ) -> impl Future<Output = Result<Option<(GroupType, String)>, AdminError>> + Send;
    /// The group's configuration.
    fn group_configs(
        &self,
        group_id: &str,
    ) -> impl Future<Output = Result<Settings, AdminError>> + Send;
    /// Sets one of its keys.
    fn set_group_config(
        &self,
        group_id: &str,
        key: &str,
        value: &str,
    ) -> impl Future<Output = Result<(), AdminError>> + Send;
    /// A topic's configuration; `None` = there is no such topic.
    fn topic_configs(
        &self,
        topic: &str,
    ) -> impl Future<Output = Result<Option<Settings>, AdminError>> + Send;
    /// Values of one key of the brokers' own configurations.
    fn broker_values(
        &self,
        key: &str,
    ) -> impl Future<Output = Result<Vec<String>, AdminError>> + Send;
    /// Makes a group without members begin here on those partitions that it hasn't begun to read.
    fn begin(
        &self,
        group_id: &str,
        topics: &[String],
        position: LogPosition,
    ) -> impl Future<Output = Result<(), AdminError>> + Send;
    /// Where the share group stands on the partitions that it has begun.
    fn begun(
        &self,
        group_id: &str,
    ) -> impl Future<Output = Result<BTreeMap<TopicPartition, i64>, AdminError>> + Send;
    /// What a consumer group has committed.
    fn committed(
        &self,
        group_id: &str,
    ) -> impl Future<Output = Result<Vec<LogOffset>, AdminError>> + Send;
    /// The partitions of topics; one that doesn't exist has none.
    fn partitions(
        &self,
        topics: &[String],
    ) -> impl Future<Output = Result<Vec<TopicPartition>, AdminError>> + Send;
    /// Makes a share group without members begin at these offsets.
    fn begin_at(
        &self,
        group_id: &str,
        offsets: &[LogOffset],
    ) -> impl Future<Output = Result<(), AdminError>> + Send;
}

impl GroupAdmin for Admin {
    async fn share_version(&self) -> Result<Option<i16>, AdminError> {
        Self::share_version(self).await
    }

    async fn knows_share_groups(&self) -> Result<bool, AdminError> {
        Self::knows_share_groups(self).await
    }

    async fn find_group(&self, group_id: &str) -> Result<Option<(GroupType, String)>, AdminError> {
        let found = Self::find_group(self, group_id).await?;
        Ok(found.map(|group| (group.group_type, group.state)))
    }

    async fn group_configs(&self, group_id: &str) -> Result<Settings, AdminError> {
        Ok(settings_of(Self::group_configs(self, group_id).await?))
    }

    async fn topic_configs(&self, topic: &str) -> Result<Option<Settings>, AdminError> {
        if self.find_topic(topic).await?.is_none() {
            return Ok(None);
        }
        Ok(Some(settings_of(Self::topic_configs(self, topic).await?)))
    }

    async fn set_group_config(
        &self,
        group_id: &str,
        key: &str,
        value: &str,
    ) -> Result<(), AdminError> {
        Self::set_group_config(self, group_id, key, value).await
    }

    async fn broker_values(&self, key: &str) -> Result<Vec<String>, AdminError> {
        let brokers = self.broker_configs().await?;
        let values = brokers.into_values();
        Ok(values
            .filter_map(|mut configs| configs.remove(key)?.value)
            .collect())
    }

    async fn begin(
        &self,
        group_id: &str,
        topics: &[String],
        position: LogPosition,
    ) -> Result<(), AdminError> {
        let topics: Vec<_> = topics.iter().map(String::as_str).collect();
        let begun = self.begin_share_group(group_id, &topics, position).await?;
        for LogOffset {
            partition, offset, ..
        } in begun
        {
            tracing::debug!(group = group_id, %partition, offset, "The group begins here.");
        }
        Ok(())
    }

    async fn begun(&self, group_id: &str) -> Result<BTreeMap<TopicPartition, i64>, AdminError> {
        let offsets = self.share_group_offsets(group_id, None).await?;
        let begun = offsets.into_iter().filter_map(|stands| {
            let partition = TopicPartition::new(stands.topic, stands.partition);
            Some((partition, stands.start_offset?))
        });
        Ok(begun.collect())
    }

    async fn committed(&self, group_id: &str) -> Result<Vec<LogOffset>, AdminError> {
        self.consumer_group_offsets(group_id).await
    }

    async fn partitions(&self, topics: &[String]) -> Result<Vec<TopicPartition>, AdminError> {
        let mut partitions = Vec::new();
        for name in topics {
            let found = self.find_topic(name).await?;
            let described = found.into_iter().flat_map(|topic| topic.partitions);
            partitions.extend(
                described.map(|partition| TopicPartition::new(name.as_str(), partition.partition)),
            );
        }
        Ok(partitions)
    }

    async fn begin_at(&self, group_id: &str, offsets: &[LogOffset]) -> Result<(), AdminError> {
        self.alter_share_group_offsets(group_id, offsets).await
    }
}

/// Checks the group id and sets what nobody has set.
pub(crate) async fn prepare(
    admin: &impl GroupAdmin,
    connector: &ConnectorConfig,
    topics: &[String],
) -> Result<Prepared, PrepareError> {
    let settings = &connector.consumer;
    let net = connector.delivery.dead_letter_net_topic.as_deref();
    let group_id = &settings.group_id;
    check_cluster(admin, settings).await?;
    check_type(admin, settings).await?;
    let configs = read_settings(admin, connector).await?;
    if let Some(topic) = net {
        check_net(admin, settings, &configs, topic).await?;
    }
    if settings.prepare {
        set_start_position(admin, settings, &configs).await?;
    }
    // Before those without a commit are begun.
    if let Some(from) = &settings.start_from_group
        && !topics.is_empty()
    {
        start_from_group(admin, settings, from, topics).await?;
    }
    if settings.prepare {
        begin(admin, settings, &configs, topics).await?;
    }
    warn_about_start(settings, &configs);
    warn_about_renewal(group_id, &configs);
    let limit = delivery_count_limit(admin, settings, &configs).await;
    let letters = configs.get(LETTERS).and_then(|set| set.value.as_deref());
    let letters = letters.filter(|topic| !topic.is_empty());
    if let Some(topic) = letters.filter(|topic| topics.iter().any(|read| read == topic)) {
        return Err(PrepareError::ReadsDeadLetters {
            group_id: group_id.clone(),
            topic: topic.to_owned(),
        });
    }
    Ok(Prepared {
        delivery_count_limit: limit,
        record_locks_max: record_locks_max(admin, &configs).await,
        has_dead_letters: net.is_some() || letters.is_some(),
    })
}

/// Whether the cluster has share groups.
async fn check_cluster(
    admin: &impl GroupAdmin,
    settings: &ConsumerSettings,
) -> Result<(), PrepareError> {
    let bootstrap_servers = settings.bootstrap_servers.clone();
    // No level at all may be a 4.1 broker with its own switch: the join will tell.
    if admin.share_version().await? == Some(0) {
        return Err(PrepareError::ShareGroupsOff { bootstrap_servers });
    }
    if !admin.knows_share_groups().await? {
        return Err(PrepareError::NoShareGroups { bootstrap_servers });
    }
    Ok(())
}

/// The group's settings; none where they can't be read and need not be.
async fn read_settings(
    admin: &impl GroupAdmin,
    connector: &ConnectorConfig,
) -> Result<Settings, PrepareError> {
    let settings = &connector.consumer;
    let group_id = &settings.group_id;
    let source = match admin.group_configs(group_id).await {
        Ok(configs) => return Ok(configs),
        Err(source) => source,
    };
    if settings.prepare && settings.start_position != StartPosition::Broker {
        return Err(PrepareError::StartPosition {
            group_id: group_id.clone(),
            what: "read",
            value: settings.start_position.group_value().unwrap_or_default(),
            bootstrap_servers: settings.bootstrap_servers.clone(),
            source,
        });
    }
    if let Some(topic) = connector.delivery.dead_letter_net_topic.clone() {
        let what = "the group's settings";
        let unchecked = NetError::Unchecked {
            topic,
            what,
            source,
        };
        return Err(unchecked.into());
    }
    tracing::warn!(group = group_id, error = %source, "The group's settings can't be read.");
    Ok(Settings::new())
}

async fn check_type(
    admin: &impl GroupAdmin,
    settings: &ConsumerSettings,
) -> Result<(), PrepareError> {
    match admin.find_group(&settings.group_id).await {
        Ok(Some((group_type, state))) if group_type != GroupType::Share => {
            Err(PrepareError::GroupIdTaken {
                group_id: settings.group_id.clone(),
                group_type,
                state,
                bootstrap_servers: settings.bootstrap_servers.clone(),
            })
        }
        Ok(_) => Ok(()),
        // Not allowed to list groups: the join finds out.
        Err(error @ AdminError::Broker { .. }) if !error.is_retriable() => {
            tracing::warn!(group = settings.group_id, %error, "The group's type can't be looked up.");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

async fn set_start_position(
    admin: &impl GroupAdmin,
    settings: &ConsumerSettings,
    configs: &Settings,
) -> Result<(), PrepareError> {
    let group_id = &settings.group_id;
    let Some(wanted) = settings.start_position.group_value() else {
        return Ok(());
    };
    if let Some(found) = configs.get(START).filter(|config| config.is_set) {
        let found = found.value.as_deref().unwrap_or("");
        if found != wanted && settings.start_position_is_set {
            tracing::warn!(
                group = group_id,
                found,
                wanted,
                "The group's own share.auto.offset.reset stays: somebody has set it."
            );
        } else if found != wanted {
            tracing::info!(
                group = group_id,
                found,
                "The group's own share.auto.offset.reset stays."
            );
        }
        return Ok(());
    }
    admin
        .set_group_config(group_id, START, &wanted)
        .await
        .map_err(|source| PrepareError::StartPosition {
            group_id: group_id.clone(),
            what: "written",
            value: wanted.clone(),
            bootstrap_servers: settings.bootstrap_servers.clone(),
            source,
        })?;
    tracing::info!(
        group = group_id,
        value = wanted,
        "Set share.auto.offset.reset of the group, which nobody had set: new partitions are read from there."
    );
    Ok(())
}

/// Also where somebody else has just set the position: each worker of a group that starts comes by here. The
/// group's own setting counts, and by default brokers begin at the end.
async fn begin(
    admin: &impl GroupAdmin,
    settings: &ConsumerSettings,
    configs: &Settings,
    topics: &[String],
) -> Result<(), PrepareError> {
    let set = configs.get(START).filter(|config| config.is_set);
    let position = match set.and_then(|config| config.value.clone()) {
        Some(value) => Some(value),
        None => settings.start_position.group_value(),
    };
    let Some(position) = position.as_deref().and_then(log_position) else {
        return Ok(());
    };
    let group_id = &settings.group_id;
    match admin.begin(group_id, topics, position).await {
        Err(error) if !error.is_retriable() && error.code().is_some() => {
            tracing::warn!(
                group = group_id,
                %error,
                "Where the group begins can't be written; its share.auto.offset.reset applies, which brokers may not act on yet."
            );
            Ok(())
        }
        begun => Ok(begun?),
    }
}

/// Where a value of `share.auto.offset.reset` begins; `None` at the end, as brokers do anyway.
fn log_position(value: &str) -> Option<LogPosition> {
    if value == "earliest" {
        return Some(LogPosition::Earliest);
    }
    let age = from_iso(value.strip_prefix("by_duration:")?)?;
    let since = SystemTime::now().checked_sub(age)?;
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(LogPosition::Since(
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
    ))
}

/// Whoever doesn't want the start position to be set is told which one applies.
fn warn_about_start(settings: &ConsumerSettings, configs: &Settings) {
    if settings.prepare && settings.start_position != StartPosition::Broker {
        return;
    }
    let value = configs
        .get(START)
        .and_then(|config| config.value.as_deref());
    tracing::info!(
        group = settings.group_id,
        value = value.unwrap_or("unknown (the broker's default is latest)"),
        "The group's own share.auto.offset.reset applies; with latest, what is in new partitions already is skipped."
    );
}

fn warn_about_renewal(group_id: &str, configs: &Settings) {
    if let Some(lock) = lock_without_renewal(configs) {
        tracing::warn!(
            group = group_id,
            "The group has share.renew.acknowledge.enable=false: a put can take, and one that fails be retried, only until its records' lock ends{lock}."
        );
    }
}

/// How long locks are, in words, where they can't be renewed.
fn lock_without_renewal(configs: &Settings) -> Option<String> {
    let value = |key| configs.get(key).and_then(|config| config.value.as_deref());
    let renewal = value("share.renew.acknowledge.enable")?;
    let lock = value("share.record.lock.duration.ms").and_then(|ms| ms.trim().parse().ok());
    let lock = lock.map(Duration::from_millis);
    let lock = lock.map_or_else(String::new, |lock| format!(", after {lock:?}"));
    renewal.eq_ignore_ascii_case("false").then_some(lock)
}

/// Raises the limit to 10 where nobody has set it, or to the most the broker allows; the answer is
/// the limit in force.
async fn delivery_count_limit(
    admin: &impl GroupAdmin,
    settings: &ConsumerSettings,
    configs: &Settings,
) -> i16 {
    let group_id = &settings.group_id;
    let Some(found) = configs.get(LIMIT) else {
        return delivery_count_limit_of_brokers(admin).await;
    };
    let now = found
        .value
        .as_deref()
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(LIMIT_DEFAULT);
    if !settings.prepare || found.is_set || now >= LIMIT_WANTED {
        return now;
    }
    // The broker's maximum isn't shown: try, and go down while it refuses.
    for wanted in (now + 1..=LIMIT_WANTED).rev() {
        match admin
            .set_group_config(group_id, LIMIT, &wanted.to_string())
            .await
        {
            Ok(()) => {
                tracing::info!(
                    group = group_id,
                    value = wanted,
                    "Set share.delivery.count.limit of the group, which nobody had set."
                );
                return wanted;
            }
            Err(error) if error.code() == Some(sharegroup_wire::ErrorCode::InvalidConfig) => {}
            Err(error) => {
                tracing::warn!(group = group_id, %error, "The group's delivery limit stays as it is.");
                return now;
            }
        }
    }
    now
}

/// Before Kafka 4.3 it is a setting of the brokers alone; the lowest of them counts.
async fn record_locks_max(admin: &impl GroupAdmin, configs: &Settings) -> u32 {
    let of_group = configs.get(LOCKS).and_then(|set| set.value.clone());
    let values = match of_group {
        Some(value) => vec![value],
        None => admin
            .broker_values(LOCKS_OF_BROKER)
            .await
            .unwrap_or_default(),
    };
    let limits = values.iter().filter_map(|value| value.trim().parse().ok());
    limits.min().unwrap_or(RECORD_LOCKS_MAX)
}

/// Before Kafka 4.3 the limit is a setting of the brokers alone. Where they differ the lowest counts:
/// better to name a record too early than never.
async fn delivery_count_limit_of_brokers(admin: &impl GroupAdmin) -> i16 {
    let values = match admin.broker_values(LIMIT_OF_BROKER).await {
        Ok(values) => values,
        Err(error) => {
            tracing::warn!(
                %error,
                assumed = LIMIT_DEFAULT,
                "The brokers' {LIMIT_OF_BROKER} can't be read: if it is lower, records on their last delivery are not named."
            );
            Vec::new()
        }
    };
    let limits = values.iter().filter_map(|value| value.trim().parse().ok());
    limits.min().unwrap_or(LIMIT_DEFAULT)
}

const START: &str = "share.auto.offset.reset";
const LIMIT_OF_BROKER: &str = "group.share.delivery.count.limit";
const LIMIT: &str = "share.delivery.count.limit";
const LETTERS: &str = "errors.deadletterqueue.topic.name";
const LOCKS: &str = "share.partition.max.record.locks";
const LOCKS_OF_BROKER: &str = "group.share.partition.max.record.locks";
/// Kafka's default of it.
const RECORD_LOCKS_MAX: u32 = 2000;
/// What the runtime sets.
const LIMIT_WANTED: i16 = 10;
/// The broker's default (`group.share.delivery.count.limit`).
const LIMIT_DEFAULT: i16 = 5;

#[cfg(test)]
mod tests;
