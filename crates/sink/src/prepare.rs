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

use sharegroup_consumer::admin::{Admin, AdminError, ConfigValue, GroupListing, GroupType};

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

/// What is asked of the cluster; a seam for tests.
pub(crate) trait GroupAdmin: Sync {
    /// Level of the feature `share.version`.
    fn share_version(&self) -> impl Future<Output = Result<Option<i16>, AdminError>> + Send;
    /// The group of this id, of any type.
    fn find_group(
        &self,
        group_id: &str,
    ) -> impl Future<Output = Result<Option<GroupListing>, AdminError>> + Send;
    /// The group's configuration.
    fn group_configs(
        &self,
        group_id: &str,
    ) -> impl Future<Output = Result<BTreeMap<String, ConfigValue>, AdminError>> + Send;
    /// Sets one of its keys.
    fn set_group_config(
        &self,
        group_id: &str,
        key: &str,
        value: &str,
    ) -> impl Future<Output = Result<(), AdminError>> + Send;
}

impl GroupAdmin for Admin {
    fn share_version(&self) -> impl Future<Output = Result<Option<i16>, AdminError>> + Send {
        Self::share_version(self)
    }

    fn find_group(
        &self,
        group_id: &str,
    ) -> impl Future<Output = Result<Option<GroupListing>, AdminError>> + Send {
        Self::find_group(self, group_id)
    }

    fn group_configs(
        &self,
        group_id: &str,
    ) -> impl Future<Output = Result<BTreeMap<String, ConfigValue>, AdminError>> + Send {
        Self::group_configs(self, group_id)
    }

    fn set_group_config(
        &self,
        group_id: &str,
        key: &str,
        value: &str,
    ) -> impl Future<Output = Result<(), AdminError>> + Send {
        Self::set_group_config(self, group_id, key, value)
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
        Ok(Some(group)) if group.group_type != GroupType::Share => {
            Err(PrepareError::GroupIdTaken {
                group_id: group.group_id,
                group_type: group.group_type,
                state: group.state,
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
    configs: &BTreeMap<String, ConfigValue>,
) -> Result<(), PrepareError> {
    let group_id = &settings.group_id;
    let Some(wanted) = settings.start_position.group_value() else {
        return Ok(());
    };
    if let Some(found) = configs.get(START).filter(|config| config.is_set()) {
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
fn warn_about_start(settings: &ConsumerSettings, configs: &BTreeMap<String, ConfigValue>) {
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

fn warn_about_renewal(group_id: &str, configs: &BTreeMap<String, ConfigValue>) {
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
    configs: &BTreeMap<String, ConfigValue>,
) -> i16 {
    let group_id = &settings.group_id;
    let Some(found) = configs.get(LIMIT) else {
        // Before Kafka 4.3 it is a setting of the broker alone.
        return LIMIT_DEFAULT;
    };
    let now = found
        .value
        .as_deref()
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(LIMIT_DEFAULT);
    if !settings.prepare || found.is_set() || now >= LIMIT_WANTED {
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

const START: &str = "share.auto.offset.reset";
const LIMIT: &str = "share.delivery.count.limit";
/// What the runtime sets.
const LIMIT_WANTED: i16 = 10;
/// The broker's default (`group.share.delivery.count.limit`).
const LIMIT_DEFAULT: i16 = 5;
