//! When a file is finished, and what it is called then.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// When a file is finished. An empty one never is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rotation {
    /// Most bytes of a file; a single write may exceed it.
    pub(super) bytes_max: Option<u64>,
    /// From the making of the file on.
    pub(super) age_max: Option<Duration>,
}

impl Rotation {
    pub(super) const fn is_on(&self) -> bool {
        self.bytes_max.is_some() || self.age_max.is_some()
    }

    /// Whether a file of this length and birth is finished before so many bytes more.
    pub(super) fn is_due(&self, length: u64, more: u64, born: SystemTime) -> bool {
        let is_full = |max| length.saturating_add(more) > max;
        // A clock that was set back makes no file old.
        let is_old = |max| born.elapsed().is_ok_and(|age| age >= max);
        length > 0 && (self.bytes_max.is_some_and(is_full) || self.age_max.is_some_and(is_old))
    }
}

/// A name beside the path that no file has yet: a number behind the name's first part, one more than the
/// highest that is there.
pub(super) fn next_name(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // A leading dot belongs to the name.
    let dot = name.char_indices().skip(1).find(|(_, c)| *c == '.');
    let (stem, rest) = name.split_at(dot.map_or(name.len(), |(at, _)| at));
    let mut last = 0;
    for entry in std::fs::read_dir(super::service::folder(path))? {
        let entry = entry?.file_name();
        let entry = entry.to_string_lossy();
        let number = entry
            .strip_prefix(stem)
            .and_then(|entry| entry.strip_prefix('-'))
            .and_then(|entry| entry.strip_suffix(rest))
            .and_then(|number| number.parse().ok());
        last = last.max(number.unwrap_or(0));
    }
    let next = u64::checked_add(last, 1);
    let next =
        next.ok_or_else(|| io::Error::other("there is no number left for a finished file"))?;
    Ok(path.with_file_name(format!("{stem}-{next:06}{rest}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_file_takes_no_name_that_is_taken() {
        let folder = std::env::temp_dir().join(format!("rotation-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("out.txt");
        assert_eq!(next_name(&path).unwrap(), folder.join("out-000001.txt"));
        std::fs::write(folder.join("out-000007.txt"), "").unwrap();
        assert_eq!(next_name(&path).unwrap(), folder.join("out-000008.txt"));
        std::fs::write(folder.join(format!("out-{}.txt", u64::MAX)), "").unwrap();
        assert!(next_name(&path).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_is_finished_when_it_would_be_too_large_or_is_too_old() {
        let now = SystemTime::now();
        let by_size = Rotation {
            bytes_max: Some(10),
            age_max: None,
        };
        assert!(!by_size.is_due(6, 4, now) && by_size.is_due(6, 5, now));
        assert!(!by_size.is_due(0, 50, now), "empty");
        let by_age = Rotation {
            bytes_max: None,
            age_max: Some(Duration::from_secs(60)),
        };
        assert!(!by_age.is_due(6, 1, now) && by_age.is_due(6, 1, now - Duration::from_secs(61)));
        assert!(!by_age.is_due(6, 1, now + Duration::from_secs(99)));
        assert!(!Rotation::default().is_due(6, u64::MAX, SystemTime::UNIX_EPOCH));
    }
}
