//! Fuzzing: `cargo xtask fuzz`.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::run::{Context, forget_xtask};

const CARGO_FUZZ_VERSION: &str = "0.13.2";

/// Longest input, in bytes.
const INPUT_BYTES_MAX: u32 = 8192;

/// Longest input that is kept: the corpus has to stay small.
const KEPT_BYTES_MAX: u64 = 2048;

/// What counts as a crash beside a panic: one input that takes so long, one allocation or a process so large. The
/// targets themselves count what they allocate, and are stricter.
const LIMITS: [&str; 3] = ["-timeout=25", "-malloc_limit_mb=256", "-rss_limit_mb=2048"];

/// Lines of a fuzzer that are shown when it crashed.
const LINES_SHOWN: usize = 60;

#[derive(Debug, Args)]
pub(crate) struct FuzzArgs {
    /// Fuzz these only; all, one after the other, when none is named
    targets: Vec<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 60, value_name = "N")]
    seconds: u64,
    /// Fuzz nothing: take what was found so far over into the corpora of the checkout, as few inputs as cover the same
    #[arg(long)]
    keep: bool,
    /// Print the names, run nothing
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(args: &FuzzArgs) -> anyhow::Result<ExitCode> {
    let context = Context::new(false)?;
    let all = targets(&context)?;
    if args.list {
        all.iter().for_each(|target| println!("{target}"));
        return Ok(ExitCode::SUCCESS);
    }
    for name in &args.targets {
        ensure!(
            all.contains(name),
            "no target {name}; there are: {}",
            all.join(", ")
        );
    }
    let chosen = if args.targets.is_empty() {
        &all
    } else {
        &args.targets
    };
    let fuzzer = Fuzzer::build(&context)?;
    if args.keep {
        for target in chosen {
            fuzzer.keep(target)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut executions = 0;
    for target in chosen {
        let run = fuzzer.fuzz(target, args.seconds)?;
        println!("{run}");
        executions += run.executions;
        if let Some(input) = &run.crash {
            println!("{target} crashed with the input {}", input.display());
            println!("{} targets, {executions} executions, 1 crash", chosen.len());
            return Ok(ExitCode::FAILURE);
        }
    }
    println!(
        "{} targets, {executions} executions, 0 crashes",
        chosen.len()
    );
    Ok(ExitCode::SUCCESS)
}

/// Each is a program in `fuzz/fuzz_targets`.
fn targets(context: &Context) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(context.root.join("fuzz/fuzz_targets"))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        names.extend(name.map(str::to_owned));
    }
    names.sort_unstable();
    Ok(names)
}

/// The built programs, and the folders that they work with.
struct Fuzzer {
    programs: PathBuf,
    /// `fuzz` of the checkout: the corpora that were kept, and the regressions.
    checkout: PathBuf,
    /// What was found and not kept yet, seeds, inputs that crashed.
    cache: PathBuf,
}

impl Fuzzer {
    fn build(context: &Context) -> anyhow::Result<Self> {
        let cargo_fuzz = context.tool("cargo-fuzz", CARGO_FUZZ_VERSION)?;
        let cache = sharegroup_launcher::cache_dir()?.join("fuzz");
        let target_dir = context.target_dir().join("fuzz");
        eprintln!("Building the fuzz targets; the first time takes minutes.");
        let seeds = ["run", "-q", "--manifest-path", "fuzz/targets/Cargo.toml"];
        let mut seeds = context.cargo(seeds);
        seeds.args(["--bin", "seeds"]).arg(cache.join("seeds"));
        context.output(seeds.env("CARGO_TARGET_DIR", &target_dir))?;

        let mut build = Command::new(cargo_fuzz);
        build
            .current_dir(&context.root)
            .args(["build", "--fuzz-dir", "fuzz", "--target-dir"])
            .arg(&target_dir)
            // Sanitizers and coverage are not stable. A toolchain is never fetched.
            .env("RUSTUP_TOOLCHAIN", "nightly")
            .env("RUSTUP_AUTO_INSTALL", "0")
            .env_remove("CARGO");
        forget_xtask(&mut build);
        context.output(&mut build).context(
            "the fuzz targets can't be built; they need `rustup toolchain install nightly` and a C++ compiler",
        )?;
        Ok(Self {
            programs: target_dir.join(host()?).join("release"),
            checkout: context.root.join("fuzz"),
            cache,
        })
    }

    fn program(&self, target: &str) -> Command {
        let mut program = Command::new(self.programs.join(target));
        program.args(LIMITS);
        program.arg(format!("-max_len={INPUT_BYTES_MAX}"));
        program
    }

    /// The folders with inputs, those that exist.
    fn inputs(&self, target: &str) -> Vec<PathBuf> {
        let mut folders = vec![
            self.cache.join("corpus").join(target),
            self.checkout.join("corpus").join(target),
            self.checkout.join("regressions").join(target),
            self.cache.join("seeds").join(target),
        ];
        folders.retain(|folder| folder.is_dir());
        folders
    }

    /// Fuzzes one target until it crashes or the time is over.
    fn fuzz(&self, target: &str, seconds: u64) -> anyhow::Result<Run> {
        let crashes = self.cache.join("crashes").join(target);
        fs::create_dir_all(&crashes)?;
        // The first folder takes what is found.
        fs::create_dir_all(self.cache.join("corpus").join(target))?;
        let mut program = self.program(target);
        program
            .arg(format!("-max_total_time={seconds}"))
            .arg("-print_final_stats=1")
            .arg(format!("-artifact_prefix={}/", crashes.display()))
            .args(self.inputs(target))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let start = Instant::now();
        let mut child = program
            .spawn()
            .with_context(|| format!("could not run {program:?}"))?;
        let mut run = Run::new(target);
        let mut last = VecDeque::new();
        let stderr = child.stderr.take().context("it is piped")?;
        for line in BufReader::new(stderr).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            run.read(&line);
            if last.len() == LINES_SHOWN {
                last.pop_front();
            }
            last.push_back(line);
        }
        run.seconds = start.elapsed().as_secs_f64();
        let status = child.wait()?;
        if status.success() {
            run.crash = None;
            return Ok(run);
        }
        last.iter().for_each(|line| println!("{line}"));
        ensure!(
            run.crash.is_some(),
            "{target} ended with {status}, and no input is to blame"
        );
        Ok(run)
    }

    /// Makes the corpus of the checkout anew: what reaches code that the seeds don't.
    fn keep(&self, target: &str) -> anyhow::Result<()> {
        let merged = self.cache.join("merged").join(target);
        let kept = self.checkout.join("corpus").join(target);
        let seeds = self.cache.join("seeds").join(target);
        clear(&merged)?;
        copy(&seeds, &merged, u64::MAX, |_| true)?;
        let mut program = self.program(target);
        // Edges alone: how often each was taken would multiply the files.
        program.args(["-merge=1", "-use_counters=0"]).arg(&merged);
        let merge = program.args(self.inputs(target)).output()?;
        ensure!(
            merge.status.success(),
            "{program:?} failed:\n{}",
            String::from_utf8_lossy(&merge.stderr)
        );
        clear(&kept)?;
        let (count, bytes) = copy(&merged, &kept, KEPT_BYTES_MAX, |name| {
            !seeds.join(name).exists()
        })?;
        println!("{target:<18} {count:>5} inputs, {bytes:>8} bytes");
        Ok(())
    }
}

/// An empty folder.
fn clear(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    Ok(fs::create_dir_all(folder)?)
}

/// Copies the files of at most `bytes_max` with a wanted name; how many, and their bytes.
fn copy(
    from: &Path,
    to: &Path,
    bytes_max: u64,
    wanted: impl Fn(&Path) -> bool,
) -> anyhow::Result<(u32, u64)> {
    let (mut count, mut bytes) = (0, 0);
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = PathBuf::from(entry.file_name());
        if entry.metadata()?.len() <= bytes_max && wanted(&name) {
            bytes += fs::copy(entry.path(), to.join(&name))?;
            count += 1;
        }
    }
    Ok((count, bytes))
}

/// The platform that nightly builds for, as cargo names its folder.
fn host() -> anyhow::Result<String> {
    let rustc = Command::new("rustc")
        .args(["--print", "host-tuple"])
        .output()?;
    let host = String::from_utf8(rustc.stdout)?.trim().to_owned();
    ensure!(!host.is_empty(), "rustc does not tell its platform");
    Ok(host)
}

/// What a fuzzer said.
#[derive(Debug, Default, PartialEq)]
struct Run {
    target: String,
    seconds: f64,
    executions: u64,
    edges: u64,
    inputs: u64,
    crash: Option<PathBuf>,
}

impl Run {
    fn new(target: &str) -> Self {
        Self {
            target: target.to_owned(),
            ..Self::default()
        }
    }

    /// Takes in a line: `#123 NEW cov: 45 ft: 67 corp: 8/9b …`, a final number, or where the crashing input is.
    fn read(&mut self, line: &str) {
        let number = |text: &str| text.split(['/', ' ']).next()?.parse().ok();
        let words: Vec<_> = line.split_whitespace().collect();
        let after = |word| {
            let at = words.iter().position(|other| *other == word)?;
            number(words.get(at + 1)?)
        };
        if let Some(count) = words.first().and_then(|word| word.strip_prefix('#')) {
            self.executions = number(count).unwrap_or(self.executions);
            self.edges = after("cov:").unwrap_or(self.edges);
            self.inputs = after("corp:").unwrap_or(self.inputs);
        }
        self.executions = after("stat::number_of_executed_units:").unwrap_or(self.executions);
        if let Some((_, path)) = line.split_once("Test unit written to ") {
            self.crash = Some(Path::new(path.trim()).to_path_buf());
        }
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        #[allow(clippy::cast_precision_loss, reason = "for people")]
        let per_second = self.executions as f64 / self.seconds.max(0.001);
        write!(
            f,
            "{:<18} {:>12} executions, {per_second:>8.0}/s, {:>6} edges, {:>6} inputs",
            self.target, self.executions, self.edges, self.inputs
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_fuzzer_says_is_read() {
        let mut run = Run::new("frame");
        for line in [
            "#2\tINITED cov: 8 ft: 9 corp: 1/1b exec/s: 0 rss: 27Mb",
            "#4194304\tpulse  cov: 11 ft: 12 corp: 4/13b lim: 4096 exec/s: 1398101 rss: 27Mb",
            "stat::number_of_executed_units: 6915204",
            "artifact_prefix='c/'; Test unit written to c/crash-12",
        ] {
            run.read(line);
        }
        let expected = Run {
            target: "frame".to_owned(),
            seconds: 0.0,
            executions: 6_915_204,
            edges: 11,
            inputs: 4,
            crash: Some("c/crash-12".into()),
        };
        assert_eq!(run, expected);
    }
}
