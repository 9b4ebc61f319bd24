//! Prepares the share group before its first member joins.
//!
//! Broker defaults work against a sink: a new group starts at the end of its topics, so that what
//! is there already is skipped without a word, and it allows only five deliveries of a record. So
//! what nobody has set is set here, and said: `share.auto.offset.reset` (a must), and
//! `share.delivery.count.limit` (as far as the broker lets us). A value that somebody has set is
//! never overwritten. Before that the group id is checked: an id that belongs to a consumer group
//! can't be joined.

use std::collections::BTreeMap;
use std::future::Future;

use sharegroup_consumer::admin::{Admin, AdminError, GroupType};

use crate::config::{ConsumerSettings, StartPosition};

/// What the runtime has to know about its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    /// Deliveries of a record that the group allows.
    pub(crate) delivery_count_limit: i16,
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

/// What is asked of the cluster; a seam for tests.
pub(crate) trait GroupAdmin: Sync {
    /// Level of the feature `share.version`.
    fn share_version(&self) -> impl Future<Output = Result<Option<i16>, AdminError>> + Send;
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
    /// Values of one key of the brokers' own configurations.
    fn broker_values(
        &self,
        key: &str,
    ) -> impl Future<Output = Result<Vec<String>, AdminError>> + Send;
}

impl GroupAdmin for Admin {
    async fn share_version(&self) -> Result<Option<i16>, AdminError> {
        Self::share_version(self).await
    }

    async fn find_group(&self, group_id: &str) -> Result<Option<(GroupType, String)>, AdminError> {
        let found = Self::find_group(self, group_id).await?;
        Ok(found.map(|group| (group.group_type, group.state)))
    }

    async fn group_configs(&self, group_id: &str) -> Result<Settings, AdminError> {
        let configs = Self::group_configs(self, group_id).await?;
        let setting = |(key, config): (String, sharegroup_consumer::admin::ConfigValue)| {
            let is_set = config.is_set();
            (
                key,
                Setting {
                    value: config.value,
                    is_set,
                },
            )
        };
        Ok(configs.into_iter().map(setting).collect())
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
}

/// Checks the group id and sets what nobody has set.
pub(crate) async fn prepare(
    admin: &impl GroupAdmin,
    settings: &ConsumerSettings,
) -> Result<Prepared, PrepareError> {
    let group_id = &settings.group_id;
    let bootstrap_servers = &settings.bootstrap_servers;
    // No level at all may be a 4.1 broker with its own switch: the join will tell.
    if admin.share_version().await? == Some(0) {
        let bootstrap_servers = bootstrap_servers.clone();
        return Err(PrepareError::ShareGroupsOff { bootstrap_servers });
    }
    check_type(admin, settings).await?;
    let configs = match admin.group_configs(group_id).await {
        Ok(configs) => configs,
        Err(source) if settings.prepare && settings.start_position != StartPosition::Broker => {
            return Err(PrepareError::StartPosition {
                group_id: group_id.clone(),
                what: "read",
                value: settings.start_position.group_value().unwrap_or_default(),
                bootstrap_servers: bootstrap_servers.clone(),
                source,
            });
        }
        Err(error) => {
            tracing::warn!(group = group_id, %error, "The group's settings can't be read.");
            BTreeMap::new()
        }
    };
    if settings.prepare {
        set_start_position(admin, settings, &configs).await?;
    }
    warn_about_start(settings, &configs);
    warn_about_renewal(group_id, &configs);
    let limit = delivery_count_limit(admin, settings, &configs).await;
    Ok(Prepared {
        delivery_count_limit: limit,
    })
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
    let off = configs
        .get("share.renew.acknowledge.enable")
        .and_then(|config| config.value.as_deref())
        .is_some_and(|value| value.eq_ignore_ascii_case("false"));
    if off {
        tracing::warn!(
            group = group_id,
            "The group has share.renew.acknowledge.enable=false: a put that fails can be retried only until its records' lock ends."
        );
    }
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
/// What the runtime sets.
const LIMIT_WANTED: i16 = 10;
/// The broker's default (`group.share.delivery.count.limit`).
const LIMIT_DEFAULT: i16 = 5;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use sharegroup_consumer::admin::Resource;
    use sharegroup_wire::ErrorCode;

    use super::*;
    use crate::testing;

    /// A cluster with one group, that refuses what it is told to.
    #[derive(Default)]
    struct Fake {
        share_version: Option<i16>,
        group: Option<(GroupType, String)>,
        settings: Vec<(&'static str, &'static str, bool)>,
        unreadable: bool,
        unwritable: bool,
        limit_max: i16,
        limits_of_brokers: Option<Vec<&'static str>>,
        written: Mutex<Vec<String>>,
    }

    impl Fake {
        fn new() -> Self {
            Self {
                share_version: Some(1),
                settings: vec![(START, "latest", false), (LIMIT, "5", false)],
                limit_max: 10,
                ..Self::default()
            }
        }

        fn written(&self) -> Vec<String> {
            self.written.lock().unwrap().clone()
        }
    }

    fn refused(code: ErrorCode) -> AdminError {
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

        async fn find_group(&self, _: &str) -> Result<Option<(GroupType, String)>, AdminError> {
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

        async fn set_group_config(
            &self,
            _: &str,
            key: &str,
            value: &str,
        ) -> Result<(), AdminError> {
            if self.unwritable {
                return Err(refused(ErrorCode::GroupAuthorizationFailed));
            }
            if key == LIMIT && value.parse::<i16>().unwrap() > self.limit_max {
                return Err(refused(ErrorCode::InvalidConfig));
            }
            self.written.lock().unwrap().push(format!("{key}={value}"));
            Ok(())
        }

        async fn broker_values(&self, key: &str) -> Result<Vec<String>, AdminError> {
            assert_eq!(key, LIMIT_OF_BROKER);
            let limits = self.limits_of_brokers.iter().flatten();
            match self.limits_of_brokers {
                Some(_) => Ok(limits.map(|limit| (*limit).to_owned()).collect()),
                None => Err(refused(ErrorCode::ClusterAuthorizationFailed)),
            }
        }
    }

    fn settings(lines: &str) -> ConsumerSettings {
        testing::connector(lines).consumer
    }

    #[tokio::test]
    async fn what_nobody_has_set_is_set() {
        let fake = Fake::new();
        let prepared = prepare(&fake, &settings("")).await.unwrap();
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
        prepare(&fake, &wanted).await.unwrap();
        assert_eq!(
            fake.written()[0],
            "share.auto.offset.reset=by_duration:PT1H"
        );
    }

    #[tokio::test]
    async fn what_somebody_has_set_stays() {
        let mut fake = Fake::new();
        fake.settings = vec![(START, "latest", true), (LIMIT, "3", true)];
        let prepared = prepare(&fake, &settings("")).await.unwrap();
        assert!(fake.written().is_empty());
        assert_eq!(prepared.delivery_count_limit, 3);
    }

    #[tokio::test]
    async fn nothing_is_set_where_that_is_not_wanted() {
        let fake = Fake::new();
        let prepared = prepare(&fake, &settings("share.group.prepare=false\n"))
            .await
            .unwrap();
        assert!(fake.written().is_empty());
        assert_eq!(prepared.delivery_count_limit, 5);
        let fake = Fake::new();
        prepare(&fake, &settings("share.auto.offset.reset=broker\n"))
            .await
            .unwrap();
        assert_eq!(fake.written(), ["share.delivery.count.limit=10"]);
    }

    #[tokio::test]
    async fn the_delivery_limit_is_clamped_to_what_the_broker_allows() {
        let mut fake = Fake::new();
        fake.limit_max = 7;
        let prepared = prepare(&fake, &settings("")).await.unwrap();
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
            let prepared = prepare(&fake, &settings("")).await.unwrap();
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
            let error = prepare(&fake, &settings("")).await.unwrap_err().to_string();
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
                prepare(&fake, &broker).await.unwrap().delivery_count_limit,
                5
            );
        }
    }

    #[tokio::test]
    async fn a_group_id_of_another_type_is_refused_with_the_way_out() {
        let mut fake = Fake::new();
        fake.group = Some((GroupType::Consumer, "Empty".to_owned()));
        let error = prepare(&fake, &settings("")).await.unwrap_err().to_string();
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
        prepare(&fake, &settings("")).await.unwrap();
    }

    #[tokio::test]
    async fn share_groups_that_are_off_are_named_with_the_command() {
        let mut fake = Fake::new();
        fake.share_version = Some(0);
        let error = prepare(&fake, &settings("")).await.unwrap_err().to_string();
        assert!(
            error.contains("share.version is 0")
                && error.contains("upgrade --feature share.version=1"),
            "{error}"
        );
        assert!(error.contains("localhost:9092"), "{error}");
    }
}
