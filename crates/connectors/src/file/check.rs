//! Whether the files of all tasks could be written, without making any.

use std::collections::BTreeSet;
use std::path::Path;

use rustix::fs::{Access, access};
use sharegroup_sink::{Checked, ConnectorConfig, TaskContext};

use super::config::FileConfig;
use super::room;

/// Looks at the files, or at the folders that they would be made in. Blocks.
pub(super) fn check(config: &ConnectorConfig) -> Checked {
    let mut checked = Checked::default();
    let path = |task| {
        let group_id = config.consumer.group_id.as_str();
        let context = TaskContext::new(config.name.as_str(), task, config.tasks_max, group_id);
        FileConfig::of(config, &context).path
    };
    let paths: BTreeSet<_> = (0..config.tasks_max).map(path).collect();
    for path in paths {
        match look(&path) {
            Ok(note) => checked.note(note),
            Err((message, advice)) => {
                checked.problem(config.problem("file", message).advice(advice));
            }
        }
    }
    checked
}

/// What is well, or what isn't and what to do.
fn look(path: &Path) -> Result<String, (String, &'static str)> {
    let shown = path.display();
    let is_there = path.exists();
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let allowed = match is_there {
        true => access(path, Access::READ_OK | Access::WRITE_OK),
        false => access(folder, Access::WRITE_OK | Access::EXEC_OK),
    };
    if let Err(error) = allowed {
        let what = if is_there { "written" } else { "made" };
        let message = format!("the file {shown} can't be {what}: {error}");
        return Err((message, "give this user the right, or name another file"));
    }
    let nearest = if is_there { path } else { folder };
    room::check_at(nearest, path).map_err(|message| (message, "nothing would be written"))?;
    Ok(match is_there {
        true => format!("file {shown} is there and is appended to"),
        false => format!("file {shown} isn't there yet and can be made"),
    })
}
