//! What `cargo xtask test` runs. The table is the order: cheapest first.

mod corpus;
mod deny;
mod files;
mod layers;

use crate::binaries;
use crate::run::{Context, Count, Stage};

/// All stages. To add one, write a function and a line here.
pub(crate) const STAGES: &[Stage] = &[
    Stage {
        name: "fmt",
        what: "rustfmt has nothing to change",
        run: fmt,
    },
    Stage {
        name: "files",
        what: "length of source files, no paths of this machine in them, cancel safety told, tests that docs/features.md names",
        run: files::check,
    },
    Stage {
        name: "layers",
        what: "crates depend only on lower layers; session has no tokio and no TLS",
        run: layers::check,
    },
    Stage {
        name: "native",
        what: "no C code but ring's, and none without default features (B-123)",
        run: layers::check_native,
    },
    Stage {
        name: "clippy",
        what: "no warning in any target",
        run: clippy,
    },
    Stage {
        name: "benches",
        what: "the benches build without a warning",
        run: benches,
    },
    Stage {
        name: "unit",
        what: "unit, property and vector tests inside the crates, also without TLS",
        run: unit,
    },
    Stage {
        name: "integration",
        what: "tests of the crates over their public API",
        run: integration,
    },
    Stage {
        name: "corpus",
        what: "every fuzz target over all inputs found so far",
        run: corpus::check,
    },
    Stage {
        name: "simulation",
        what: "10,000 seeds of a cluster with troubles, under virtual time, break no promise",
        run: crate::simulate::check,
    },
    Stage {
        name: "doctest",
        what: "examples in the documentation",
        run: doctest,
    },
    Stage {
        name: "doc",
        what: "the documentation builds without a warning",
        run: doc,
    },
    Stage {
        name: "deny",
        what: "licences, duplicate and banned crates, sources",
        run: deny::check,
    },
    Stage {
        name: "launcher",
        what: "real Kafka starts, dies and starts again",
        run: launcher,
    },
    Stage {
        name: "end-to-end",
        what: "the program and the public API against real Kafka",
        run: end_to_end,
    },
];

fn fmt(context: &Context) -> anyhow::Result<Count> {
    // The names of the files only: `cargo fmt --all` makes the changes.
    context.check(&mut context.cargo(["fmt", "--all", "--", "--check", "-l"]))
}

fn clippy(context: &Context) -> anyhow::Result<Count> {
    context.check(&mut context.cargo([
        "clippy",
        "--workspace",
        "--features",
        "sharegroup-consumer/telemetry",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))
}

/// They are a workspace of their own, for the sake of the peers in it.
fn benches(context: &Context) -> anyhow::Result<Count> {
    let manifest = ["--manifest-path", "benches/Cargo.toml"];
    let target = context.target_dir().join("benches");
    context.check(
        context
            .cargo(["fmt"])
            .args(manifest)
            .args(["--", "--check", "-l"]),
    )?;
    let lint = ["--all-targets", "--", "-D", "warnings"];
    let mut clippy = context.cargo(["clippy"]);
    context.check(
        clippy
            .args(manifest)
            .args(lint)
            .env("CARGO_TARGET_DIR", target),
    )
}

fn unit(context: &Context) -> anyhow::Result<Count> {
    let inside = ["test", "--lib", "--bins", "--no-fail-fast"];
    let features = ["--workspace", "--features", "sharegroup-consumer/telemetry"];
    let all = context.cargo_test(context.cargo(inside).args(features))?;
    let mut without_tls = context.cargo(inside);
    without_tls.arg("--no-default-features");
    for package in ["sharegroup-consumer", "sharegroup-sink", "sharegroup-cli"] {
        without_tls.args(["-p", package]);
    }
    Ok(all.plus(context.cargo_test(&mut without_tls)?))
}

fn integration(context: &Context) -> anyhow::Result<Count> {
    let excluded = [
        "--exclude",
        "sharegroup",
        "--exclude",
        "sharegroup-launcher",
    ];
    let command = ["test", "--workspace", "--test", "*"];
    let telemetry = ["--features", "sharegroup-consumer/telemetry"];
    let mut cargo = context.cargo(command);
    cargo.args(telemetry).args(excluded);
    binaries::run(context, cargo)
}

fn doctest(context: &Context) -> anyhow::Result<Count> {
    context.cargo_test(&mut context.cargo(["test", "--workspace", "--doc", "--no-fail-fast"]))
}

fn doc(context: &Context) -> anyhow::Result<Count> {
    context.check(
        context
            .cargo(["doc", "--workspace", "--no-deps"])
            .env("RUSTDOCFLAGS", "-Dwarnings"),
    )
}

fn launcher(context: &Context) -> anyhow::Result<Count> {
    context.cargo_test(&mut context.cargo([
        "test",
        "-p",
        "sharegroup-launcher",
        "--no-fail-fast",
        "--test",
        "*",
    ]))
}

/// Builds the program as users run it and the examples, and hands their paths to the tests: cargo does so only for
/// programs of the tests' own package.
fn end_to_end(context: &Context) -> anyhow::Result<Count> {
    context.output(&mut context.cargo(["build", "--release", "-p", "sharegroup-cli"]))?;
    context.output(&mut context.cargo(["build", "-p", "sharegroup", "--examples"]))?;
    let program = context.target_dir().join("release").join("sharegroup");
    let examples = context.target_dir().join("debug").join("examples");
    let mut command = context.cargo(["test", "-p", "sharegroup", "--no-fail-fast", "--test", "*"]);
    // Each test runs its own Kafka, of up to three nodes.
    command.args(["--", "--test-threads", "2"]);
    command.env("SHAREGROUP_EXAMPLES", examples);
    context.cargo_test(command.env("SHAREGROUP_BIN", program))
}
