//! Whether there is room to write, asked before the task joins its group: a task that fails at its
//! first write costs every record that it has acquired a delivery, each time it is started.

use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::{StatVfs, fstatvfs, statvfs};
use rustix::process::{Resource, getrlimit};

use super::outcome::Trouble;
use super::service::LineFile;

/// Looks at the file system's free space and at the process's file size limit (`ulimit -f`). What
/// is left of a quota can't be asked for.
pub(super) fn check(file: &LineFile) -> Result<(), Trouble> {
    let path = file.path().display();
    let unknown = |error: io::Error| Trouble::writing(file.path(), error);
    let system = fstatvfs(file.file()).map_err(|error| unknown(error.into()))?;
    if let Some(message) = full(&system, file.path()) {
        return Err(Trouble::new(message, ErrorKind::StorageFull));
    }
    let length = file.file().metadata().map_err(unknown)?.len();
    if let Some(limit) = getrlimit(Resource::Fsize).current
        && is_short(limit.saturating_sub(length), limit)
    {
        let message = format!(
            "the file {path} has {length} bytes, and this process may make files of {limit} bytes (ulimit -f): move the file away, or raise the limit"
        );
        return Err(Trouble::new(message, ErrorKind::FileTooLarge));
    }
    Ok(())
}

/// The same question about the file system of what is there, for a file that may not be.
pub(super) fn check_at(there: &Path, file: &Path) -> Result<(), String> {
    let unknown = |error| {
        format!(
            "the file system of {} can't be asked: {error}",
            file.display()
        )
    };
    let system = statvfs(there).map_err(unknown)?;
    full(&system, file).map_or(Ok(()), Err)
}

/// What to say where a file system has no room for a file.
fn full(system: &StatVfs, file: &Path) -> Option<String> {
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    let whole = system.f_blocks.saturating_mul(system.f_frsize);
    let path = file.display();
    is_short(free, whole).then(|| {
        format!(
            "the file system of {path} is full, {free} bytes are free: make room, or write elsewhere"
        )
    })
}

/// Whether less is left than one write may need; where there is little in all, less than an eighth.
/// Some network file systems don't know their size: 0.
const fn is_short(left: u64, whole: u64) -> bool {
    let eighth = whole / 8;
    whole > 0 && left < if eighth < ROOM_MIN { eighth } else { ROOM_MIN }
}

/// Bytes.
const ROOM_MIN: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_is_less_than_a_mebibyte_or_an_eighth() {
        for (left, whole, expected) in [
            (1 << 20, 1 << 30, false),
            ((1 << 20) - 1, 1 << 30, true),
            (1 << 10, 8 << 10, false),
            ((1 << 10) - 1, 8 << 10, true),
            (0, 8, true),
            (0, 0, false),
        ] {
            assert_eq!(is_short(left, whole), expected, "{left} of {whole}");
        }
    }
}
