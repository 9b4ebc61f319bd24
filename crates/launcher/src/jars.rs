//! The jars of one Kafka version, fetched once with Maven into the cache.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::cache::version_dir;
use crate::process::{find_program, output_within, text_of};
use crate::{LaunchError, cache_dir};

/// A slow mirror needs minutes for the 54 MB.
const FETCH_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// A filled folder of jars.
#[derive(Debug, Clone)]
pub(crate) struct Jars {
    version: String,
    /// `kafka/<version>` in the cache; the jars are in `lib` below it.
    dir: PathBuf,
}

impl Jars {
    /// The jars of `version`: those in the cache, else fetched now.
    ///
    /// Safe when several processes do it at once: one fetches, the others wait for it.
    pub(crate) fn fetch(version: &str) -> Result<Self, LaunchError> {
        check_version(version)?;
        let jars = Self {
            version: version.to_owned(),
            dir: version_dir(&cache_dir()?, version),
        };
        if jars.lib().is_dir() {
            return Ok(jars);
        }
        let mvn = find_program("mvn").ok_or_else(|| LaunchError::MavenMissing {
            version: version.to_owned(),
            lib: jars.lib(),
        })?;
        let _lock = jars.lock("fetch.lock")?;
        // Another process may have fetched them while this one waited for the lock.
        if !jars.lib().is_dir() {
            jars.fetch_with(&mvn, &pom_of(version), &jars.lib())?;
        }
        Ok(jars)
    }

    /// The folder with one more jar of Kafka's, `artifact`, alone: as a plugin folder has it.
    pub(crate) fn fetch_plugin(&self, artifact: &str) -> Result<PathBuf, LaunchError> {
        // What it needs is there where it is loaded.
        let project = plugin_pom(["org.apache.kafka", artifact, &self.version], &["*:*"]);
        self.fetch_folder(artifact, &project)
    }

    /// The folder with another project's jar and all that it needs, but for `without`.
    pub(crate) fn fetch_foreign_plugin(
        &self,
        [group, artifact, version]: [&str; 3],
        without: &[&str],
    ) -> Result<PathBuf, LaunchError> {
        let project = plugin_pom([group, artifact, version], without);
        // Each folder of a plugin path is a plugin, but each of its jars is one, too.
        let path = format!("{artifact}-{version}");
        self.fetch_folder(&format!("{path}/jars"), &project)?;
        Ok(self.dir.join("plugins").join(path))
    }

    fn fetch_folder(&self, name: &str, project: &str) -> Result<PathBuf, LaunchError> {
        let folder = self.dir.join("plugins").join(name);
        let mvn = find_program("mvn").ok_or_else(|| LaunchError::MavenMissing {
            version: self.version.clone(),
            lib: folder.clone(),
        });
        let _lock = self.lock("fetch.lock")?;
        if !folder.is_dir() {
            let parent = folder.parent().unwrap_or(&self.dir);
            fs::create_dir_all(parent).map_err(LaunchError::io("creating", parent))?;
            self.fetch_with(&mvn?, project, &folder)?;
        }
        Ok(folder)
    }

    #[cfg(test)]
    pub(crate) fn of_dir(version: &str, dir: &Path) -> Self {
        Self {
            version: version.to_owned(),
            dir: dir.to_path_buf(),
        }
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// The folder that belongs to this version in the cache, also for what is made from the jars.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Java's class path: each jar by name, in a fixed order, as a class archive demands.
    pub(crate) fn class_path(&self) -> Result<OsString, LaunchError> {
        let lib = self.lib();
        let entries = fs::read_dir(&lib).map_err(LaunchError::io("reading", &lib))?;
        let mut jars = Vec::new();
        for entry in entries {
            jars.push(entry.map_err(LaunchError::io("reading", &lib))?.path());
        }
        jars.retain(|path| path.extension().is_some_and(|extension| extension == "jar"));
        jars.sort();
        std::env::join_paths(jars).map_err(|error| LaunchError::Invalid {
            setting: "cache folder",
            reason: error.to_string(),
        })
    }

    /// An exclusive lock between processes, held until the returned file is dropped.
    pub(crate) fn lock(&self, name: &str) -> Result<File, LaunchError> {
        fs::create_dir_all(&self.dir).map_err(LaunchError::io("creating", &self.dir))?;
        let path = self.dir.join(name);
        let file = File::create(&path).map_err(LaunchError::io("creating", &path))?;
        file.lock().map_err(LaunchError::io("locking", &path))?;
        Ok(file)
    }

    fn lib(&self) -> PathBuf {
        self.dir.join("lib")
    }

    /// Fetches the dependencies of a project into a folder of another name and renames it: `target` is either whole or
    /// not there.
    fn fetch_with(&self, mvn: &Path, project: &str, target: &Path) -> Result<(), LaunchError> {
        tracing::info!(version = self.version, dir = %self.dir.display(), "Fetching the jars of Kafka with Maven.");
        let part = self.dir.join("fetching");
        // What a killed process left behind.
        if part.exists() {
            fs::remove_dir_all(&part).map_err(LaunchError::io("removing", &part))?;
        }
        fs::create_dir_all(&part).map_err(LaunchError::io("creating", &part))?;
        let pom = part.join("pom.xml");
        fs::write(&pom, project).map_err(LaunchError::io("writing", &pom))?;
        let lib = part.join("lib");
        let mut command = Command::new(mvn);
        command
            .args([
                "-q",
                "-B",
                "dependency:copy-dependencies",
                "-DincludeScope=runtime",
                "-f",
            ])
            .arg(&pom);
        command.arg(format!("-DoutputDirectory={}", lib.display()));
        let output = output_within(&mut command, FETCH_TIMEOUT)
            .map_err(LaunchError::io("running", mvn))?
            .ok_or_else(|| LaunchError::Fetch {
                version: self.version.clone(),
                output: format!("killed after {FETCH_TIMEOUT:?}"),
            })?;
        if !output.status.success() || !lib.is_dir() {
            return Err(LaunchError::Fetch {
                version: self.version.clone(),
                output: text_of(&output),
            });
        }
        fs::rename(&lib, target).map_err(LaunchError::io("renaming", &lib))?;
        fs::remove_dir_all(&part).map_err(LaunchError::io("removing", &part))
    }
}

/// A version goes into a path and into XML, so it may hold only what versions are made of.
fn check_version(version: &str) -> Result<(), LaunchError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    if version.starts_with(|c: char| c.is_ascii_digit()) && version.chars().all(allowed) {
        return Ok(());
    }
    Err(LaunchError::Invalid {
        setting: "version",
        reason: format!("{version:?} is not a version of Kafka"),
    })
}

/// A project that depends on one artifact; `without`, as `group:name`, is left out of what that depends on.
fn plugin_pom([group, artifact, version]: [&str; 3], without: &[&str]) -> String {
    let exclusion = |name: &&str| {
        let (group, artifact) = name.split_once(':').unwrap_or((name, "*"));
        format!(
            "<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId></exclusion>"
        )
    };
    let exclusions: String = without.iter().map(exclusion).collect();
    include_str!("../templates/plugin.xml")
        .replace("@GROUP@", group)
        .replace("@ARTIFACT@", artifact)
        .replace("@VERSION@", version)
        .replace("@EXCLUSIONS@", &exclusions)
}

fn pom_of(version: &str) -> String {
    include_str!("../templates/pom.xml").replace("@VERSION@", version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pom_names_the_version_for_broker_and_tools() {
        let pom = pom_of("4.3.1");
        assert_eq!(pom.matches("<version>4.3.1</version>").count(), 2);
        assert!(!pom.contains('@'));
    }

    #[test]
    fn version_cannot_leave_the_cache() {
        assert!(check_version("4.4.0").is_ok());
        assert!(check_version("4.5.0-rc1").is_ok());
        for bad in ["", "..", "../x", "4/../../x", "latest", "4.4.0</version>"] {
            assert!(
                matches!(
                    check_version(bad),
                    Err(LaunchError::Invalid {
                        setting: "version",
                        ..
                    })
                ),
                "{bad}"
            );
        }
    }
}
