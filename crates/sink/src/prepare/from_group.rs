//! `share.start.from.group`: a share group begins where a consumer group stands.
//!
//! It is decided partition by partition. One that the share group has not begun begins at the offset that the
//! consumer group committed; one without a commit begins as `share.auto.offset.reset` says; one that is begun
//! stays where it is, so that a restart with the key still set moves nothing. What the old sink wrote and had
//! not committed comes again: a sink commits after it has written, so that this is what was written since its
//! last commit (`offset.flush.interval.ms`, a minute by default), or nothing after an orderly stop.

use std::collections::{BTreeMap, BTreeSet};

use sharegroup_consumer::TopicPartition;
use sharegroup_consumer::admin::{GroupType, LogOffset};
use sharegroup_wire::ErrorCode;

use super::{GroupAdmin, PrepareError};
use crate::config::ConsumerSettings;

/// Why a share group can't begin where a consumer group stands.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartFromError {
    /// There is no such group.
    #[error(
        "share.start.from.group names {from}, which is no group of this cluster: check its name (the group of a sink of Kafka \
         Connect is connect-NAME), or take the key out to begin as share.auto.offset.reset says"
    )]
    Unknown { from: String },
    /// The group commits no offsets.
    #[error(
        "share.start.from.group names {from}, which is a {group_type} group: only consumer groups commit offsets to begin at"
    )]
    NoConsumerGroup { from: String, group_type: GroupType },
    /// Two would write the same records.
    #[error(
        "the consumer group {from} (share.start.from.group) has members (state {state}): what they write after the share \
         group {group_id} has begun would be written twice; stop them and start again"
    )]
    Running {
        from: String,
        state: String,
        group_id: String,
    },
    /// It has committed nothing of what is read here.
    #[error(
        "the consumer group {from} (share.start.from.group) has committed no offset of {topics}: check both names, or take the key \
         out to begin as share.auto.offset.reset says"
    )]
    NothingCommitted { from: String, topics: String },
    /// The share group began elsewhere, or the old sink ran again after it had begun.
    #[error(
        "the share group {group_id} has begun already, and stands at offset {stands} of {partition}, before offset {committed} that the \
         consumer group {from} (share.start.from.group) has committed: what lies between would be written again; take the key out to go on \
         there all the same, or stop all workers and delete the share group to begin at the committed offsets: \
         kafka-share-groups.sh --bootstrap-server {bootstrap_servers} --delete --group {group_id}"
    )]
    Behind {
        group_id: String,
        from: String,
        partition: TopicPartition,
        stands: i64,
        committed: i64,
        bootstrap_servers: String,
    },
}

/// Begins the partitions that are not begun yet at the committed offsets.
pub(super) async fn start_from_group(
    admin: &impl GroupAdmin,
    settings: &ConsumerSettings,
    from: &str,
    topics: &[String],
) -> Result<(), PrepareError> {
    let group_id = &settings.group_id;
    let begun = begun(admin, group_id).await?;
    let Some((group_type, state)) = admin.find_group(from).await? else {
        let unknown = || StartFromError::Unknown { from: from.into() };
        return Ok(stays(settings, from, !begun.is_empty(), unknown)?);
    };
    if !matches!(group_type, GroupType::Consumer | GroupType::Classic) {
        let from = from.to_owned();
        return Err(StartFromError::NoConsumerGroup { from, group_type }.into());
    }
    let mut committed = admin.committed(from).await?;
    committed.retain(|committed| topics.contains(&committed.partition.topic));
    not_behind(settings, from, &begun, &committed)?;
    let is_committed = !committed.is_empty();
    committed.retain(|committed| !begun.contains_key(&committed.partition));
    if committed.is_empty() {
        let nothing = || StartFromError::NothingCommitted {
            from: from.to_owned(),
            topics: topics.join(", "),
        };
        let has_begun = is_committed || !begun.is_empty();
        return Ok(stays(settings, from, has_begun, nothing)?);
    }
    if !matches!(state.as_str(), "Empty" | "Dead") {
        let (from, group_id) = (from.to_owned(), group_id.clone());
        return Err(StartFromError::Running {
            from,
            state,
            group_id,
        }
        .into());
    }
    begin_at(admin, group_id, from, &committed).await?;
    let others = begin_elsewhere(admin, topics, &begun, &committed).await?;
    warn_about(settings, from, &others);
    Ok(())
}

/// The partitions that are not begun and have no committed offset.
async fn begin_elsewhere(
    admin: &impl GroupAdmin,
    topics: &[String],
    begun: &BTreeMap<TopicPartition, i64>,
    committed: &[LogOffset],
) -> Result<Vec<TopicPartition>, PrepareError> {
    let committed = committed.iter().map(|committed| &committed.partition);
    let known: BTreeSet<_> = committed.chain(begun.keys()).collect();
    let mut partitions = admin.partitions(topics).await?;
    partitions.retain(|partition| !known.contains(partition));
    Ok(partitions)
}

/// Names the partitions that begin elsewhere than at a committed offset.
fn warn_about(settings: &ConsumerSettings, from: &str, others: &[TopicPartition]) {
    if others.is_empty() {
        return;
    }
    let names = others.iter().take(PARTITIONS_NAMED_MAX);
    let names: Vec<_> = names.map(ToString::to_string).collect();
    let reset = settings.start_position.group_value();
    tracing::warn!(
        group = settings.group_id,
        from,
        partitions = others.len(),
        names = names.join(", "),
        "Of these partitions the consumer group has committed no offset: they begin at {} (share.auto.offset.reset).",
        reset.as_deref().unwrap_or("what the group says"),
    );
}

/// Partitions that one line of the log names.
const PARTITIONS_NAMED_MAX: usize = 20;

/// Another worker may have done it meanwhile, and joined.
async fn begin_at(
    admin: &impl GroupAdmin,
    group_id: &str,
    from: &str,
    offsets: &[LogOffset],
) -> Result<(), PrepareError> {
    if let Err(error) = admin.begin_at(group_id, offsets).await {
        let is_joined = error.code() == Some(ErrorCode::NonEmptyGroup);
        let begun = match is_joined {
            true => begun(admin, group_id).await?,
            false => BTreeMap::new(),
        };
        let is_begun = |offset: &LogOffset| begun.contains_key(&offset.partition);
        if !offsets.iter().all(is_begun) {
            return Err(error.into());
        }
    }
    for LogOffset {
        partition, offset, ..
    } in offsets
    {
        tracing::info!(group = group_id, from, %partition, offset, "The group begins at the committed offset.");
    }
    tracing::warn!(
        group = group_id,
        from,
        "The group begins where the consumer group stands: what its sink has written and not committed comes again."
    );
    Ok(())
}

async fn begun(
    admin: &impl GroupAdmin,
    group_id: &str,
) -> Result<BTreeMap<TopicPartition, i64>, PrepareError> {
    match admin.begun(group_id).await {
        // A group that isn't there has begun nothing.
        Err(error) if error.code() == Some(ErrorCode::GroupIdNotFound) => Ok(BTreeMap::new()),
        begun => Ok(begun?),
    }
}

/// A share group that began at the committed offsets is never before them.
fn not_behind(
    settings: &ConsumerSettings,
    from: &str,
    begun: &BTreeMap<TopicPartition, i64>,
    committed: &[LogOffset],
) -> Result<(), StartFromError> {
    for committed in committed {
        if let Some(stands) = begun.get(&committed.partition)
            && *stands < committed.offset
        {
            return Err(StartFromError::Behind {
                group_id: settings.group_id.clone(),
                from: from.to_owned(),
                partition: committed.partition.clone(),
                stands: *stands,
                committed: committed.offset,
                bootstrap_servers: settings.bootstrap_servers.clone(),
            });
        }
    }
    Ok(())
}

/// Nothing is moved: right where the share group has begun, else an error.
fn stays(
    settings: &ConsumerSettings,
    from: &str,
    has_begun: bool,
    error: impl FnOnce() -> StartFromError,
) -> Result<(), StartFromError> {
    if !has_begun {
        return Err(error());
    }
    tracing::info!(
        group = settings.group_id,
        from,
        "The group has begun already and goes on where it stands: share.start.from.group moves nothing any more and can be taken out."
    );
    Ok(())
}

#[cfg(test)]
mod tests;
