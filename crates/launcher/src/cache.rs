//! Where fetched jars and other things that outlive a checkout are kept.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::LaunchError;

/// The cache folder: `$SHAREGROUP_CACHE`, else `$XDG_CACHE_HOME/sharegroup`, else `~/.cache/sharegroup`.
///
/// The folder need not exist. `XDG_CACHE_HOME` counts only when it is absolute, as the XDG base directory
/// specification says.
///
/// # Errors
/// [`LaunchError::NoCacheFolder`] when none of the variables is set.
pub fn cache_dir() -> Result<PathBuf, LaunchError> {
    cache_dir_from(|name| std::env::var_os(name))
}

fn cache_dir_from(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, LaunchError> {
    let variable = |name| {
        variable(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(own) = variable("SHAREGROUP_CACHE") {
        return Ok(own);
    }
    if let Some(xdg) = variable("XDG_CACHE_HOME").filter(|path| path.is_absolute()) {
        return Ok(xdg.join("sharegroup"));
    }
    variable("HOME")
        .map(|home| home.join(".cache").join("sharegroup"))
        .ok_or(LaunchError::NoCacheFolder)
}

/// The folder of one Kafka version inside the cache.
pub(crate) fn version_dir(cache: &Path, version: &str) -> PathBuf {
    cache.join("kafka").join(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<PathBuf, LaunchError> {
        cache_dir_from(|name| {
            variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn own_variable_wins() {
        let dir = from(&[
            ("HOME", "/h"),
            ("XDG_CACHE_HOME", "/x"),
            ("SHAREGROUP_CACHE", "/own"),
        ])
        .unwrap();
        assert_eq!(dir, Path::new("/own"));
    }

    #[test]
    fn xdg_comes_before_home() {
        assert_eq!(
            from(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]).unwrap(),
            Path::new("/x/sharegroup")
        );
        assert_eq!(
            from(&[("HOME", "/h")]).unwrap(),
            Path::new("/h/.cache/sharegroup")
        );
    }

    #[test]
    fn empty_and_relative_values_do_not_count() {
        let dir = from(&[
            ("HOME", "/h"),
            ("XDG_CACHE_HOME", "x"),
            ("SHAREGROUP_CACHE", ""),
        ])
        .unwrap();
        assert_eq!(dir, Path::new("/h/.cache/sharegroup"));
        assert!(matches!(from(&[]), Err(LaunchError::NoCacheFolder)));
    }

    #[test]
    fn each_version_has_its_own_folder() {
        assert_eq!(
            version_dir(Path::new("/c"), "4.4.0"),
            Path::new("/c/kafka/4.4.0")
        );
    }
}
