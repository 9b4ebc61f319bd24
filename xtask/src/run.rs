//! Runs a table of stages, cheapest first, and counts.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};

/// One line of a table: what is run under which name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stage {
    /// What it is called on the command line.
    pub(crate) name: &'static str,
    /// What it shows, for `--list`.
    pub(crate) what: &'static str,
    /// Runs it. An error is a failure of the stage; its text is shown.
    pub(crate) run: fn(&Context) -> anyhow::Result<Count>,
}

/// What a stage counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    pub(crate) skipped: u32,
}

impl Count {
    /// A stage that is one check.
    pub(crate) const ONE: Self = Self {
        passed: 1,
        failed: 0,
        skipped: 0,
    };

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }
}

/// What all stages share.
#[derive(Debug)]
pub(crate) struct Context {
    /// The checkout.
    pub(crate) root: PathBuf,
    /// Where nested cargo calls build; `None` for the checkout's own folder.
    target_dir: Option<PathBuf>,
    /// Whether a part that can't run is a failure.
    pub(crate) ci: bool,
    verbose: bool,
}

impl Context {
    pub(crate) fn new(verbose: bool) -> anyhow::Result<Self> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let root = root
            .parent()
            .context("xtask lies in the workspace")?
            .to_path_buf();
        let ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
        let target_dir = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(_) => None,
            // CI clones anew each time: builds have to outlive the checkout.
            None if ci => Some(sharegroup_launcher::cache_dir()?.join("target")),
            None => None,
        };
        if let Some(dir) = &target_dir {
            own_builds(dir, &root)?;
        }
        Ok(Self {
            root,
            target_dir,
            ci,
            verbose,
        })
    }

    /// Where nested cargo calls put what they build.
    pub(crate) fn target_dir(&self) -> PathBuf {
        let given = std::env::var_os("CARGO_TARGET_DIR").map(|dir| self.root.join(dir));
        self.target_dir
            .clone()
            .or(given)
            .unwrap_or_else(|| self.root.join("target"))
    }

    /// A cargo command in the checkout.
    pub(crate) fn cargo<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root).args(args);
        forget_xtask(&mut command);
        if let Some(dir) = &self.target_dir {
            command.env("CARGO_TARGET_DIR", dir);
            // Half of the folder's size, and of no use to the next clone.
            command.env("CARGO_INCREMENTAL", "0");
        }
        command
    }

    /// The program of a crate from crates.io, in the cache folder; built there the first time.
    pub(crate) fn tool(&self, name: &str, version: &str) -> anyhow::Result<PathBuf> {
        let folder = sharegroup_launcher::cache_dir()?
            .join("tools")
            .join(format!("{name}-{version}"));
        let program = folder.join("bin").join(name);
        if !program.is_file() {
            let install = ["install", name, "--locked", "--version", version, "--root"];
            self.output(self.cargo(install).arg(&folder))
                .with_context(|| format!("{name} can't be installed"))?;
        }
        Ok(program)
    }

    /// Reports that a part can't run here. An error where `CI=true`.
    pub(crate) fn skip(&self, why: &str) -> anyhow::Result<Count> {
        ensure!(
            !self.ci,
            "can't run here, and CI=true allows no skipping: {why}"
        );
        println!("SKIPPED: {why}");
        Ok(Count {
            skipped: 1,
            ..Count::default()
        })
    }

    /// Runs a command that is one check.
    pub(crate) fn check(&self, command: &mut Command) -> anyhow::Result<Count> {
        self.output(command).map(|_| Count::ONE)
    }

    /// Runs a command and returns its standard output. Its whole output is shown when it fails, or when asked for.
    pub(crate) fn output(&self, command: &mut Command) -> anyhow::Result<String> {
        let finished = self.finish(command)?;
        ensure!(
            finished.success,
            "{} failed:\n{}",
            as_typed(command),
            finished.text()
        );
        Ok(finished.stdout())
    }

    /// Runs `cargo test …` and counts its tests. What a test skipped is shown.
    pub(crate) fn cargo_test(&self, command: &mut Command) -> anyhow::Result<Count> {
        let finished = self.finish(command)?;
        self.count(&as_typed(command), &finished)
    }

    /// Counts the tests of what has ended, and shows what it skipped, and all of it where a test failed.
    pub(crate) fn count(&self, what: &str, finished: &Finished) -> anyhow::Result<Count> {
        let mut count = count_tests(&finished.stdout());
        let skipped: Vec<_> = finished
            .lines
            .iter()
            .filter(|(_, line)| line.starts_with("SKIPPED:"))
            .collect();
        if !self.verbose {
            skipped.iter().for_each(|(_, line)| println!("{line}"));
        }
        count.skipped = u32::try_from(skipped.len()).unwrap_or(u32::MAX);
        if finished.success {
            ensure!(
                !self.ci || count.skipped == 0,
                "tests were skipped, and CI=true allows none"
            );
            return Ok(count);
        }
        if count.failed == 0 {
            bail!("{what} failed:\n{}", finished.text());
        }
        if !self.verbose {
            println!("\n{what}:\n{}", finished.text());
        }
        Ok(count)
    }

    /// Runs a command to its end.
    pub(crate) fn finish(&self, command: &mut Command) -> anyhow::Result<Finished> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .with_context(|| format!("could not run {}", as_typed(command)))?;
        let (sender, receiver) = mpsc::channel();
        if let Some(stream) = child.stdout.take() {
            forward_lines(Stream::Out, stream, sender.clone());
        }
        if let Some(stream) = child.stderr.take() {
            forward_lines(Stream::Err, stream, sender);
        }
        let mut lines = Vec::new();
        for (stream, line) in receiver {
            if self.verbose {
                println!("{line}");
            }
            lines.push((stream, line));
        }
        let success = child.wait()?.success();
        Ok(Finished { success, lines })
    }
}

/// Makes builds of another checkout count as none: tests carry the paths of their own, and cargo goes by the times of
/// files, which a newer build of an older clone outdoes.
fn own_builds(target_dir: &Path, root: &Path) -> anyhow::Result<()> {
    let owner = target_dir.join("checkout");
    let root = root.as_os_str().as_encoded_bytes();
    if fs::read(&owner).is_ok_and(|path| path == root) {
        return Ok(());
    }
    for profile in ["debug", "release"] {
        let Ok(entries) = fs::read_dir(target_dir.join(profile).join(".fingerprint")) else {
            continue;
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            if name.starts_with(b"sharegroup") || name.starts_with(b"xtask") {
                fs::remove_dir_all(entry.path())?;
            }
        }
    }
    fs::create_dir_all(target_dir)?;
    Ok(fs::write(owner, root)?)
}

/// Takes back what `cargo run` set for this program. Build scripts that look at it (that of ring does) would run anew
/// each time somebody changes between `cargo xtask` and cargo itself.
pub(crate) fn forget_xtask(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}

/// The program and its arguments.
pub(crate) fn as_typed(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Out,
    Err,
}

/// A command that ended, with the lines of both streams in the order they came.
pub(crate) struct Finished {
    pub(crate) success: bool,
    lines: Vec<(Stream, String)>,
}

impl Finished {
    pub(crate) fn stdout(&self) -> String {
        let lines = self
            .lines
            .iter()
            .filter(|(stream, _)| *stream == Stream::Out);
        lines
            .map(|(_, line)| line.as_str())
            .collect::<Vec<_>>()
            .join("\n")
    }

    pub(crate) fn text(&self) -> String {
        self.lines
            .iter()
            .map(|(_, line)| line.as_str())
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// Runs the named stages of the table, or all, until one fails. The last line is the count.
pub(crate) fn run(
    table: &[Stage],
    names: &[String],
    context: &Context,
) -> anyhow::Result<ExitCode> {
    for name in names {
        let known = || {
            table
                .iter()
                .map(|stage| stage.name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        ensure!(
            table.iter().any(|stage| stage.name == name),
            "no stage {name}; there are: {}",
            known()
        );
    }
    let chosen = table
        .iter()
        .filter(|stage| names.is_empty() || names.iter().any(|name| name == stage.name));
    let mut total = Count::default();
    for stage in chosen {
        let count = run_one(stage, context);
        total = total.plus(count);
        if count.failed > 0 {
            break;
        }
    }
    if total.skipped > 0 {
        println!("{} skipped, see above", total.skipped);
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    Ok(if total.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn run_one(stage: &Stage, context: &Context) -> Count {
    let start = Instant::now();
    // Somebody who waits should know for what.
    print!("{:<14} ", stage.name);
    if context.verbose {
        println!("...");
    }
    // Only a courtesy: a failure shows at the next line.
    drop(std::io::stdout().flush());
    let (count, trouble) = match (stage.run)(context) {
        Ok(count) => (count, None),
        Err(error) => (
            Count {
                failed: 1,
                ..Count::default()
            },
            Some(error),
        ),
    };
    let word = if count.failed > 0 { "FAILED" } else { "ok" };
    println!(
        "{word:<6} {:>7.1} s  {}",
        start.elapsed().as_secs_f64(),
        detail(count)
    );
    if let Some(error) = trouble {
        println!("{error:#}");
    }
    count
}

fn detail(count: Count) -> String {
    let mut detail = format!("{} passed", count.passed);
    if count.failed > 0 {
        detail += &format!(", {} failed", count.failed);
    }
    if count.skipped > 0 {
        detail += &format!(", {} SKIPPED", count.skipped);
    }
    detail
}

fn forward_lines(
    name: Stream,
    stream: impl Read + Send + 'static,
    sender: mpsc::Sender<(Stream, String)>,
) {
    thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line)
                .trim_end_matches('\r')
                .to_owned();
            // Nobody listens any more: the command is done with.
            if sender.send((name, line)).is_err() {
                break;
            }
        }
    });
}

/// Adds up the lines `test result: ok. 7 passed; 0 failed; …`.
pub(crate) fn count_tests(output: &str) -> Count {
    let results = output
        .lines()
        .filter_map(|line| line.trim().strip_prefix("test result: "));
    results.fold(Count::default(), |count, result| {
        let number_before = |word: &str| {
            let before = result
                .split(word)
                .next()
                .filter(|before| before.len() < result.len());
            before
                .and_then(|text| text.split_whitespace().next_back()?.parse().ok())
                .unwrap_or(0)
        };
        count.plus(Count {
            passed: number_before(" passed"),
            failed: number_before(" failed"),
            skipped: 0,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(ci: bool) -> Context {
        Context {
            root: PathBuf::from("."),
            target_dir: None,
            ci,
            verbose: false,
        }
    }

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const OK: &str = "test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.1s";
    const FAILED: &str =
        "test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out";

    #[test]
    fn tests_of_all_binaries_are_added_up() {
        let count = count_tests(&format!(
            "running 7 tests\n{OK}\nnoise 5 passed\n{FAILED}\n"
        ));
        assert_eq!(
            count,
            Count {
                passed: 9,
                failed: 3,
                skipped: 0
            }
        );
    }

    #[test]
    fn skipped_test_fails_only_where_ci_is_true() {
        let script = format!("echo 'SKIPPED: no java' >&2; echo '{OK}'");
        let count = context(false).cargo_test(&mut sh(&script)).unwrap();
        assert_eq!(
            count,
            Count {
                passed: 7,
                failed: 0,
                skipped: 1
            }
        );
        context(true).cargo_test(&mut sh(&script)).unwrap_err();
        context(true).skip("no java").unwrap_err();
    }

    #[test]
    fn build_that_fails_is_an_error_with_its_output() {
        let error = context(false)
            .cargo_test(&mut sh("echo 'error[E0001]' >&2; exit 101"))
            .unwrap_err();
        assert!(error.to_string().contains("error[E0001]"));
    }

    #[test]
    fn first_failing_stage_is_the_last_one_run() {
        const TABLE: &[Stage] = &[
            Stage {
                name: "bad",
                what: "",
                run: |_| bail!("broken"),
            },
            Stage {
                name: "never",
                what: "",
                run: |_| std::process::exit(99),
            },
        ];
        assert_eq!(run(TABLE, &[], &context(false)).unwrap(), ExitCode::FAILURE);
        run(TABLE, &["unknown".to_owned()], &context(false)).unwrap_err();
    }
}
