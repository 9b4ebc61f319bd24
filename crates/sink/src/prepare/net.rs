//! `share.dead.letter.net.topic`: the group's own dead-letter topic (KIP-1191), to which the brokers write what a
//! group has lost without this runtime's doing: records whose deliveries crashes used up.
//!
//! Nobody is told when such a letter can't be written: a topic that is missing, or lacks the brokers' prefix or
//! the setting that allows it, is accepted by every broker and then stays empty. So all of it is checked before
//! the first join. What belongs to the group is set where nobody has set it; the topic and the brokers are left alone.

use sharegroup_consumer::admin::AdminError;

use super::{GroupAdmin, LETTERS, PrepareError, Settings};
use crate::config::ConsumerSettings;

/// Why the net would not hold.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetError {
    /// The brokers are too old, or have the feature turned off.
    #[error(
        "share.dead.letter.net.topic={topic}: the brokers at {bootstrap_servers} write no dead letters of share groups \
         (KIP-1191), which needs Kafka 4.4 or later with the feature share.version=2; take the key out, or turn it on \
         with kafka-features.sh --bootstrap-server {bootstrap_servers} upgrade --feature share.version=2"
    )]
    Unsupported {
        topic: String,
        bootstrap_servers: String,
    },
    /// What has to be checked can't be looked up.
    #[error(
        "share.dead.letter.net.topic={topic} can't be checked, since {what} can't be read: {source}; allow \
         DESCRIBE_CONFIGS on the group, the topic and the cluster, or take the key out"
    )]
    Unchecked {
        topic: String,
        what: &'static str,
        source: AdminError,
    },
    /// The brokers write to no topic of this name.
    #[error(
        "share.dead.letter.net.topic={topic}: the brokers write dead letters only to topics whose names begin with \
         {prefix} (errors.deadletterqueue.topic.name.prefix); name another topic, or change that setting of the brokers"
    )]
    Prefix { topic: String, prefix: String },
    /// There is no such topic.
    #[error(
        "share.dead.letter.net.topic={topic}: there is no such topic; create it with kafka-topics.sh --bootstrap-server \
         {bootstrap_servers} --create --topic {topic} --config {ENABLED}=true"
    )]
    NoTopic {
        topic: String,
        bootstrap_servers: String,
    },
    /// The topic takes no letters.
    #[error(
        "share.dead.letter.net.topic={topic}: the topic takes no dead letters of groups; allow them with kafka-configs.sh \
         --bootstrap-server {bootstrap_servers} --entity-type topics --entity-name {topic} --alter --add-config {ENABLED}=true"
    )]
    NotEnabled {
        topic: String,
        bootstrap_servers: String,
    },
    /// The group has another value.
    #[error(
        "share.dead.letter.net.topic={topic}: group {group_id} has {key}={found}; set it with kafka-configs.sh \
         --bootstrap-server {bootstrap_servers} --entity-type groups --entity-name {group_id} --alter --add-config {key}={wanted}"
    )]
    GroupDiffers {
        topic: String,
        group_id: String,
        key: &'static str,
        found: String,
        wanted: String,
        bootstrap_servers: String,
    },
    /// The group's value can't be written.
    #[error(
        "share.dead.letter.net.topic={topic}: {key} of group {group_id} can't be set: {source}; allow ALTER_CONFIGS on the \
         group, or set it once with kafka-configs.sh --bootstrap-server {bootstrap_servers} --entity-type groups \
         --entity-name {group_id} --alter --add-config {key}={wanted}"
    )]
    NotSet {
        topic: String,
        group_id: String,
        key: &'static str,
        wanted: String,
        bootstrap_servers: String,
        source: AdminError,
    },
}

/// Checks that what the group loses for good gets into the topic, whole.
pub(super) async fn check_net(
    admin: &impl GroupAdmin,
    settings: &ConsumerSettings,
    group: &Settings,
    topic: &str,
) -> Result<(), PrepareError> {
    let bootstrap_servers = settings.bootstrap_servers.clone();
    let has_feature = admin.share_version().await?.is_none_or(|level| level >= 2);
    if !has_feature || !group.contains_key(LETTERS) {
        return Err(NetError::Unsupported {
            topic: topic.to_owned(),
            bootstrap_servers,
        }
        .into());
    }
    check_topic(admin, &bootstrap_servers, topic).await?;
    // The copy first: a letter without its record would help nobody.
    for (key, wanted) in [(COPY, "true"), (LETTERS, topic)] {
        let set = group.get(key);
        let found = set.and_then(|set| set.value.as_deref()).unwrap_or("");
        if found.eq_ignore_ascii_case(wanted) {
            continue;
        }
        let group_id = settings.group_id.clone();
        let (topic, wanted) = (topic.to_owned(), wanted.to_owned());
        if !settings.prepare || set.is_some_and(|set| set.is_set && !found.is_empty()) {
            return Err(NetError::GroupDiffers {
                topic,
                group_id,
                key,
                found: found.to_owned(),
                wanted,
                bootstrap_servers,
            }
            .into());
        }
        if let Err(source) = admin.set_group_config(&group_id, key, &wanted).await {
            return Err(NetError::NotSet {
                topic,
                group_id,
                key,
                wanted,
                bootstrap_servers,
                source,
            }
            .into());
        }
        tracing::info!(
            group = group_id,
            value = wanted,
            "Set {key} of the group, which nobody had set: the brokers keep there what the group loses."
        );
    }
    Ok(())
}

/// Checks what belongs to the topic and the brokers; looks only.
pub(super) async fn check_topic(
    admin: &impl GroupAdmin,
    bootstrap_servers: &str,
    topic: &str,
) -> Result<(), NetError> {
    let unchecked = |what| {
        move |source| NetError::Unchecked {
            topic: topic.to_owned(),
            what,
            source,
        }
    };
    let prefixes = admin.broker_values(PREFIX).await;
    let prefixes = prefixes.map_err(unchecked("the brokers' settings"))?;
    if let Some(prefix) = prefixes.iter().find(|prefix| !topic.starts_with(*prefix)) {
        return Err(NetError::Prefix {
            topic: topic.to_owned(),
            prefix: prefix.clone(),
        });
    }
    let configs = admin.topic_configs(topic).await;
    let configs = configs.map_err(unchecked("the topic's settings"))?;
    let (topic, bootstrap_servers) = (topic.to_owned(), bootstrap_servers.to_owned());
    let Some(configs) = configs else {
        return Err(NetError::NoTopic {
            topic,
            bootstrap_servers,
        });
    };
    let enabled = configs.get(ENABLED).and_then(|set| set.value.as_deref());
    if !enabled.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Err(NetError::NotEnabled {
            topic,
            bootstrap_servers,
        });
    }
    Ok(())
}

/// Of the topic.
const ENABLED: &str = "errors.deadletterqueue.group.enable";
/// Of the group.
const COPY: &str = "errors.deadletterqueue.copy.record.enable";
/// Of the brokers.
pub(super) const PREFIX: &str = "errors.deadletterqueue.topic.name.prefix";

#[cfg(test)]
mod tests;
