//! The settings of a group.
#![allow(clippy::unwrap_used)]

use sharegroup_consumer::admin::Admin;

/// Sets keys of a group, and returns when they count.
///
/// A broker shows a key before it acts on it, but takes in one change after the other: once it shows the next one,
/// it acts on the one before. The last two make sure that there is a next one: the same value again is none.
pub(crate) async fn set_group(admin: &Admin, group_id: &str, settings: &[(&str, &str)]) {
    let last = ["45001", "45000"].map(|ms| ("share.session.timeout.ms", ms));
    for (key, value) in settings.iter().chain(&last) {
        let shown = admin.set_group_config(group_id, key, value);
        shown.await.unwrap();
    }
}
