//! The class archive of a Kafka version: saves half a second and a third of the CPU at each start.
//!
//! Best effort: whatever fails here costs time later and nothing else.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use crate::java::{Archive, Runtime};
use crate::{Kafka, LaunchError};

/// The archive of this Java and these jars, if somebody made it.
pub(crate) fn existing(runtime: &Runtime) -> Option<PathBuf> {
    Some(path(runtime)?).filter(|file| file.is_file())
}

/// The archive of this Java and these jars; made now, with a broker that starts and stops, when there is none.
pub(crate) fn ensure(runtime: &Runtime) -> Archive {
    let Some(file) = path(runtime) else {
        return Archive::Without;
    };
    if !file.is_file()
        && let Err(error) = make(runtime, &file)
    {
        tracing::warn!(error = %error, "No class archive for Kafka, each start takes longer.");
        // An empty file is ignored by Java and keeps the next start from trying again.
        drop(fs::write(&file, []));
    }
    Archive::Use(file)
}

fn make(runtime: &Runtime, file: &PathBuf) -> Result<(), LaunchError> {
    let _lock = runtime.jars().lock("archive.lock")?;
    // Another process may have made it while this one waited for the lock.
    if file.is_file() {
        return Ok(());
    }
    tracing::info!(file = %file.display(), "Making a class archive for Kafka.");
    let part = file.with_extension("part");
    let kafka = Kafka::builder()
        .version(runtime.jars().version())
        .start_with(runtime, &Archive::Write(part.clone()))?;
    kafka.stop()?;
    fs::rename(&part, file).map_err(LaunchError::io("renaming", &part))
}

/// One file per Java: an archive fits only the runtime that wrote it.
fn path(runtime: &Runtime) -> Option<PathBuf> {
    let program = fs::canonicalize(runtime.program()).ok()?;
    let mut hasher = DefaultHasher::new();
    program.hash(&mut hasher);
    fs::metadata(&program)
        .ok()?
        .modified()
        .ok()?
        .hash(&mut hasher);
    Some(
        runtime
            .jars()
            .dir()
            .join(format!("classes-{:016x}.jsa", hasher.finish())),
    )
}
