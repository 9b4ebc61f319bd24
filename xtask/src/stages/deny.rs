//! cargo-deny over `deny.toml`.

use std::process::Command;

use crate::run::{Context, Count};

const VERSION: &str = "0.20.2";

/// Checks bans, licences and sources. Advisories need a git repository from the network: they are for `cargo deny
/// check advisories` by hand.
pub(crate) fn check(context: &Context) -> anyhow::Result<Count> {
    let program = match context.tool("cargo-deny", VERSION) {
        Ok(program) => program,
        Err(error) => return context.skip(&format!("{error:#}")),
    };
    let mut deny = Command::new(program);
    deny.current_dir(&context.root)
        .args(["--workspace", "check", "--hide-inclusion-graph"]);
    context.check(deny.args(["bans", "licenses", "sources"]))
}
