//! Which crate may use which, and what must not be in whose tree.

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::run::{Context, Count};

/// Each crate and those of ours it may use. The order of the layers: wire, session, consumer, sink, connectors, cli.
const MAY_USE: &[(&str, &[&str])] = &[
    ("sharegroup-wire", &[]),
    ("sharegroup-session", &["wire"]),
    ("sharegroup-consumer", &["wire", "session"]),
    ("sharegroup-sink", &["wire", "session", "consumer"]),
    (
        "sharegroup-connectors",
        &["wire", "session", "consumer", "sink"],
    ),
    (
        "sharegroup-cli",
        &[
            "wire",
            "session",
            "consumer",
            "sink",
            "connectors",
            "broker",
            "launcher",
        ],
    ),
    // The facade re-exports.
    (
        "sharegroup",
        &["wire", "session", "consumer", "sink", "connectors"],
    ),
    // What anybody else could use.
    ("own-sink", &["sharegroup"]),
    ("sharegroup-launcher", &[]),
    ("sharegroup-broker", &["wire"]),
    (
        "sharegroup-testkit",
        &["wire", "session", "consumer", "sink", "launcher", "broker"],
    ),
    (
        "xtask",
        &["wire", "session", "consumer", "sink", "launcher", "testkit"],
    ),
];

/// What every crate may use in its tests besides.
const IN_TESTS: [&str; 3] = ["launcher", "testkit", "broker"];

/// Crates whose name ends like that of a C library and that hold none.
const NOT_NATIVE: [&str; 4] = ["linux-raw-sys", "windows-sys", "js-sys", "web-sys"];

/// Crates that compile or find C code in a build script.
const NATIVE_BUILD: [&str; 5] = ["cc", "cmake", "bindgen", "pkg-config", "vcpkg"];

/// The one crate with C and assembler of its own: the cryptography of the feature `tls`.
const CRYPTOGRAPHY: &str = "ring";

/// What must not be in the tree of the session crate, which does no input and output.
const NOT_IN_SESSION: [&str; 3] = ["tokio", "rustls", CRYPTOGRAPHY];

pub(crate) fn check(context: &Context) -> anyhow::Result<Count> {
    let metadata =
        context.output(&mut context.cargo(["metadata", "--no-deps", "--format-version", "1"]))?;
    let complaints = wrong_edges(&serde_json::from_str(&metadata)?)?;
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    let session = tree(context, &["-p", "sharegroup-session", "-e", "normal"])?;
    let wrong: Vec<_> = names(&session)
        .filter(|name| NOT_IN_SESSION.contains(name))
        .collect();
    ensure!(
        wrong.is_empty(),
        "sharegroup-session has {} in its tree:\n{session}",
        wrong.join(", ")
    );
    Ok(Count::ONE)
}

/// The default build has the C code of its cryptography and no other, a build without default features has none.
pub(crate) fn check_native(context: &Context) -> anyhow::Result<Count> {
    let workspace = ["--workspace", "-e", "normal,build"];
    let default = tree(context, &workspace)?;
    let in_default = native(&default);
    ensure!(
        in_default == ["cc", CRYPTOGRAPHY],
        "C code in the default build: {} where only {CRYPTOGRAPHY} and its cc are wanted (see `cargo tree -i NAME`)",
        in_default.join(", ")
    );
    let needs_cc = tree(
        context,
        &["--workspace", "-e", "build", "-i", "cc", "--depth", "1"],
    )?;
    let others: Vec<_> = names(&needs_cc)
        .filter(|name| !in_default.contains(name))
        .collect();
    ensure!(
        others.is_empty(),
        "C code is compiled for {}",
        others.join(", ")
    );
    let bare = tree(
        context,
        &[&workspace[..], &["--no-default-features"]].concat(),
    )?;
    let in_bare = native(&bare);
    ensure!(
        in_bare.is_empty(),
        "C code without default features: {} (see `cargo tree --no-default-features -i NAME`)",
        in_bare.join(", ")
    );
    Ok(Count {
        passed: 2,
        ..Count::default()
    })
}

/// The crates of a tree, one a line.
fn tree(context: &Context, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = context.cargo(["tree", "--prefix", "none", "-f", "{p}"]);
    context.output(command.args(arguments))
}

/// The crates of a tree that bring C code, sorted.
fn native(tree: &str) -> Vec<&str> {
    let mut native: Vec<_> = names(tree).filter(|name| is_native(name)).collect();
    native.sort_unstable();
    native.dedup();
    native
}

fn is_native(name: &str) -> bool {
    name == CRYPTOGRAPHY
        || NATIVE_BUILD.contains(&name)
        || (name.ends_with("-sys") && !NOT_NATIVE.contains(&name))
}

/// The crate names in lines such as `bytes v1.12.0`.
fn names(tree: &str) -> impl Iterator<Item = &str> {
    tree.lines()
        .filter_map(|line| line.split_whitespace().next())
}

/// The dependencies between our crates that the table does not allow.
fn wrong_edges(metadata: &Value) -> anyhow::Result<Vec<String>> {
    let mut complaints = Vec::new();
    for package in metadata["packages"]
        .as_array()
        .context("metadata without packages")?
    {
        let name = package["name"]
            .as_str()
            .context("a package without a name")?;
        let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| *known == name) else {
            complaints.push(format!(
                "{name} is in no layer: add it to the table of xtask"
            ));
            continue;
        };
        for dependency in package["dependencies"]
            .as_array()
            .context("a package without dependencies")?
        {
            let (used, is_dev) = (
                dependency["name"].as_str().unwrap_or_default(),
                dependency["kind"] == "dev",
            );
            // Crates of ours have a path and no registry.
            if !dependency["source"].is_null() {
                continue;
            }
            let short = used.strip_prefix("sharegroup-").unwrap_or(used);
            let may_use = allowed.contains(&short) || (is_dev && IN_TESTS.contains(&short));
            if !may_use {
                complaints.push(format!(
                    "{name} must not use {used}{}",
                    if is_dev { " in tests" } else { "" }
                ));
            }
        }
    }
    Ok(complaints)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn complaints(package: &str, used: &str, kind: Value) -> Vec<String> {
        let dependency = json!({ "name": used, "kind": kind, "source": null });
        let foreign = json!({ "name": "tokio", "kind": null, "source": "registry" });
        wrong_edges(
            &json!({ "packages": [{ "name": package, "dependencies": [dependency, foreign] }] }),
        )
        .unwrap()
    }

    #[test]
    fn lower_layers_may_be_used_and_upper_ones_not() {
        assert!(complaints("sharegroup-sink", "sharegroup-wire", Value::Null).is_empty());
        assert_eq!(
            complaints("sharegroup-wire", "sharegroup-sink", Value::Null).len(),
            1
        );
        assert_eq!(
            complaints("sharegroup-session", "sharegroup-consumer", json!("dev")).len(),
            1
        );
    }

    #[test]
    fn testkit_and_launcher_are_for_tests() {
        assert!(complaints("sharegroup-consumer", "sharegroup-testkit", json!("dev")).is_empty());
        assert_eq!(
            complaints("sharegroup-consumer", "sharegroup-testkit", Value::Null).len(),
            1
        );
        assert_eq!(
            complaints("sharegroup-sink", "sharegroup-launcher", Value::Null).len(),
            1
        );
        assert!(complaints("sharegroup-cli", "sharegroup-launcher", Value::Null).is_empty());
    }

    #[test]
    fn crate_outside_the_table_is_named() {
        assert_eq!(
            complaints("sharegroup-new", "sharegroup-wire", Value::Null).len(),
            1
        );
    }

    #[test]
    fn native_crates_are_told_by_their_names() {
        assert_eq!(
            native(
                "bytes v1.12.0\nzstd-sys v2.0.1\n\nring v0.17\ncc v1.2\nwindows-sys v0.61\ncc v1.2"
            ),
            ["cc", "ring", "zstd-sys"]
        );
    }
}
