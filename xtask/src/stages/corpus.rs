//! The fuzz targets, replayed in stable Rust. They are a workspace of their own, for the sake of what fuzzing needs.

use crate::run::{Context, Count, count_tests};

const MANIFEST: [&str; 2] = ["--manifest-path", "fuzz/targets/Cargo.toml"];

/// Style of `fuzz`, and each target over its corpus and its regressions.
pub(crate) fn check(context: &Context) -> anyhow::Result<Count> {
    let cargo = |command: &str, args: &[&str]| {
        let mut cargo = context.cargo([command]);
        cargo
            .args(MANIFEST)
            .args(args)
            .env("CARGO_TARGET_DIR", context.target_dir().join("fuzz"));
        cargo
    };
    context.output(&mut cargo("fmt", &["--all", "--", "--check", "-l"]))?;
    let lint = ["--all-targets", "--", "-D", "warnings"];
    context.output(&mut cargo("clippy", &lint))?;
    let replay = ["--test", "corpus", "--", "--nocapture"];
    let output = context.output(&mut cargo("test", &replay))?;
    let replayed = output
        .lines()
        .find(|line| line.starts_with("files replayed:"));
    println!("{}", replayed.unwrap_or_default());
    Ok(count_tests(&output))
}
