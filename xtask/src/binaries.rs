//! Test binaries side by side: most of them wait for brokers, and cargo runs one after the other.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::run::{Context, Count, Finished, as_typed};

/// How many run at a time.
const AT_A_TIME: usize = 2;

/// Builds the tests of `cargo test …`, runs their binaries, each in its package's folder as cargo does, and counts.
pub(crate) fn run(context: &Context, mut cargo_test: Command) -> anyhow::Result<Count> {
    cargo_test.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let built = context.finish(&mut cargo_test)?;
    ensure!(
        built.success,
        "{} failed:\n{}",
        as_typed(&cargo_test),
        built.text()
    );
    let mut binaries: Vec<_> = built.stdout().lines().filter_map(Binary::read).collect();
    binaries.sort_unstable();
    ensure!(
        !binaries.is_empty(),
        "{} built no test",
        as_typed(&cargo_test)
    );
    let queue = Mutex::new(VecDeque::from(binaries));
    let next = || {
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.pop_front()
    };
    let work = || {
        std::iter::from_fn(next)
            .map(|binary| {
                let finished = binary.run(context);
                (binary, finished)
            })
            .collect::<Vec<_>>()
    };
    let ended: Vec<(Binary, anyhow::Result<Finished>)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(work)).collect();
        let join = |worker: ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        workers.into_iter().flat_map(join).collect()
    });
    let mut total = Count::default();
    for (binary, finished) in ended {
        total = total.plus(context.count(&binary.path, &finished?)?);
    }
    Ok(total)
}

/// A test binary.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Binary {
    /// Its package's folder.
    folder: PathBuf,
    /// Where it is.
    path: String,
}

impl Binary {
    /// Reads a line of cargo's messages; `None` for those of something else.
    fn read(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test = message.pointer("/profile/test")?.as_bool()?;
        let manifest = Path::new(message.get("manifest_path")?.as_str()?);
        let path = message.get("executable")?.as_str()?;
        is_test.then_some(Self {
            folder: manifest.parent()?.to_path_buf(),
            path: path.to_owned(),
        })
    }

    fn run(&self, context: &Context) -> anyhow::Result<Finished> {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder);
        crate::run::forget_xtask(&mut command);
        context
            .finish(&mut command)
            .with_context(|| format!("{} can't be run", self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_among_cargos_messages() {
        let artifact = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml","profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let found = Binary::read(&artifact(true, "\"/t/a-1\"")).unwrap();
        assert_eq!(found.folder, Path::new("/w/crates/a"));
        assert_eq!(found.path, "/t/a-1");
        for other in [
            artifact(false, "\"/t/a-1\""),
            artifact(true, "null"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
            "Compiling".to_owned(),
        ] {
            assert_eq!(Binary::read(&other), None, "{other}");
        }
    }
}
