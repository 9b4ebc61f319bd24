//! cargo-deny over `deny.toml`.

use std::process::Command;

use crate::run::{Context, Count};

const VERSION: &str = "0.20.2";

/// Checks bans, licences and sources. Advisories need a git repository from the network: they are for `cargo deny
/// check advisories` by hand.
pub(crate) fn check(context: &Context) -> anyhow::Result<Count> {
    let tools = sharegroup_launcher::cache_dir()?
        .join("tools")
        .join(format!("cargo-deny-{VERSION}"));
    let program = tools.join("bin").join("cargo-deny");
    if !program.is_file() {
        let mut install = context.cargo([
            "install",
            "cargo-deny",
            "--locked",
            "--version",
            VERSION,
            "--root",
        ]);
        if let Err(error) = context.output(install.arg(&tools)) {
            return context.skip(&format!("cargo-deny can't be installed: {error:#}"));
        }
    }
    let mut deny = Command::new(program);
    deny.current_dir(&context.root)
        .args(["--workspace", "check", "--hide-inclusion-graph"]);
    context.check(deny.args(["bans", "licenses", "sources"]))
}
