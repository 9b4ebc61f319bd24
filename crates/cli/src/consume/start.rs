//! Where a share group starts, and what `--from-beginning` does about it.

use sharegroup_consumer::admin::{Admin, AdminError, LogPosition};

/// The group's key that says where it starts on partitions it has no state for.
const START: &str = "share.auto.offset.reset";

/// What the group's configuration says about its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reset {
    /// The value in force; the broker's default is `latest`.
    pub(super) value: String,
    /// Whether somebody has set it on the group.
    pub(super) is_set: bool,
}

/// What is to be done before the first join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// Write `earliest` to the group.
    pub(super) write: bool,
    /// What the user should know.
    pub(super) notes: Vec<String>,
}

/// Decides. `started` = the group has a position on a partition of the topics already.
pub(super) fn plan(group_id: &str, from_beginning: bool, reset: &Reset, started: bool) -> Plan {
    let mut notes = Vec::new();
    let write = from_beginning && !reset.is_set && reset.value != EARLIEST;
    if from_beginning && reset.is_set && reset.value != EARLIEST {
        notes.push(format!(
            "--from-beginning has no effect: somebody has set {START}={} on group {group_id}, and that stays; \
             take another --group, or change it with kafka-configs.sh --entity-type groups",
            reset.value
        ));
    }
    if from_beginning && started {
        notes.push(format!(
            "group {group_id} has read from here before and goes on where it stands; \
             take a new --group to read all from the beginning"
        ));
    } else if !from_beginning && !started && reset.value != EARLIEST {
        notes.push(format!(
            "group {group_id} is new here and starts at {START}={}: what is in the topic already may be skipped; \
             --from-beginning starts at the first record",
            reset.value
        ));
    }
    Plan { write, notes }
}

/// Looks at the group, writes what the plan says, returns what the user should know.
///
/// # Errors
/// With `--from-beginning`: the group's configuration could not be read or written.
pub(super) async fn prepare(
    admin: &Admin,
    group_id: &str,
    topics: &[String],
    from_beginning: bool,
) -> Result<Vec<String>, AdminError> {
    let configs = match admin.group_configs(group_id).await {
        Ok(configs) => configs,
        // Nothing is to be written: then not being allowed to look is no reason to stop.
        Err(error) if !from_beginning && error.code().is_some() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let found = configs.get(START);
    let reset = Reset {
        value: found
            .and_then(|found| found.value.clone())
            .unwrap_or_else(|| "latest".to_owned()),
        is_set: found.is_some_and(|found| found.is_set()),
    };
    // Unknown or not allowed counts as not started: then there is one note more, or one less.
    let offsets = admin.share_group_offsets(group_id, None).await;
    let started = offsets.is_ok_and(|offsets| {
        offsets
            .iter()
            .any(|offset| topics.contains(&offset.topic) && offset.start_offset.is_some())
    });
    let plan = plan(group_id, from_beginning, &reset, started);
    let mut notes = plan.notes;
    if plan.write {
        admin.set_group_config(group_id, START, EARLIEST).await?;
        notes.push(format!("set {START}={EARLIEST} on group {group_id}"));
    }
    if from_beginning && (plan.write || reset.value == EARLIEST) {
        // What is there already: brokers answer a change before they act on it.
        let topics: Vec<_> = topics.iter().map(String::as_str).collect();
        let position = LogPosition::Earliest;
        admin.begin_share_group(group_id, &topics, position).await?;
    }
    Ok(notes)
}

const EARLIEST: &str = "earliest";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unset_start_is_written_and_only_when_asked() {
        for (from_beginning, value, is_set, started, write, says) in [
            (
                false,
                "latest",
                false,
                false,
                false,
                Some("--from-beginning starts"),
            ),
            (false, "latest", true, false, false, Some("may be skipped")),
            (false, "earliest", true, false, false, None),
            (false, "latest", false, true, false, None),
            (true, "latest", false, false, true, None),
            (true, "latest", true, false, false, Some("has no effect")),
            (true, "earliest", true, false, false, None),
            (true, "earliest", false, false, false, None),
            (
                true,
                "latest",
                false,
                true,
                true,
                Some("goes on where it stands"),
            ),
            (
                true,
                "by_duration:PT1H",
                true,
                false,
                false,
                Some("by_duration:PT1H"),
            ),
        ] {
            let reset = Reset {
                value: value.to_owned(),
                is_set,
            };
            let case = format!("{from_beginning} {value} {is_set} {started}");
            let plan = plan("g", from_beginning, &reset, started);
            assert_eq!(plan.write, write, "{case}");
            assert_eq!(plan.notes.is_empty(), says.is_none(), "{case}: {plan:?}");
            let notes = plan.notes.join("\n");
            assert!(notes.contains(says.unwrap_or_default()), "{case}: {notes}");
        }
    }
}
